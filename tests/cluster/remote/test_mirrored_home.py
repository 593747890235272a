"""The home of a mirrored queue: what came before, what comes again, what is out with others, and dead letters."""

from collections import deque

import pytest

from cluster.remote.remote_pb2 import Frame
from node.amqp.field_table import longstr
from node.amqp.methods import BasicAck, BasicConsume, BasicDeliver, BasicGet, BasicGetOk, BasicNack, TxSelect
from node.amqp.properties import Properties
from node.broker.unsettled import unsettled
from tests.kit.cluster import Cluster, client_of
from tests.kit.mirrors_in_memory import Mirror

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("q", "n1", "n2", "n3")
    return cluster


def mirror_of(cluster: Cluster, node: str, name: str) -> Mirror:
    (mirror,) = [each for queue, each in cluster[node].mirrors.leading.values() if queue.record.name == name]
    return mirror


def test_what_comes_again_is_redelivered(cluster: Cluster) -> None:
    """reliability §2.2 consume_survives: the old master gave it to a consumer, no mirror knows; what is new is not."""
    consumer, publisher = client_of(cluster["n2"], 1), client_of(cluster["n3"], 1)
    consumer.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    consumer.received()
    cluster.is_held = True
    publisher.publish(1, "q", b"1")
    cluster["n3"].turn()
    cluster.deliver("n3", "n1")
    cluster["n1"].turn()
    cluster.deliver("n1", "n2")
    assert [each.body for each in consumer.received()] == [b"1"]
    cluster.is_ring_held = True
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    publisher.publish(1, "q", b"2")  # while there is no master
    cluster.settle()
    cluster.is_ring_held = False
    cluster.settle()
    publisher.publish(1, "q", b"3")
    got = [
        (each.body, each.method.redelivered)
        for each in consumer.received()
        if isinstance(each.method, BasicDeliver)
    ]
    assert got == [(b"1", True), (b"2", False), (b"3", False)]


def test_frames_for_a_master_that_has_not_begun_wait(cluster: Cluster) -> None:
    """The front end knows who is master before that one does: nothing is lost; what is meant for the old one is."""
    client = client_of(cluster["n3"], 1)
    cluster.is_held = True
    cluster.crash("n1")
    for _ in range(3):
        for name in ("n2", "n3"):
            cluster[name].turn()
        cluster.apply("n3")
        cluster.apply("n2")
    while cluster.apply("n3"):
        pass
    client.publish(1, "q", b"1")
    cluster["n3"].turn()
    cluster.deliver("n3", "n2")
    cluster.is_held = False
    cluster.settle()
    assert cluster["n2"].home_queue("q").backlog.count == 1
    cluster.check_idle()


def test_unsettled(cluster: Cluster) -> None:
    """Messages are unsettled with a channel here, in its transaction and with a client of another node."""
    near, far = client_of(cluster["n1"], 1, 2), client_of(cluster["n2"], 1)
    near.publish(1, "q", *[b"%d" % number for number in range(1, 6)])
    for client, channel in ((near, 1), (near, 2), (far, 1)):
        client.send(channel, BasicGet(queue="q"))
        cluster.settle()
    assert near.ask(2, TxSelect()) is not None if near.received() else True
    near.send(2, BasicAck(1))
    cluster.settle()
    home, broker = cluster["n1"].home_queue("q"), cluster["n1"].broker
    assert sorted(number for run in unsettled(broker, home) for number in run.seqs) == [1, 2, 3]
    assert home.backlog.count == 2
    cluster.transfer("q", "n2")  # the stub counts what is taken
    assert cluster["n2"].home_queue("q").backlog.count == 5
    assert near.channel(1).unacked.count == 1


def test_dead_letters_are_forgotten_once_stable() -> None:
    """reliability §4.8: at least once: the original goes when the copy is at every mirror."""
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("dlq", "n1", "n2")
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("dlq")}
    cluster.declare_mirrored("source", "n1", "n3", arguments=arguments)
    client = client_of(cluster["n1"], 1)
    client.publish(1, "source", b"1", properties=PERSISTENT)
    client.send(1, BasicGet(queue="source"))
    (got,) = [each.method for each in client.received() if isinstance(each.method, BasicGetOk)]
    cluster.is_ring_held = True
    client.send(1, BasicNack(got.delivery_tag, requeue=False))
    cluster.settle()
    source, dlq = mirror_of(cluster, "n1", "source"), mirror_of(cluster, "n1", "dlq")
    assert dlq.kept == [True]
    source.replicate()
    assert len(source.replica.messages) == 1
    assert sum(map(len, unsettled(cluster["n1"].broker, cluster["n1"].home_queue("source")))) == 1
    dlq.replicate()
    source.replicate()
    assert not source.replica.messages
    assert len(dlq.replica.messages) == 1


def test_dead_letters_whose_queue_moves_die_there_again() -> None:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare_mirrored("dlq", "n1", "n2")
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("dlq")}
    cluster.declare_mirrored("source", "n1", "n3", arguments=arguments)
    client = client_of(cluster["n1"], 1)
    client.publish(1, "source", b"1", properties=PERSISTENT)
    client.send(1, BasicGet(queue="source"))
    client.received()
    cluster.is_held = True
    client.send(1, BasicNack(1, requeue=False))
    cluster["n1"].turn()
    cluster.is_held = False
    cluster.transfer("source", "n3")
    assert cluster["n3"].home_queue("source").backlog.count == 1
    assert cluster["n1"].home_queue("dlq").backlog.count == 1


def test_numbers_that_fall_are_a_fault(cluster: Cluster) -> None:
    client = client_of(cluster["n3"], 1)
    client.publish(1, "q", b"1")
    cluster.settle()
    cluster.transfer("q", "n2")
    client.publish(1, "q", b"2")
    cluster.settle()
    queue = cluster["n3"].broker.vhosts["/"].queues["q"]
    queue._publishes.next_number = 1  # type: ignore[attr-defined]
    client.publish(1, "q", b"3")
    cluster.settle()
    ((node, text),) = cluster["n2"].faults
    assert node == "n3"
    assert "comes where" in text


def test_late_deliveries_free_the_window_of_their_channel(cluster: Cluster) -> None:
    """Deliveries on their way from a queue that has moved are taken off the window of their channel."""
    cluster.declare("n1", "other")
    client = client_of(cluster["n3"], 1)
    for queue in ("q", "other"):
        client.send(1, BasicConsume(queue=queue, consumer_tag=queue))
    cluster.settle()
    for _ in range(3):
        home = "n1" if cluster["n1"].mirrors.leading else "n2"
        cluster.is_held = True
        publisher = client_of(cluster[home], 1)
        publisher.publish(1, "q", *[b"x" * 500_000] * 4)
        cluster[home].turn()
        cluster[home].turn()
        cluster.transfer("q", "n2" if home == "n1" else "n1")
        while cluster.apply("n3"):
            pass
        cluster.is_held = False
        cluster.settle()
    front_end = cluster["n1"].peers._nodes["n3"].front_end
    for outlet in front_end._outlets.values():
        assert outlet._on_way_bytes < 600_000


def test_nonsense_behind_what_comes_again_holds_up_nobody(cluster: Cluster) -> None:
    """A peer's fault in the middle of what it sends again: the others' consumers get theirs."""
    client, other = client_of(cluster["n3"], 1), client_of(cluster["n2"], 1)
    other.send(1, BasicConsume(queue="q", consumer_tag="t"))
    cluster.settle()
    other.received()
    cluster.is_held = True
    client.publish(1, "q", b"1", b"2")
    cluster["n3"].turn()
    cluster.crash("n1")
    while cluster.apply("n3") or cluster.apply("n2"):
        for name in ("n2", "n3"):
            cluster[name].mirrors.refresh()
    cluster["n3"].turn()
    (raw,) = cluster.frames["n3", "n2"]
    frame = Frame.FromString(raw)
    frame.operations[1].publish.run = b"nonsense"
    cluster.frames["n3", "n2"] = deque([frame.SerializeToString()])
    cluster.is_held = False
    cluster.settle()
    assert cluster["n2"].faults
    other.publish(1, "q", b"3")
    assert [each.body for each in other.received()] == [b"1", b"3"]
