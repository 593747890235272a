"""Exchanges that the broker itself publishes to."""

from node.amqp.methods import QueueBind, QueueDeclare
from node.amqp.properties import Properties
from node.broker.internal_exchange import InternalExchange, declaration
from node.catalogue.commands import DeleteVhost
from tests.kit.world import World

NAME = "amq.rabbitmq.own"


def test_messages_go_to_who_is_bound() -> None:
    world = World()
    world.submit(declaration("/", NAME))
    client = world.client()
    for queue, pattern in (("a", "#"), ("b", "one")):
        client.send(1, QueueDeclare(queue=queue))
        client.send(1, QueueBind(queue=queue, exchange=NAME, routing_key=pattern))
    client.received()
    exchange = InternalExchange(world.broker, "/", NAME)
    for key in ("one", "two", "one"):
        route = exchange.open(key)
        assert route is not None
        assert route.congested == []
        route.send(Properties(app_id="x"), b"body")
    assert (world.queue("a").backlog.count, world.queue("b").backlog.count) == (3, 2)
    assert world.queue("a").counters.publish == 0, "nobody's publishes"


def test_nobody_is_bound() -> None:
    world = World()
    exchange = InternalExchange(world.broker, "/", NAME)
    assert exchange.open("key") is None, "there is no such exchange"
    world.submit(declaration("/", NAME))
    assert exchange.open("key") is None
    world.submit(DeleteVhost("/"))
    assert exchange.open("key") is None


def test_clients_cannot_publish_to_it() -> None:
    world = World()
    world.submit(declaration("/", NAME))
    client = world.client()
    client.publish(1, "k", b"x", exchange=NAME)
    (close,) = client.methods()
    assert close is not None
    assert "cannot publish to internal exchange" in str(close)
