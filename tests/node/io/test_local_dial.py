"""Clients of this node itself, without a socket: who they are, what holds them back, and what is left of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp import methods as m
from node.amqp.properties import Properties
from node.amqp_client.events import Answered, ChannelClosed, Closed, Confirmed, Delivered, Event, Opened
from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import parse
from node.catalogue.commands import PutUser, PutVhost, SetPermission
from node.catalogue.passwords import SHA256, hash_password
from node.io.amqp_client import AmqpClient
from node.io.local_dial import dial_local
from node.queue.content import decode_content
from tests.kit.live_world import LoopWorld


class Talk:
    """A client of a world's broker, and all that has happened to it.   writable: how often it could go on."""

    def __init__(self, world: "DialWorld", uri: str) -> None:
        self.events: list[Event] = []
        self.writable = 0
        self._news = asyncio.Event()
        target, loop = parse(uri), asyncio.get_running_loop()
        self.client = AmqpClient(
            target,
            settings_of(target, client_properties("a test")),
            loop=loop,
            on_events=self._take,
            on_writable=self._can_go_on,
            dial=lambda client: dial_local(world.broker, client, loop),
        )
        self.client.start()

    def _take(self, events: list[Event]) -> None:
        self.events += events
        self._news.set()

    def _can_go_on(self) -> None:
        self.writable += 1
        self._news.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for news until a condition holds, or the connection has ended."""
        while not is_true() and not self.of(Closed):
            self._news.clear()
            await self._news.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def open(self) -> None:
        """Wait until it is connected, and open channel 1."""
        await self.until(lambda: bool(self.events))
        assert isinstance(self.events[0], Opened), self.events
        self.client.core.open_channel(1)

    async def answer(self, method: m.Method) -> Any:
        """Make a request on channel 1, and return the answer, or the code for which the channel was closed."""
        count = len(self.of(Answered))
        self.client.core.call(1, method)
        await self.until(lambda: self._answer_to(method, count) is not None)
        return self._answer_to(method, count)

    def _answer_to(self, method: m.Method, first: int) -> Any:
        for event in self.of(Answered)[first:]:
            if event.request is method:
                return event.answer
        for event in self.of(ChannelClosed):
            if event.request is method:
                return event.code
        return None

    async def close(self) -> Closed:
        """Close it by the protocol, and return the event of the end."""
        self.client.close()
        await self.until(lambda: bool(self.of(Closed)))
        (closed,) = self.of(Closed)
        assert isinstance(closed, Closed)
        for _ in range(3):  # the transport tells of its end after it
            await asyncio.sleep(0)
        return closed


class DialWorld(LoopWorld):
    """A world with a vhost and a user beside its first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.submit(PutVhost("other"))
        self.submit(PutUser("limited", hash_password("secret", b"salt"), SHA256, ()))
        self.submit(SetPermission("/", "limited", "^mine", "^mine", "^mine"))


@pytest.fixture
def world() -> DialWorld:
    return DialWorld()


def test_a_uri_without_a_user_is_the_node_which_may_do_everything(world: DialWorld) -> None:
    async def story() -> None:
        talk = Talk(world, "amqp://")
        await talk.open()
        assert await talk.answer(m.QueueDeclare(queue="q")) == m.QueueDeclareOk("q", 0, 0)
        (connection,) = world.broker.connections.values()
        assert connection.user_name == "none"
        assert talk.client.name == connection.name
        talk.client.core.publish_body(1, "", "q", b"m", Properties(user_id="guest"))
        assert await talk.answer(m.QueuePurge(queue="q")) == m.QueuePurgeOk(1)
        closed = await talk.close()
        assert closed.is_ours

    world.run(story)


@pytest.mark.parametrize("uri", ["amqp://limited@", "amqp://limited:secret@"])
def test_a_uri_with_a_user_has_that_users_permissions(world: DialWorld, uri: str) -> None:
    async def story() -> None:
        talk = Talk(world, uri)
        await talk.open()
        assert await talk.answer(m.QueueDeclare(queue="mine")) == m.QueueDeclareOk("mine", 0, 0)
        assert await talk.answer(m.QueueDeclare(queue="yours")) == 403
        await talk.close()

    world.run(story)


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("amqp://limited:wrong@", 403),
        ("amqp://nobody@", 403),
        ("amqp://limited@/other", 530),
        ("amqp:///nowhere", 530),
    ],
)
def test_what_is_refused_is_told_and_nothing_is_left(world: DialWorld, uri: str, code: int) -> None:
    async def story() -> None:
        talk = Talk(world, uri)
        await talk.until(lambda: bool(talk.events))
        (closed,) = talk.events
        assert isinstance(closed, Closed)
        assert closed.code == code

    world.run(story)


@pytest.mark.parametrize("options", ["", "?frame_max=4096", "?frame_max=1000000"])
def test_messages_go_in_and_out_in_frames_of_the_size_that_the_uri_states(
    world: DialWorld, options: str
) -> None:
    """Messages larger than a frame are confirmed, and delivered whole, in order, to a client with its own limit."""
    bodies = [b"1", b"2" * 300_000, b"3"]

    async def story() -> None:
        publisher, consumer = Talk(world, "amqp://"), Talk(world, f"amqp:///%2F{options}")
        await publisher.open()
        await consumer.open()
        await publisher.answer(m.QueueDeclare(queue="q"))
        await publisher.answer(m.ConfirmSelect())
        core = publisher.client.core
        for body in bodies:
            core.publish_body(1, "", "q", body, Properties())
        await publisher.until(lambda: core.unconfirmed(1) == 0 and bool(publisher.of(Confirmed)))
        consumer.client.core.call(1, m.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
        await consumer.until(lambda: len(_contents(consumer)) == len(bodies))
        assert [decode_content(content)[1] for content in _contents(consumer)] == bodies
        await publisher.close()
        await consumer.close()

    world.run(story)


def _contents(talk: Talk) -> list[bytes]:
    """Return the contents that were delivered."""
    return [content for event in talk.of(Delivered) for content in event.contents]


def test_an_alarm_holds_the_client_back(world: DialWorld) -> None:
    async def story() -> None:
        talk = Talk(world, "amqp://")
        await talk.open()
        await talk.answer(m.QueueDeclare(queue="q"))
        world.broker.alarms.set("memory")
        talk.client.core.publish_body(1, "", "q", b"m", Properties())
        await asyncio.sleep(0)
        assert not talk.client.is_writable
        assert world.queue("q").backlog.count == 0
        world.broker.alarms.clear("memory")
        await talk.until(lambda: talk.writable == 1)
        assert talk.client.is_writable
        assert await talk.answer(m.QueuePurge(queue="q")) == m.QueuePurgeOk(1)
        await talk.close()

    world.run(story)


def test_a_client_that_reads_nothing_gets_nothing(world: DialWorld) -> None:
    async def story() -> None:
        talk = Talk(world, "amqp://")
        await talk.open()
        await talk.answer(m.QueueDeclare(queue="q"))
        await talk.answer(m.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
        talk.client.pause_reading()
        talk.client.core.publish_body(1, "", "q", b"m", Properties())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not talk.of(Delivered)
        talk.client.resume_reading()
        await talk.until(lambda: bool(talk.of(Delivered)))
        await talk.close()

    world.run(story)


def test_a_client_that_drops_its_connection_hears_nothing_more(world: DialWorld) -> None:
    """Messages that were held back are dropped with the connection, and so are its events."""

    async def story() -> None:
        talk = Talk(world, "amqp://")
        await talk.open()
        await talk.answer(m.QueueDeclare(queue="own", exclusive=True))
        world.broker.alarms.set("memory")
        talk.client.core.publish_body(1, "", "own", b"m", Properties())
        await asyncio.sleep(0)
        assert not talk.client.is_writable
        count = len(talk.events)
        talk.client.abort()
        assert not world.broker.connections
        world.broker.alarms.clear("memory")
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(talk.events) == count
        assert talk.writable == 0
        assert not world.queue_names

    world.run(story)


def test_a_client_that_leaves_before_it_is_connected_leaves_nothing(world: DialWorld) -> None:
    async def tell(leave: Callable[[AmqpClient], None]) -> None:
        talk = Talk(world, "amqp://")
        leave(talk.client)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not world.broker.connections

    async def story() -> None:
        await tell(AmqpClient.abort)
        await tell(AmqpClient.close)

    world.run(story)


def test_a_connection_that_the_broker_closes_ends(world: DialWorld) -> None:
    async def story() -> None:
        talk = Talk(world, "amqp://")
        await talk.open()
        (connection,) = world.broker.connections.values()
        connection.force_close("enough")
        await talk.until(lambda: bool(talk.of(Closed)))
        (closed,) = talk.of(Closed)
        assert (closed.code, closed.text) == (320, "CONNECTION_FORCED - enough")
        for _ in range(5):
            await asyncio.sleep(0)

    world.run(story)
