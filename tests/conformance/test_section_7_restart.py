"""amqp-behaviour §4.11, §7.5, §7.6: what is still there after a stop and after kill -9, and in what state.

A start costs seconds, so all rows share two: each row is a generator that prepares what it needs, yields, and
checks it in the server's next life. `Story` is the server; the rows run once for a clean stop, once for a crash.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicNack,
    BasicQos,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxSelect,
)
from node.amqp.properties import Properties
from tests.kit.amqp_client import Channel, Connection, Content
from tests.kit.servers import Server, start_restartable_server

pytestmark = pytest.mark.slow

PERSISTENT: Final = Properties(delivery_mode=2)
TRANSIENT: Final = Properties(delivery_mode=1)

IDLE_S: Final = 1.0
"""Before a crash: acknowledgements are written when a queue is idle, 200 ms at the latest (§7.4)."""

DOWN_S: Final = 2.0
"""The server stays down this long, so that a time-out which counts on can be told from one that starts anew."""

TTL_S: Final = 20.0
EXPIRES_S: Final = 15.0

BASIC_RETURN: Final = b"\x00\x3c\x00\x32"

Row = Callable[["Story"], Iterator[None]]
ROWS: Final[dict[str, Row]] = {}


def row(function: Row) -> Row:
    """Make a generator one of the rows."""
    ROWS[function.__name__] = function
    return function


class Story:
    """A server that has been stopped and started once the rows have prepared.

    is_crash: how it ended.   down_at, up_at: when it began to stop and accepted clients again.
    """

    def __init__(self, server: Server, *, is_crash: bool) -> None:
        self.server = server
        self.is_crash = is_crash
        self.down_at = self.up_at = 0.0

    def channel(self, user: str = "guest", vhost: str = "/") -> Channel:
        """Channel 1 of a new connection."""
        return Connection(self.server, user, user, vhost).channel(1)


@pytest.fixture(scope="module", params=["stop", "crash"])
def lives(request: pytest.FixtureRequest) -> Iterator[tuple[Story, dict[str, Iterator[None]]]]:
    """The story, and the rows that are ready to be checked."""
    server = start_restartable_server()
    story = Story(server, is_crash=request.param == "crash")
    rows = {name: function(story) for name, function in ROWS.items()}
    for each in rows.values():
        next(each)
    time.sleep(IDLE_S)
    story.down_at = time.monotonic()
    if story.is_crash:
        server.crash()
    else:
        server.halt()
    time.sleep(DOWN_S)
    server.boot()
    story.up_at = time.monotonic()
    yield story, rows
    server.stop()


@pytest.mark.parametrize("name", ROWS)
def test_after_a_restart(lives: tuple[Story, dict[str, Iterator[None]]], name: str) -> None:
    """The row's second half."""
    next(lives[1][name], None)


def test_what_was_consumed_before_it_was_safe_is_confirmed(connection: Connection) -> None:
    """§7.5 row 2: done with before it was synced. Row 3: what isn't persistent waits for no disk."""
    consumer, publisher = connection.channel(1), connection.channel(2)
    queue = consumer.declare(durable=True, auto_delete=True)
    consumer.consume(queue, no_ack=True)
    publish(publisher, queue, b"1", b"2")
    publisher.publish("", queue, b"3", TRANSIENT)
    assert publisher.expect(BasicAck).delivery_tag == 3
    assert [consumer.deliver().body for _ in range(3)] == [b"1", b"2", b"3"]


def publish(
    channel: Channel,
    queue: str,
    *bodies: bytes,
    exchange: str = "",
    properties: Properties = PERSISTENT,
) -> None:
    """Publish, and wait until all is confirmed."""
    channel.call(ConfirmSelect)
    for body in bodies:
        channel.publish(exchange, queue, body, properties)
    await_confirms(channel, len(bodies))


def await_confirms(channel: Channel, count: int) -> None:
    """Wait until the first so many publishes of the channel are confirmed, in whatever order."""
    waiting = set(range(1, count + 1))
    while waiting:
        ack = channel.expect(BasicAck)
        waiting -= set(range(1, ack.delivery_tag + 1)) if ack.multiple else {ack.delivery_tag}


def drain(channel: Channel, queue: str) -> list[Content]:
    """Everything that is in a queue."""
    contents = []
    while (content := channel.get(queue)) is not None:
        contents.append(content)
    return contents


def bodies(channel: Channel, queue: str) -> list[bytes]:
    return [content.body for content in drain(channel, queue)]


def redelivered(channel: Channel, queue: str) -> list[tuple[bytes, bool]]:
    """The bodies that are in a queue, and whether each was delivered before."""
    return [(content.body, content.method.redelivered) for content in drain(channel, queue)]


def numbered(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


def routes(channel: Channel, exchange: str, key: str) -> bool:
    """Whether the exchange takes a message with this key anywhere."""
    channel.publish(exchange, key, b"", mandatory=True)
    channel.send(QueueDeclare, exclusive=True)
    return channel.connection.next_frame(channel.number).payload[:4] != BASIC_RETURN


# --- time, first: it must not wait for other rows ----------------------------------------------------------


@row
def time_to_live_counts_on_and_queue_expiry_starts_anew(story: Story) -> Iterator[None]:
    """§5.2, §5.3, §7.6 rows 7 and 8: expiry of messages is a time of day, that of queues a time without use."""
    channel = story.channel()
    ttl_ms, expires_ms = round(TTL_S * 1000), round(EXPIRES_S * 1000)
    channel.declare("ttl", durable=True, arguments={"x-message-ttl": long(ttl_ms)})
    channel.declare("expiration", durable=True)
    channel.declare("expiring", durable=True, arguments={"x-expires": long(expires_ms)})
    publish(channel, "ttl", *numbered(3))
    for body, expiration in ((b"0", str(ttl_ms)), (b"1", str(ttl_ms)), (b"short", "500")):
        properties = Properties(delivery_mode=2, expiration=expiration)
        publish(story.channel(), "expiration", body, properties=properties)
    began = time.monotonic()
    yield
    channel = story.channel()
    assert time.monotonic() - began < min(TTL_S, EXPIRES_S + DOWN_S / 2), "too slow a machine for this row"
    for queue in ("ttl", "expiration"):
        content = channel.get(queue)
        assert content is not None
        assert content.body == b"0"
    _sleep_until(began + EXPIRES_S + DOWN_S / 2)
    assert "expiring" in story.server.admin.list_queues("/")
    _sleep_until(began + TTL_S + 0.5)
    assert bodies(channel, "ttl") == []
    assert bodies(channel, "expiration") == []
    _sleep_until(story.up_at + EXPIRES_S + 1)
    assert "expiring" not in story.server.admin.list_queues("/")


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0))


# --- messages ----------------------------------------------------------------------------------------------


@row
def persistent_messages_stay_in_order(story: Story) -> Iterator[None]:
    """§7.6 rows 3 and 4: transient ones are lost even at a clean stop."""
    channel = story.channel()
    channel.declare("mixed", durable=True)
    channel.call(ConfirmSelect)
    for number in range(200):
        body, properties = b"%d" % number, PERSISTENT if number % 3 else TRANSIENT
        channel.publish("", "mixed", body, properties)
    await_confirms(channel, 200)
    yield
    expected = [(b"%d" % number, story.is_crash) for number in range(200) if number % 3]
    assert redelivered(story.channel(), "mixed") == expected


@row
def what_is_confirmed_survives(story: Story) -> Iterator[None]:
    """§7.5 row 1: small and large messages, in one queue and in several; nothing of them is changed."""
    channel = story.channel()
    headers: Table = {"k": longstr("v"), "n": long(7)}
    properties = Properties(delivery_mode=2, headers=headers, content_type="a/b", message_id="m", priority=3)
    sizes = [0, 1, 4000, 4095, 4096, 5000, 131_064, 131_065, 1_000_000]
    channel.call(ExchangeDeclare, exchange="copies", type="fanout", durable=True)
    for queue in ("copy-1", "copy-2"):
        channel.declare(queue, durable=True)
        channel.call(QueueBind, queue=queue, exchange="copies")
    publish(channel, "key", *(b"x" * size for size in sizes), exchange="copies", properties=properties)
    assert channel.get("copy-1") is not None  # settled here, there still there
    yield
    channel = story.channel()
    contents = drain(channel, "copy-2")
    assert [len(content.body) for content in contents] == sizes
    assert all(content.properties == properties for content in contents)
    assert all(content.method.exchange == "copies" for content in contents)
    assert all(content.method.routing_key == "key" for content in contents)
    assert [len(content.body) for content in drain(channel, "copy-1")] == sizes[1:]


@row
def many_messages_of_one_burst(story: Story) -> Iterator[None]:
    """§7.5 row 1: batches share a sync; more messages than a segment of RabbitMQ's index has."""
    channel = story.channel()
    channel.declare("burst", durable=True)
    publish(channel, "burst", *numbered(5000))
    yield
    assert bodies(story.channel(), "burst") == numbered(5000)


@row
def what_a_transaction_committed_survives(story: Story) -> Iterator[None]:
    """§4.4, §7.5: commit-ok waits as confirms do; what was open is gone."""
    channel = story.channel()
    channel.declare("tx", durable=True)
    channel.call(TxSelect)
    for body in numbered(10):
        channel.publish("", "tx", body, PERSISTENT)
    channel.call(TxCommit)
    channel.publish("", "tx", b"open", PERSISTENT)
    channel.sync()
    yield
    assert bodies(story.channel(), "tx") == numbered(10)


@row
def acknowledged_messages_are_gone(story: Story) -> Iterator[None]:
    """§7.6 row 5: the others return to their places; redelivered is as §4.11 says."""
    channel = story.channel()
    channel.declare("acked", durable=True)
    publish(channel, "acked", *numbered(10))
    channel.call(BasicQos, prefetch_count=6)
    channel.consume("acked", consumer_tag="t")
    tags = [channel.deliver().method.delivery_tag for _ in range(6)]
    for tag in (tags[1], tags[3]):
        channel.send(BasicAck, delivery_tag=tag)
    channel.deliver()
    channel.deliver()
    yield
    was_out = {b"0", b"2", b"4", b"5", b"6", b"7"}
    expected = [
        (body, story.is_crash or body in was_out) for body in numbered(10) if body not in (b"1", b"3")
    ]
    assert redelivered(story.channel(), "acked") == expected


@row
def requeued_messages_keep_their_place(story: Story) -> Iterator[None]:
    """§4.11: redelivered before the restart and after it; the rest only after a crash."""
    channel = story.channel()
    channel.declare("requeued", durable=True)
    publish(channel, "requeued", *numbered(6))
    gets = [channel.get("requeued", no_ack=False) for _ in range(4)]
    for number in (1, 3, 0):
        content = gets[number]
        assert content is not None
        channel.send(BasicNack, delivery_tag=content.method.delivery_tag, requeue=True)
    channel.sync()
    yield
    expected = [(body, story.is_crash or body < b"4") for body in numbered(6)]
    assert redelivered(story.channel(), "requeued") == expected


@row
def a_purged_queue_stays_empty(story: Story) -> Iterator[None]:
    """§3.11: and what came later is there."""
    channel = story.channel()
    channel.declare("purged", durable=True)
    publish(channel, "purged", *numbered(20))
    other = story.channel()
    other.send(QueuePurge, queue="purged")
    assert other.expect(QueuePurgeOk).message_count == 20
    publish(other, "purged", b"later")
    yield
    assert bodies(story.channel(), "purged") == [b"later"]


@row
def a_deleted_queue_does_not_come_back(story: Story) -> Iterator[None]:
    """§3.11: declared again under its name it is another one."""
    channel = story.channel()
    for queue in ("deleted", "again"):
        channel.declare(queue, durable=True)
        publish(story.channel(), queue, *numbered(5), b"x" * 5000)
        channel.call(QueueDelete, queue=queue)
    channel.declare("again", durable=True)
    publish(channel, "again", b"new")
    yield
    assert "deleted" not in story.server.admin.list_queues("/")
    assert bodies(story.channel(), "again") == [b"new"]


@row
def priorities_stay(story: Story) -> Iterator[None]:
    """§5.6."""
    channel = story.channel()
    channel.declare("ranked", durable=True, arguments={"x-max-priority": long(5)})
    for number, priority in enumerate((1, 5, 0, 5, 3)):
        properties = Properties(delivery_mode=2, priority=priority)
        publish(story.channel(), "ranked", b"%d" % number, properties=properties)
    yield
    assert bodies(story.channel(), "ranked") == [b"1", b"3", b"4", b"0", b"2"]


@row
def a_length_limit_counts_what_was_recovered(story: Story) -> Iterator[None]:
    """§5.4: the oldest go when more comes."""
    channel = story.channel()
    channel.declare("short", durable=True, arguments={"x-max-length": long(5)})
    publish(channel, "short", *numbered(8))
    yield
    channel = story.channel()
    publish(channel, "short", b"8", b"9")
    assert bodies(channel, "short") == numbered(10)[5:]


@row
def dead_letters_keep_their_history(story: Story) -> Iterator[None]:
    """§5.5: a dead-lettered copy is a message like others."""
    channel = story.channel()
    arguments: Table = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("grave")}
    channel.declare("grave", durable=True)
    channel.declare("mortal", durable=True, arguments=arguments)
    publish(channel, "mortal", b"late")
    content = channel.get("mortal", no_ack=False)
    assert content is not None
    channel.send(BasicNack, delivery_tag=content.method.delivery_tag, requeue=False)
    channel.sync()
    yield
    channel = story.channel()
    (content,) = drain(channel, "grave")
    assert content.body == b"late"
    assert content.headers["x-first-death-queue"] == longstr("mortal")
    assert content.headers["x-first-death-reason"] == longstr("rejected")
    assert bodies(channel, "mortal") == []


@row
def a_lazy_queue_is_no_other(story: Story) -> Iterator[None]:
    """§7.3: lazy mode changes nothing that a client sees."""
    channel = story.channel()
    channel.declare("lazy", durable=True, arguments={"x-queue-mode": longstr("lazy")})
    publish(channel, "lazy", *numbered(50), b"x" * 5000)
    publish(story.channel(), "lazy", b"transient", properties=TRANSIENT)
    yield
    assert bodies(story.channel(), "lazy") == [*numbered(50), b"x" * 5000]


# --- entities ----------------------------------------------------------------------------------------------


@row
def durable_entities_stay_and_others_go(story: Story) -> Iterator[None]:
    """§7.6 rows 1 and 2."""
    channel = story.channel()
    for durable in (True, False):
        suffix = "durable" if durable else "transient"
        channel.call(ExchangeDeclare, exchange=f"x-{suffix}", type="topic", durable=durable)
        channel.declare(f"q-{suffix}", durable=durable)
    channel.declare("q-exclusive", durable=True, exclusive=True)
    yield
    queues = story.server.admin.list_queues("/")
    assert "q-durable" in queues
    assert "q-transient" not in queues
    assert "q-exclusive" not in queues
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange="x-durable", type="topic", durable=True)
    channel.send(ExchangeDeclare, exchange="x-transient", passive=True)
    channel.expect_close(404, "NOT_FOUND - no exchange 'x-transient' in vhost '/'", ExchangeDeclare)
    channel = story.channel()
    channel.send(QueueDeclare, queue="q-durable", durable=False)
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q-durable' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    channel.expect_close(406, text, QueueDeclare)


@row
def bindings_stay_between_durable_ends(story: Story) -> Iterator[None]:
    """§7.6 rows 1 and 2: a binding goes with either end."""
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange="b-durable", type="topic", durable=True)
    channel.call(ExchangeDeclare, exchange="b-target", type="fanout", durable=True)
    channel.call(ExchangeDeclare, exchange="b-transient", type="topic")
    channel.declare("b-queue", durable=True)
    channel.declare("b-passing")
    for exchange in ("b-durable", "b-transient"):
        channel.call(QueueBind, queue="b-queue", exchange=exchange, routing_key="a.#")
    channel.call(QueueBind, queue="b-passing", exchange="b-durable", routing_key="b.#")
    channel.call(ExchangeBind, destination="b-target", source="b-durable", routing_key="c.#")
    channel.call(QueueBind, queue="b-queue", exchange="b-target")
    channel.call(QueueBind, queue="b-queue", exchange="amq.direct", routing_key="d")
    yield
    assert routes(story.channel(), "b-durable", "a.x")
    assert not routes(story.channel(), "b-durable", "b.x")
    assert routes(story.channel(), "b-durable", "c.x")
    assert routes(story.channel(), "amq.direct", "d")
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange="b-transient", type="topic")
    assert not routes(channel, "b-transient", "a.x")


@row
def arguments_stay(story: Story) -> Iterator[None]:
    """§3.9: a queue declared with other arguments is refused after the restart as before."""
    arguments: Table = {"x-max-length": long(3), "x-overflow": longstr("reject-publish")}
    story.channel().declare("argued", durable=True, arguments=arguments)
    yield
    channel = story.channel()
    channel.declare("argued", durable=True, arguments=arguments)
    channel.send(QueueDeclare, queue="argued", durable=True)
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'argued' in vhost '/': "
        "received none but current is the value '3' of type 'long'"
    )
    channel.expect_close(406, text, QueueDeclare)


@row
def an_auto_delete_queue_waits_for_a_consumer(story: Story) -> Iterator[None]:
    """§7.6: without a consumer after the restart it stays, until one comes and goes."""
    channel = story.channel()
    channel.declare("auto", durable=True, auto_delete=True)
    publish(channel, "auto", b"1")
    yield
    channel = story.channel()
    assert "auto" in story.server.admin.list_queues("/")
    channel.consume("auto", consumer_tag="t", no_ack=True)
    assert channel.deliver().body == b"1"
    channel.call(BasicCancel, consumer_tag="t")
    channel.sync()
    assert "auto" not in story.server.admin.list_queues("/")


@row
def an_auto_delete_queue_with_a_consumer(story: Story) -> Iterator[None]:
    """§3.12, §7.6: a stop takes the consumer away and the queue with it; a crash takes neither."""
    channel = story.channel()
    channel.declare("auto-used", durable=True, auto_delete=True)
    channel.consume("auto-used")
    yield
    assert ("auto-used" in story.server.admin.list_queues("/")) == story.is_crash


@row
def an_auto_delete_exchange_stays_with_its_binding(story: Story) -> Iterator[None]:
    """§3.5, §7.6: the binding is durable; its end ends the exchange."""
    channel = story.channel()
    channel.call(ExchangeDeclare, exchange="x-auto", type="fanout", durable=True, auto_delete=True)
    channel.declare("x-auto-queue", durable=True)
    channel.call(QueueBind, queue="x-auto-queue", exchange="x-auto")
    yield
    assert routes(story.channel(), "x-auto", "")
    channel = story.channel()
    channel.call(QueueDelete, queue="x-auto-queue")
    channel.send(ExchangeDeclare, exchange="x-auto", passive=True)
    channel.expect_close(404, "NOT_FOUND - no exchange 'x-auto' in vhost '/'", ExchangeDeclare)


# --- what operators set ------------------------------------------------------------------------------------


@row
def users_and_permissions_stay(story: Story) -> Iterator[None]:
    """§7.6 row 9."""
    admin = story.server.admin
    admin.add_user("kept", "kept")
    admin.set_permissions("kept", "/", "^kept", "^kept", "^kept")
    admin.add_user("gone", "gone")
    admin.delete_user("gone")
    yield
    channel = story.channel("kept")
    channel.declare("kept-queue")
    channel.send(QueueDeclare, queue="other")
    text = "ACCESS_REFUSED - access to queue 'other' in vhost '/' refused for user 'kept'"
    channel.expect_close(403, text, QueueDeclare)
    with pytest.raises(RuntimeError):
        story.server.admin.delete_user("gone")


@row
def vhosts_and_their_limits_stay(story: Story) -> Iterator[None]:
    """§7.6 row 9, §6.5."""
    admin = story.server.admin
    admin.add_vhost("kept")
    admin.set_permissions("guest", "kept", ".*", ".*", ".*")
    admin.set_vhost_limits("kept", {"max-queues": 1})
    channel = story.channel(vhost="kept")
    channel.declare("one", durable=True)
    publish(channel, "one", b"there")
    yield
    channel = story.channel(vhost="kept")
    assert bodies(channel, "one") == [b"there"]
    channel.send(QueueDeclare, queue="two")
    text = "PRECONDITION_FAILED - cannot declare queue 'two': queue limit in vhost 'kept' (1) is reached"
    channel.expect_close(406, text, QueueDeclare)


@row
def policies_stay(story: Story) -> Iterator[None]:
    """§7.6 row 9, §6.1: those of users and those of operators."""
    admin = story.server.admin
    admin.set_policy("/", "kept", "^ruled$", {"max-length": 2}, apply_to="queues")
    admin.set_operator_policy("/", "kept", "^bounded$", {"max-length": 1})
    channel = story.channel()
    for queue in ("ruled", "bounded"):
        channel.declare(queue, durable=True)
    yield
    for queue, expected in (("ruled", [b"1", b"2"]), ("bounded", [b"2"])):
        channel = story.channel()
        publish(channel, queue, *numbered(3))
        assert bodies(channel, queue) == expected
