"""An unmodified pika's BlockingConnection when things end: exceptions carry the close's code and text."""

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPHeartbeatTimeout,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from tests.conformance.pika_steps import Connect, blocking_connections, parameters
from tests.kit.client_steps import free_address
from tests.kit.servers import Admin, Server

Names = Callable[[str], str]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """Make BlockingConnections; they end with the test."""
    with blocking_connections(server) as make:
        yield make


@pytest.fixture
def connection(connect: Connect) -> Any:
    return connect()


def test_wrong_password(connect: Connect) -> None:
    with pytest.raises(ProbableAuthenticationError) as caught:
        connect(password="wrong")
    assert caught.value.args[0] == (
        "ConnectionClosedByBroker: (403) 'ACCESS_REFUSED - Login was refused using authentication mechanism"
        " PLAIN. For details see the broker logfile.'"
    )


def test_missing_vhost(connect: Connect) -> None:
    with pytest.raises(ProbableAccessDeniedError, match=r"\(530\) 'NOT_ALLOWED - vhost no-such not found'"):
        connect("no-such")


def test_vhost_without_permission(connect: Connect, make_user: Callable[..., str]) -> None:
    user = make_user(None)
    text = rf"\(530\) \"NOT_ALLOWED - access to vhost '/' refused for user '{user}'\""
    with pytest.raises(ProbableAccessDeniedError, match=text):
        connect(user=user)


def test_channel_errors(connection: Any, name: Names) -> None:
    """404 and 406 end the channel that did it; the connection and its other channels go on."""
    queue = name("q")
    good = connection.channel()
    good.queue_declare(queue, auto_delete=True)
    cases: list[tuple[Callable[[Any], Any], int, str]] = [
        (
            lambda channel: channel.queue_declare(queue, durable=True, auto_delete=True),
            406,
            f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/':"
            " received 'true' but current is 'false'",
        ),
        (
            lambda channel: channel.exchange_declare("nowhere", passive=True),
            404,
            "NOT_FOUND - no exchange 'nowhere' in vhost '/'",
        ),
        (
            lambda channel: (channel.basic_ack(99), channel.queue_declare("", exclusive=True)),
            406,
            "PRECONDITION_FAILED - unknown delivery tag 99",
        ),
        (
            lambda channel: (
                channel.basic_publish("nowhere", "", b""),
                channel.queue_declare("", exclusive=True),
            ),
            404,
            "NOT_FOUND - no exchange 'nowhere' in vhost '/'",
        ),
        (
            lambda channel: channel.exchange_declare("amq.mine"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
    ]
    for action, code, text in cases:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as caught:
            action(channel)
        assert (caught.value.reply_code, caught.value.reply_text) == (code, text)
        assert channel.is_closed
    assert good.queue_delete(queue).method.message_count == 0


def test_permissions(connect: Connect, make_user: Callable[..., str], name: Names) -> None:
    user = make_user("/", "^mine-", "", "")
    channel = connect(user=user).channel()
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(name("theirs"))
    assert caught.value.reply_code == 403
    assert caught.value.reply_text.endswith(f"in vhost '/' refused for user '{user}'")


def test_connection_error(connection: Any) -> None:
    """A wrong user of the protocol loses the connection: 503 and its text."""
    channel = connection.channel()
    with pytest.raises(ConnectionClosedByBroker) as caught:
        channel.exchange_declare("x", exchange_type="no-such-type")
    assert caught.value.reply_code == 503
    assert caught.value.reply_text == "COMMAND_INVALID - unknown exchange type 'no-such-type'"


@pytest.mark.disturbs_everyone
def test_forced_close(connection: Any, admin: Admin) -> None:
    """An operator's close: 320 with the reason."""
    channel = connection.channel()
    admin.close_all_connections("go away")
    with pytest.raises(ConnectionClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert (caught.value.reply_code, caught.value.reply_text) == (320, "CONNECTION_FORCED - go away")


def test_failover_to_the_second_host(server: Server) -> None:
    """A list of parameters: the first host is down."""
    down = free_address()
    nobody = pika.ConnectionParameters(down.host, down.port)
    connection = pika.BlockingConnection([nobody, parameters(server)])
    assert connection.channel().queue_declare("", exclusive=True).method.queue.startswith("amq.gen-")
    connection.close()


def test_update_secret(connection: Any) -> None:
    connection.update_secret("new token", "expiry")
    assert connection.channel().is_open


@pytest.mark.slow
def test_heartbeats(connect: Connect) -> None:
    """Two intervals without a byte from the client end it; one that answers heartbeats lives."""
    alive, silent = connect(heartbeat=1), connect(heartbeat=1)
    serving: list[bool] = []
    alive.call_later(4, lambda: serving.append(True))
    while not serving:
        alive.process_data_events(time_limit=0.2)
    assert alive.channel().is_open
    with pytest.raises((StreamLostError, AMQPHeartbeatTimeout, ConnectionClosedByBroker)):
        silent.channel()
