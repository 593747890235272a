"""An open connection to its last word: scope of errors, closing, bounds, waiting (amqp-behaviour §1.7–§1.9, §2)."""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.connection_state import ConnectionState
from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import boolean
from node.amqp.frames import HEARTBEAT, frame, method_frame
from node.amqp.methods import (
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    ExchangeDeclare,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
)
from node.amqp.properties import Properties
from node.catalogue.commands import Command, DeleteUser, DeleteVhost, SetParameter, SetUserLimits
from node.catalogue.records import UserLimits
from node.client.base_connection import REPLIES_MAX_BYTES
from node.client.publishing import ROUTES_MAX
from node.client.settings import BrokerSettings
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.world import LOGIN, Client, World, check_invariants

# --- §1.7, §2.4: scope of errors --------------------------------------------------------------------------


def connection_error(client: Client) -> tuple[int, str, tuple[int, int]]:
    """The one connection.close that came."""
    (item,) = client.received()
    assert item.channel == 0
    assert isinstance(item.method, ConnectionClose)
    close = item.method
    assert client.connection.state is ConnectionState.CLOSING
    return close.reply_code, close.reply_text, (close.failed_class_id, close.failed_method_id)


RUNNING = "CHANNEL_ERROR - unexpected method in connection state running"


@pytest.mark.parametrize(
    ("channel", "method", "code", "text"),
    [
        (0, BasicQos(), 504, RUNNING),
        (0, BasicPublish(), 504, RUNNING),
        (0, ConnectionOpen("/"), 504, RUNNING),
        (0, ConnectionStartOk(), 504, RUNNING),
        (1, ConnectionOpen("/"), 503, "COMMAND_INVALID - unimplemented method"),
        (1, ConnectionClose(), 503, "COMMAND_INVALID - unimplemented method"),
        (1, QueueDeclareOk("q", 0, 0), 503, "COMMAND_INVALID - unimplemented method"),
        (1, BasicConsumeOk("t"), 503, "COMMAND_INVALID - unimplemented method"),
        (1, ChannelCloseOk(), 503, "COMMAND_INVALID - unimplemented method"),
        (1, ChannelOpen(), 504, "CHANNEL_ERROR - second 'channel.open' seen"),
        (2, ChannelClose(), 504, "CHANNEL_ERROR - expected 'channel.open'"),
        (2, BasicPublish(), 504, "CHANNEL_ERROR - expected 'channel.open'"),
        (
            1,
            ExchangeDeclare(exchange="x", type="bogus"),
            503,
            "COMMAND_INVALID - unknown exchange type 'bogus'",
        ),
        (1, BasicQos(prefetch_size=10), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)"),
        (1, BasicPublish(immediate=True), 540, "NOT_IMPLEMENTED - immediate=true"),
    ],
)
def test_methods_that_end_the_connection(channel: int, method: Method, code: int, text: str) -> None:
    """§1.7 and §2.1 rows with ids of the method, §2.4."""
    client = World().client()
    client.send(channel, method)
    assert connection_error(client) == (code, text, (method.class_id, method.method_id))


def test_undecodable_arguments() -> None:
    """§1.7 row `truncated args / trailing bytes`."""
    client = World().client()
    client.feed(frame(1, 1, b"\0\x3c\0\x0a\0"))
    assert connection_error(client) == (501, "FRAME_ERROR - cannot decode <<0>>", (60, 10))


def test_a_frame_error_is_answered_and_ends_the_reading() -> None:
    """§1.7 row 1: the server stops reading, 3 s later resets."""
    client = World().client()
    client.feed(b"\x01\0\x01\0\0\0\x04\0\x14\0\x0a\0" + method_frame(0, ConnectionCloseOk()))
    text = "FRAME_ERROR - type 1, all octets = <<0,20,0,10>>: {invalid_frame_end_marker,0}"
    assert connection_error(client) == (501, text, (0, 0))
    assert not client.connection.is_reading
    client.feed(b"garbage" * 100)
    client.world.advance(2.9)
    assert not client.is_reset
    client.world.advance(0.2)
    assert client.is_reset


def test_a_channel_error_leaves_the_rest_alone() -> None:
    """§2.4: all 403/404/405/406."""
    client = World().client(1, 2)
    assert client.ask(1, BasicGet(queue="nope")) == ChannelClose(
        404, "NOT_FOUND - no queue 'nope' in vhost '/'", 60, 70
    )
    assert client.ask(2, BasicQos()) == BasicQosOk()
    assert client.world.diary.entries[-1] == "channel failed: basic.get on 1: 404"


def test_a_closed_channel_drops_everything_but_close() -> None:
    """§2.2."""
    client = World().client()
    client.ask(1, BasicGet(queue="nope"))
    client.publish(1, "q", b"dropped")
    client.send(1, BasicQos())
    client.feed(method_frame(1, BasicPublish(routing_key="cut")))
    client.feed(frame(2, 1, b"stray content header"))
    assert client.received() == []
    assert client.ask(1, ChannelClose()) == ChannelCloseOk()
    client.send(1, ChannelCloseOk())
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()


def test_reopening_before_close_ok() -> None:
    """§2.2."""
    client = World().client()
    client.ask(1, BasicGet(queue="nope"))
    client.send(1, ChannelOpen())
    assert connection_error(client)[:2] == (504, "CHANNEL_ERROR - second 'channel.open' seen")


def test_a_channel_closed_by_the_client_is_free_at_once() -> None:
    """§2.1 row `client channel.close`."""
    client = World().client()
    assert client.ask(1, ChannelClose()) == ChannelCloseOk()
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()


def test_channel_max_counts_open_channels() -> None:
    """§2.1 rows `channel number > channel_max`, `open channels = channel_max`."""
    world = World(BrokerSettings(channel_max=2))
    client = world.client(60_000, 7)
    client.send(1, ChannelOpen())
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    assert connection_error(client) == (530, text, (0, 0))


def test_a_users_channels_are_limited() -> None:
    """§2.1 row `user max-channels reached`."""
    world = World()
    world.submit(SetUserLimits("guest", UserLimits(max_channels=1)))
    world.client(1)
    client = world.connect()
    client.shake_hands()
    client.send(1, ChannelOpen())
    text = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (1)"
    assert connection_error(client) == (530, text, (0, 0))


def test_channels_on_other_nodes_count() -> None:
    """§6.5 row user max-channels: across the cluster."""
    world = World()
    world.submit(SetUserLimits("guest", UserLimits(max_channels=2)))
    world.broker.remote_channel_counts["guest"] = 1
    client = world.client(1)
    client.send(2, ChannelOpen())
    text = "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of (2)"
    assert connection_error(client) == (530, text, (0, 0))
    assert world.broker.channel_counts == {}


def test_a_forced_close_reaches_a_connection_that_is_not_open_yet() -> None:
    """§1.8 row user deleted: one that has logged in and not opened its vhost goes too, without a word."""
    world = World()
    client = world.connect()
    client.feed(PROTOCOL_HEADER)
    client.send(0, ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    client.send(0, ConnectionTuneOk(2047, 131072, 0))
    client.received()
    assert client.connection.state is ConnectionState.AWAIT_OPEN
    world.broker.close_connections("user 'guest' is deleted")
    world.settle()
    assert client.is_reset


def test_long_terms_are_broken_as_erlang_breaks_them() -> None:
    """§4.1 step 9, live: a number that would pass column 80 stands on a line of its own."""
    client = World().client()
    number = "9" * 30
    client.publish(1, "q", b"", properties=Properties(expiration=number))
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    start = f"PRECONDITION_FAILED - invalid expiration '{number}': {{value_too_large,\n"
    assert close.reply_text.startswith(start)
    assert close.reply_text.endswith(f" {number}}}")


def test_immediate_is_refused_before_the_size() -> None:
    """§4.1: step 1 comes before step 2."""
    client = World(BrokerSettings(message_max_bytes=100)).client()
    client.send(1, BasicPublish(immediate=True), b"x" * 101)
    assert connection_error(client) == (540, "NOT_IMPLEMENTED - immediate=true", (60, 40))


def test_a_message_that_is_too_big() -> None:
    """§4.1 step 2: 406 once the whole body has arrived."""
    client = World(BrokerSettings(message_max_bytes=100)).client()
    client.publish(1, "q", b"x" * 100)
    assert client.received() == []
    client.publish(1, "q", b"x" * 101)
    assert client.methods() == [
        ChannelClose(
            406, "PRECONDITION_FAILED - message size 101 is larger than configured max size 100", 60, 40
        )
    ]


# --- §1.8: closing ----------------------------------------------------------------------------------------


def test_the_client_closes() -> None:
    """§0.3, §1.8: exclusive queues are gone before close-ok; the socket is left to the client."""
    client = World().client()
    client.send(1, QueueDeclare(queue="mine", exclusive=True))
    client.received()
    client.send(0, ConnectionClose(200, "bye"))
    assert client.world.queue_names == set()
    assert client.connection.channels == {}
    assert client.methods() == [ConnectionCloseOk()]
    client.world.advance(29)
    assert not client.is_reset
    client.world.advance(2)
    assert client.is_reset


def test_after_close_ok_nothing_is_listened_to() -> None:
    client = World().client()
    client.send(0, ConnectionClose(200, "bye"))
    client.received()
    client.send(1, QueueDeclare(queue="q"))
    client.send(0, ConnectionClose(200, "bye"))
    client.feed(frame(9, 1, b""))
    assert client.received() == []
    assert client.world.queue_names == set()


def test_the_peers_close_crosses_ours() -> None:
    """§1.8: both sides closing at once is fine."""
    client = World().client()
    client.send(0, BasicQos())
    client.received()
    assert client.ask(0, ConnectionClose(200, "bye")) == ConnectionCloseOk()
    client.send(0, ConnectionCloseOk())
    client.world.settle()
    assert client.is_reset


def test_while_we_close_every_frame_is_ignored() -> None:
    """§1.8: except connection.close and close-ok."""
    client = World().client()
    client.feed(
        method_frame(0, BasicQos())
        + method_frame(1, QueueDeclare(queue="late"))
        + method_frame(1, BasicPublish())
        + frame(2, 1, b"\0" * 14)
        + frame(9, 1, b"")
        + frame(1, 1, b"\xff\xff\xff\xff")
        + HEARTBEAT
    )
    connection_error(client)
    assert client.world.queue_names == set()
    client.send(0, ConnectionCloseOk())
    client.world.settle()
    assert client.is_reset


@pytest.mark.parametrize(("heartbeat", "seconds"), [(3, 3.0), (0, 30.0), (100, 30.0)])
def test_how_long_we_wait_for_close_ok(heartbeat: int, seconds: float) -> None:
    """§0.3: heartbeat seconds if 0 < heartbeat < 30, otherwise 30 s."""
    client = World().client(heartbeat=heartbeat)
    client.send(0, BasicQos())
    client.world.advance(seconds - 0.1)
    assert not client.is_reset
    client.world.advance(0.2)
    assert client.is_reset


def test_a_forced_close() -> None:
    """§1.8: 320 with the reason."""
    client = World().client()
    client.connection.force_close("because")
    assert connection_error(client) == (320, "CONNECTION_FORCED - because", (0, 0))


def test_a_forced_close_before_open_just_ends() -> None:
    client = World().connect()
    client.feed(PROTOCOL_HEADER)
    client.received()
    client.connection.force_close("because")
    assert client.received() == []
    assert client.is_reset


def test_user_and_vhost_deletion() -> None:
    """§1.8 rows `user deleted`, `vhost deleted`."""
    world = World()
    client = world.client()
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, BasicConsume(queue="q"))
    client.received()
    world.submit(DeleteUser("guest"))
    assert connection_error(client)[:2] == (320, "CONNECTION_FORCED - user 'guest' is deleted")
    world = World()
    client = world.client(capabilities={"consumer_cancel_notify": boolean(True)})
    client.send(1, QueueDeclare(queue="q"))
    client.send(1, BasicConsume(queue="q"))
    client.received()
    world.submit(DeleteVhost("/"))
    *_, last = client.methods()
    assert isinstance(last, ConnectionClose)
    assert last.reply_text == "CONNECTION_FORCED - vhost '/' is deleted"


@pytest.mark.parametrize("after", ["nothing", "header", "tune", "open", "close"])
def test_a_lost_socket_leaves_nothing_behind(after: str) -> None:
    world = World()
    deadlines = len(world.broker.timers)
    if after == "nothing":
        client = world.connect()
    elif after in ("header", "tune"):
        client = world.connect()
        client.feed(PROTOCOL_HEADER)
        if after == "tune":
            client.send(0, ConnectionStartOk({}, "PLAIN", LOGIN))
    else:
        client = world.client(heartbeat=5)
        client.send(1, QueueDeclare(queue="q", exclusive=True))
        client.send(1, BasicConsume(queue="q"))
        client.publish(1, "q", b"x")
        client.received()
        if after == "close":
            client.send(0, ConnectionClose())
    client.lose()
    assert world.broker.connections == {}
    assert world.queue_names == set()
    assert len(world.broker.timers) == deadlines
    world.settle()
    world.advance(100)


def test_update_secret() -> None:
    """§1.9."""
    client = World().client()
    answer = client.ask(0, ConnectionUpdateSecret(b"new", "rotation"))
    assert answer == ConnectionUpdateSecretOk()


# --- bounds -----------------------------------------------------------------------------------------------


def test_a_client_that_never_reads_is_no_longer_read() -> None:
    """Answers pile up to a bound; reading goes on when they are written."""
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    client.received()
    client.takes_output = False
    body = b"x" * 1_000_000
    for _ in range(REPLIES_MAX_BYTES // len(body) + 1):
        client.publish(1, "q", body)
        client.send(1, BasicGet(queue="q", no_ack=True))
    client.world.settle()
    assert not client.connection.is_reading
    client.send(1, ConfirmSelect())
    client.takes_output = True
    client.flush()
    assert client.connection.is_reading
    assert len(client.received()) == 18


def test_the_route_cache_is_bounded() -> None:
    """RPC replies use a new key each."""
    client = World().client()
    for number in range(ROUTES_MAX + 10):
        client.publish(1, f"key{number}", b"")
    assert 1 < len(client.connection._routes) <= ROUTES_MAX


def test_a_cached_route_ends_with_the_topology() -> None:
    """A publish after queue.declare must find the queue, though the same publish found none before."""
    client = World().client()
    client.publish(1, "q", b"early")
    client.send(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"late")
    assert client.world.queue("q").backlog.count == 1


def test_a_cached_route_ends_with_its_channel() -> None:
    client = World().client()
    client.send(1, QueueDeclare(queue="q"))
    client.publish(1, "q", b"one")
    client.received()
    client.ask(1, ChannelClose())
    client.publish(1, "q", b"two")
    assert connection_error(client)[:2] == (504, "CHANNEL_ERROR - expected 'channel.open'")
    assert client.world.queue("q").backlog.count == 1


# --- waiting for the replicated log -----------------------------------------------------------------------


class SlowLog:
    """A log whose commands are applied when the test says so, as in a cluster."""

    def __init__(self, world: World) -> None:
        self._log = world.broker.log
        self.pending: deque[tuple[Command[Any], Callable[[Any], None] | None]] = deque()
        world.broker.log = self

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None] | None = None) -> None:
        self.pending.append((command, on_applied))

    def apply(self) -> None:
        """Apply the next command."""
        self._log.submit(*self.pending.popleft())


def test_nothing_is_read_on_until_a_command_is_applied() -> None:
    world = World()
    client, other = world.client(), world.client()
    log = SlowLog(world)
    client.feed(
        method_frame(1, QueueDeclare(queue="a"))
        + method_frame(1, QueueDeclare(queue="b"))
        + method_frame(1, BasicQos())
    )
    client.publish(1, "b", b"waits")
    assert client.received() == []
    assert not client.connection.is_reading
    assert other.ask(1, BasicQos()) == BasicQosOk()
    log.apply()
    assert client.methods() == [QueueDeclareOk("a", 0, 0)]
    assert not client.connection.is_reading
    log.apply()
    assert client.methods() == [QueueDeclareOk("b", 0, 0), BasicQosOk()]
    assert client.connection.is_reading
    assert world.queue("b").backlog.count == 1
    check_invariants(world)


def test_a_flush_does_not_end_the_wait() -> None:
    world = World()
    client = world.client(1, 2)
    log = SlowLog(world)
    client.feed(
        method_frame(2, BasicQos()) + method_frame(1, QueueDeclare(queue="a")) + method_frame(2, TxSelect())
    )
    assert client.methods() == [BasicQosOk()]
    client.flush()
    assert not client.connection.is_reading
    log.apply()
    assert len(client.received()) == 2


@pytest.mark.parametrize("end", ["lose", "force"])
def test_an_answer_that_comes_too_late_is_dropped(end: str) -> None:
    world = World()
    client = world.client()
    log = SlowLog(world)
    client.send(1, QueueDeclare(queue="a"))
    if end == "lose":
        client.lose()
    else:
        client.connection.force_close("because")
    client.received()
    while log.pending:
        log.apply()
    assert client.received() == []


def test_a_refusal_by_the_log_fails_the_channel() -> None:
    world = World()
    client = world.client()
    log = SlowLog(world)
    client.send(1, QueueDeclare(queue="a"))
    log._log.submit(SetParameter("/", "vhost-limits", "limits", {"max-queues": 0}))
    log.apply()
    (close,) = client.methods()
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.failed_class_id, close.failed_method_id) == (406, 50, 10)
    assert client.connection.is_reading


# --- the end ----------------------------------------------------------------------------------------------


def close(client: Client) -> None:
    client.send(0, ConnectionClose(200, "", 0, 0))
    assert client.methods() == [ConnectionCloseOk()]
    client.lose()


def fail_on_channel(client: Client) -> None:
    client.send(2, QueueDeclare(queue="nowhere", passive=True))
    client.world.settle()
    client.lose()


def fall_silent(client: Client) -> None:
    client.world.advance(30)


def send_rubbish(client: Client) -> None:
    client.feed(bytes(8))
    client.world.advance(60)


def be_blocked(client: Client) -> None:
    client.world.broker.alarms.set("memory")
    client.publish(1, "q", b"m")
    assert client.connection.throttle.is_blocked
    client.lose()
    client.world.broker.alarms.clear("memory")


def wait_for_a_turn(client: Client) -> None:
    share = client.connection._share
    share.begin()
    share.stop()
    share.end()
    client.lose()
    assert client.world.broker.turns.has_work


def be_sent_away(client: Client) -> None:
    client.world.broker.close_connections("enough", lambda connection: connection is client.connection)
    client.send(0, ConnectionCloseOk())


@pytest.mark.parametrize(
    "end",
    [
        Client.lose,
        close,
        fail_on_channel,
        fall_silent,
        send_rubbish,
        be_blocked,
        wait_for_a_turn,
        be_sent_away,
    ],
)
def test_nothing_is_left_of_a_connection_that_has_ended(end: Callable[[Client], None]) -> None:
    """An ended connection leaves nothing: it refers to the broker, which would stay until Python looks for cycles."""
    world = World()
    with no_search_for_cycles():
        client = world.client(1, 2, 3, heartbeat=10)
        client.send(1, QueueDeclare(queue="q"))
        client.send(1, BasicConsume(queue="q"))
        client.send(2, ConfirmSelect())
        client.send(3, TxSelect())
        for channel in (1, 2, 3):
            client.publish(channel, "q", b"1", b"2")
        assert len(client.bodies()) == 4
        connection = weakref.ref(client.connection)
        channels = [weakref.ref(channel) for channel in client.connection.channels.values()]
        end(client)
        world.settle()
        assert client.is_reset
        del client
        assert_gone(connection, *channels)


@pytest.mark.parametrize("sent", [b"", PROTOCOL_HEADER[:3], PROTOCOL_HEADER, b"GET / HT"])
def test_nothing_is_left_of_a_connection_that_never_opened(sent: bytes) -> None:
    world = World()
    with no_search_for_cycles():
        client = world.connect()
        client.feed(sent)
        world.settle()
        connection = weakref.ref(client.connection)
        world.advance(60)
        assert client.is_reset
        del client
        assert_gone(connection)
