"""Exchanges of type `x-recent-history` in a broker without sockets: what is kept, and what a new binding gets."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, Table, boolean, long, longstr
from node.amqp.methods import (
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicReturn,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.exchange_queues import exchange_queue
from node.catalogue.recent_history import DEFAULT_LENGTH, HISTORY_TYPE
from tests.kit.world import Client, World, check_invariants

HISTORY = exchange_queue(HISTORY_TYPE, "x") or ""


def declaration(name: str = "x", length: Field | int | None = None, **others: Field) -> ExchangeDeclare:
    arguments: Table = {key.replace("_", "-"): value for key, value in others.items()}
    if length is not None:
        arguments["x-recent-history-length"] = length if isinstance(length, Field) else long(length)
    return ExchangeDeclare(exchange=name, type=HISTORY_TYPE, arguments=arguments)


def fabric(length: int | None = None) -> tuple[World, Client]:
    """The exchange x, without bindings."""
    world = World()
    client = world.client()
    assert client.ask(1, declaration(length=length)) == ExchangeDeclareOk()
    return world, client


def publish(client: Client, *bodies: str, exchange: str = "x", **properties: object) -> None:
    given = Properties(**properties)  # type: ignore[arg-type]
    for body in bodies:
        client.publish(1, "k", body.encode(), exchange=exchange, properties=given)
    client.world.settle()


def bound(
    client: Client, queue: str, exchange: str = "x", key: str = "", arguments: Table | None = None
) -> None:
    assert isinstance(client.ask(1, QueueDeclare(queue=queue)), QueueDeclareOk)
    bind = QueueBind(queue=queue, exchange=exchange, routing_key=key, arguments=arguments or {})
    assert client.ask(1, bind) == QueueBindOk()


def fetched(client: Client, queue: str = "q") -> str:
    bodies = []
    while True:
        client.send(1, BasicGet(queue=queue, no_ack=True))
        (item,) = client.received()
        if isinstance(item.method, BasicGetEmpty):
            return " ".join(bodies)
        assert isinstance(item.method, BasicGetOk)
        assert (item.method.routing_key, item.method.redelivered) == ("k", False)
        bodies.append(item.body.decode())


# --- what a new binding gets ------------------------------------------------------------------------------


def test_a_new_binding_gets_the_last_messages_in_order() -> None:
    world, client = fabric(3)
    publish(client, "1", "2", "3", "4", "5")
    bound(client, "q")
    assert fetched(client) == "3 4 5"
    publish(client, "6")
    assert fetched(client) == "6"
    bound(client, "r")
    assert (fetched(client, "r"), fetched(client)) == ("4 5 6", "")
    check_invariants(world)


def test_twenty_are_kept_by_default() -> None:
    _, client = fabric()
    publish(client, *map(str, range(30)))
    bound(client, "q")
    assert fetched(client).split() == [str(number) for number in range(30 - DEFAULT_LENGTH, 30)]


def test_each_new_binding_brings_them_again() -> None:
    """Another binding of the same queue does, the same one again does not."""
    _, client = fabric(2)
    publish(client, "1", "2")
    bound(client, "q")
    bound(client, "q")
    assert fetched(client) == "1 2"
    bound(client, "q", key="other")
    assert fetched(client) == "1 2"
    publish(client, "3")
    assert fetched(client) == "3"


def test_what_is_not_to_be_stored() -> None:
    _, client = fabric(5)
    bound(client, "q")
    publish(client, "1")
    publish(client, "2", headers={"x-recent-history-no-store": boolean(True)})
    publish(client, "3", headers={"x-recent-history-no-store": boolean(False)})
    publish(client, "4", headers={"x-recent-history-no-store": longstr("true")})
    assert fetched(client) == "1 2 3 4"
    bound(client, "r")
    assert fetched(client, "r") == "1 3 4"


def test_a_bound_exchange_routes_the_history() -> None:
    _, client = fabric(5)
    publish(client, "1", "2")
    assert client.ask(1, ExchangeDeclare(exchange="t", type="topic")) == ExchangeDeclareOk()
    bound(client, "q", "t", "k")
    bound(client, "r", "t", "other")
    assert client.ask(1, ExchangeBind(destination="t", source="x")) == ExchangeBindOk()
    assert (fetched(client), fetched(client, "r")) == ("1 2", "")


def test_a_bound_headers_exchange_looks_at_headers() -> None:
    _, client = fabric(5)
    publish(client, "1", headers={"colour": longstr("red")})
    publish(client, "2", headers={"colour": longstr("blue")})
    assert client.ask(1, ExchangeDeclare(exchange="h", type="headers")) == ExchangeDeclareOk()
    bound(client, "q", "h", arguments={"colour": longstr("red")})
    assert client.ask(1, ExchangeBind(destination="h", source="x")) == ExchangeBindOk()
    assert fetched(client) == "1"


def test_messages_of_another_exchange_are_kept_too() -> None:
    _, client = fabric(5)
    assert client.ask(1, ExchangeBind(destination="x", source="amq.fanout")) == ExchangeBindOk()
    publish(client, "1", exchange="amq.fanout")
    bound(client, "q")
    assert fetched(client) == "1"


def test_messages_of_a_transaction() -> None:
    world, client = fabric(5)
    assert client.ask(1, TxSelect()) == TxSelectOk()
    publish(client, "1")
    assert world.queue(HISTORY).backlog.count == 0
    assert client.ask(1, TxCommit()) == TxCommitOk()
    bound(client, "q")
    assert fetched(client) == "1"


def test_the_time_to_live_begins_in_the_queue() -> None:
    world, client = fabric(5)
    publish(client, "1", expiration="1000")
    world.advance(60.0)
    bound(client, "q")
    world.advance(0.5)
    assert world.queue("q").backlog.count == 1
    world.advance(0.6)
    assert world.queue("q").backlog.count == 0


def test_the_queues_own_rules_apply() -> None:
    _, client = fabric(5)
    publish(client, "1", "2", "3")
    declare = QueueDeclare(queue="q", arguments={"x-max-length": long(2)})
    assert isinstance(client.ask(1, declare), QueueDeclareOk)
    assert client.ask(1, QueueBind(queue="q", exchange="x")) == QueueBindOk()
    assert fetched(client) == "2 3"


# --- what the history is not ------------------------------------------------------------------------------


def test_the_history_is_no_route() -> None:
    """A mandatory message without a binding comes back, and is kept nevertheless."""
    _, client = fabric(5)
    client.publish(1, "k", b"1", exchange="x", mandatory=True)
    (returned,) = client.received()
    assert isinstance(returned.method, BasicReturn)
    assert (returned.method.reply_code, returned.body) == (ReplyCode.NO_ROUTE, b"1")
    bound(client, "q")
    assert fetched(client) == "1"
    client.publish(1, "k", b"2", exchange="x", mandatory=True)
    assert client.received() == []


def test_the_alternate_exchange_gets_what_no_binding_takes() -> None:
    world = World()
    client = world.client()
    declare = declaration(alternate_exchange=longstr("amq.fanout"))
    assert client.ask(1, declare) == ExchangeDeclareOk()
    bound(client, "q", "amq.fanout")
    publish(client, "1")
    assert fetched(client) == "1"
    bound(client, "r")
    assert fetched(client, "r") == "1"


def test_policies_of_queues_do_not_shorten_it() -> None:
    world, client = fabric(5)
    publish(client, "1", "2", "3")
    limits = {"max-length": 1, "message-ttl": 0, "expires": 1}
    world.submit(SetPolicy("/", "p", "^amq", limits, 0, "queues"))
    world.advance(10.0)
    bound(client, "q")
    assert fetched(client) == "1 2 3"
    assert world.broker.counters.dead_lettered == {}


def test_it_ends_with_the_exchange() -> None:
    world, client = fabric(5)
    publish(client, "1")
    assert client.ask(1, ExchangeDelete(exchange="x")) == ExchangeDeleteOk()
    assert world.queue_names == set()
    assert client.ask(1, declaration()) == ExchangeDeclareOk()
    bound(client, "q")
    assert fetched(client) == ""


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        (long(0), "0"),
        (long(-1), "-1"),
        (longstr("5"), '<<"5">>'),
        (boolean(True), "true"),
        (Field("B", 5), "5"),
        (Field("i", 5), "5"),
        (Field("d", 5.0), "5.0"),
    ],
)
def test_refused_lengths(length: Field, shown: str) -> None:
    """RabbitMQ takes signed integers above 0 only."""
    text = f"Invalid argument {shown}, 'x-recent-history-length' must be a positive integer"
    assert World().client().refusal(declaration(length=length)) == (
        ReplyCode.PRECONDITION_FAILED,
        f"PRECONDITION_FAILED - {text}",
    )
