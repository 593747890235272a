"""Masters broadcast at once, then when the few messages before have come round, or after some time."""

from collections.abc import Callable

from cluster.mirror.pacing import LAZY_S
from node.amqp.methods import BasicAck, BasicGet
from tests.kit.cluster import Client
from tests.kit.disk_cluster import PERSISTENT, DiskCluster, frames_to, mirrored, publisher_of


def paced() -> tuple[DiskCluster, Client, Callable[[], int]]:
    """A cluster that never broadcasts for the time alone, and how many broadcasts are under way to n2."""
    cluster = mirrored("n1", "n2", "n3")
    cluster["n1"].mirrors.pacing.flush_s = 1000.0
    cluster.is_held = True
    return cluster, publisher_of(cluster["n1"]), lambda: len(frames_to(cluster, "n2"))


def publish(cluster: DiskCluster, client: Client, count: int, queue: str = "q") -> None:
    client.publish(1, queue, *(b"x" for _ in range(count)), properties=PERSISTENT)
    cluster["n1"].turn()


def test_few_messages_go_when_those_before_them_have_come_round() -> None:
    """No time has passed; the second broadcast has all that gathered."""
    cluster, client, under_way = paced()
    publish(cluster, client, 1)
    assert under_way() == 1
    publish(cluster, client, 1)
    publish(cluster, client, 1)
    assert under_way() == 1
    cluster.hop("n1", "n2", "n3")
    assert client.methods() == []
    cluster.hop("n3", "n1")
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert under_way() == 1
    for names in (("n1", "n2", "n3"), ("n3", "n1")):
        cluster.hop(*names)
    assert client.methods() == [BasicAck(delivery_tag=3, multiple=True)]


def test_nothing_waits_until_removals_have_come_round() -> None:
    cluster, client, under_way = paced()
    cluster.is_held = False
    publish(cluster, client, 1)
    cluster.settle()
    consumer = cluster["n1"].client()
    consumer.send(1, BasicGet(queue="q", no_ack=True))
    cluster.settle()
    cluster.is_held = True
    cluster.advance(LAZY_S)
    cluster["n1"].turn()
    assert under_way() == 1
    publish(cluster, client, 1)
    assert under_way() == 2


def test_another_queue_of_the_node_goes_with_them() -> None:
    cluster, client, under_way = paced()
    cluster.is_held = False
    cluster.declare_mirrored("q2", "n1", "n2", "n3")
    cluster.is_held = True
    publish(cluster, client, 1)
    publish(cluster, client, 1, "q2")
    assert under_way() == 1
    cluster.hop("n1", "n2", "n3")
    cluster.hop("n3", "n1")
    assert under_way() >= 1
    cluster.hop("n1", "n2", "n3")
    cluster.hop("n3", "n1")
    assert len(client.methods()) == 2


def test_many_messages_wait_for_the_time() -> None:
    """A node that is busy gathers more for each broadcast."""
    cluster, client, under_way = paced()
    publish(cluster, client, 10)
    publish(cluster, client, 10)
    cluster.hop("n1", "n2", "n3")
    cluster.hop("n3", "n1")
    assert under_way() == 0
    cluster.is_held = False
    cluster.advance(1000.0)
    assert client.methods()[-1] == BasicAck(delivery_tag=20, multiple=True)


def test_a_mirror_whose_disk_is_quick_has_nothing_left_to_do() -> None:
    """The number goes with the mark, and no timer is left that would wake the mirror for it."""
    cluster, client, _ = paced()
    cluster.is_held = False
    last = cluster["n3"]
    last.is_disk_held = True
    client.publish(1, "q", b"x", properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == []
    assert last.mirrors._timer is not None
    last.is_disk_held = False
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=1)]
    assert last.mirrors._timer is None


def test_a_mirror_whose_disk_is_slow_says_what_it_has_got() -> None:
    """A transient message behind a persistent one waits for no disk of a mirror."""
    cluster, client, _ = paced()
    cluster.is_held = False
    cluster["n3"].is_disk_held = True
    client.publish(1, "q", b"x", properties=PERSISTENT)
    cluster.settle()
    cluster.advance(LAZY_S)
    client.publish(1, "q", b"y")
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=2)]
