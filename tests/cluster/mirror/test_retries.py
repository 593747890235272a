"""Messages that wait to be ready again are mirrored as such: at another master they wait for the rest of their time."""

import pytest

from cluster.mirror.pacing import LAZY_S
from node.amqp.field_table import long
from node.amqp.methods import BasicGet, BasicGetOk, BasicNack
from node.queue.delay_backlog import ROUNDING_S
from tests.kit.disk_cluster import DiskCluster, mirrored, publish

NODES = ("n1", "n2", "n3")
RETRY = {"delayed-retry-type": "all", "delayed-retry-min": 10_000}
COUNT = 20


def retrying(**policy: object) -> DiskCluster:
    """A queue with three copies, whose messages wait 10 s for each time that they came back; n1 is its master."""
    cluster = mirrored(*NODES, **RETRY | policy)  # type: ignore[arg-type]
    cluster.advance(1.0)
    assert len(cluster.view().synced) == 3
    return cluster


def give_back(cluster: DiskCluster, node: str, count: int) -> None:
    """Get messages and return them, half a second apart."""
    client = cluster[node].client()
    for tag in range(1, count + 1):
        client.send(1, BasicGet(queue="q"))
        cluster.settle()
        (got,) = client.received()
        assert isinstance(got.method, BasicGetOk)
        client.send(1, BasicNack(tag, requeue=True))
        cluster.settle()
        cluster.advance(0.5)
    client.lose()
    cluster.settle()


def waiting(cluster: DiskCluster) -> int:
    found = cluster.queue(cluster.view().master_node or "").retries
    return 0 if found is None else found.count


def numbers(cluster: DiskCluster) -> list[int]:
    return [int(body) for body, _ in cluster.contents("n3")]


@pytest.mark.parametrize("at", ["n1", "n3"])
@pytest.mark.parametrize("is_paged", [False, True])
def test_the_loss_of_the_master_makes_none_early_and_none_late(at: str, is_paged: bool) -> None:
    cluster = retrying()
    publish(cluster, "n2", *(b"%d" % number for number in range(COUNT)))
    give_back(cluster, at, COUNT)  # 10 s have passed since the first
    cluster.advance(2 * ROUNDING_S)
    assert numbers(cluster) == [0]
    cluster.advance(LAZY_S)  # the other copies hear that it has gone
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.settle()
    assert cluster.view().master_node in ("n2", "n3")
    assert numbers(cluster) == []
    for number in range(1, COUNT):
        cluster.advance(0.5)
        assert numbers(cluster) == [number]
    assert waiting(cluster) == 0


def test_the_count_goes_on_at_the_next_master() -> None:
    """The second wait is twice as long, wherever the first one was."""
    cluster = retrying()
    publish(cluster, "n2", b"1")
    give_back(cluster, "n3", 1)
    cluster.crash("n1")
    cluster.advance(10.0)
    give_back(cluster, "n3", 1)
    cluster.advance(19.0)
    assert numbers(cluster) == []
    cluster.advance(1.0)
    assert numbers(cluster) == [1]


def test_a_planned_move_of_the_master() -> None:
    cluster = retrying()
    publish(cluster, "n2", b"1", b"2")
    give_back(cluster, "n2", 2)
    cluster.transfer("q", "n3")
    cluster.settle()
    assert cluster.view().master_node == "n3"
    assert (waiting(cluster), numbers(cluster)) == (2, [])
    cluster.advance(9.0 + ROUNDING_S)
    assert numbers(cluster) == [1]
    cluster.advance(0.5)
    assert numbers(cluster) == [2]


def test_a_new_mirror_gets_what_waits() -> None:
    """By synchronisation, as what waits."""
    cluster = retrying()
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "n2", b"1")
    give_back(cluster, "n2", 1)
    cluster.start("n3")
    cluster.advance(2.0)
    assert len(cluster.view().synced) == 3
    for name in ("n1", "n2"):
        cluster.crash(name)
        cluster.settle()
    assert (waiting(cluster), numbers(cluster)) == (1, [])
    cluster.advance(10.0)
    assert numbers(cluster) == [1]


@pytest.mark.parametrize("is_paged", [False, True])
def test_all_nodes_killed_and_started_again(is_paged: bool) -> None:
    cluster = retrying()
    publish(cluster, "n2", *(b"%d" % number for number in range(COUNT)))
    give_back(cluster, "n2", COUNT // 2)
    if is_paged:
        for node in cluster:
            node.page_out()
    for name in NODES:
        cluster.crash(name, is_noticed=False)
    for name in NODES:
        cluster.start(name)
        for other in NODES:
            if other not in cluster.nodes:
                cluster.declare_dead(other)
        cluster.settle()
    cluster.advance(0.1)
    assert sorted(numbers(cluster)) == list(range(COUNT // 2, COUNT))
    cluster.advance(30.0)
    assert sorted(numbers(cluster)) == list(range(COUNT // 2))


def test_a_classic_queue_counts_for_its_delivery_limit_over_a_failover() -> None:
    """A policy's limit, and the header that tells of it."""
    cluster = mirrored("n1", "n2", "n3", **{"delivery-limit": 3})
    cluster.advance(1.0)
    publish(cluster, "n3", b"1")
    seen: list[object] = []
    for round_ in range(4):
        if round_ == 2:
            cluster.crash("n1")
            cluster.settle()
        client = cluster["n3"].client()
        client.send(1, BasicGet(queue="q"))
        cluster.settle()
        (got,) = client.received()
        assert got.properties is not None
        seen.append((got.properties.headers or {}).get("x-delivery-count"))
        client.send(1, BasicNack(1, requeue=True))
        cluster.settle()
        client.lose()
    assert seen == [long(0), long(1), long(2), long(3)]
    assert cluster.contents("n3") == []
