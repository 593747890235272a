"""Direct replies between nodes (amqp-behaviour §4.12): the responder is a client of another node than the requester."""

import pytest

from cluster.remote.home_link import REPLIES_MAX_BYTES
from cluster.remote.remote_pb2 import Frame
from node.amqp.field_table import array, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import NodeDown
from node.client.reply_to import REPLY_TO
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    cluster.declare("n2", "requests")
    return cluster


@pytest.fixture
def requester(cluster: Cluster) -> Client:
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="replies", no_ack=True))
    client.received()
    return client


@pytest.fixture
def responder(cluster: Cluster) -> Client:
    return client_of(cluster["n2"])


@pytest.fixture
def name(requester: Client, responder: Client) -> str:
    """The reply name in a request that the responder has."""
    return ask(requester, responder)


def ask(requester: Client, responder: Client) -> str:
    requester.publish(1, "requests", b"request", properties=Properties(reply_to=REPLY_TO))
    requester.received()
    responder.send(1, BasicGet(queue="requests", no_ack=True))
    (item,) = responder.received()
    assert isinstance(item.method, BasicGetOk)
    assert item.properties is not None
    assert item.properties.reply_to is not None
    return item.properties.reply_to


def no_queue(name: str) -> ChannelClose:
    return ChannelClose(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", 50, 10)


# --- replies ---


def test_a_reply_is_delivered_to_the_channel_that_asked(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    """§4.12 row responder: consumer tag, key, a delivery tag that stays the same; the properties are the reply's."""
    for number in range(3):
        properties = Properties(correlation_id=f"{number}")
        responder.publish(1, name, b"%d" % number, properties=properties)
        cluster.settle()
    items = requester.received()
    assert [(item.channel, item.body) for item in items] == [(1, b"0"), (1, b"1"), (1, b"2")]
    assert [item.method for item in items] == [BasicDeliver("replies", 1, False, "", name)] * 3
    assert [item.properties.correlation_id for item in items if item.properties] == ["0", "1", "2"]
    cluster.check_idle()


@pytest.mark.parametrize("size", [0, 1, 131072, 3_000_000])
def test_a_reply_may_have_any_size(
    cluster: Cluster, requester: Client, responder: Client, name: str, size: int
) -> None:
    """Frames are cut as the requester's client can take them."""
    small = cluster["n1"].client(frame_max=4096)
    small.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True))
    small.received()
    for client, address in ((requester, name), (small, ask(small, responder))):
        responder.publish(1, address, b"x" * size)
        assert client.bodies() == [b"x" * size]


def test_a_reply_counts_as_unroutable(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    """§4.12 row confirm: acked at once, returned if mandatory, although it is delivered."""
    responder.ask(1, ConfirmSelect())
    cluster.is_held = True
    responder.publish(1, name, b"1", mandatory=True)
    cluster["n2"].turn()
    returned, acked = responder.received()
    assert (type(returned.method), acked.method) == (BasicReturn, BasicAck(1))
    cluster.is_held = False
    assert requester.bodies() == [b"1"]


def test_a_reply_by_cc(cluster: Cluster, requester: Client, responder: Client, name: str) -> None:
    """§4.12 row other exchange: CC on the default exchange works, and a queue gets the message too."""
    responder.publish(1, "requests", b"1", properties=Properties(headers={"CC": array([longstr(name)])}))
    assert requester.bodies() == [b"1"]
    assert cluster["n2"].home_queue("requests").backlog.count == 1


def test_one_reply_for_requesters_of_several_nodes(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    other = client_of(cluster["n3"])
    other.send(1, BasicConsume(queue=REPLY_TO, consumer_tag="t", no_ack=True))
    other.received()
    headers = {"CC": array([longstr(ask(other, responder))])}
    responder.publish(1, name, b"1", properties=Properties(headers=headers))
    assert (requester.bodies(), other.bodies()) == ([b"1"], [b"1"])


def test_replies_come_in_order_with_what_queues_deliver(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    requester.send(1, BasicConsume(queue="requests", consumer_tag="q", no_ack=True))
    requester.received()
    for number in range(6):
        responder.publish(1, (name, "requests")[number % 2], b"%d" % number)
    bodies = requester.bodies()
    assert [body for body in bodies if int(body) % 2 == 0] == [b"0", b"2", b"4"]
    assert [body for body in bodies if int(body) % 2] == [b"1", b"3", b"5"]


@pytest.mark.parametrize("how", ["cancel", "close", "crash"])
def test_replies_to_nobody_are_dropped(
    cluster: Cluster, requester: Client, responder: Client, name: str, how: str
) -> None:
    """§4.12 row gone."""
    if how == "cancel":
        requester.send(1, BasicCancel("replies"))
    elif how == "close":
        requester.lose()
    else:
        cluster.crash("n1")
    cluster.settle()
    responder.publish(1, name, b"1")
    responder.publish(1, name + "x", b"1")
    assert responder.received() == []
    cluster.check_idle()
    if how == "cancel":
        assert requester.methods() == [BasicCancelOk("replies")]


def test_a_reply_to_the_incarnation_before_is_dropped(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    cluster.crash("n1", is_noticed=False)
    cluster.start("n1")
    frames = cluster["n2"].frame_count
    responder.publish(1, name, b"1")
    assert responder.received() == []
    assert cluster["n2"].frame_count == frames


def test_replies_are_dropped_when_the_way_is_congested(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    cluster["n2"].congested.add("n1")
    responder.publish(1, name, b"1")
    assert responder.received() == []
    cluster["n2"].congested.clear()
    cluster["n2"].peers.relieved("n1")
    responder.publish(1, name, b"2")
    assert requester.bodies() == [b"2"]


def test_one_turn_gathers_so_many_replies(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    body = b"x" * (4 * 1024 * 1024)
    responder.publish(1, name, *[body] * 8)
    bodies = requester.bodies()
    assert len(bodies) == REPLIES_MAX_BYTES // len(body)
    responder.publish(1, name, *[body] * 2)
    assert len(requester.bodies()) == 2


# --- requesters ---


def test_a_requester_of_another_node_is_found(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    """§4.12 row declare: 0 messages and 1 consumer while it lives; 404 after."""
    for passive in (True, False):
        assert responder.ask(1, QueueDeclare(queue=name, passive=passive)) == QueueDeclareOk(name, 0, 1)
    requester.lose()
    assert responder.ask(1, QueueDeclare(queue=name, passive=True)) == no_queue(name)
    cluster.check_idle()


def test_a_name_that_nobody_has(cluster: Cluster, responder: Client, name: str) -> None:
    assert responder.ask(1, QueueDeclare(queue=name[:-1], passive=True)) == no_queue(name[:-1])


@pytest.mark.parametrize("how", ["crash", "down", "close"])
def test_there_is_no_requester_where_the_node_goes_meanwhile(
    cluster: Cluster, requester: Client, responder: Client, name: str, how: str
) -> None:
    cluster.is_held = True
    responder.send(1, QueueDeclare(queue=name, passive=True))
    cluster["n2"].turn()
    if how == "crash":
        cluster.crash("n1")
    elif how == "down":
        cluster.log.append((NodeDown("n1", cluster["n1"].incarnation), "", 0, None))
    else:
        cluster["n2"].peers.close()
    cluster.is_held = False
    cluster.settle()
    assert responder.methods() == [no_queue(name)]
    assert cluster["n2"].peers.is_idle


def test_who_asked_may_be_gone_when_the_answer_comes(
    cluster: Cluster, requester: Client, responder: Client, name: str
) -> None:
    cluster.is_held = True
    responder.send(1, QueueDeclare(queue=name, passive=True))
    cluster["n2"].turn()
    responder.lose()
    cluster.is_held = False
    cluster.settle()
    cluster.check_idle()


# --- frames ---


@pytest.mark.parametrize("run", [b"", b"nonsense"])
def test_a_reply_that_makes_no_sense(cluster: Cluster, requester: Client, name: str, run: bytes) -> None:
    frame = Frame()
    reply = frame.operations.add().reply
    reply.name, reply.run = name.encode(), run
    cluster["n1"].peers.receive("n2", [frame.SerializeToString()])
    assert [node for node, _ in cluster["n1"].faults] == ["n2"]
    assert requester.received() == []


def test_an_answer_that_nobody_asked_for(cluster: Cluster) -> None:
    frame = Frame(is_for_front_end=True)
    frame.operations.add().answer.request = 77
    cluster["n1"].peers.receive("n2", [frame.SerializeToString()])
    assert cluster["n1"].faults == []
