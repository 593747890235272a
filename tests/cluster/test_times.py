"""The times of the failure detector follow from each other, whatever lease an operator chooses."""

import pytest

from cluster import times
from cluster.membership.options import MembershipOptions
from cluster.transport.interface import LinkOptions
from node.clustering.metadata import options as raft_options
from node.config.config import ClusterOptions


@pytest.mark.parametrize("heartbeat_s", [0.05, 0.1, 0.25, 1.0, 60.0])
def test_a_hung_leader_is_replaced_before_leases_end(heartbeat_s: float) -> None:
    """The last renewal, the heartbeat that it lists and the longest election fit into a lease of default length."""
    lease_s = heartbeat_s * times.LEASE_HEARTBEATS
    membership, raft = MembershipOptions(lease_s, heartbeat_s), raft_options(lease_s)
    assert membership.renewal_s + heartbeat_s + raft.election_max_s < lease_s
    assert raft.stuck_disk_s < raft.election_min_s
    assert raft.election_min_s > 3 * raft.heartbeat_s


@pytest.mark.parametrize("lease_s", [0.2, 1.0, 4.0, 600.0])
@pytest.mark.parametrize("fast", [1.0, 1 + times.RATE_ERROR])
def test_no_lease_outlives_its_nodes_time_up(lease_s: float, fast: float) -> None:
    """A node has paused when the others declare it down, even if the leader's clock is the faster one."""
    assert times.expiry_s(lease_s) / fast > lease_s


def test_what_a_shorter_lease_costs() -> None:
    """A silent node is declared down sooner, and a healthy one bears less: docs/clustering.md has these figures."""
    for heartbeat_s, expiry_s, patience_s in ((0.25, 4.54, 2.75), (0.12, 2.44, 1.32)):
        lease_s = heartbeat_s * times.LEASE_HEARTBEATS
        assert times.expiry_s(lease_s) == pytest.approx(expiry_s, abs=0.005)
        assert times.patience_s(lease_s, heartbeat_s) == pytest.approx(patience_s, abs=0.005)


def test_the_defaults_come_from_here() -> None:
    cluster, links = ClusterOptions(), LinkOptions()
    assert (cluster.heartbeat_s, cluster.lease_s) == (0.12, 1.92) == (times.HEARTBEAT_S, times.LEASE_S)
    assert (links.keepalive_s, links.data_keepalive_s, links.ping_timeout_s, links.probe_after_s) == (
        times.KEEPALIVE_S,
        times.DATA_KEEPALIVE_S,
        times.PING_TIMEOUT_S,
        times.PROBE_AFTER_S,
    )
    assert times.user_timeout_s(links.keepalive_s, links.ping_timeout_s) == 1.5
