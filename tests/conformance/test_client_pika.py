"""An unmodified pika, used as its documentation and its users do: BlockingConnection."""

import functools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.conformance.pika_steps import Connect, blocking_connections, let_happen, wait_get
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import wait_until
from tests.kit.servers import Server

Names = Callable[[str], str]

PERSISTENT: Final = 2


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Make BlockingConnections; they end with the test."""
    with blocking_connections(server) as make:
        yield make


@pytest.fixture
def connection(connect: Connect) -> Any:
    return connect()


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """An empty queue of the connection."""
    name: str = channel.queue_declare("", exclusive=True).method.queue
    return name


# Publishing.


def test_confirmed_publishes_are_queued(channel: Any, queue: str) -> None:
    """With confirm_delivery() a publish returns when the broker has the message."""
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(delivery_mode=PERSISTENT))
    assert channel.queue_declare(queue, passive=True).method.message_count == 100
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(3)] == [b"0", b"1", b"2"]


def test_a_refused_publish_is_a_nack(channel: Any) -> None:
    """x-overflow reject-publish: NackError."""
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fits")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"does not")


def test_unroutable_with_confirms(channel: Any, name: Names) -> None:
    """A mandatory message comes back with 312 before its confirm: UnroutableError carries it."""
    channel.confirm_delivery()
    nowhere = name("nowhere")
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("amq.topic", nowhere, b"body", mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.topic", nowhere)
    assert returned.body == b"body"


def test_return_callback_without_confirms(connection: Any, channel: Any, name: Names) -> None:
    returned: list[tuple[int, bytes]] = []
    channel.add_on_return_callback(
        lambda _channel, method, _properties, body: returned.append((method.reply_code, body))
    )
    channel.basic_publish("", name("nowhere"), b"body", mandatory=True)
    let_happen(connection, lambda: returned)
    assert returned == [(312, b"body")]


def test_properties_and_headers_come_back(channel: Any, queue: str) -> None:
    """All 14 properties but cluster-id, and every header type that pika writes."""
    headers = {
        "text": "grüße",
        "bytes": b"\x00\xff",
        "flag": True,
        "small": 7,
        "negative": -7,
        "big": 2**40,
        "decimal": Decimal("3.14"),
        "time": datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC),
        "nothing": None,
        "list": [1, "two", {"three": 3}],
        "table": {"nested": {"deeper": [True]}},
    }
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers=headers,
        delivery_mode=PERSISTENT,
        priority=5,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="id",
        timestamp=1_800_000_000,
        type="type",
        user_id="guest",
        app_id="app",
    )
    channel.basic_publish("", queue, b"", sent)
    _, received, body = wait_get(channel, queue)
    assert body == b""
    assert received == sent


@pytest.mark.parametrize("size", [131_064, 131_065, 3_000_000])
def test_long_messages(channel: Any, queue: str, size: int) -> None:
    """A body of exactly one frame, one more byte, and many frames."""
    channel.confirm_delivery()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    channel.basic_publish("", queue, body)
    assert wait_get(channel, queue)[2] == body


def test_exchanges_of_all_types(channel: Any, name: Names) -> None:
    """direct, fanout, topic and headers, one bound to another, with an alternate for what goes nowhere."""
    lost, first = name("lost"), name("first")
    channel.exchange_declare(lost, "fanout", auto_delete=True)
    channel.exchange_declare(first, "topic", auto_delete=True, arguments={"alternate-exchange": lost})
    queues = {kind: channel.queue_declare("", exclusive=True).method.queue for kind in ("d", "h", "t", "x")}
    direct, headers = name("direct"), name("headers")
    channel.exchange_declare(direct, "direct", auto_delete=True)
    channel.exchange_declare(headers, "headers", auto_delete=True)
    channel.exchange_bind(direct, first, "a.#")
    channel.exchange_bind(headers, first, "a.*")
    channel.queue_bind(queues["d"], direct, "a.b")
    channel.queue_bind(queues["h"], headers, "", {"x-match": "any", "colour": "red", "size": 1})
    channel.queue_bind(queues["t"], first, "*.b")
    channel.queue_bind(queues["x"], lost)
    channel.confirm_delivery()
    red = pika.BasicProperties(headers={"colour": "red"})
    for key, properties in (("a.b", red), ("a.c", red), ("c.b", None), ("c.c", None)):
        channel.basic_publish(first, key, key.encode(), properties)
    got = {kind: [] for kind in queues}  # type: dict[str, list[bytes]]
    for kind, bodies in got.items():
        while (body := channel.basic_get(queues[kind], auto_ack=True)[2]) is not None:
            bodies.append(body)
    assert got == {"d": [b"a.b"], "h": [b"a.b", b"a.c"], "t": [b"a.b", b"c.b"], "x": [b"c.c"]}


# Consuming.


def test_nack_requeues_and_reject_drops(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"again")
    (method, _, _) = next(channel.consume(queue, inactivity_timeout=TIMEOUT_S))
    assert not method.redelivered
    channel.basic_nack(method.delivery_tag, requeue=True)
    (method, _, body) = next(channel.consume(queue, inactivity_timeout=TIMEOUT_S))
    assert (method.redelivered, body) == (True, b"again")
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.cancel() == 0
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_prefetch_is_the_number_of_unacknowledged(connection: Any, channel: Any, queue: str) -> None:
    """basic_qos(2): two come, and two more after an ack of both."""
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    tags: list[int] = []
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(
        queue, lambda _channel, method, _properties, _body: tags.append(method.delivery_tag)
    )
    let_happen(connection, lambda: len(tags) >= 2)
    assert channel.queue_declare(queue, passive=True).method.message_count == 3
    assert tags == [1, 2]
    channel.basic_ack(2, multiple=True)
    let_happen(connection, lambda: len(tags) >= 4)
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    assert tags == [1, 2, 3, 4]


def test_unacknowledged_messages_of_a_lost_consumer_come_again(connect: Connect, name: Names) -> None:
    """A consumer that goes without acks: its messages go back, to their places, marked redelivered."""
    queue = name("q")
    other = connect().channel()
    channel = connect().channel()
    channel.queue_declare(queue)
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    seen = [method.delivery_tag for method, _, _ in _take(channel.consume(queue), 3)]
    assert seen == [1, 2, 3]
    channel.connection.close()
    again = [(method.redelivered, body) for method, _, body in _take(other.consume(queue), 3)]
    assert again == [(True, b"0"), (True, b"1"), (True, b"2")]
    other.queue_delete(queue)


def _take(messages: Iterator[Any], count: int) -> list[Any]:
    return [next(messages) for _ in range(count)]


def test_basic_recover_requeues(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"body")
    channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    method, _, body = wait_get(channel, queue)
    assert (method.redelivered, body) == (True, b"body")


def test_ack_from_another_thread(connection: Any, channel: Any, queue: str) -> None:
    """The habit for long work: threads ask the connection's thread to ack, by add_callback_threadsafe."""
    for number in range(20):
        channel.basic_publish("", queue, b"%d" % number)
    done: list[bytes] = []
    threads: list[threading.Thread] = []

    def finish(tag: int, body: bytes) -> None:
        channel.basic_ack(tag)
        done.append(body)
        if len(done) == 20:
            channel.stop_consuming()

    def work(tag: int, body: bytes) -> None:
        connection.add_callback_threadsafe(functools.partial(finish, tag, body))

    def on_message(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        threads.append(threading.Thread(daemon=True, target=work, args=(method.delivery_tag, body)))
        threads[-1].start()

    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, on_message)
    connection.call_later(TIMEOUT_S, channel.stop_consuming)
    channel.start_consuming()
    for thread in threads:
        thread.join()
    assert sorted(done, key=int) == [b"%d" % number for number in range(20)]
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_cancel_notify(connect: Connect, channel: Any, name: Names) -> None:
    """The server cancels the consumers of a queue that is deleted."""
    queue = name("q")
    channel.queue_declare(queue)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    connect().channel().queue_delete(queue)
    let_happen(channel.connection, lambda: cancelled)
    assert cancelled == [tag]
    assert channel.is_open
    assert channel.consumer_tags == []


def test_priorities(channel: Any) -> None:
    queue = channel.queue_declare("", exclusive=True, arguments={"x-max-priority": 5}).method.queue
    for priority in (1, 5, 3, None, 5, 9):
        body = str(priority).encode()
        channel.basic_publish("", queue, body, pika.BasicProperties(priority=priority))
    channel.queue_declare(queue, passive=True)
    order = [body for _, _, body in _take(channel.consume(queue, auto_ack=True), 6)]
    assert order == [b"5", b"5", b"9", b"3", b"1", b"None"]


def test_single_active_consumer(connection: Any, channel: Any) -> None:
    """The second consumer gets messages when the first is cancelled."""
    arguments = {"x-single-active-consumer": True}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    got: list[str] = []
    for tag in ("first", "second"):
        channel.basic_consume(
            queue,
            lambda _channel, method, *_: got.append(method.consumer_tag),
            auto_ack=True,
            consumer_tag=tag,
        )
    for _ in range(4):
        channel.basic_publish("", queue, b"")
    let_happen(connection, lambda: len(got) == 4)
    channel.basic_cancel("first")
    channel.basic_publish("", queue, b"")
    let_happen(connection, lambda: len(got) == 5)
    assert got == ["first"] * 4 + ["second"]


# Life of queues.


def test_exclusive_queue(connect: Connect, channel: Any, name: Names) -> None:
    """Locked for others while its connection lives, gone with it."""
    queue = name("q")
    owner = connect()
    owner.channel().queue_declare(queue, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_get(queue)
    assert caught.value.reply_code == 405
    assert caught.value.reply_text == (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'."
        " It could be originally declared on another connection or the exclusive property value does not"
        " match that of the original declaration."
    )
    owner.close()
    with pytest.raises(ChannelClosedByBroker) as gone:
        channel.connection.channel().queue_declare(queue, passive=True)
    assert gone.value.reply_code == 404


def test_auto_delete_queue(channel: Any, name: Names) -> None:
    """Gone with its last consumer."""
    queue = name("q")
    channel.queue_declare(queue, auto_delete=True)
    tags = [channel.basic_consume(queue, lambda *_: None) for _ in range(2)]
    channel.basic_cancel(tags[0])
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    channel.basic_cancel(tags[1])
    with pytest.raises(ChannelClosedByBroker, match=f"no queue '{queue}' in vhost '/'"):
        channel.queue_declare(queue, passive=True)


def test_purge_and_conditional_delete(connection: Any, channel: Any, name: Names) -> None:
    queue = name("q")
    channel.queue_declare(queue)
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", queue, b"")
    with pytest.raises(ChannelClosedByBroker, match=f"queue '{queue}' in vhost '/' not empty"):
        channel.queue_delete(queue, if_empty=True)
    channel = connection.channel()
    assert channel.queue_purge(queue).method.message_count == 3
    assert channel.queue_delete(queue, if_empty=True, if_unused=True).method.message_count == 0


def test_retry_loop(channel: Any, name: Names) -> None:
    """The usual delayed retry: reject to a queue whose TTL brings it back; x-death counts the rounds."""
    retries = name("retry")
    channel.exchange_declare(retries, "direct", auto_delete=True)
    work = channel.queue_declare(
        "", exclusive=True, arguments={"x-dead-letter-exchange": retries, "x-dead-letter-routing-key": "wait"}
    ).method.queue
    wait = channel.queue_declare(
        "",
        exclusive=True,
        arguments={"x-message-ttl": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work},
    ).method.queue
    channel.queue_bind(wait, retries, "wait")
    channel.basic_publish("", work, b"job", pika.BasicProperties(headers={"mine": 1}))
    rounds = []
    for method, properties, body in channel.consume(work, inactivity_timeout=TIMEOUT_S):
        assert body == b"job"
        assert properties.headers["mine"] == 1
        rounds.append(
            [
                (death["queue"], death["reason"], death["count"])
                for death in properties.headers.get("x-death", [])
            ]
        )
        if len(rounds) == 4:
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    assert rounds[0] == []
    for count in (1, 2, 3):
        assert rounds[count] == [(wait, "expired", count), (work, "rejected", count)]
    assert properties.headers["x-first-death-queue"] == work
    assert properties.headers["x-first-death-reason"] == "rejected"


def test_transaction(channel: Any, queue: str) -> None:
    channel.tx_select()
    channel.basic_publish("", queue, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"committed")
    assert channel.queue_declare(queue, passive=True).method.message_count == 0
    channel.tx_commit()
    method, _, body = channel.basic_get(queue)
    assert body == b"committed"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()


# RPC.


def test_direct_reply_to(connect: Connect, name: Names) -> None:
    """amq.rabbitmq.reply-to: consume it without acks, publish on the same channel, get the answer there."""
    client, server = connect(), connect()
    requests = name("rpc")
    serving = server.channel()
    serving.queue_declare(requests, exclusive=True)

    def serve(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        answer = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), answer)
        channel.basic_ack(method.delivery_tag)

    serving.basic_consume(requests, serve)
    asking = client.channel()
    answers: dict[str, bytes] = {}
    asking.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _channel, _method, properties, body: answers.update({properties.correlation_id: body}),
        auto_ack=True,
    )
    for question in ("a", "b"):
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=question)
        asking.basic_publish("", requests, question.encode(), properties)

    def both() -> bool:
        server.process_data_events(time_limit=0)
        client.process_data_events(time_limit=0)
        return len(answers) == 2

    wait_until(both)
    assert answers == {"a": b"A", "b": b"B"}
