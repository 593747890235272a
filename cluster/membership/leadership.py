"""The Raft leader's part of membership: it renews leases, and declares nodes down.

    leader ─► RenewLeases(itself, all that said they follow it) ─► applied ─► … every quarter of a lease
    there is proof that a process is gone ─► NodeDown
    a node is not heard of for longer than its lease can last ─► NodeDown
    two nodes are heard, and have not heard each other for long ─► NodeDown of one of them

A node's lease comes only from an applied RenewLeases. Once an entry of a new leader is applied, all that former
leaders renewed is applied here, too. So a node has no lease if it was not heard of for as long as a lease lasts
since its lease was renewed last, as far as that was applied here. A node that is heard, but doesn't follow the new
leader, is given as long from that first entry on. The leader waits again after it could not commit for a lease, or
slept: it has not read yet what the others sent meanwhile. Proof needs no wait.

Of two nodes without a link to each other one has to go: clients of one reach no queue of the other, and messages
that the one has sent to the other's consumers wait for as long as both count as up. The node that is out comes back
once it hears all that are up (`Membership.unreached`).

Source: reliability §4.2.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import Final

from cluster.membership.known_node import KnownNode
from cluster.membership.options import MembershipOptions
from node.catalogue.commands import NodeDown, RenewLeases
from node.catalogue.records import ClusterMember

_NEVER_S: Final = float("-inf")
_FOREVER_S: Final = float("inf")

_UNANSWERED: Final = 2
"""By how many times the pause is longer after a renewal that was not applied, so that only a few are ever on their
way.
"""

_URGENT: Final = 0.1
"""The factor of the pause between renewals while nodes wait for their leases, after an election or a partition."""


class Leadership:
    """The leader's part of one node. It does nothing until `begin`."""

    def __init__(self, name: str, options: MembershipOptions) -> None:
        self._name = name
        self._options = options
        self.is_leader = False
        self._since_s = _NEVER_S
        self._heard_since_s: float | None = None
        """From when on a peer's silence counts; None: it doesn't. Since then this node reads all that it is sent,
        and knows that all former leases had been given before.
        """
        self._awake_since_s = _NEVER_S
        """Since when this node reads all that it is sent."""
        self._commits_until_s = _NEVER_S
        """Until when this node may take itself for the leader: a lease after it proposed its last committed renewal."""
        self._proposed_s = _NEVER_S
        """The time at which this node proposed the last renewal."""
        self._is_answered = True
        """True if the last renewal was applied."""
        self._parted: dict[tuple[str, str], float] = {}
        """Pairs of members that this node hears and that don't hear each other: since when."""
        self._declared: dict[str, tuple[int, float]] = {}
        """The members that this node proposed to declare down: incarnation, and when to propose it again."""

    def begin(self, peers: Iterable[KnownNode], now: float) -> None:
        """Lead from now on."""
        for peer in peers:
            peer.renewed_s = _NEVER_S
        self.is_leader = True
        self._since_s = now
        self._heard_since_s = None
        self._commits_until_s = self._proposed_s = _NEVER_S
        self._is_answered = True

    def end(self) -> None:
        """Stop leading."""
        self.is_leader = False
        self._declared.clear()
        self._parted.clear()

    def slept(self, now: float) -> None:
        """Note that this node did nothing for a while: messages of the others are still to be read."""
        self._awake_since_s = now
        if self._heard_since_s is not None:
            self._heard_since_s = now

    def renewed(self, sent_s: float, now: float) -> None:
        """Note that an own renewal was applied, which was proposed at `sent_s`."""
        if not self.is_leader or sent_s < self._since_s:
            return
        self._is_answered = self._is_answered or sent_s >= self._proposed_s
        self._commits_until_s = max(self._commits_until_s, sent_s + self._options.lease_s)
        if self._heard_since_s is None and now < self._commits_until_s:
            self._heard_since_s = now

    # --- what is due ---

    def renew(self, own_incarnation: int, peers: Collection[KnownNode], now: float) -> RenewLeases | None:
        """Return the renewal that is due, if any. It lists the leader itself first, which tells whose renewal it is."""
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

    def declare_down(self, peers: Iterable[KnownNode], now: float) -> Iterator[NodeDown]:
        """Yield `NodeDown` for each peer that is gone for certain or whose lease is over."""
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

    def part(self, peers: Iterable[KnownNode], now: float) -> tuple[KnownNode, str] | None:
        """Return the node that has to go since it and another one have not heard each other for long.

        The other one's name comes with it. The node that most others don't hear goes first; between two the name
        decides.
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

    def declare(self, member: ClusterMember, now: float) -> Iterator[NodeDown]:
        """Declare a member down unless that was proposed already, less than a lease ago."""
        incarnation, again_s = self._declared.get(member.name, (0, _NEVER_S))
        if incarnation != member.incarnation or now >= again_s:
            self._declared[member.name] = (member.incarnation, now + self._options.lease_s)
            yield NodeDown(member.name, member.incarnation)

    def forget(self, name: str) -> None:
        """Forget that a member was declared down: it is down, or no member any more."""
        self._declared.pop(name, None)

    def next_deadline(self, peers: Collection[KnownNode], now: float) -> float:
        """Return when there is something to do at the latest, besides at the next heartbeat."""
        if not self.is_leader:
            return _FOREVER_S
        silent = (self._expires_s(peer) for peer in peers if peer.is_up)
        return min([self._renewal_s(peers), *(due_s for due_s in silent if due_s > now)])

    def _renewal_s(self, peers: Iterable[KnownNode]) -> float:
        """Return when to renew next."""
        pause_s = self._options.renewal_s
        if not self._is_answered:
            pause_s *= _UNANSWERED
        elif any(peer.is_up and peer.renewable_s - peer.renewed_s > _UNANSWERED * pause_s for peer in peers):
            pause_s *= _URGENT
        return self._proposed_s + pause_s

    def _expires_s(self, peer: KnownNode) -> float:
        """Return when the peer's lease is over for certain if nothing more is heard of it."""
        if self._heard_since_s is None:
            return _FOREVER_S
        silent_s = max(peer.heard_s, peer.leased_s, self._awake_since_s)
        return max(peer.followed_s, min(silent_s, self._heard_since_s)) + self._options.expiry_s
