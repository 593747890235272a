"""Machines with a bug each: the simulator has to find every one of them.

Two rules that only matter in rarer histories have directed tests instead: that a time counts only for the leader to
whom it was said, and that proof counts only for the process that was linked.
"""

from typing import Any, Final

from cluster.membership.known_node import KnownNode
from cluster.membership.leadership import Leadership
from cluster.membership.membership import Membership, State
from cluster.membership.options import MembershipOptions
from cluster.membership.outputs import PartitionHealed, Resume
from node.catalogue.commands import RenewLeases


class RenewsByItself(Membership):
    """A machine with this bug renews its lease by its own heartbeats: a minority would serve for ever."""

    def _send_heartbeat(self, peer: KnownNode, now: float) -> None:
        super()._send_heartbeat(peer, now)
        self._lease_until_s = max(self._lease_until_s, now + self._options.lease_s)


class CountsFromTheApplying(Membership):
    """A lease from when the renewal is applied, not from when the node spoke."""

    def _leases_renewed(self, sent: tuple[tuple[str, int, float], ...], now: float) -> None:
        before_s = self._lease_until_s
        super()._leases_renewed(sent, now)
        if self._lease_until_s > before_s or any(name == self.name for name, _, _ in sent):
            self._lease_until_s = now + self._options.lease_s


class NeverResumes(Membership):
    """Once paused, always paused."""

    def _settle(self, now: float) -> None:
        was_paused = self.state is State.PAUSED and any(isinstance(item, Resume) for item in self._ever)
        super()._settle(now)
        if was_paused and self.state is State.SERVING:
            self.state = State.PAUSED
        self._ever += self._outputs

    def __init__(self, name: str, options: MembershipOptions) -> None:
        super().__init__(name, options)
        self._ever: list[object] = []


class NoticesNoDeath(Membership):
    """Declared down, it goes on."""

    def _rejoin(self, reason: str) -> None:
        pass


class KeepsPartitions(Membership):
    """A machine with this bug never takes a peer for healed that was once partitioned."""

    def _find_partitions(self, now: float) -> None:
        listed = [peer for peer in self._peers.values() if peer.is_partitioned]
        super()._find_partitions(now)
        for peer in listed:
            peer.is_partitioned = True
        self._outputs = [item for item in self._outputs if not isinstance(item, PartitionHealed)]


class AsksForNoStatus(Membership):
    """A machine with this bug does not ask for the status of a peer that came back, and waits until it changes."""

    def _send_heartbeat(self, peer: KnownNode, now: float) -> None:
        peer.lacks_status = False
        super()._send_heartbeat(peer, now)


class TakesAResetForProof(Membership):
    """A link that goes down is a node that is down."""

    def link_down(self, name: str, *, is_gone: bool, now: float) -> None:
        super().link_down(name, is_gone=True, now=now)


class _Led(Membership):
    leadership: type[Leadership] = Leadership

    def __init__(self, name: str, options: MembershipOptions) -> None:
        super().__init__(name, options)
        self._leadership = self.leadership(name, options)


class DoesNotWaitAfterItsElection(_Led):
    """A new leader takes whom it has not heard for silent since ever."""

    class leadership(Leadership):
        def _expires_s(self, peer: KnownNode) -> float:
            return peer.followed_s + self._options.expiry_s


class WaitsForLessThanALease(_Led):
    """Half a lease is not enough."""

    class leadership(Leadership):
        def _expires_s(self, peer: KnownNode) -> float:
            return super()._expires_s(peer) - self._options.lease_s / 2


class DeclaresNobodyDown(_Led):
    """A machine with this bug waits for proof before it declares a node down."""

    class leadership(Leadership):
        def _expires_s(self, peer: KnownNode) -> float:
            return float("inf")


class RenewsOnlyItself(_Led):
    """The others' leases run out."""

    class leadership(Leadership):
        def renew(self, own_incarnation: int, peers: Any, now: float) -> RenewLeases | None:
            return super().renew(own_incarnation, (), now)


BUGS: Final[list[type[Membership]]] = [
    RenewsByItself,
    NeverResumes,
    NoticesNoDeath,
    KeepsPartitions,
    AsksForNoStatus,
    TakesAResetForProof,
    DoesNotWaitAfterItsElection,
    WaitsForLessThanALease,
    DeclaresNobodyDown,
    RenewsOnlyItself,
]
