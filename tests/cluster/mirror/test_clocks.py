"""Times to live where the clocks of nodes differ: a mirror keeps the time of its own node."""

import pytest

from node.catalogue.commands import SetPolicy
from tests.kit.disk_cluster import DiskCluster, mirrored, publish, with_a_mirror_that_lacks

BODIES = [b"%d" % number for number in range(1, 11)]
TTL = {"message-ttl": 60_000}


def set_clock(cluster: DiskCluster, node: str, ahead_s: float) -> None:
    broker = cluster[node].broker
    broker.epoch_s += ahead_s
    broker.storage.epoch_s = broker.epoch_s


def fail_over(cluster: DiskCluster) -> list[bytes]:
    """Lose the first master and return the bodies in the queue."""
    cluster.crash("n1")
    cluster.advance(1.0)
    assert cluster.view().master_node == "n2"
    return [body for body, _ in cluster.contents("n2")]


@pytest.mark.parametrize("ahead_s", [120.0, -120.0])
@pytest.mark.parametrize("is_paged", [False, True])
def test_messages_live_as_long_on_another_master(ahead_s: float, is_paged: bool) -> None:
    """B8: none is gone early, and none stays for the time by which the clocks differ."""
    cluster = mirrored("n1", "n2", **TTL)
    set_clock(cluster, "n2", ahead_s)
    publish(cluster, "n1", *BODIES)
    if is_paged:
        cluster["n2"].page_out()
    cluster.advance(2.0)
    assert fail_over(cluster) == BODIES
    publish(cluster, "n2", *BODIES)
    cluster.advance(61.0)
    assert cluster.contents("n2") == []


@pytest.mark.parametrize("ahead_s", [120.0, -120.0])
def test_what_is_left_to_messages_is_known_by_a_mirror_that_comes_later(ahead_s: float) -> None:
    """Time left to messages is known to a mirror that comes later, also for those that synchronisation brings."""
    cluster = with_a_mirror_that_lacks(10, **TTL)
    set_clock(cluster, "n2", ahead_s)
    cluster.crash("n2")
    cluster.start("n2")
    set_clock(cluster, "n2", ahead_s)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic", **TTL}))
    cluster.advance(5.0)
    assert len(cluster.view().synced) == 2
    assert fail_over(cluster) == BODIES


def test_they_end_in_time_on_another_master() -> None:
    cluster = mirrored("n1", "n2", **TTL)
    set_clock(cluster, "n2", -120.0)
    publish(cluster, "n1", *BODIES)
    cluster.advance(50.0)
    cluster.crash("n1")
    cluster.advance(11.0)
    assert cluster.contents("n2") == []
