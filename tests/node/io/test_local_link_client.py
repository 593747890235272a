"""The client of its own node to which a federation link publishes tells when it may publish, and leaves at once."""

import asyncio
from collections.abc import Sequence

import pytest

from node.amqp import methods as m
from node.amqp.frames import content_frames
from node.amqp.properties import Properties, content_header
from node.amqp_client.events import Closed, Confirmed, Event, Opened
from node.io.local_link_client import LocalLinkClient
from tests.kit.live_world import LoopWorld


class Owner:
    """The owner of a client.   flows: what it was told of flow."""

    def __init__(self, world: LoopWorld, vhost: str = "/") -> None:
        self.events: list[Event] = []
        self.flows: list[bool] = []
        self.client = LocalLinkClient(
            world.broker,
            vhost,
            "a link",
            loop=asyncio.get_running_loop(),
            on_events=self._take,
            on_flow=self.flows.append,
        )
        self.client.start()

    def _take(self, events: Sequence[Event]) -> None:
        self.events += events


async def turns() -> None:
    """Let the loop run until what was begun is done: each step calls the next one soon."""
    for _ in range(20):
        await asyncio.sleep(0)


async def running(world: LoopWorld) -> Owner:
    """Return a connected owner, whose channel 1 confirms and has declared the queue q."""
    owner = Owner(world)
    await turns()
    assert isinstance(owner.events[0], Opened)
    core = owner.client.core
    core.open_channel(1)
    core.call(1, m.ConfirmSelect())
    core.call(1, m.QueueDeclare(queue="q"))
    await turns()
    return owner


@pytest.fixture
def world() -> LoopWorld:
    return LoopWorld()


def test_it_publishes_with_the_rights_of_the_node_under_the_links_name(world: LoopWorld) -> None:
    async def story() -> None:
        owner = await running(world)
        owner.client.core.publish_body(1, "", "q", b"m", Properties(user_id="someone"))
        await turns()
        assert [(each.first, each.last) for each in owner.events if isinstance(each, Confirmed)] == [(1, 1)]
        (connection,) = world.broker.connections.values()
        assert owner.client.name == connection.name
        assert connection.client_properties["connection_name"].value == b"a link"
        assert owner.flows == []
        owner.client.close()

    world.run(story)
    assert world.queue("q").backlog.count == 1


def test_contents_are_published_in_the_frames_in_which_they_came(world: LoopWorld) -> None:
    async def story() -> None:
        owner = await running(world)
        body = b"b" * 500_000
        content = content_frames(1, content_header(len(body), Properties()), body, 0)
        owner.client.core.publish(1, "", "q", [content])
        await turns()
        (connection,) = world.broker.connections.values()
        assert connection.recv_oct > len(content)
        assert owner.client.core.frame_max_bytes > len(content)
        owner.client.close()

    world.run(story)
    assert world.queue("q").backlog.count == 1


def test_an_alarm_stops_the_owner_and_its_end_lets_it_go_on(world: LoopWorld) -> None:
    async def story() -> None:
        owner = await running(world)
        world.broker.alarms.set("memory")
        owner.client.core.publish_body(1, "", "q", b"m", Properties())
        await turns()
        assert owner.flows == [False]
        world.broker.alarms.clear("memory")
        await turns()
        assert owner.flows == [False, True]
        assert owner.client.core.unconfirmed(1) == 0
        owner.client.close()

    world.run(story)


def test_what_was_published_before_a_close_is_with_the_broker(world: LoopWorld) -> None:
    """The owner may have acknowledged it upstream in the same turn."""

    async def story() -> None:
        owner = await running(world)
        owner.client.core.publish_body(1, "", "q", b"m", Properties())
        count = len(owner.events)
        owner.client.close()
        await turns()
        assert not world.broker.connections
        assert len(owner.events) == count

    world.run(story)
    assert world.queue("q").backlog.count == 1


def test_an_alarm_at_the_last_flush_does_not_stop_the_owner(world: LoopWorld) -> None:
    """The owner has another connection by then, and would wait for ever to be told to go on."""

    async def story() -> None:
        owner = await running(world)
        world.broker.alarms.set("memory")
        owner.client.core.publish_body(1, "", "q", b"m", Properties())
        owner.client.close()
        await turns()
        assert owner.flows == []
        assert not world.broker.connections
        world.broker.alarms.clear("memory")

    world.run(story)


def test_an_owner_that_has_closed_it_hears_nothing_more(world: LoopWorld) -> None:
    async def story() -> None:
        owner = await running(world)
        world.broker.alarms.set("memory")
        owner.client.core.publish_body(1, "", "q", b"m", Properties())
        await turns()
        count = len(owner.events)
        owner.client.close()
        assert not world.broker.connections
        world.broker.alarms.clear("memory")
        await turns()
        assert owner.flows == [False]
        assert len(owner.events) == count

    world.run(story)


def test_an_owner_whose_vhost_is_gone_is_told(world: LoopWorld) -> None:
    async def story() -> None:
        owner = Owner(world, "gone")
        await turns()
        (closed,) = owner.events
        assert isinstance(closed, Closed)
        assert closed.text == "NOT_ALLOWED - vhost gone not found"

    world.run(story)
