"""The service of federation on one node, with an upstream in the test's process: messages come without a socket."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.methods import ExchangeDeclare, QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.amqp_client.phase import Phase
from node.amqp_client.settings import client_properties, settings_of
from node.amqp_client.uri import AmqpUri, parse
from node.catalogue.commands import PutVhost, SetParameter, SetPolicy
from node.federation.life import Client, OnEvents
from node.io.amqp_client import AmqpClient
from node.io.federation import FederationService
from node.io.local_dial import dial_local
from node.io.plugin_service import ServiceHost
from node.override import override
from tests.kit.live_world import LoopWorld, until
from tests.kit.server_thread import config


class NearService(FederationService):
    """A service whose upstream is a broker of this process."""

    def __init__(self, world: LoopWorld, upstream: LoopWorld) -> None:
        super().__init__(ServiceHost(world.broker, config()))
        self._upstream = upstream

    @override
    def dial(self, uri: AmqpUri, name: str, on_events: OnEvents) -> Client:
        return AmqpClient(
            AmqpUri(uri.text, vhost=uri.vhost),
            settings_of(uri, client_properties(name)),
            loop=self._loop,
            on_events=on_events,
            dial=lambda client: dial_local(self._upstream.broker, client, self._loop),
        )


class Sites:
    """Two brokers with the exchange x and the queue q bound to it; `down` federates x with `up`."""

    def __init__(self, ack_mode: str = "on-confirm") -> None:
        self.up, self.down = LoopWorld(), LoopWorld()
        for world in (self.up, self.down):
            client = world.client()
            client.ask(1, ExchangeDeclare(exchange="x", type="fanout", durable=True))
            client.ask(1, QueueDeclare(queue="q", durable=True))
            client.ask(1, QueueBind(queue="q", exchange="x"))
            client.lose()
        upstream = {"uri": "amqp://up", "ack-mode": ack_mode}
        self.down.submit(SetParameter("/", "federation-upstream", "u", upstream))
        self.down.submit(SetPolicy("/", "fed", "^x$", {"federation-upstream": "u"}, 0, "exchanges"))

    def run(self, story: Callable[[FederationService], Any]) -> None:
        """Tell a story of the service of `down`, and stop it."""

        async def told() -> None:
            self.up.join_loop()
            service = NearService(self.down, self.up)
            service.start()
            await story(service)
            service.stop(is_removed=False)
            assert service.is_idle
            await until(lambda: not self.up.broker.connections)

        self.down.run(told)

    def publish(self, count: int) -> None:
        """Publish messages upstream, as a client that then leaves."""
        client = self.up.client()
        client.publish(1, "", *[b"m"] * count, exchange="x")
        self.up.settle()
        client.lose()


def row(service: FederationService) -> dict[str, Any]:
    """Return the row of the only link."""
    (found,) = service.answer("links", {})
    assert isinstance(found, dict)
    return found


def is_running(service: FederationService) -> bool:
    return bool(row(service)["status"] == "running")


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_come_from_upstream(mode: str) -> None:
    sites = Sites(mode)

    async def story(service: FederationService) -> None:
        await until(lambda: is_running(service))
        (here,) = sites.down.broker.connections.values()
        assert here.user_name == "none"
        assert row(service)["local_connection"] == here.name
        sites.publish(100)
        await until(lambda: sites.down.queue("q").backlog.count == 100)
        await until(lambda: all(not sites.up.queue(name).unacked_count for name in sites.up.queue_names))

    sites.run(story)


def test_an_alarm_here_keeps_messages_upstream_until_it_ends() -> None:
    """The link reads no more from upstream while its own node takes nothing."""
    sites = Sites()

    async def story(service: FederationService) -> None:
        await until(lambda: is_running(service))
        sites.down.broker.alarms.set("memory")
        sites.publish(1)
        (life,) = service.links
        await until(lambda: not life._may_publish)
        sites.publish(10)
        for _ in range(20):
            await asyncio.sleep(0)
        assert sites.down.queue("q").backlog.count == 0
        sites.down.broker.alarms.clear("memory")
        await until(lambda: sites.down.queue("q").backlog.count == 11)

    sites.run(story)


def test_an_upstream_without_a_host_is_another_vhost_of_this_broker() -> None:
    """A URI without a host needs no password, and its links know the cluster's name as those of any broker do."""
    world = LoopWorld()
    client = world.client()
    client.ask(1, ExchangeDeclare(exchange="x", type="fanout", durable=True))
    client.ask(1, QueueDeclare(queue="q", durable=True))
    client.ask(1, QueueBind(queue="q", exchange="x"))
    client.lose()
    world.submit(PutVhost("v"))
    world.submit(SetParameter("/", "federation-upstream", "u", {"uri": "amqp:///v"}))
    world.submit(SetPolicy("/", "fed", "^[xq]$", {"federation-upstream": "u"}, 0, "all"))

    async def story() -> None:
        service = FederationService(ServiceHost(world.broker, config()))
        service.start()

        def all_run() -> bool:
            return all(each["status"] == "running" for each in service.answer("links", {}))

        await until(all_run)
        assert [each["uri"] for each in service.answer("links", {})] == ["amqp:///v"] * 2
        peers = [life.session.peer for life in service.links if life.session is not None]
        assert [peer.cluster for peer in peers] == [service.cluster] * 2
        uri = parse("amqp:///v")
        publisher = AmqpClient(
            uri,
            settings_of(uri, client_properties("publisher")),
            loop=asyncio.get_running_loop(),
            on_events=lambda events: None,
            dial=lambda client: dial_local(world.broker, client, asyncio.get_running_loop()),
        )
        publisher.start()
        await until(lambda: publisher.core.phase is Phase.RUNNING)
        publisher.core.open_channel(1)
        publisher.core.publish_body(1, "x", "k", b"m", Properties())
        await until(lambda: world.queue("q").backlog.count == 1)
        publisher.abort()
        service.stop(is_removed=False)
        await until(lambda: not world.broker.connections)

    world.run(story)


def test_a_restart_connects_anew() -> None:
    sites = Sites()

    async def story(service: FederationService) -> None:
        await until(lambda: is_running(service))
        former = row(service)["local_connection"]
        assert service.answer("restart", {"id": row(service)["id"]}) is True
        assert service.answer("restart", {"id": "none"}) is False
        assert former not in {each.name for each in sites.down.broker.connections.values()}
        await until(lambda: is_running(service))
        assert row(service)["local_connection"] != former
        with pytest.raises(LookupError):
            service.answer("what", {})

    sites.run(story)
