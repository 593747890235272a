"""The times of membership: leases, heartbeats and waits."""

from dataclasses import dataclass

from cluster import times


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Times in seconds. The first two come from the configuration.

    lease_s: how long a node may serve after it said that it lives; it pauses then unless the cluster answered.
    heartbeat_s: how often it says so.
    margin_s: how much longer than a lease the leader waits before it declares a node down; covers what a node
        takes to notice that its lease is over.
    parting_s: how long two nodes may not hear each other, though the leader hears both, before one of them is
        declared down. Longer than a queue waits for a mirror that it does not reach (10 s, and 20 s for the last
        synchronised one), so that a node is the last thing that a cut link costs.
    """

    lease_s: float
    heartbeat_s: float
    margin_s: float = times.MARGIN_S
    parting_s: float = times.PARTING_S

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s <= self.lease_s / times.LEASE_HEARTBEATS_MIN:
            raise ValueError(f"a lease must last at least {times.LEASE_HEARTBEATS_MIN} heartbeats")
        if self.margin_s < 0:
            raise ValueError("the margin can't be negative")

    @property
    def expiry_s(self) -> float:
        """The time on the leader's clock after which a lease is over on its holder's clock, whatever their rates."""
        return times.expiry_s(self.lease_s, self.margin_s)

    @property
    def renewal_s(self) -> float:
        """The least time between two renewals of leases by the leader: each is an entry of the replicated log."""
        return self.lease_s / times.RENEWALS

    @property
    def silence_s(self) -> float:
        """The time without a heartbeat after which a node's loop counts as hung: some four heartbeats (ring §4)."""
        return times.SILENT_HEARTBEATS * self.heartbeat_s
