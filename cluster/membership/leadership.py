"""What only the Raft leader does: it renews leases, and declares nodes down.

    leader ─► RenewLeases(itself, all that said they follow it) ─► applied ─► … every quarter of a lease
    there is proof that a process is gone ─► NodeDown
    a node is not heard of for longer than its lease can last ─► NodeDown
    two nodes are heard, and have not heard each other for long ─► NodeDown of one of them

A node's lease comes only from an applied RenewLeases. Once an entry of a new leader is applied, all that former
leaders renewed is applied here, too; so who was not heard of for as long as a lease lasts since its lease was renewed
last, as far as it was applied here, has none. Who is heard, but doesn't follow the new leader, is given as long from
that first entry on. It waits again after it could not commit for a lease, or slept: its queue of what the others said
meanwhile is not read yet. Proof needs no wait.

Of two nodes without a way to each other one has to go: clients of one reach no queue of the other, and what the one has
sent to the other's consumers waits for as long as both count as up. Who is out comes back once it hears all that are
up (`Membership.unreached`).

Source: reliability §4.2.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import Final

from cluster.membership.options import MembershipOptions
from cluster.membership.peer import Peer
from node.catalogue.commands import NodeDown, RenewLeases
from node.catalogue.records import Member

_NEVER_S: Final = float("-inf")
_FOREVER_S: Final = float("inf")

_UNANSWERED: Final = 2
"""How many times later a renewal is repeated that wasn't applied: so only a few are ever on their way."""

_URGENT: Final = 0.1
"""How much sooner leases may be renewed for those whose leases have waited: after an election or a partition."""


class Leadership:
    """The leader's part of one node. It does nothing until `begin`."""

    def __init__(self, name: str, options: MembershipOptions) -> None:
        self._name = name
        self._options = options
        self.is_leader = False
        self._since_s = _NEVER_S
        self._heard_since_s: float | None = None
        """From when on silence counts: since then all that is sent to us is heard, and all former leases are
        known to have been given before. None: it doesn't count."""
        self._awake_since_s = _NEVER_S
        """Since when all that is sent to us is heard."""
        self._commits_until_s = _NEVER_S
        """Until when we may take ourselves for the leader: an entry was committed for us a lease ago."""
        self._proposed_s = _NEVER_S
        """When we renewed last."""
        self._is_answered = True
        """Whether that was applied."""
        self._parted: dict[tuple[str, str], float] = {}
        """Members that we hear and that don't hear each other: since when."""
        self._declared: dict[str, tuple[int, float]] = {}
        """Whom we proposed to declare down: incarnation, and when to say it again."""

    def begin(self, peers: Iterable[Peer], now: float) -> None:
        """This node is the leader from now on."""
        for peer in peers:
            peer.renewed_s = _NEVER_S
        self.is_leader = True
        self._since_s = now
        self._heard_since_s = None
        self._commits_until_s = self._proposed_s = _NEVER_S
        self._is_answered = True

    def end(self) -> None:
        """It is not the leader any more."""
        self.is_leader = False
        self._declared.clear()
        self._parted.clear()

    def slept(self, now: float) -> None:
        """This node did nothing for a while: what the others said meanwhile is still to be read."""
        self._awake_since_s = now
        if self._heard_since_s is not None:
            self._heard_since_s = now

    def renewed(self, sent_s: float, now: float) -> None:
        """An entry of our own was applied, which was proposed at `sent_s`."""
        if not self.is_leader or sent_s < self._since_s:
            return
        self._is_answered = self._is_answered or sent_s >= self._proposed_s
        self._commits_until_s = max(self._commits_until_s, sent_s + self._options.lease_s)
        if self._heard_since_s is None and now < self._commits_until_s:
            self._heard_since_s = now

    # --- what is due ---

    def renew(self, own_incarnation: int, peers: Collection[Peer], now: float) -> RenewLeases | None:
        """The renewal that is due, if any. The leader itself comes first: whose renewal it is."""
        if not self.is_leader or now < self._renewal_s(peers):
            return None
        self._proposed_s = now
        self._is_answered = False
        sent = [(self._name, own_incarnation, now)]
        for peer in peers:
            if peer.member is not None and peer.is_up and peer.renewable_s > peer.renewed_s:
                peer.renewed_s = peer.renewable_s
                sent.append((peer.name, peer.member.incarnation, peer.renewable_s))
        return RenewLeases(tuple(sent))

    def declare_down(self, peers: Iterable[Peer], now: float) -> Iterator[NodeDown]:
        """The nodes to declare down."""
        if not self.is_leader:
            return
        if now >= self._commits_until_s and self._heard_since_s is not None:
            self._heard_since_s = None
            self._awake_since_s = now
        for peer in peers:
            if peer.member is None or not peer.is_up:
                continue
            if peer.gone_incarnation == peer.member.incarnation or now >= self._expires_s(peer):
                yield from self.declare(peer.member, now)

    def part(self, peers: Iterable[Peer], now: float) -> tuple[Peer, str] | None:
        """Who is to go since it and another one, whose name comes with it, have not heard each other for long.

        The one that most others don't hear goes first; the name decides between two.
        """
        if not self.is_leader:
            return None
        heard = [peer for peer in peers if peer.is_up and peer.is_reachable and peer.knows_whom_it_hears]
        pairs = [
            (one.name, other.name)
            for one, other in combinations(sorted(heard, key=lambda peer: peer.name), 2)
            if other.name not in one.reachable or one.name not in other.reachable
        ]
        self._parted = {pair: self._parted.get(pair, now) for pair in pairs}
        late = [
            pair
            for pair, since_s in self._parted.items()
            if now - max(since_s, self._awake_since_s) >= self._options.parting_s
        ]
        if not late:
            return None
        counts = Counter(name for pair in late for name in pair)
        _, name = max((count, name) for name, count in counts.items())
        other = next(one if two == name else two for one, two in late if name in (one, two))
        return next(peer for peer in heard if peer.name == name), other

    def declare(self, member: Member, now: float) -> Iterator[NodeDown]:
        """Declare it down unless that was proposed already, less than a lease ago."""
        incarnation, again_s = self._declared.get(member.name, (0, _NEVER_S))
        if incarnation != member.incarnation or now >= again_s:
            self._declared[member.name] = (member.incarnation, now + self._options.lease_s)
            yield NodeDown(member.name, member.incarnation)

    def forget(self, name: str) -> None:
        """It is down, or no member any more."""
        self._declared.pop(name, None)

    def next_deadline(self, peers: Collection[Peer], now: float) -> float:
        """When there is something to do at the latest, besides at the next heartbeat."""
        if not self.is_leader:
            return _FOREVER_S
        silent = (self._expires_s(peer) for peer in peers if peer.is_up)
        return min([self._renewal_s(peers), *(due_s for due_s in silent if due_s > now)])

    def _renewal_s(self, peers: Iterable[Peer]) -> float:
        """When to renew next."""
        pause_s = self._options.renewal_s
        if not self._is_answered:
            pause_s *= _UNANSWERED
        elif any(peer.is_up and peer.renewable_s - peer.renewed_s > _UNANSWERED * pause_s for peer in peers):
            pause_s *= _URGENT
        return self._proposed_s + pause_s

    def _expires_s(self, peer: Peer) -> float:
        """When the peer's lease is over for certain if nothing more is heard of it."""
        if self._heard_since_s is None:
            return _FOREVER_S
        silent_s = max(peer.heard_s, peer.leased_s, self._awake_since_s)
        return max(peer.followed_s, min(silent_s, self._heard_since_s)) + self._options.expiry_s
