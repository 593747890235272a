"""An unmodified py-amqp (the library below kombu and Celery), used directly."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import amqp
import pytest
from amqp.exceptions import (
    AccessRefused,
    ChannelError,
    ConnectionForced,
    ConsumerCancelled,
    InvalidCommand,
    MessageNacked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    RecoverableConnectionError,
    ResourceLocked,
)

from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import wait_until
from tests.kit.servers import Admin, Server

Names = Callable[[str], str]
Connect = Callable[..., Any]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Make connections with the arguments of amqp.Connection; they end with the test."""
    made: list[Any] = []

    def make(user: str = "guest", **options: Any) -> Any:
        options = {"userid": user, "password": user, "read_timeout": TIMEOUT_S, **options}
        connection = amqp.Connection(f"{server.host}:{server.port}", **options)
        made.append(connection)
        connection.connect()
        return connection

    yield make
    for each in made:
        # A user that the test made has taken its connections along.
        with contextlib.suppress(RecoverableConnectionError, OSError):
            each.close()


@pytest.fixture
def connection(connect: Connect) -> Any:
    return connect()


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """An empty queue of the connection; not auto-delete, which py-amqp's queues are unless told."""
    name: str = channel.queue_declare(exclusive=True, auto_delete=False).queue
    return name


def wait_get(channel: Any, queue: str, no_ack: bool = True) -> Any:
    """basic.get until there is a message."""
    return wait_until(lambda: channel.basic_get(queue, no_ack=no_ack), f"a message in {queue}")


def drain_until(connection: Any, condition: Callable[[], Any]) -> None:
    """Serve the connection until the condition holds."""

    def served() -> Any:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.05)
        return condition()

    wait_until(served)


# Tables.


def test_headers_of_all_types(channel: Any, queue: str) -> None:
    """Every type that py-amqp writes comes back as it was; 64-bit integers too."""
    time = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
    headers = {
        "text": "grüße",
        "flag": True,
        "no flag": False,
        "small": 7,
        "negative": -7,
        "big": 2**40,
        "negative big": -(2**40),
        "float": 0.1,
        "decimal": Decimal("-3.14"),
        "time": time,
        "nothing": None,
        "list": [1, "two", {"three": [3.0, None]}],
        "table": {"nested": {"deeper": [True]}},
        "": "an empty key",
        "k" * 128: "a long key",
    }
    channel.basic_publish(amqp.Message(b"", application_headers=headers), routing_key=queue)
    assert wait_get(channel, queue).headers == {**headers, "time": time.replace(tzinfo=None)}


def test_properties(channel: Any, queue: str) -> None:
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 5,
        "correlation_id": "correlation",
        "reply_to": "reply",
        "expiration": "60000",
        "message_id": "id",
        "timestamp": 1_800_000_000,
        "type": "type",
        "user_id": "guest",
        "app_id": "app",
        "cluster_id": "cluster",
    }
    channel.basic_publish(amqp.Message("grüße", **properties), routing_key=queue)
    received = wait_get(channel, queue)
    assert received.properties == properties
    assert received.body == "grüße"


def test_arguments_of_all_types_route(channel: Any, queue: str, name: Names) -> None:
    """A headers exchange compares numbers, texts and booleans, whatever table type they came in."""
    exchange = name("headers")
    channel.exchange_declare(exchange, "headers")
    arguments = {"x-match": "all", "text": "a", "small": 1, "big": 2**40, "flag": True, "float": 0.5}
    channel.queue_bind(queue, exchange, arguments=arguments)
    matching = {key: value for key, value in arguments.items() if key != "x-match"}
    channel.basic_publish(amqp.Message(b"no", application_headers={**matching, "big": 2**40 + 1}), exchange)
    channel.basic_publish(amqp.Message(b"yes", application_headers=matching), exchange)
    assert wait_get(channel, queue).body == b"yes"
    channel.queue_unbind(queue, exchange, arguments=arguments)
    channel.exchange_delete(exchange)


# Publishing.


def test_confirm_publish(connect: Connect) -> None:
    """confirm_publish: each basic_publish waits for its confirm."""
    channel = connect(confirm_publish=True).channel()
    queue = channel.queue_declare(exclusive=True).queue
    for number in range(100):
        channel.basic_publish(amqp.Message(b"%d" % number), routing_key=queue)
    assert channel.queue_declare(queue, passive=True).message_count == 100
    assert channel.queue_purge(queue) == 100


def test_a_refused_publish_raises(connect: Connect) -> None:
    channel = connect(confirm_publish=True).channel()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = channel.queue_declare(exclusive=True, arguments=arguments).queue
    channel.basic_publish(amqp.Message(b"fits"), routing_key=queue)
    with pytest.raises(MessageNacked):
        channel.basic_publish(amqp.Message(b"does not"), routing_key=queue)


def test_return(connection: Any, channel: Any, name: Names) -> None:
    returned: list[tuple[int, str, bytes]] = []
    channel.events["basic_return"].add(
        lambda error, _exchange, _key, message: returned.append(
            (error.reply_code, error.reply_text, message.body)
        )
    )
    channel.basic_publish(amqp.Message(b"body"), routing_key=name("nowhere"), mandatory=True)
    drain_until(connection, lambda: returned)
    assert returned == [(312, "NO_ROUTE", b"body")]


def test_confirms_by_callback(connection: Any, channel: Any, queue: str) -> None:
    acked: list[int] = []
    channel.events["basic_ack"].add(lambda tag, multiple: acked.append(tag))
    channel.confirm_select()
    for _ in range(10):
        channel.basic_publish(amqp.Message(b""), routing_key=queue)
    drain_until(connection, lambda: acked and acked[-1] == 10)
    assert acked == sorted(acked)


def test_transaction(channel: Any, queue: str) -> None:
    channel.tx_select()
    channel.basic_publish(amqp.Message(b"rolled back"), routing_key=queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message(b"committed"), routing_key=queue)
    assert channel.basic_get(queue, no_ack=True) is None
    channel.tx_commit()
    assert channel.basic_get(queue, no_ack=True).body == b"committed"


# Consuming.


def test_consume_with_prefetch(connection: Any, channel: Any, queue: str) -> None:
    """Per consumer without the global flag, per channel with it."""
    for number in range(10):
        channel.basic_publish(amqp.Message(b"%d" % number), routing_key=queue)
    got: list[tuple[str, bytes]] = []

    def on_message(message: Any) -> None:
        got.append((message.delivery_info["consumer_tag"], message.body))

    channel.basic_qos(0, 2, False)
    channel.basic_qos(0, 3, True)
    channel.basic_consume(queue, consumer_tag="a", callback=on_message)
    channel.basic_consume(queue, consumer_tag="b", callback=on_message)
    drain_until(connection, lambda: len(got) >= 3)
    assert channel.queue_declare(queue, passive=True).message_count == 7
    assert sorted(body for _, body in got) == [b"0", b"1", b"2"]
    assert sum(tag == "a" for tag, _ in got) == 2
    channel.basic_ack(3, multiple=True)
    drain_until(connection, lambda: len(got) >= 6)
    channel.basic_cancel("a")
    channel.basic_cancel("b")
    channel.basic_recover(requeue=True)
    first = wait_get(channel, queue)
    assert (first.body, first.delivery_info["redelivered"]) == (b"3", True)


def test_reject_and_dead_letter(channel: Any) -> None:
    dead = channel.queue_declare(exclusive=True).queue
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    queue = channel.queue_declare(exclusive=True, arguments=arguments).queue
    channel.basic_publish(amqp.Message(b"body"), routing_key=queue)
    message = wait_get(channel, queue, no_ack=False)
    channel.basic_reject(message.delivery_tag, requeue=True)
    message = wait_get(channel, queue, no_ack=False)
    assert message.delivery_info["redelivered"]
    channel.basic_reject(message.delivery_tag, requeue=False)
    (death,) = wait_get(channel, dead).headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)
    assert death["routing-keys"] == [queue]


def test_cancel_notify(connect: Connect, connection: Any, channel: Any, name: Names) -> None:
    queue = name("q")
    channel.queue_declare(queue)
    cancelled: list[str] = []
    channel.basic_consume(queue, consumer_tag="tag", on_cancel=cancelled.append)
    connect().channel().queue_delete(queue)
    drain_until(connection, lambda: cancelled)
    assert cancelled == ["tag"]


def test_cancel_without_a_callback_raises(
    connect: Connect, connection: Any, channel: Any, name: Names
) -> None:
    queue = name("q")
    channel.queue_declare(queue)
    channel.basic_consume(queue, consumer_tag="tag")
    connect().channel().queue_delete(queue)
    with pytest.raises(ConsumerCancelled):
        connection.drain_events(timeout=TIMEOUT_S)


# Errors.


def test_channel_errors(connect: Connect, connection: Any, name: Names) -> None:
    """The class of the exception says the code; the channel object opens itself again and works."""
    queue = name("q")
    owner = connect().channel()
    owner.queue_declare(queue, exclusive=True)
    owner.queue_declare(f"{queue}-open")
    channel = connection.channel()
    cases: list[tuple[type[ChannelError], int, str, Callable[[], Any]]] = [
        (
            NotFound,
            404,
            "NOT_FOUND - no queue 'missing' in vhost '/'",
            lambda: channel.queue_declare("missing", passive=True),
        ),
        (
            NotFound,
            404,
            "NOT_FOUND - no exchange 'missing' in vhost '/'",
            lambda: channel.queue_bind(f"{queue}-open", "missing"),
        ),
        (
            PreconditionFailed,
            406,
            f"PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue '{queue}-open' in vhost '/':"
            " received the value '60000' of type 'signedint' but current is none",
            lambda: channel.queue_declare(f"{queue}-open", arguments={"x-expires": 60000}),
        ),
        (
            ResourceLocked,
            405,
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could"
            " be originally declared on another connection or the exclusive property value does not match that"
            " of the original declaration.",
            lambda: channel.queue_purge(queue),
        ),
        (
            AccessRefused,
            403,
            "ACCESS_REFUSED - operation not permitted on the default exchange",
            lambda: channel.queue_bind(f"{queue}-open", "", "key"),
        ),
    ]
    try:
        for kind, code, text, action in cases:
            with pytest.raises(kind) as caught:
                action()
            assert (caught.value.reply_code, caught.value.reply_text) == (code, text)
            assert channel.queue_declare(f"{queue}-open", passive=True).message_count == 0
    finally:
        owner.queue_delete(f"{queue}-open")


def test_login_methods(connect: Connect) -> None:
    for method in ("PLAIN", "AMQPLAIN"):
        assert connect(login_method=method).connected
        with pytest.raises(AccessRefused, match=f"using authentication mechanism {method}"):
            connect(login_method=method, password="wrong")


def test_vhost_errors(connect: Connect, make_user: Callable[..., str]) -> None:
    with pytest.raises(NotAllowed, match="NOT_ALLOWED - vhost no-such not found"):
        connect(virtual_host="no-such")
    user = make_user(None)
    with pytest.raises(NotAllowed, match=f"access to vhost '/' refused for user '{user}'"):
        connect(user)


def test_connection_error(connection: Any, channel: Any) -> None:
    with pytest.raises(InvalidCommand) as caught:
        channel.exchange_declare("x", "no-such-type")
    assert caught.value.reply_code == 503
    assert caught.value.reply_text == "COMMAND_INVALID - unknown exchange type 'no-such-type'"
    assert not connection.connected


@pytest.mark.disturbs_everyone
def test_forced_close(connection: Any, admin: Admin) -> None:
    admin.close_all_connections("go away")
    with pytest.raises(ConnectionForced) as caught:
        connection.drain_events(timeout=TIMEOUT_S)
    assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - go away")


@pytest.mark.slow
def test_heartbeats(connect: Connect) -> None:
    """heartbeat_tick keeps a connection; one that does not tick is ended by the server."""
    ticking, silent = connect(heartbeat=1), connect(heartbeat=1)
    assert (ticking.heartbeat, silent.heartbeat) == (1, 1)

    def ended() -> bool:
        ticking.heartbeat_tick()
        with contextlib.suppress(TimeoutError):
            ticking.drain_events(timeout=0.2)
        try:
            silent.drain_events(timeout=0.01)
        except TimeoutError:
            return False
        except OSError:
            return True
        raise AssertionError("the server sent the silent client something")

    wait_until(ended, "the end of the silent connection")
    assert ticking.channel().queue_declare(exclusive=True).queue.startswith("amq.gen-")


def test_a_body_of_many_frames(channel: Any, queue: str) -> None:
    body = bytes(range(256)) * 2000
    channel.basic_publish(amqp.Message(body), routing_key=queue)
    assert wait_get(channel, queue).body == body


def test_many_channels(connection: Any) -> None:
    """A hundred channels, each with a consumer of its own, get what is theirs."""
    got: dict[int, bytes] = {}
    for number in range(100):
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.basic_consume(
            queue, no_ack=True, callback=lambda message, number=number: got.update({number: message.body})
        )
        channel.basic_publish(amqp.Message(b"%d" % number), routing_key=queue)
    drain_until(connection, lambda: len(got) == 100)
    assert got == {number: b"%d" % number for number in range(100)}
