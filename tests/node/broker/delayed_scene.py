"""A delayed exchange in a broker without sockets, and a client that publishes to it and looks at what came of that."""

from node.amqp.field_table import Field, Table, longstr
from node.amqp.methods import (
    BasicGet,
    BasicGetEmpty,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from node.amqp.properties import Properties
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue
from node.queue.delayed_queue import ROUNDING_S
from tests.kit.world import Client, World


def declaration(name: str = "x", type_: str | None = "direct", **flags: bool) -> ExchangeDeclare:
    arguments = {} if type_ is None else {"x-delayed-type": longstr(type_)}
    return ExchangeDeclare(exchange=name, type=DELAYED_TYPE, arguments=arguments, **flags)


def fabric(type_: str = "direct", *keys: str, queue: str = "q") -> tuple[World, Client]:
    """The exchange x, and a queue that is bound to it with these keys."""
    world = World()
    client = world.client()
    assert client.ask(1, declaration(type_=type_)) == ExchangeDeclareOk()
    bound(client, queue, *keys or ("k",))
    return world, client


def bound(
    client: Client, queue: str, *keys: str, exchange: str = "x", arguments: Table | None = None
) -> None:
    assert isinstance(client.ask(1, QueueDeclare(queue=queue)), QueueDeclareOk)
    for key in keys:
        bind = QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
        assert client.ask(1, bind) == QueueBindOk()


def publish(
    client: Client,
    delay: Field | int | None,
    body: bytes = b"m",
    key: str = "k",
    *,
    exchange: str = "x",
    mandatory: bool = False,
    headers: Table | None = None,
    **properties: object,
) -> None:
    table = dict(headers or {})
    if delay is not None:
        table["x-delay"] = delay if isinstance(delay, Field) else Field("I", delay)
    given = Properties(headers=table, **properties)  # type: ignore[arg-type]
    client.publish(1, key, body, exchange=exchange, mandatory=mandatory, properties=given)
    client.world.settle()


def waiting(world: World, exchange: str = "x") -> int:
    return world.queue(waiting_queue(exchange)).backlog.count


def ready(world: World, queue: str = "q") -> int:
    world.settle()
    return world.queue(queue).backlog.count


def fetched(client: Client, queue: str = "q") -> list[bytes]:
    """Take all messages of a queue."""
    bodies = []
    while True:
        client.send(1, BasicGet(queue=queue, no_ack=True))
        (item,) = client.received()
        if isinstance(item.method, BasicGetEmpty):
            return bodies
        bodies.append(item.body)


def later(world: World, seconds: float) -> None:
    """Let time pass, and as much more as times are rounded up."""
    world.advance(seconds + ROUNDING_S)
