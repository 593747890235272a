"""The membership of one node: which nodes are up, as it sees them, and whether it may serve.

Every node tells every other one every 120 ms that it lives (a heartbeat), with its own clock's time. The Raft
leader puts what it heard into the replicated log (RenewLeases), at most every quarter of a lease. A node that applies
an entry with a time of its own may serve until a lease after that time: so a lease is given by the majority only, and
neither a minority's leader nor those who follow it can renew theirs. A node whose lease is over pauses. Only after
that the leader, which waits for longer than a lease, declares it down; it then has to rejoin as a new incarnation.

    starting ─► NodeUp applied ─► up ─► Resume ─► serving ◄─► paused
                                              declared down ─► Rejoin ─► off ─► starting …

Three rules make leases safe (reliability §4.2):

* A time counts only if this node followed the same leader from then on until the entry was applied, and the
  entry is that leader's. Else a leader of former days, whose entry reaches the log late, could renew a lease of which
  the present leader knows nothing.
* The lease is looked at before anything else is done in each call, so that a process that was frozen pauses first.
* Each node reads its own clock only: the times of others are handed back to them and never compared with it.

It never waits, sends or tells the time: calls have `now` (CLOCK_BOOTTIME, which counts while a machine is suspended,
in seconds; it never goes back), and `take_outputs` says what is to be done. A process that thaws may still write a
delivery or a confirm before its first turn. A delivery at most comes twice. A confirm is true: what is confirmed is on
all copies. Where the only one is here and in memory, it goes with this node, as if that had ended right after it.

Source: reliability §4.0, §4.2, §4.7 (S19, S20); ring §4, §5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from cluster.membership.heartbeat import (
    STATUS_MAX_BYTES,
    Heartbeat,
    HeartbeatUnreadable,
    decode_heartbeat,
    decode_status,
    encode_heartbeat,
    encode_status,
)
from cluster.membership.known_node import KnownNode
from cluster.membership.leadership import Leadership
from cluster.membership.options import MembershipOptions
from cluster.membership.outputs import (
    Hung,
    Output,
    Parted,
    PartitionHealed,
    PartitionSeen,
    Pause,
    Recovered,
    Refused,
    Rejoin,
    Resume,
    SendHeartbeat,
    StatusChanged,
    Submit,
)
from node.catalogue.events import Event, LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.catalogue.records import ClusterMember, JsonObject

_NEVER_S: Final = float("-inf")

_PAUSE_LEASES: Final = 6
"""After a pause of so many leases the incarnation is over. An election and a new leader's first renewal take less
than two, so it does not end while the cluster only changes its leader."""


class State(Enum):
    """The state of this node, not of the others."""

    OFF = auto()
    """The node does not count as up, or must not: it never started, was stopped or has to rejoin."""
    STARTING = auto()
    """The node asked to count as up."""
    PAUSED = auto()
    """The node counts as up, as far as it knows, and has no lease."""
    SERVING = auto()


class Membership:
    """The state machine of one node. Each call may add outputs and change `next_deadline`."""

    def __init__(self, name: str, options: MembershipOptions) -> None:
        self.name = name
        self._options = options
        self._outputs: list[Output] = []
        self._now = _NEVER_S

        self.state = State.OFF
        self.incarnation = 0
        """The incarnation of this node; 0: none."""
        self._own: ClusterMember | None = None
        self._asked_s = _NEVER_S
        self._lease_until_s = self._paused_s = _NEVER_S

        self._peers: dict[str, KnownNode] = {}
        """All other members, and other nodes that have a link to this one."""
        self.leader: str | None = None
        self._leader_since_s = _NEVER_S
        self._leadership = Leadership(name, options)
        self._has_majority = False

        self._status_raw = b""
        self._status_version = 0
        self._is_status_refused = False
        self._beat_s = _NEVER_S
        self._awake_since_s = _NEVER_S

    # --- this node ---

    def starting(self, now: float) -> None:
        """Note that NodeUp is submitted now: once it is applied, the lease counts from now. Only when off."""
        assert self.state is State.OFF
        self._enter(now)
        self.state = State.STARTING
        self._asked_s = now
        self._settle(now)

    def up(self, incarnation: int, now: float) -> None:
        """Take the incarnation that NodeUp gave. The node serves as soon as `Resume` comes, or has to `Rejoin`."""
        assert self.state is State.STARTING
        self._enter(now)
        self.state = State.PAUSED
        self._paused_s = now
        if self.incarnation != incarnation:
            self.incarnation = incarnation
            self._lease_until_s = self._asked_s + self._options.lease_s
            self._beat_s = now
        if self._own is not None:
            self._own_changed(now)
        self._settle(now)

    def stopped(self, now: float) -> None:
        """Note that the node serves no more, or gave up starting. Comes before its own NodeDown is submitted."""
        self._enter(now)
        self._turn_off()
        self._settle(now)

    def set_status(self, status: JsonObject, now: float) -> None:
        """Set the status that the other nodes see of this one. A changed status is sent at once."""
        self._enter(now)
        raw = encode_status(status)
        is_too_large = len(raw) > STATUS_MAX_BYTES
        if is_too_large and not self._is_status_refused:
            text = f"its status has {len(raw)} bytes, more than {STATUS_MAX_BYTES}: others see the former one"
            self._outputs.append(Refused(self.name, text))
        self._is_status_refused = is_too_large
        if not is_too_large and raw != self._status_raw:
            self._status_raw = raw
            self._status_version += 1
            self._beat_s = now
        self._settle(now)

    # --- the replicated log ---

    def members_changed(self, members: Mapping[str, ClusterMember], now: float) -> None:
        """Take the members of the catalogue, which was loaded or replaced by a snapshot."""
        self._enter(now)
        for name in {self.name, *self._peers} - set(members):
            self._member_is(name, None, now)
        for member in members.values():
            self._member_is(member.name, member, now)
        for peer in self._peers.values():
            peer.leased_s = now  # what a snapshot spares us may have renewed it
        self._settle(now)

    def applied(self, events: Iterable[Event], now: float) -> None:
        """Take the events of an applied command; those that don't concern members are skipped."""
        self._enter(now)
        for event in events:
            match event:
                case MemberPut(member) | MemberUp(member):
                    self._member_is(member.name, member, now)
                case MemberDown(member):
                    self._member_is(member.name, replace(member, is_up=False), now)
                case MemberRemoved(member):
                    self._member_is(member.name, None, now)
                case LeasesRenewed(sent):
                    self._leases_renewed(sent, now)
                case _:
                    pass
        self._settle(now)

    def leader_changed(self, leader: str | None, now: float) -> None:
        """Note the leader that this node follows now. Comes before anything that this leader committed is applied."""
        self._enter(now)
        if leader != self.leader:
            self.leader = leader
            self._leader_since_s = now
            self._leadership.end()
            if leader == self.name:
                self._leadership.begin(self._peers.values(), now)
            self._beat_s = now
        self._settle(now)

    def majority_changed(self, has_majority: bool, now: float) -> None:
        """Note whether a majority of the voters is linked. It only explains why the lease ran out."""
        self._enter(now)
        self._has_majority = has_majority
        self._settle(now)

    # --- the links ---

    def link_up(self, name: str, incarnation: int, now: float) -> None:
        """Note that heartbeats reach a node.   incarnation: of its process, 0 for none."""
        self._enter(now)
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = KnownNode(name, now)
        peer.linked(incarnation, now)
        self._send_heartbeat(peer, now)
        self._settle(now)

    def link_down(self, name: str, *, is_gone: bool, now: float) -> None:
        """Note that the link to a node is down.   is_gone: its process has ended, for its host refused a connection."""
        self._enter(now)
        peer = self._peers.get(name)
        if peer is not None:
            peer.unlinked(is_gone=is_gone, now=now)
            if not peer.is_up:  # else its `MemberDown` does it
                self._forget_status(peer)
            if peer.member is None:
                del self._peers[name]
        self._settle(now)

    def received(self, name: str, message: bytes, now: float) -> None:
        """Take a heartbeat of a node. Without a link it is ignored; a malformed one is reported once per link."""
        self._enter(now)
        peer = self._peers.get(name)
        if peer is not None and peer.is_linked:
            try:
                self._heartbeat(peer, message, now)
            except HeartbeatUnreadable as error:
                if not peer.is_refused:
                    peer.is_refused = True
                    self._outputs.append(Refused(name, f"{error}: ignored"))
        self._settle(now)

    # --- time ---

    def tick(self, now: float) -> float:
        """Do what is due, and return when to call again at the latest. Call it after all received messages."""
        self._enter(now)
        self._find_hung(now)
        self._settle(now)
        return self.next_deadline()

    def next_deadline(self) -> float:
        """Return when there is something to do at the latest."""
        deadline_s = self._beat_s
        if not self._is_alone:
            deadline_s = min(deadline_s, self._leadership.next_deadline(self._peers.values(), self._now))
            if self.state is State.SERVING:
                deadline_s = min(deadline_s, self._lease_until_s)
            elif self.state is State.PAUSED:
                deadline_s = min(deadline_s, self._paused_until_s)
        return deadline_s

    def take_outputs(self) -> list[Output]:
        """Return what is to be done since the last call, in this order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    @property
    def _paused_until_s(self) -> float:
        """The time at which a pause ends the incarnation: its masters move to other nodes, though this node says that
        it lives.

        A node whose disk hangs may follow the leader and get no lease; no other node would ever declare it down.
        """
        return self._paused_s + _PAUSE_LEASES * self._options.lease_s

    # --- what is known ---

    def has_lease(self, now: float) -> bool:
        """True if clients may be told anything at this very moment."""
        return self.state is State.SERVING and (self._is_alone or now < self._lease_until_s)

    @property
    def partitions(self) -> list[str]:
        """Members that are up and that the leader reaches, but this node doesn't."""
        return sorted(peer.name for peer in self._peers.values() if peer.is_partitioned)

    @property
    def reachable(self) -> list[str]:
        """The nodes that this one hears, members or not."""
        return sorted(peer.name for peer in self._peers.values() if peer.is_reachable)

    @property
    def unreached(self) -> list[str]:
        """The nodes that count as up and that this node does not hear, or that don't hear it."""
        return sorted(
            peer.name
            for peer in self._peers.values()
            if peer.is_up and not (peer.is_reachable and self.name in peer.reachable)
        )

    @property
    def statuses(self) -> dict[str, JsonObject]:
        """The last status of each other node, by its name."""
        return {peer.name: peer.status for peer in self._peers.values() if peer.status is not None}

    # --- each call ---

    def _enter(self, now: float) -> None:
        """Begin a call: a lease that is over pauses the node before anything else is done."""
        assert now >= self._now, "CLOCK_BOOTTIME never goes back"
        if now - self._now > self._options.silence_s / 2:  # twice as long as any deadline is away
            self._awake_since_s = now
            self._leadership.slept(now)
        self._now = now
        if self._is_alone:
            self._lease_until_s = now + self._options.lease_s
        elif self.state is State.SERVING and now >= self._lease_until_s:
            self.state = State.PAUSED
            self._paused_s = now
            self._outputs.append(Pause(self._pause_reason))
        elif self.state is State.PAUSED and now >= self._paused_until_s:
            self._rejoin(f"it had no lease for {_PAUSE_LEASES * self._options.lease_s:g} s")

    def _settle(self, now: float) -> None:
        """End a call: resume if there is a lease, and send what is due."""
        if self.state is State.PAUSED and now < self._lease_until_s:
            self.state = State.SERVING
            self._outputs.append(Resume())
        self._find_partitions(now)
        if now >= self._beat_s:
            self._beat_s = now + self._options.heartbeat_s
            for peer in self._peers.values():
                self._send_heartbeat(peer, now)
            self._part(now)
        self._lead(now)

    @property
    def _is_alone(self) -> bool:
        """True if this node needs no lease: no other one can be the leader before this one stops leading."""
        return self._leadership.is_leader and all(peer.member is None for peer in self._peers.values())

    @property
    def _pause_reason(self) -> str:
        if not self._has_majority:
            return "no majority of the cluster's disk nodes can be reached"
        if self.leader is None:
            return "the cluster's disk nodes have no leader"
        return f"'{self.leader}', the leader of the cluster's disk nodes, did not renew its lease in time"

    def _lead(self, now: float) -> None:
        """Do what only the leader does."""
        if self._is_alone or not self._leadership.is_leader:
            return
        renewal = self._leadership.renew(self.incarnation, self._peers.values(), now)
        if renewal is not None:
            self._outputs.append(Submit(renewal))
        downs = [*self._leadership.declare_down(self._peers.values(), now)]
        if self.state is State.OFF and self._own is not None and self._own.is_up:
            downs += self._leadership.declare(self._own, now)  # a former process of this node was meant
        self._outputs += map(Submit, downs)

    def _part(self, now: float) -> None:
        """Declare one of two nodes down that don't hear each other. Called once a heartbeat, as it looks at all
        pairs.
        """
        found = self._leadership.part(self._peers.values(), now)
        if found is None:
            return
        peer, other = found
        assert peer.member is not None, "a node that counts as up is a member"
        downs = [*self._leadership.declare(peer.member, now)]
        if downs:
            self._outputs.append(Parted(peer.name, other))
        self._outputs += map(Submit, downs)

    # --- heartbeats ---

    def _send_heartbeat(self, peer: KnownNode, now: float) -> None:
        if not peer.is_linked:
            return
        status = None
        if peer.told_version != self._status_version:
            peer.told_version = self._status_version
            status = self._status_raw
        heartbeat = Heartbeat(
            self.incarnation,
            now,
            self.leader,
            frozenset(other.name for other in self._peers.values() if other.is_reachable),
            self._status_version,
            status,
            peer.lacks_status,
        )
        self._outputs.append(SendHeartbeat(peer.name, encode_heartbeat(heartbeat)))

    def _forget_status(self, peer: KnownNode) -> None:
        if peer.status is not None:
            peer.status, peer.status_raw, peer.status_version = None, b"", 0
            self._outputs.append(StatusChanged(peer.name, None))

    def _heartbeat(self, peer: KnownNode, message: bytes, now: float) -> None:
        heartbeat = decode_heartbeat(message)
        if heartbeat.sent_s < peer.sent_s:
            raise HeartbeatUnreadable(f"its clock went back from {peer.sent_s} to {heartbeat.sent_s}")
        is_status_new = heartbeat.status is not None and heartbeat.status != peer.status_raw
        status = decode_status(heartbeat.status) if is_status_new and heartbeat.status is not None else None
        peer.heard(heartbeat, self.name, now)
        if peer.is_hung:
            peer.is_hung = False
            self._outputs.append(Recovered(peer.name))
        if heartbeat.lacks_status:
            peer.told_version = 0
        if peer.is_outdated(heartbeat):
            return
        if heartbeat.status is not None:
            peer.status_version = heartbeat.status_version
            if status is not None:
                peer.status, peer.status_raw = status, heartbeat.status
                self._outputs.append(StatusChanged(peer.name, status))
        peer.lacks_status = peer.status_version != heartbeat.status_version

    # --- the others ---

    def _find_hung(self, now: float) -> None:
        """Report peers whose link is up, but which send nothing. Not if it was this node that didn't listen."""
        for peer in self._peers.values():
            heard_s = max(peer.heard_s, self._awake_since_s)
            if peer.member is not None and peer.is_reachable and now - heard_s > self._options.silence_s:
                peer.is_hung = True
                self._outputs.append(Hung(peer.name))

    def _find_partitions(self, now: float) -> None:
        """Report peers that are up, and that only this node does not reach. A link that is just made again is no
        partition.
        """
        leader = self._peers.get(self.leader or "")
        reached = leader.reachable if leader is not None and leader.is_reachable else frozenset()
        for peer in self._peers.values():
            if peer.is_partitioned:
                if peer.is_linked or not peer.is_up:
                    peer.is_partitioned = False
                    self._outputs.append(PartitionHealed(peer.name, is_down=not peer.is_up))
            elif peer.is_up and not peer.is_linked and peer.name in reached:
                since_s = max(peer.unreachable_since_s, self._awake_since_s)
                if now - since_s > self._options.silence_s:
                    peer.is_partitioned = True
                    self._outputs.append(PartitionSeen(peer.name))

    # --- what was applied ---

    def _member_is(self, name: str, member: ClusterMember | None, now: float) -> None:
        """Take a node's record of the catalogue; None when it is no member."""
        if name == self.name:
            self._own = member
            self._own_changed(now)
            return
        peer = self._peers.get(name)
        if peer is None:
            if member is None:
                return
            peer = self._peers[name] = KnownNode(name, now)
        former, peer.member = peer.member, member
        if member is not None and member.is_up:
            if former is None or not former.is_up or former.incarnation != member.incarnation:
                peer.came_up(now)
                if former is not None and former.is_up:
                    self._forget_status(peer)  # it told that in another life
            return
        self._leadership.forget(name)
        self._forget_status(peer)
        if peer.is_partitioned:
            peer.is_partitioned = False
            self._outputs.append(PartitionHealed(name, is_down=True))
        if member is None and not peer.is_linked:
            del self._peers[name]

    def _own_changed(self, now: float) -> None:
        """React to a change of this node's own record or incarnation."""
        own = self._own
        if self.state is State.STARTING:
            # It may be of a former process, while the log is read again. It does no harm to say that this one
            # lives: our NodeUp comes after it.
            if own is not None and own.is_up and own.incarnation != self.incarnation:
                self.incarnation = own.incarnation
                self._lease_until_s = self._asked_s + self._options.lease_s
                self._beat_s = now
        elif self.state is not State.OFF:
            if own is None:
                self._rejoin("this node was removed from the cluster")
            elif own.incarnation >= self.incarnation + own.is_up:  # a lower one: NodeUp isn't seen here yet
                self._rejoin("the cluster declared this node down")

    def _rejoin(self, reason: str) -> None:
        self._turn_off()
        self._outputs.append(Rejoin(reason))

    def _turn_off(self) -> None:
        self.state = State.OFF
        self.incarnation = 0
        self._lease_until_s = _NEVER_S

    def _leases_renewed(self, sent: tuple[tuple[str, int, float], ...], now: float) -> None:
        """Extend leases. A lease counts from when the node sent its heartbeat, not from when that was heard or
        applied.
        """
        for name, incarnation, _ in sent:
            peer = self._peers.get(name)
            if peer is not None and peer.member is not None and peer.member.incarnation == incarnation:
                peer.leased_s = now
        if not sent or sent[0][0] != self.leader:
            return
        if self.leader == self.name:
            self._leadership.renewed(sent[0][2], now)
        for name, incarnation, sent_s in sent:
            if (
                name == self.name
                and incarnation == self.incarnation
                and self._leader_since_s <= sent_s <= now
            ):
                self._lease_until_s = max(self._lease_until_s, sent_s + self._options.lease_s)
