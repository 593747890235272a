"""Due deliveries reach their consumer before the next method is answered, wherever the queue lives.

RabbitMQ 3.10.8 shows the same with all these steps in one segment.
"""

from collections import Counter

import pytest

from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicQos,
    ChannelClose,
    ChannelCloseOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from tests.kit.cluster import Cluster, client_of
from tests.kit.world import Client

PLACES = [("n2", "n2"), ("n1", "n1"), ("n1", "n3"), ("n1", "n2"), ("n2", "n1")]
"""The publisher and the consumer are on these nodes; the queue lives on n2."""


@pytest.fixture(params=["single", "mirrored"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    cluster = Cluster("n1", "n2", "n3")
    if request.param == "single":
        cluster.declare("n2", "q", durable=True)
    else:
        cluster.declare_mirrored("q", "n2", "n3")
    return cluster


def consuming(client: Client, channel: int = 2, *, no_ack: bool = True) -> None:
    client.send(channel, BasicConsume(queue="q", consumer_tag="c", no_ack=no_ack))
    client.received()


def frames_first(cluster: Cluster) -> None:
    """Have frames arrive before the commands that were submitted after them are applied: those take more trips."""
    cluster.is_held = True
    for _ in range(4):
        cluster.settle()
        for origin, to in list(cluster.frames):
            cluster.deliver(origin, to)
    cluster.is_held = False


def last(client: Client) -> Method | None:
    """The answer, after whatever came before it."""
    return client.methods()[-1]


@pytest.mark.parametrize(("publisher", "consumer"), PLACES)
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (BasicGet(queue="q"), BasicGetEmpty()),
        (QueuePurge(queue="q"), QueuePurgeOk(0)),
        (QueueDeclare(queue="q", passive=True), QueueDeclareOk("q", 0, 1)),
        (QueueDelete(queue="q", if_empty=True), QueueDeleteOk(0)),
        (QueueDelete(queue="q"), QueueDeleteOk(0)),
    ],
)
def test_a_message_is_delivered_first(
    cluster: Cluster, publisher: str, consumer: str, method: Method, answer: Method
) -> None:
    asking = client_of(cluster[publisher], 1, 2)
    taking = asking if publisher == consumer else client_of(cluster[consumer], 1, 2)
    consuming(taking)
    asking.publish(1, "q", b"m")
    asking.send(1, method)
    if isinstance(method, QueueDelete):
        frames_first(cluster)
    cluster.settle()
    came = taking.received()
    assert [(each.channel, each.body) for each in came if isinstance(each.method, BasicDeliver)] == [
        (2, b"m")
    ]
    answers = asking.methods() if taking is not asking else [each.method for each in came]
    assert answer in answers


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_no_room_no_delivery(cluster: Cluster, node: str) -> None:
    """A consumer whose prefetch limit is reached leaves the rest to `get`."""
    client = client_of(cluster[node], 1, 2)
    client.send(2, BasicQos(prefetch_count=1))
    consuming(client, no_ack=False)
    client.received()
    client.publish(1, "q", b"1", b"2", b"3")
    client.send(1, BasicGet(queue="q", no_ack=True))
    assert [(each.channel, each.body) for each in client.received()] == [(2, b"1"), (1, b"2")]
    assert cluster["n2"].home_queue("q").backlog.count == 1


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_cancelling(cluster: Cluster, node: str) -> None:
    client = client_of(cluster[node], 1, 2)
    consuming(client)
    client.publish(1, "q", b"1", b"2")
    client.send(2, BasicCancel("c"))
    methods = client.methods()
    assert [type(method) for method in methods] == [BasicDeliver, BasicDeliver, BasicCancelOk]
    assert cluster["n2"].home_queue("q").backlog.count == 0
    client.lose()
    cluster.settle()
    cluster.check_idle()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_closing_the_channel(cluster: Cluster, node: str) -> None:
    cluster.declare("n2", "other", durable=True)
    client = client_of(cluster[node], 1, 2)
    consuming(client)
    client.send(2, BasicConsume(queue="other", consumer_tag="o", no_ack=True))
    client.received()
    client.publish(1, "q", b"1", b"2")
    client.publish(1, "other", b"3")
    client.send(2, ChannelClose(200, "", 0, 0))
    client.send(1, QueueDeclare(queue="q", passive=True))
    received = client.received()
    assert sorted(each.body for each in received if isinstance(each.method, BasicDeliver)) == [
        b"1",
        b"2",
        b"3",
    ]
    assert [type(each.method) for each in received[3:]] == [ChannelCloseOk, QueueDeclareOk]
    assert cluster["n2"].home_queue("q").backlog.count == 0
    client.lose()
    cluster.settle()
    cluster.check_idle()


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_what_a_closed_channel_had_not_acknowledged_goes_back(cluster: Cluster, node: str) -> None:
    client = client_of(cluster[node], 1, 2)
    consuming(client, no_ack=False)
    client.publish(1, "q", b"1", b"2")
    client.send(2, ChannelClose(200, "", 0, 0))
    assert [type(method) for method in client.methods()] == [BasicDeliver, BasicDeliver, ChannelCloseOk]
    assert cluster["n2"].home_queue("q").backlog.count == 2


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_an_earlier_consumer_has_what_came_before_a_later_one(cluster: Cluster, node: str) -> None:
    client = client_of(cluster[node], 1, 2, 3)
    consuming(client)
    client.publish(1, "q", b"1", b"2")
    client.send(3, BasicConsume(queue="q", consumer_tag="d", no_ack=True))
    assert [each.channel for each in client.received() if isinstance(each.method, BasicDeliver)] == [2, 2]


def test_the_queue_goes_while_a_channel_closes() -> None:
    """A channel's close-ok does not wait for a queue that is no more."""
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q", durable=True)
    client, other = client_of(cluster["n1"], 1, 2), client_of(cluster["n2"])
    consuming(client)
    cluster.is_held = True
    client.send(2, ChannelClose(200, "", 0, 0))
    other.send(1, QueueDelete(queue="q"))
    cluster.is_held = False
    assert last(client) == ChannelCloseOk()
    assert other.methods() == [QueueDeleteOk(0)]
    cluster.check_idle()


def test_the_socket_goes_while_a_channel_closes() -> None:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q", durable=True)
    client = client_of(cluster["n1"], 1, 2)
    consuming(client)
    cluster.is_held = True
    client.publish(1, "q", b"m")
    client.send(2, ChannelClose(200, "", 0, 0))
    cluster.settle()
    client.lose()
    cluster.is_held = False
    cluster.settle()
    assert cluster["n2"].home_queue("q").backlog.count == 1
    cluster.check_idle()


@pytest.mark.parametrize("homes", ["222", "122", "112", "111"])
@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("is_multiple", [False, True], ids=["each", "multiple"])
def test_the_limit_of_a_channel_is_shared_by_queues_wherever_they_live(
    homes: str, limit: int, *, is_multiple: bool
) -> None:
    cluster = Cluster("n1", "n2")
    client = client_of(cluster["n1"])
    for queue, home in zip("abc", homes, strict=True):
        cluster.declare(f"n{home}", queue, durable=True)
        client.publish(1, queue, *[b"x"] * 99)
    client.send(1, BasicQos(prefetch_count=limit, global_=True))
    for queue in "abc":
        client.send(1, BasicConsume(queue=queue, consumer_tag=queue))
    counts: Counter[str] = Counter()
    acked = 0
    while counts.total() < 99:
        came = [each.method for each in client.received() if isinstance(each.method, BasicDeliver)]
        counts.update(method.consumer_tag for method in came)
        acked = counts.total() if is_multiple else acked + 1
        client.send(1, BasicAck(acked, is_multiple))
    assert min(counts[queue] for queue in "abc") >= 20, counts
