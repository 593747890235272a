"""A connection without a socket has the rules of all others, is open from the start, and counts against no limit."""

import weakref
from collections.abc import Callable

import pytest

from node.amqp.connection_state import ConnectionState
from node.amqp.field_table import long
from node.amqp.frames import content_frames, method_frame
from node.amqp.method_codec import decode_method
from node.amqp.methods import (
    BasicPublish,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties, content_header
from node.broker.local_connection import LocalConnection
from node.catalogue.commands import PutUser, SetParameter, SetPermission
from node.catalogue.passwords import SHA256
from node.catalogue.records import User
from node.client.node_rights import NODE, NodeRights
from node.client.rights import Rights
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.world import World, check_invariants

FRAME_MAX_BYTES = 131072


class Local:
    """A client of a local connection to `/`.   changes: how often `is_reading` may have changed."""

    def __init__(self, world: World, user: User, rights: Rights | None, *, channel_max: int = 2047) -> None:
        self.world = world
        self.changes = 0
        self._raw = b""
        self.connection = LocalConnection(
            world.broker,
            user,
            "/",
            world.now,
            rights=rights,
            channel_max=channel_max,
            frame_max_bytes=FRAME_MAX_BYTES,
            on_output=self._take,
            on_change=self._changed,
        )

    def _take(self) -> None:
        self._raw += b"".join(self.connection.take_output())
        self.connection.flushed()

    def _changed(self) -> None:
        self.changes += 1

    def send(self, channel: int, method: Method) -> None:
        """Send a method."""
        self.connection.receive_data(method_frame(channel, method), self.world.now)

    def publish(self, channel: int, exchange: str, key: str, properties: Properties | None = None) -> None:
        """Publish a message of one byte."""
        method = method_frame(channel, BasicPublish(exchange=exchange, routing_key=key))
        header = content_header(1, properties or Properties())
        content = content_frames(channel, header, b"m", FRAME_MAX_BYTES)
        self.connection.receive_data(method + content, self.world.now)

    def received(self) -> list[Method]:
        """Return the methods received since the last call, of which none has a content."""
        self.world.settle()
        raw, self._raw = self._raw, b""
        found = []
        while raw:
            size = int.from_bytes(raw[3:7])
            found.append(decode_method(raw[7 : 7 + size]))
            raw = raw[8 + size :]
        return found

    def ask(self, channel: int, method: Method) -> Method:
        """Send a method that has one answer, and return that."""
        self.send(channel, method)
        (answer,) = self.received()
        return answer


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def node(world: World) -> Local:
    """A client with the node's own rights, and channel 1."""
    client = Local(world, NODE, NodeRights("/"))
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
    return client


def _user(world: World, name: str, pattern: str) -> User:
    """Return a new user, who may do everything with what matches a pattern."""
    world.submit(PutUser(name, "", SHA256, ()))
    world.submit(SetPermission("/", name, pattern, pattern, pattern))
    user = world.broker.catalogue.user(name)
    assert user is not None
    return user


def test_it_is_open_from_the_start_and_nothing_is_told_of_it(world: World, node: Local) -> None:
    assert node.connection.state is ConnectionState.OPEN
    assert node.connection.name == f"<{node.connection.id}>"
    assert node.connection.peer.local == ""
    assert world.diary.entries == []


def test_it_counts_against_no_limit_of_connections(world: World) -> None:
    world.submit(SetParameter("/", "vhost-limits", "limits", {"max-connections": 0}))
    node = Local(world, NODE, NodeRights("/"))
    assert node.ask(1, ChannelOpen()) == ChannelOpenOk()
    assert world.broker.connection_count("/", None) == 0
    node.connection.leave(world.now)
    assert world.broker.connection_count("/", None) == 0
    assert world.broker.counters.connection_closed == 0


def test_the_node_may_do_everything(node: Local) -> None:
    assert node.ask(1, ExchangeDeclare(exchange="x", type="topic")) == ExchangeDeclareOk()
    assert node.ask(1, QueueDeclare(queue="q")) == QueueDeclareOk("q", 0, 0)
    assert node.ask(1, QueueBind(queue="q", exchange="x", routing_key="#")) == QueueBindOk()
    node.publish(1, "x", "any.key", Properties(user_id="someone"))
    node.publish(1, "", "q")
    assert node.received() == []
    assert node.world.queue("q").backlog.count == 2


def test_publishes_to_internal_exchanges_are_refused_as_everywhere(node: Local) -> None:
    node.ask(1, ExchangeDeclare(exchange="inner", type="fanout", internal=True))
    node.publish(1, "inner", "")
    (close,) = node.received()
    assert isinstance(close, ChannelClose)
    assert close.reply_text == "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'"


def test_a_user_has_that_users_permissions(world: World) -> None:
    client = Local(world, _user(world, "limited", "^mine"), None)
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
    assert client.ask(1, QueueDeclare(queue="mine")) == QueueDeclareOk("mine", 0, 0)
    refusal = client.ask(1, QueueDeclare(queue="yours"))
    assert isinstance(refusal, ChannelClose)
    assert refusal.reply_code == 403


def test_it_has_as_many_channels_as_it_was_given(world: World) -> None:
    client = Local(world, NODE, NodeRights("/"), channel_max=1)
    assert client.ask(1, ChannelOpen()) == ChannelOpenOk()
    assert isinstance(client.ask(2, ChannelOpen()), ConnectionClose)


def test_an_alarm_holds_it_back_until_it_ends(world: World, node: Local) -> None:
    node.ask(1, QueueDeclare(queue="q"))
    world.broker.alarms.set("memory")
    node.publish(1, "", "q")
    assert not node.connection.is_reading
    assert world.queue("q").backlog.count == 0
    world.broker.alarms.clear("memory")
    world.settle()
    assert node.connection.is_reading
    assert node.changes
    assert world.queue("q").backlog.count == 1


def test_a_close_is_answered(node: Local) -> None:
    assert node.ask(0, ConnectionClose(reply_code=200)) == ConnectionCloseOk()


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_it_had_is_released_when_it_leaves(world: World, node: Local, is_closed: bool) -> None:
    node.ask(1, QueueDeclare(queue="own", exclusive=True))
    node.ask(1, QueueDeclare(queue="kept", arguments={"x-max-length": long(5)}))
    if is_closed:
        node.ask(0, ConnectionClose(reply_code=200))
    node.connection.leave(world.now)
    world.settle()
    assert world.queue_names == {"kept"}
    assert not world.broker.connections
    assert not world.broker.direct_clients
    check_invariants(world)


def test_it_is_freed_with_the_last_reference(world: World) -> None:
    def live(make: Callable[[], Local]) -> "weakref.ref[object]":
        client = make()
        client.ask(1, ChannelOpen())
        client.ask(1, QueueDeclare(queue="q"))
        client.connection.leave(world.now)
        world.settle()
        connection: weakref.ref[object] = weakref.ref(client.connection)
        del client.connection
        return connection

    with no_search_for_cycles():
        assert_gone(live(lambda: Local(world, NODE, NodeRights("/"))))
