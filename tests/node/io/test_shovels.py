"""The service of shovels on one node, with both ends in its own broker: messages move without a socket."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node.amqp.methods import QueueDeclare
from node.catalogue.commands import ClearParameter, SetGlobalParameter, SetParameter
from node.catalogue.events import Event
from node.client.observer import Observer, Observers
from node.io.plugin_service import ServiceHost
from node.io.shovels import ShovelService
from tests.kit.live_world import LoopWorld, until
from tests.kit.server_thread import config


class _Changes(Observer):
    def __init__(self, take: Callable[[Event], None]) -> None:
        self._take = take

    def changed(self, change: Event) -> None:
        self._take(change)


class Node:
    """A node with the service, whose changes reach it as on a real one.   settings: of the plug-in."""

    def __init__(self, world: LoopWorld, **settings: str) -> None:
        self.world = world
        shown = replace(config(), plugin_settings={f"shovel.{key}": each for key, each in settings.items()})
        self.service = ShovelService(ServiceHost(world.broker, shown))
        loop = asyncio.get_running_loop()
        watch = _Changes(lambda change: loop.call_soon(self.service.changed, [change]) and None)
        world.broker.observer = Observers(world.broker.observer, watch)

    def set(self, name: str, **keys: Any) -> None:
        """Set a shovel from the queue q to the queue r of this broker."""
        value = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "r", **keys}
        self.world.submit(SetParameter("/", "shovel", name, value))

    def row(self) -> dict[str, Any]:
        """Return the row of the only shovel."""
        (row,) = self.service.answer("shovels", {})
        assert isinstance(row, dict)
        return row

    async def end(self) -> None:
        """Stop, and wait until nothing is under way."""
        self.service.stop(is_removed=False)
        await until(lambda: self.service.is_idle and not self.world.broker.connections)


@pytest.fixture
def world() -> LoopWorld:
    """A broker with ten messages in the queue q, and the empty queue r."""
    world = LoopWorld()
    client = world.client()
    for name in ("q", "r"):
        client.ask(1, QueueDeclare(queue=name))
    client.publish(1, "q", *[b"%d" % number for number in range(10)])
    world.settle()
    client.lose()
    return world


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_move_within_the_broker(world: LoopWorld, mode: str) -> None:
    async def story() -> None:
        node = Node(world)
        node.set("s", **{"ack-mode": mode})
        node.service.start()
        await until(lambda: world.queue("r").backlog.count == 10)
        await until(lambda: node.row()["counters"]["forwarded"] == 10)
        assert node.row()["state"] == "running"
        assert {each.user_name for each in world.broker.connections.values()} == {"none"}
        await node.end()
        assert world.queue("q").unacked_count == 0

    world.run(story)


def test_a_shovel_begins_and_ends_with_its_parameter(world: LoopWorld) -> None:
    async def story() -> None:
        node = Node(world)
        node.service.start()
        assert node.service.answer("shovels", {}) == []
        node.set("s")
        await until(lambda: world.queue("r").backlog.count == 10)
        world.submit(ClearParameter("/", "shovel", "s"))
        await until(lambda: node.service.is_idle and not world.broker.connections)
        assert node.service.answer("shovels", {}) == []

    world.run(story)


def test_a_shovel_that_is_done_deletes_its_parameter(world: LoopWorld) -> None:
    async def story() -> None:
        node = Node(world)
        node.set("s", **{"src-delete-after": "queue-length"})
        node.service.start()
        await until(lambda: world.broker.catalogue.parameter("/", "shovel", "s") is None)
        await until(lambda: node.service.is_idle and not world.broker.connections)
        assert world.queue("r").backlog.count == 10

    world.run(story)


def test_a_restart_connects_anew_and_unknown_shovels_are_not_found(world: LoopWorld) -> None:
    async def story() -> None:
        node = Node(world)
        node.set("s")
        node.service.start()
        await until(lambda: node.row()["state"] == "running")
        former = set(world.broker.connections)
        assert node.service.answer("restart", {"vhost": "/", "name": "s"}) is True
        assert node.service.answer("restart", {"vhost": "/", "name": "t"}) is False
        with pytest.raises(LookupError):
            node.service.answer("what", {})
        await until(lambda: node.row()["state"] == "running" and not former & set(world.broker.connections))
        await node.end()

    world.run(story)


def test_the_clusters_name_is_the_nodes_until_it_has_one(world: LoopWorld) -> None:
    async def story() -> None:
        service = Node(world).service
        assert service.cluster == service.node == world.broker.settings.node_name
        world.submit(SetGlobalParameter("cluster_name", "east"))
        assert service.cluster == "east"

    world.run(story)
