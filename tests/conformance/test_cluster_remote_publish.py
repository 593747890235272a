"""amqp-behaviour §4, §5 across nodes: publishing to queues that live elsewhere.

The queue's home is the first node, publishers are on the second, readers on the third, unless a row says otherwise.
"""

from collections.abc import Callable

import pytest

from node.amqp.constants import FRAME_METHOD
from node.amqp.field_table import Table, array, long, longstr, table, timestamp
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicReturn,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.conformance.cluster_story import PERSISTENT, TRANSIENT, drain, publish
from tests.conformance.queue_steps import dead_letters_to, message, publish_burst
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import Cluster

On = Callable[..., Channel]
Name = Callable[[str], str]


@pytest.fixture
def home(cluster: Cluster, on: On) -> Channel:
    """A channel on the node where the test's queues live."""
    return on(cluster[0])


@pytest.fixture
def publisher(cluster: Cluster, on: On) -> Channel:
    """A channel in confirm mode on another node."""
    channel = on(cluster[1])
    channel.call(ConfirmSelect)
    return channel


@pytest.fixture
def reader(cluster: Cluster, on: On) -> Channel:
    """A channel on the third node."""
    return on(cluster[2])


@pytest.fixture
def queue(home: Channel, name: Name) -> str:
    """A durable queue on the first node."""
    return home.declare(name("q"), durable=True)


def outcomes(channel: Channel, count: int) -> list[str]:
    """ "ack" or "nack" of the publishes 1 to `count` of the channel, each said exactly once."""
    said: dict[int, str] = {}
    done = 0
    while len(said) < count:
        frame = channel.connection.next_frame(channel.number)
        assert frame.type == FRAME_METHOD, frame
        method = decode_method(frame.payload)
        assert isinstance(method, BasicAck | BasicNack), method
        what = "ack" if isinstance(method, BasicAck) else "nack"
        first = done + 1 if method.multiple else method.delivery_tag
        numbers = [number for number in range(first, method.delivery_tag + 1) if number not in said]
        assert numbers, f"{method} says nothing new"
        said.update(dict.fromkeys(numbers, what))
        while done + 1 in said:
            done += 1
    channel.sync()
    return [said[number] for number in range(1, count + 1)]


def bodies(channel: Channel, queue: str) -> list[bytes]:
    return [content.body for content in drain(channel, queue)]


# Order.


def test_order(publisher: Channel, reader: Channel, queue: str) -> None:
    """§4.8: what a channel publishes arrives in its order, across two hops."""
    reader.consume(queue, no_ack=True)
    publish_burst(publisher, queue, 5000)
    assert [reader.deliver().body for _ in range(5000)] == [b"%d" % n for n in range(1, 5001)]
    assert set(outcomes(publisher, 5000)) == {"ack"}


def test_order_of_many_sizes(publisher: Channel, reader: Channel, queue: str) -> None:
    """§4.8: large and small messages do not overtake each other."""
    sizes = [1, 300_000, 2, 0, 131_072, 131_064, 131_065, 3, 1_000_000, 4] * 3
    reader.consume(queue)
    for number, size in enumerate(sizes):
        publisher.publish("", queue, bytes([number]) * size, PERSISTENT if number % 2 else TRANSIENT)
    for number, size in enumerate(sizes):
        content = reader.deliver()
        assert content.body == bytes([number]) * size
        reader.send(BasicAck, delivery_tag=content.method.delivery_tag)
    assert set(outcomes(publisher, len(sizes))) == {"ack"}


def test_order_of_each_publisher(cluster: Cluster, on: On, queue: str, reader: Channel) -> None:
    """§4.8: three publishers on three nodes at once; each one's messages in its order."""
    publishers = [on(node) for node in cluster.nodes]
    for number in range(1000):
        for index, channel in enumerate(publishers):
            channel.publish("", queue, b"%d %d" % (index, number))
    reader.consume(queue, no_ack=True)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for _ in range(3000):
        index, number = map(int, reader.deliver().body.split())
        seen[index].append(number)
    assert all(numbers == list(range(1000)) for numbers in seen.values())


def test_order_of_one_channel_in_queues_of_all_nodes(
    cluster: Cluster, on: On, name: Name, publisher: Channel
) -> None:
    """§4.8 and §4.3: a fanout to a queue on each node; one confirm for each message, order in each queue."""
    exchange = name("x")
    publisher.call(ExchangeDeclare, exchange=exchange, type="fanout")
    queues = []
    for node in cluster.nodes:
        queues.append(on(node).declare(name("q"), durable=True))
        publisher.call(QueueBind, queue=queues[-1], exchange=exchange)
    for number in range(300):
        publisher.publish(exchange, "", b"%d" % number, PERSISTENT)
    assert set(outcomes(publisher, 300)) == {"ack"}
    for queue in queues:
        assert bodies(publisher, queue) == [b"%d" % number for number in range(300)]


def test_a_get_sees_what_its_channel_published(cluster: Cluster, on: On, name: Name) -> None:
    """§4.8: publish, then get on the same channel: it is there, without waiting."""
    queue = on(cluster[0]).declare(name("q"))
    channel = on(cluster[1])
    for number in range(200):
        channel.publish("", queue, b"%d" % number)
        content = channel.get(queue)
        assert content
        assert content.body == b"%d" % number


# Content.


def test_properties_and_headers_arrive_as_sent(publisher: Channel, reader: Channel, queue: str) -> None:
    """§0.4: every property, every field type, bit for bit."""
    headers: Table = {
        "text": longstr("Grüße"),
        "number": long(-5),
        "time": timestamp(1_600_000_000),
        "inner": table({"deep": array([longstr("a"), long(7)])}),
    }
    properties = Properties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    publisher.publish("", queue, b"body", properties)
    publisher.publish("amq.direct", "nowhere", b"body", properties, mandatory=True)
    returned = publisher.expect_content(BasicReturn)
    content = reader.wait_get(queue)
    assert content.header == returned.header
    assert content.properties == properties
    assert (content.method.exchange, content.method.routing_key) == ("", queue)


@pytest.mark.parametrize("size", [1_000_000, 20_000_000])
def test_large_messages(publisher: Channel, reader: Channel, queue: str, size: int) -> None:
    """§4.1: delivered and got, from a third node, and redelivered."""
    body = bytes(range(256)) * (size // 256)
    publisher.publish("", queue, body, PERSISTENT)
    assert outcomes(publisher, 1) == ["ack"]
    content = reader.get(queue, no_ack=False)
    assert content
    assert content.body == body
    reader.send(BasicNack, delivery_tag=1, requeue=True)
    reader.consume(queue)
    content = reader.deliver(30)
    assert (content.method.redelivered, content.body) == (True, body)


def test_large_messages_do_not_hold_up_others(cluster: Cluster, on: On, name: Name, queue: str) -> None:
    """§9.7: 60 MB on the way to one client; another channel's round trip takes no second."""
    big, small = on(cluster[1]), on(cluster[1])
    other = on(cluster[0]).declare(name("q"))
    for _ in range(3):
        big.publish("", queue, bytes(20_000_000))
    for _ in range(5):
        small.publish("", other, b"quick")
        assert small.wait_get(other, within=3).body == b"quick"


# Confirms, mandatory.


@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT])
def test_confirms(publisher: Channel, queue: str, home: Channel, properties: Properties) -> None:
    """§4.3, publisher_confirms: each once; when it is confirmed, it counts."""
    for number in range(500):
        publisher.publish("", queue, b"%d" % number, properties)
    assert outcomes(publisher, 500) == ["ack"] * 500
    assert home.call(QueueDeclare, queue=queue, passive=True).message_count == 500


def test_confirms_when_the_queue_is_deleted(publisher: Channel, queue: str, home: Channel) -> None:
    """§4.3, with_deleted_queue: messages on the way to a queue that goes are confirmed."""
    for number in range(300):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
        if number == 150:
            home.call(QueueDelete, queue=queue)
    assert outcomes(publisher, 300) == ["ack"] * 300


def test_mandatory(publisher: Channel, queue: str, reader: Channel, name: Name) -> None:
    """§4.2, mandatory_unroutable: the return comes before the ack; what is routed is not returned."""
    for turn in range(20):
        publisher.publish("", queue, b"routed", mandatory=True)
        publisher.publish("", name("nowhere"), b"returned", mandatory=True)
        said = 0
        while said < 2 * turn + 2:
            frame = publisher.connection.next_frame(1)
            if frame.type == FRAME_METHOD and isinstance(decode_method(frame.payload), BasicReturn):
                publisher.connection._waiting.insert(0, frame)
                assert publisher.expect_content(BasicReturn).body == b"returned"
                returned = turn
            else:
                ack = decode_method(frame.payload)
                assert isinstance(ack, BasicAck), ack
                said = max(said, ack.delivery_tag)
        assert returned == turn
    assert bodies(reader, queue) == [b"routed"] * 20


def test_confirms_of_queues_here_and_there(cluster: Cluster, on: On, name: Name, publisher: Channel) -> None:
    """§4.3: alternately to a queue on each node and to none."""
    queues = [on(node).declare(name("q"), durable=True) for node in cluster.nodes] + [name("nowhere")]
    for number in range(400):
        publisher.publish("", queues[number % 4], b"%d" % number, PERSISTENT)
    assert outcomes(publisher, 400) == ["ack"] * 400
    for index in range(3):
        assert len(bodies(publisher, queues[index])) == 100


# Length limits.


def test_drop_head(publisher: Channel, home: Channel, reader: Channel, name: Name) -> None:
    """§5.4."""
    queue = home.declare(name("q"), arguments={"x-max-length": long(3)})
    for number in range(10):
        publisher.publish("", queue, b"%d" % number)
    assert outcomes(publisher, 10) == ["ack"] * 10
    assert bodies(reader, queue) == [b"7", b"8", b"9"]


def test_reject_publish(publisher: Channel, home: Channel, reader: Channel, name: Name) -> None:
    """§5.4, confirms_rejects: the first are acked, the others nacked; there is room again after a get."""
    arguments = {"x-max-length": long(3), "x-overflow": longstr("reject-publish")}
    queue = home.declare(name("q"), durable=True, arguments=arguments)
    for number in range(10):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    assert outcomes(publisher, 10) == ["ack"] * 3 + ["nack"] * 7
    assert reader.wait_get(queue).body == b"0"
    publisher.publish("", queue, b"again", PERSISTENT)
    assert publisher.expect(BasicAck).delivery_tag == 11
    assert bodies(reader, queue) == [b"1", b"2", b"again"]


def test_reject_publish_of_one_of_many(
    cluster: Cluster, on: On, publisher: Channel, home: Channel, name: Name
) -> None:
    """§4.3, mixed queues: a nack when any of them refuses; the others keep it."""
    exchange = name("x")
    arguments = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    full = home.declare(name("q"), arguments=arguments)
    others = [on(node).declare(name("q")) for node in cluster.nodes]
    home.call(ExchangeDeclare, exchange=exchange, type="fanout")
    for queue in (full, *others):
        publisher.call(QueueBind, queue=queue, exchange=exchange)
    for number in range(5):
        publisher.publish(exchange, "", b"%d" % number)
    assert outcomes(publisher, 5) == ["ack"] + ["nack"] * 4
    for queue in others:
        assert len(bodies(publisher, queue)) == 5


def test_reject_publish_dlx(cluster: Cluster, on: On, publisher: Channel, home: Channel, name: Name) -> None:
    """§5.4: what is refused goes to the dead-letter exchange, to a queue on a third node."""
    grave = on(cluster[2]).declare(name("grave"))
    arguments = {
        "x-max-length": long(1),
        "x-overflow": longstr("reject-publish-dlx"),
        **dead_letters_to("", grave),
    }
    queue = home.declare(name("q"), arguments=arguments)
    for number in range(3):
        publisher.publish("", queue, b"%d" % number)
    assert outcomes(publisher, 3) == ["ack", "nack", "nack"]
    contents = [home.wait_get(grave) for _ in range(2)]
    assert [content.body for content in contents] == [b"1", b"2"]
    assert b"maxlen" in contents[0].header


def test_acks_and_nacks_never_contradict(publisher: Channel, home: Channel, name: Name) -> None:
    """reliability §2.2 confirms_rejects_conflict: a queue that is full now and then; each message has one answer."""
    arguments = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    queue = home.declare(name("q"), arguments=arguments)
    home.consume(queue, no_ack=True)
    publish_burst(publisher, queue, 3000)
    said = outcomes(publisher, 3000)
    delivered = {home.deliver().body for _ in range(said.count("ack"))}
    assert delivered == {b"%d" % number for number, what in enumerate(said, 1) if what == "ack"}
    home.expect_nothing()


def test_max_length_bytes(publisher: Channel, home: Channel, reader: Channel, name: Name) -> None:
    """§5.4."""
    queue = home.declare(name("q"), arguments={"x-max-length-bytes": long(1000)})
    for number in range(5):
        publisher.publish("", queue, b"%d" % number * 400)
    assert outcomes(publisher, 5) == ["ack"] * 5
    assert bodies(reader, queue) == [b"3" * 400, b"4" * 400]


# TTL and dead letters.


def test_ttl_and_dead_letters_over_three_nodes(
    cluster: Cluster, on: On, publisher: Channel, home: Channel, name: Name
) -> None:
    """§5.2, §5.5: published on n2, dies on n1, is buried on n3, with its x-death."""
    grave = on(cluster[2]).declare(name("grave"))
    queue = home.declare(name("q"), arguments=dead_letters_to("", grave, ttl_ms=50))
    for number in range(20):
        publisher.publish("", queue, b"%d" % number, PERSISTENT)
    contents = [home.wait_get(grave) for _ in range(20)]
    assert [content.body for content in contents] == [b"%d" % number for number in range(20)]
    headers = contents[0].properties.headers
    assert headers is not None
    assert list(headers) == [
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
    ]
    assert headers["x-first-death-queue"] == longstr(queue)
    assert headers["x-first-death-reason"] == longstr("expired")


def test_ttl_of_a_message(publisher: Channel, queue: str, reader: Channel) -> None:
    """§5.2: expiration is the publisher's."""
    publisher.publish("", queue, b"dies", Properties(expiration="50"))
    publisher.publish("", queue, b"stays")
    assert outcomes(publisher, 2) == ["ack"] * 2
    content = reader.wait_get(queue)
    if content.body == b"dies":
        content = reader.wait_get(queue)
    assert content.body == b"stays"


def test_expiration_zero(publisher: Channel, queue: str, reader: Channel) -> None:
    """§5.2: dead unless a consumer takes it at once."""
    publisher.publish("", queue, b"dies", Properties(expiration="0"))
    assert outcomes(publisher, 1) == ["ack"]
    assert reader.get(queue) is None
    reader.consume(queue, no_ack=True)
    publisher.publish("", queue, b"taken", Properties(expiration="0"))
    assert reader.deliver().body == b"taken"


def test_rejected_dead_letters_over_three_nodes(
    cluster: Cluster, on: On, publisher: Channel, home: Channel, reader: Channel, name: Name
) -> None:
    """§5.5: rejected by a client of n3, queue on n1, grave on n2."""
    grave = on(cluster[1]).declare(name("grave"))
    queue = home.declare(name("q"), arguments=dead_letters_to("", grave))
    publisher.publish("", queue, b"1")
    publisher.publish("", queue, b"2")
    reader.consume(queue)
    for _ in range(2):
        reader.send(BasicNack, delivery_tag=reader.deliver().method.delivery_tag, requeue=False)
    contents = [reader.connection.channel(2 + number).wait_get(grave) for number in range(2)]
    assert [content.body for content in contents] == [b"1", b"2"]
    assert contents[0].properties.headers
    assert contents[0].properties.headers["x-first-death-reason"] == longstr("rejected")


def test_a_cycle_over_nodes_ends(cluster: Cluster, on: On, name: Name) -> None:
    """§5.5: a message that expires round and round through queues of three nodes is dropped when it comes back."""
    names = [name("q") for _ in range(3)]
    for index, node in enumerate(cluster.nodes):
        arguments = dead_letters_to("", names[(index + 1) % 3], ttl_ms=20)
        on(node).declare(names[index], arguments=arguments)
    channel = on(cluster[1])
    publish(channel, names[0], b"round")
    counts = [1]
    for _ in range(100):
        counts = [channel.call(QueueDeclare, queue=each, passive=True).message_count for each in names]
        if sum(counts) == 0:
            break
    assert sum(counts) == 0


# Transactions.


def test_tx_commit_and_rollback(cluster: Cluster, on: On, queue: str, reader: Channel) -> None:
    """§4.4: nothing before the commit, everything after it, nothing of what was rolled back."""
    channel = on(cluster[1])
    channel.call(TxSelect)
    for number in range(50):
        channel.publish("", queue, b"%d" % number, PERSISTENT)
    channel.sync()
    assert reader.get(queue) is None
    channel.call(TxCommit)
    assert bodies(reader, queue) == [b"%d" % number for number in range(50)]
    channel.publish("", queue, b"rolled back")
    channel.call(TxRollback)
    channel.publish("", queue, b"after")
    channel.call(TxCommit)
    assert bodies(reader, queue) == [b"after"]


def test_tx_of_queues_on_all_nodes(cluster: Cluster, on: On, name: Name) -> None:
    """§4.4: commit-ok when all have it."""
    channel = on(cluster[1])
    queues = [on(node).declare(name("q"), durable=True) for node in cluster.nodes]
    channel.call(TxSelect)
    for number in range(30):
        channel.publish("", queues[number % 3], b"%d" % number, PERSISTENT)
    channel.call(TxCommit)
    for node, queue in zip(cluster.nodes, queues, strict=True):
        assert on(node).call(QueueDeclare, queue=queue, passive=True).message_count == 10


def test_tx_of_acks(cluster: Cluster, on: On, queue: str, home: Channel) -> None:
    """§4.4: rolled back acks leave the messages unacknowledged; committed ones are done."""
    publish(home, queue, b"1", b"2", b"3")
    channel = on(cluster[1])
    channel.call(TxSelect)
    channel.consume(queue)
    assert [channel.deliver().body for _ in range(3)] == [b"1", b"2", b"3"]
    channel.send(BasicAck, delivery_tag=3, multiple=True)
    channel.call(TxRollback)
    channel.send(BasicAck, delivery_tag=1)
    channel.send(BasicNack, delivery_tag=2, requeue=False)
    channel.call(TxCommit)
    channel.close()
    assert home.wait_get(queue).body == b"3"
    assert home.get(queue) is None


def test_tx_returns_mandatory(cluster: Cluster, on: On, name: Name) -> None:
    """§4.4: before commit-ok."""
    channel = on(cluster[1])
    channel.call(TxSelect)
    channel.publish("", name("nowhere"), b"returned", mandatory=True)
    channel.send(TxCommit)
    frames = [channel.connection.next_frame(1) for _ in range(4)]
    methods = {type(decode_method(frame.payload)) for frame in frames if frame.type == FRAME_METHOD}
    assert methods == {BasicReturn, TxCommitOk}


# Pressure.


def test_many_messages_to_a_slow_reader(publisher: Channel, reader: Channel, queue: str) -> None:
    """§7.2: 40 MB that a consumer with prefetch 10 takes bit by bit; all come, in order, once."""
    reader.call(BasicQos, prefetch_count=10)
    reader.call(BasicConsume, queue=queue)
    for number in range(1000):
        publisher.publish("", queue, b"%06d" % number + bytes(40_000))
    for number in range(1000):
        content = reader.deliver()
        assert content.body[:6] == b"%06d" % number
        reader.send(BasicAck, delivery_tag=content.method.delivery_tag)
    assert set(outcomes(publisher, 1000)) == {"ack"}
    assert reader.call(QueueDeclare, queue=queue, passive=True).message_count == 0


def test_the_channel_ends_with_messages_on_the_way(
    cluster: Cluster, on: On, queue: str, reader: Channel
) -> None:
    """§2.1: what was sent before channel.close and connection.close is in the queue."""
    channel = on(cluster[1])
    publish_burst(channel, queue, 500)
    channel.close()
    channel = channel.connection.channel(2)
    channel.connection.send_bytes(b"".join(message(channel, queue, b"x") for _ in range(500)))
    channel.connection.close()
    reader.consume(queue, no_ack=True)
    assert len([reader.deliver().body for _ in range(1000)]) == 1000


def test_get_of_many(publisher: Channel, reader: Channel, queue: str) -> None:
    """§4.5: pipelined gets are answered in order, get-empty for those that find nothing."""
    publish_burst(publisher, queue, 50)
    assert set(outcomes(publisher, 50)) == {"ack"}
    for _ in range(60):
        reader.send(BasicGet, queue=queue, no_ack=True)
    for number in range(1, 51):
        content = reader.expect_content(BasicGetOk)
        assert (content.body, content.method.message_count) == (b"%d" % number, 50 - number)
    for _ in range(10):
        reader.expect(BasicGetEmpty)
