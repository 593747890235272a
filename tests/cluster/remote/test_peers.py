"""Nodes that come and go, know too little, or send nonsense."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.remote.remote_pb2 import Frame
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from node.amqp.properties import Properties
from node.catalogue.commands import DeleteQueue
from tests.kit.cluster import Cluster, client_of

PERSISTENT = Properties(delivery_mode=2)
DOWN = "NOT_FOUND - home node 'n2' of durable queue 'd' in vhost '/' is down or inaccessible"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare("n2", "d", durable=True)
    cluster.declare("n2", "t")
    return cluster


# --- amqp-behaviour §9.1, row by row ---


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="d", durable=True),
        QueueDeclare(queue="d", passive=True),
        BasicGet(queue="d"),
        BasicConsume(queue="d"),
        QueuePurge(queue="d"),
        QueueBind(queue="d", exchange="amq.direct", routing_key="k"),
        QueueUnbind(queue="d", exchange="amq.direct", routing_key="k"),
        QueueDelete(queue="d"),
    ],
    ids=lambda method: type(method).__name__,
)
def test_9_1_asking_about_a_durable_queue_whose_home_is_down(cluster: Cluster, method: Method) -> None:
    client = client_of(cluster["n1"])
    bind = QueueBind(queue="d", exchange="amq.direct", routing_key="k")
    client.send(1, bind)
    client.received()
    cluster.crash("n2")
    cluster.settle()
    assert client.refusal(method) == (404, DOWN)


@pytest.mark.parametrize(
    "method",
    [
        QueueDeclare(queue="d", passive=True),
        BasicGet(queue="d"),
        BasicConsume(queue="d"),
        QueuePurge(queue="d"),
        QueueDelete(queue="d"),
    ],
    ids=lambda method: type(method).__name__,
)
def test_9_1_questions_under_way_end_with_their_home(cluster: Cluster, method: Method) -> None:
    client = client_of(cluster["n1"])
    cluster.is_held = True
    client.send(1, method)
    cluster["n1"].turn()
    cluster.crash("n2")
    cluster.is_held = False
    assert client.methods() == [ChannelClose(404, DOWN, method.class_id, method.method_id)]
    cluster.check_idle()


def test_9_1_publishing_to_it_is_unroutable(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    cluster.crash("n2")
    cluster.settle()
    client.publish(1, "d", b"1", mandatory=True)
    returned, acked = client.received()
    assert isinstance(returned.method, BasicReturn)
    assert acked.method == BasicAck(1)
    client.publish(1, "d", b"2")
    assert client.methods() == [BasicAck(2)]


def test_9_1_transient_queues_go_and_can_be_declared_anew(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "t", b"1")
    cluster.settle()
    cluster.crash("n2")
    cluster.settle()
    assert all("t" not in node.queue_names for node in cluster)
    assert client.ask(1, QueueDeclare(queue="t")) == QueueDeclareOk("t", 0, 0)
    assert cluster["n1"].home_queue("t")


def test_9_1_exclusive_queues_live_and_die_with_their_owners_node(cluster: Cluster) -> None:
    owner = client_of(cluster["n2"])
    owner.ask(1, QueueDeclare(queue="e", exclusive=True))
    assert "e" in cluster["n1"].queue_names
    cluster.crash("n2")
    cluster.settle()
    assert all("e" not in node.queue_names for node in cluster)


def test_9_1_consumers_on_other_nodes_are_cancelled(cluster: Cluster) -> None:
    clients = [client_of(cluster[name], 1, 2) for name in ("n1", "n3")]
    for client in clients:
        for channel, queue in ((1, "d"), (2, "t")):
            client.send(channel, BasicConsume(queue=queue, consumer_tag=queue))
        client.received()
    cluster.crash("n2")
    cluster.settle()
    for client in clients:
        cancels = sorted((item.channel, item.method.consumer_tag) for item in client.received())  # type: ignore[union-attr]
        assert cancels == [(1, "d"), (2, "t")]
        client.send(1, BasicConsume(queue="d", consumer_tag="d"))
        assert client.methods() == [ChannelClose(404, DOWN, 60, 20)]
    cluster.check_idle()


def test_9_1_acks_of_its_deliveries_are_accepted_silently(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "d", b"1", b"2", b"3", b"4")
    client.send(1, BasicConsume(queue="d", consumer_tag="t"))
    client.received()
    cluster.crash("n2")
    assert client.methods() == [BasicCancel("t", nowait=True)]
    client.send(1, BasicAck(1))
    client.send(1, BasicNack(2, requeue=True))
    client.send(1, BasicNack(4, multiple=True, requeue=False))
    assert client.methods() == []
    cluster.check_idle()


@pytest.mark.parametrize("queue", ["d", "t"])
def test_9_1_publishes_in_flight_are_nacked(cluster: Cluster, queue: str) -> None:
    """Publishes on their way to a node that crashes are nacked, also where its queue is deleted with it."""
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    cluster.is_held = True
    client.publish(1, queue, b"1", b"2", properties=PERSISTENT)
    cluster["n1"].turn()
    cluster.crash("n2")
    cluster.is_held = False
    assert client.methods() == [BasicNack(2, multiple=True, requeue=True)]
    cluster.check_idle()


@pytest.mark.parametrize("queue", ["d", "t"])
def test_9_1_publishes_in_flight_are_nacked_when_the_node_is_back_at_once(
    cluster: Cluster, queue: str
) -> None:
    """Publishes in flight are nacked although nobody saw the node go: another incarnation is enough."""
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    cluster.is_held = True
    client.publish(1, queue, b"1")
    cluster["n1"].turn()
    cluster.crash("n2", is_noticed=False)
    cluster.is_held = False
    cluster.start("n2")
    assert client.methods() == [BasicNack(1, multiple=True, requeue=True)]
    cluster.check_idle()


def test_9_1_the_queue_reappears_with_its_node(cluster: Cluster) -> None:
    """Consumers have to subscribe again; bindings are there."""
    client = client_of(cluster["n1"])
    client.send(1, QueueBind(queue="d", exchange="amq.direct", routing_key="k"))
    client.send(1, BasicConsume(queue="d", consumer_tag="t"))
    client.received()
    cluster.crash("n2")
    client.received()
    cluster.start("n2")
    client.publish(1, "k", b"1", exchange="amq.direct")
    assert client.ask(1, QueueDeclare(queue="d", passive=True)) == QueueDeclareOk("d", 1, 0)
    client.send(1, BasicConsume(queue="d", consumer_tag="t"))
    assert client.methods()[0] == BasicConsumeOk("t")
    cluster.settle()
    client.lose()
    cluster.settle()
    cluster.check_idle()


# --- the front end's node is gone ---


@pytest.mark.parametrize("no_ack", [False, True])
def test_what_a_lost_front_end_held_goes_back_in_order(cluster: Cluster, no_ack: bool) -> None:
    """Messages that a lost front end held may have reached clients, so they are redelivered."""
    writer = client_of(cluster["n3"])
    writer.publish(1, "d", *[b"%d" % number for number in range(6)])
    cluster.settle()
    client = client_of(cluster["n1"])
    cluster.is_held = True
    client.send(1, BasicConsume(queue="d", consumer_tag="t", no_ack=no_ack))
    cluster["n1"].turn()
    cluster.deliver("n1", "n2")
    cluster["n2"].turn()
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    home = cluster["n2"].home_queue("d")
    assert (home.backlog.count, home.unacked_count, len(home.consumers)) == (6, 0, 0)
    for number in range(6):
        writer.send(1, BasicGet(queue="d", no_ack=True))
        (item,) = writer.received()
        assert item.body == b"%d" % number
        assert isinstance(item.method, BasicGetOk)
        assert item.method.redelivered
    cluster.check_idle()


def test_an_auto_delete_queue_goes_with_the_node_of_its_last_consumer(cluster: Cluster) -> None:
    cluster.declare("n2", "brief", auto_delete=True)
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="brief", consumer_tag="t"))
    client.received()
    cluster.crash("n1")
    cluster.settle()
    assert all("brief" not in node.queue_names for node in cluster)
    cluster.check_idle()


def test_exclusive_use_ends_with_the_node(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="d", consumer_tag="t", exclusive=True))
    client.received()
    cluster.crash("n1")
    cluster.settle()
    other = client_of(cluster["n3"])
    other.send(1, BasicConsume(queue="d", consumer_tag="t", exclusive=True))
    assert other.methods() == [BasicConsumeOk("t")]


def test_a_deletion_under_way_is_not_the_front_ends_life(cluster: Cluster) -> None:
    """A queue is deleted though the front end that asked for it dies meanwhile."""
    client = client_of(cluster["n1"])
    cluster.is_held = True
    client.send(1, QueueDelete(queue="d"))
    cluster["n1"].turn()
    cluster.deliver("n1", "n2")
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    assert all("d" not in node.queue_names for node in cluster)
    cluster.check_idle()


# --- metadata that come later than frames ---


def test_a_front_end_may_know_of_a_queue_first(cluster: Cluster) -> None:
    at_home, client = client_of(cluster["n2"]), client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    cluster.is_held = True
    at_home.send(1, QueueDeclare(queue="new"))
    cluster["n2"].turn()
    assert cluster.apply("n1")
    client.publish(1, "new", b"1", b"2")
    cluster["n1"].turn()
    assert cluster.deliver("n1", "n2")
    cluster["n2"].turn()
    assert not cluster["n2"].peers.has_work
    assert not cluster["n2"].peers.is_idle
    cluster.is_held = False
    assert client.methods() == [BasicAck(2, multiple=True)]
    assert cluster["n2"].home_queue("new").backlog.count == 2
    cluster.check_idle()


def test_what_came_for_a_queue_that_never_was_is_dropped(cluster: Cluster) -> None:
    """A publish is dropped if its home knows neither of the queue's creation nor of its deletion; or of both."""
    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    record = cluster["n2"].broker.catalogue.queue("/", "t")
    assert record is not None
    cluster.is_held = True
    cluster.log.append((DeleteQueue("/", "t", uid=record.uid), "", 0, None))
    cluster.apply("n2")
    client.publish(1, "t", b"1")
    cluster["n1"].turn()
    client.send(1, QueueDelete(queue="t"))
    cluster["n1"].turn()
    assert cluster.deliver("n1", "n2") == 2
    assert not cluster["n2"].peers.is_idle
    cluster.is_held = False
    methods = client.methods()
    assert [type(method).__name__ for method in methods] == ["BasicAck", "QueueDeleteOk"]
    cluster.check_idle()


def test_a_queue_declared_again_is_another_one(cluster: Cluster) -> None:
    """Frames of the old one's clients don't reach it."""
    client = client_of(cluster["n1"])
    client.publish(1, "t", b"1")
    client.send(1, BasicConsume(queue="t", consumer_tag="t"))
    client.received()
    at_home = client_of(cluster["n2"])
    at_home.send(1, QueueDelete(queue="t"))
    at_home.received()
    at_home.send(1, QueueDeclare(queue="t"))
    at_home.received()
    client.received()
    client.publish(1, "t", b"2")
    client.send(1, BasicAck(1))
    cluster.settle()
    home = cluster["n2"].home_queue("t")
    assert (home.backlog.count, home.unacked_count) == (1, 0)


# --- frames ---


def test_frames_of_a_node_that_is_down_are_ignored(cluster: Cluster) -> None:
    cluster.crash("n3")
    cluster.settle()
    cluster["n2"].peers.receive("n3", [b"nonsense"])
    cluster["n2"].peers.receive("n9", [b"nonsense"])
    cluster["n2"].peers.relieved("n3")
    cluster["n2"].peers.node_down("n3")
    assert cluster["n2"].faults == []


def test_nonsense_is_reported_once_and_ends_the_stream(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    cluster["n2"].peers.receive("n1", [b"\xff\xff", b"\xff"])
    cluster["n2"].peers.receive("n1", [b"\xff"])
    assert [node for node, _ in cluster["n2"].faults] == ["n1"]
    client.publish(1, "d", b"1")
    cluster.settle()
    assert cluster["n2"].home_queue("d").backlog.count == 0
    cluster.crash("n1")
    cluster.start("n1")
    client = client_of(cluster["n1"])
    client.publish(1, "d", b"1")
    cluster.settle()
    assert cluster["n2"].home_queue("d").backlog.count == 1


def frames_of_a_busy_day() -> list[tuple[str, str, bytes]]:
    """Return the frames that two nodes exchange in the course of every kind of operation."""
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "d", durable=True)
    sent: list[tuple[str, str, bytes]] = []
    deliver = cluster.deliver

    def note(origin: str, to: str, count: int = 1 << 30) -> int:
        sent.extend((origin, to, frame) for frame in cluster.frames.get((origin, to), ()))
        return deliver(origin, to, count)

    cluster.deliver = note  # type: ignore[method-assign]
    from node.amqp.methods import BasicCancel, BasicQos

    client = client_of(cluster["n1"])
    client.ask(1, ConfirmSelect())
    client.publish(1, "d", b"1", b"22", b"3", b"4", properties=PERSISTENT)
    client.send(1, BasicGet(queue="d"))
    client.send(1, BasicQos(prefetch_count=1, global_=True))
    client.send(1, BasicConsume(queue="d", consumer_tag="t"))
    cluster.settle()
    client.send(1, BasicNack(1, requeue=True))
    cluster.settle()
    client.send(1, BasicQos(prefetch_count=0, global_=True))
    client.send(1, BasicCancel("t"))
    client.send(1, QueuePurge(queue="d"))
    client.send(1, QueueDelete(queue="d"))
    cluster.settle()
    return sent


BUSY_DAY = frames_of_a_busy_day()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_frame_whatever_kills_a_turn(data: st.DataObject) -> None:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "d", durable=True)
    cluster.declare("n1", "own", durable=True)
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="d", consumer_tag="t"))
    cluster.settle()
    record = cluster["n1"].broker.catalogue.queue("/", "d")
    assert record is not None
    for _ in range(data.draw(st.integers(1, 4))):
        origin, to, raw = data.draw(st.sampled_from(BUSY_DAY))
        frame = Frame.FromString(raw)
        if frame.uid:
            frame.uid = record.uid
        mangled = bytearray(frame.SerializeToString())
        for _ in range(data.draw(st.integers(0, 2))):
            mangled[data.draw(st.integers(0, len(mangled) - 1))] = data.draw(st.integers(0, 255))
        cluster[to].peers.receive(origin, [bytes(mangled)])
        cluster.settle()
    for name in ("n1", "n2"):
        for node in cluster:
            node.peers.node_down(name)
    for node in cluster:
        assert node.peers.is_idle
