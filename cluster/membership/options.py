"""The times of membership: leases, heartbeats and waits."""

from dataclasses import dataclass
from typing import Final

_RATE_ERROR: Final = 0.01
"""The difference in rate that the clocks of two nodes may have (reliability §4.2: rho)."""


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """Times in seconds. The defaults of the first two stand in `node.config.config.ClusterOptions` alone.

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
    margin_s: float = 0.5
    parting_s: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s <= self.lease_s / 4:
            raise ValueError("a lease must last at least four heartbeats")
        if self.margin_s < 0:
            raise ValueError("the margin can't be negative")

    @property
    def expiry_s(self) -> float:
        """The time on the leader's clock after which a lease is over on its holder's clock, whatever their rates."""
        return self.lease_s * (1 + _RATE_ERROR) + self.margin_s

    @property
    def renewal_s(self) -> float:
        """The least time between two renewals of leases by the leader: each is an entry of the replicated log."""
        return self.lease_s / 4

    @property
    def silence_s(self) -> float:
        """The time without a heartbeat after which a node's loop counts as hung: some four heartbeats (ring §4)."""
        return 4 * self.heartbeat_s
