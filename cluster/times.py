"""The times of the failure detector, in seconds or as shares of a lease, and what has to be shorter than what.

    silence of a stream ─► ping ─► the link is down          a host that froze or vanished; proves nothing
    reset, and refused a moment later ─► NodeDown            a process that has ended
    no heartbeat for a lease and a margin ─► NodeDown        a node that is silent, and has paused by then

An operator chooses the heartbeat and the lease; the times of Raft follow from the lease. Those of links are fixed.
"""

from typing import Final

# --- heartbeats and leases ---

HEARTBEAT_S: Final = 0.12
"""The time between two heartbeats of a node."""
LEASE_HEARTBEATS: Final = 16
"""The number of heartbeats in a lease when its length is not configured."""
LEASE_HEARTBEATS_MIN: Final = 4
"""The least number of heartbeats in a lease; it survives this many lost ones, less one."""
LEASE_S: Final = 1.92
"""The time for which a node without contact to a majority may serve.

A node that is silent is then replaced within 2.5 s. With 1.76 s three nodes on two cores did not pause at a load of
seven to sixteen per core (docs/internals/links.md).
"""
RENEWALS: Final = 4
"""The number of renewals in a lease at most: each is an entry of the replicated log."""
RATE_ERROR: Final = 0.01
"""The difference in rate that the clocks of two nodes may have (reliability §4.2: rho)."""
MARGIN_S: Final = 0.5
"""The time by which the leader waits longer than a lease; covers what a node takes to notice that its lease is over."""
PARTING_S: Final = 20.0
"""The time for which two nodes may not hear each other, though the leader hears both."""
SILENT_HEARTBEATS: Final = 4
"""After so many missing heartbeats a node's loop counts as hung (ring §4)."""

# --- Raft, as shares of a lease ---

RAFT_HEARTBEAT: Final = 0.1
ELECTION_MIN: Final = 0.32
ELECTION_MAX: Final = 0.52
ASK: Final = 0.1
STUCK_DISK: Final = 0.25

# --- links ---

KEEPALIVE_S: Final = 0.5
"""The silence after which the opener of a control stream pings."""
DATA_KEEPALIVE_S: Final = 5.0
"""The same for all others, which need not notice it first."""
PING_TIMEOUT_S: Final = 1.0
"""The time that a ping's answer may take."""
PROBE_AFTER_S: Final = 0.1
"""The time after which the node of a broken link is tried again, before it counts as gone."""


def expiry_s(lease_s: float, margin_s: float = MARGIN_S) -> float:
    """Return the time on the leader's clock after which a lease is over on its holder's, whatever their rates."""
    return lease_s * (1 + RATE_ERROR) + margin_s


def patience_s(lease_s: float, heartbeat_s: float) -> float:
    """Return for how long a healthy node may be held, by its machine or its disk, and still not pause.

    The lease that it has begins when it sent the heartbeat that was renewed last: a renewal and a heartbeat ago at
    worst. This is what a shorter lease costs.
    """
    return lease_s * (1 - 1 / RENEWALS) - heartbeat_s


def user_timeout_s(keepalive_s: float, ping_timeout_s: float) -> float:
    """Return how long the kernel waits for an acknowledgement (`TCP_USER_TIMEOUT`): as long as pings give a stream.

    If it were longer, a stream would outlive the pings that the kernel could not send; if it were shorter, the kernel
    would end a stream that a ping still may save.
    """
    return keepalive_s + ping_timeout_s


assert LEASE_S == LEASE_HEARTBEATS * HEARTBEAT_S, "the lease has one default"
assert LEASE_HEARTBEATS_MIN >= RENEWALS, "or a renewal would have nothing new of a node to renew"
assert patience_s(LEASE_HEARTBEATS_MIN * HEARTBEAT_S, HEARTBEAT_S) > 0, "or nodes pause without a fault"
assert expiry_s(LEASE_S) * (1 - RATE_ERROR) > LEASE_S, "or two masters: a node is down before it has paused"
assert SILENT_HEARTBEATS <= LEASE_HEARTBEATS_MIN, "or a loop that hangs loses its lease before it is reported"
assert KEEPALIVE_S >= 2 * HEARTBEAT_S, "or streams are pinged that carry heartbeats"
assert user_timeout_s(KEEPALIVE_S, PING_TIMEOUT_S) < LEASE_S, "or a frozen node is down before its link is"
assert PROBE_AFTER_S < KEEPALIVE_S, "proof that a process has ended comes before silence"
assert ELECTION_MIN > 3 * RAFT_HEARTBEAT, "or two late heartbeats of a leader change it for nothing"
assert STUCK_DISK < ELECTION_MIN, "a leader whose disk is stuck says so before the others stand for election"
assert 1 / RENEWALS + HEARTBEAT_S / LEASE_S + ELECTION_MAX < 1, "or all nodes pause when the leader hangs"
assert expiry_s(LEASE_S) < PARTING_S, (
    "a node that is silent to all is declared down for that, not for a cut link"
)
