"""Exchanges of type `x-message-deduplication` in a broker without sockets: what passes, and what is refused."""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.field_table import Field, Table, boolean, long, longstr
from node.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    ConfirmSelect,
    ConfirmSelectOk,
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
    QueuePurge,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.exchange_queues import exchange_queue
from node.queue.filter_queue import LOOKED_MAX, SMALL_MAX, FilterQueue
from tests.kit.world import Client, World, check_invariants

PASSING = exchange_queue(DEDUPLICATION_TYPE, "x") or ""


def declaration(name: str = "x", **arguments: Field) -> ExchangeDeclare:
    """A declaration; `_` in an argument stands for `-`."""
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    return ExchangeDeclare(exchange=name, type=DEDUPLICATION_TYPE, arguments=table)


def fabric(size: int = 1000, *queues: str, ttl: int | None = None) -> tuple[World, Client]:
    """The exchange x, and queues that are bound to it: q, unless others are named."""
    world = World()
    client = world.client()
    arguments = {"x_cache_size": long(size)} | ({} if ttl is None else {"x_cache_ttl": long(ttl)})
    assert client.ask(1, declaration(**arguments)) == ExchangeDeclareOk()
    for queue in queues or ("q",):
        assert isinstance(client.ask(1, QueueDeclare(queue=queue)), QueueDeclareOk)
        assert client.ask(1, QueueBind(queue=queue, exchange="x", routing_key="any")) == QueueBindOk()
    return world, client


def publish(client: Client, *ids: str | None, exchange: str = "x", headers: Table | None = None) -> None:
    """Publish messages; the body is the id, or `-`."""
    for id_ in ids:
        table = dict(headers or {})
        if id_ is not None:
            table["x-deduplication-header"] = longstr(id_)
        body = (id_ or "-").encode()
        client.publish(1, "k", body, exchange=exchange, properties=Properties(headers=table))
    client.world.settle()


def fetched(client: Client, queue: str = "q") -> str:
    """Take all messages of a queue."""
    bodies = []
    while True:
        client.send(1, BasicGet(queue=queue, no_ack=True))
        (item,) = client.received()
        if isinstance(item.method, BasicGetEmpty):
            return " ".join(bodies)
        bodies.append(item.body.decode())


def passing(world: World) -> FilterQueue:
    queue = world.queue(PASSING)
    assert isinstance(queue, FilterQueue)
    return queue


# --- what passes ------------------------------------------------------------------------------------------


def test_each_id_passes_once_also_when_its_message_is_gone() -> None:
    world, client = fabric(1000, "q", "r")
    publish(client, "a", "b", "a", None, None)
    assert fetched(client) == fetched(client, "r") == "a b - -"
    publish(client, "b", "c", "a")
    assert fetched(client) == fetched(client, "r") == "c"
    assert (passing(world).duplicates, passing(world).ids) == (3, 3)
    assert world.broker.counters.messages_duplicate == 3
    check_invariants(world)


def test_the_order_is_kept() -> None:
    """Messages without an id go the same way."""
    _, client = fabric()
    publish(client, *("a", None, "a", "b", None, "b", "c"))
    assert fetched(client) == "a - b - c"


def test_it_routes_like_a_fanout_whatever_the_key() -> None:
    world, client = fabric()
    client.publish(1, "other key", b"m", exchange="x")
    world.settle()
    assert fetched(client) == "m"


def test_duplicates_are_confirmed() -> None:
    _, client = fabric()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    publish(client, "a", "a", "a")
    acks = [method for method in client.methods() if isinstance(method, BasicAck)]
    assert acks[-1].delivery_tag == 3


def test_a_full_cache_forgets_the_oldest() -> None:
    world, client = fabric(3)
    publish(client, "a", "b", "c", "d")
    world.settle()
    publish(client, "d", "c", "b")
    publish(client, "a")
    assert fetched(client) == "a b c d a"
    assert passing(world).ids == 3


def test_ids_are_forgotten_by_age() -> None:
    world, client = fabric(1000, ttl=5000)
    publish(client, "a")
    world.advance(4.0)
    publish(client, "a", "b")
    world.advance(1.5)
    publish(client, "a", "b")
    assert fetched(client) == "a b a"
    world.advance(20.0)
    assert (passing(world).ids, passing(world).backlog.count) == (0, 0)
    check_invariants(world)


@pytest.mark.parametrize("ttl", [long(1000), longstr("1000")])
def test_a_message_may_have_an_age_of_its_own(ttl: Field) -> None:
    world, client = fabric(1000, ttl=60_000)
    publish(client, "a", headers={"x-cache-ttl": ttl})
    publish(client, "b")
    world.advance(2.0)
    publish(client, "a", "b")
    assert fetched(client) == "a b a"


def test_an_exchange_bound_to_another_one() -> None:
    """The second one has a cache of its own, and is passed as well."""
    world, client = fabric()
    assert client.ask(1, declaration("y", x_cache_size=long(1))) == ExchangeDeclareOk()
    assert client.ask(1, ExchangeBind(destination="x", source="y")) == ExchangeBindOk()
    publish(client, "a", "a", "b", "a", exchange="y")
    world.settle()
    assert fetched(client) == "a b"


def test_further_routing_by_headers() -> None:
    """A headers exchange behind it sees the headers of the message."""
    _, client = fabric()
    assert client.ask(1, ExchangeDeclare(exchange="h", type="headers")) == ExchangeDeclareOk()
    assert client.ask(1, ExchangeBind(destination="h", source="x")) == ExchangeBindOk()
    assert isinstance(client.ask(1, QueueDeclare(queue="r")), QueueDeclareOk)
    bind = QueueBind(queue="r", exchange="h", arguments={"colour": longstr("red")})
    assert client.ask(1, bind) == QueueBindOk()
    publish(client, "a", "b", headers={"colour": longstr("red")})
    publish(client, "a", "c")
    assert (fetched(client), fetched(client, "r")) == ("a b c", "a b")


def test_what_no_binding_takes_goes_to_the_alternate_exchange() -> None:
    world = World()
    client = world.client()
    arguments = {"x_cache_size": long(9), "alternate_exchange": longstr("amq.fanout")}
    assert client.ask(1, declaration(**arguments)) == ExchangeDeclareOk()
    assert isinstance(client.ask(1, QueueDeclare(queue="r")), QueueDeclareOk)
    assert client.ask(1, QueueBind(queue="r", exchange="amq.fanout")) == QueueBindOk()
    publish(client, "a", "a")
    assert fetched(client, "r") == "a"


def test_more_than_a_turn_looks_at() -> None:
    world, client = fabric(10_000)
    count = LOOKED_MAX * 2 + 7
    publish(client, *(str(number % (count - 5)) for number in range(count)))
    assert (world.queue("q").backlog.count, passing(world).duplicates) == (count - 5, 5)
    check_invariants(world)


def test_single_publishes_share_entries() -> None:
    world, client = fabric(10_000)
    for number in range(SMALL_MAX * 5):
        publish(client, str(number))
    assert passing(world).backlog.count <= SMALL_MAX + 5
    assert passing(world).ids == SMALL_MAX * 5
    publish(client, *(str(number) for number in range(SMALL_MAX * 5)))
    assert world.queue("q").backlog.count == SMALL_MAX * 5


def test_a_purge_of_its_queue_forgets_all_ids() -> None:
    world, client = fabric()
    publish(client, "a", "b")
    with pytest.raises(StopIteration):
        next(passing(world).purge())
    assert (passing(world).ids, passing(world).backlog.count) == (0, 0)
    publish(client, "a")
    assert fetched(client) == "a b a"


def test_policies_of_queues_do_not_reach_it() -> None:
    world, client = fabric()
    limits = {"max-length": 1, "message-ttl": 0, "expires": 1}
    world.submit(SetPolicy("/", "p", ".*", limits, 0, "queues"))
    world.settle()
    assert passing(world).settings.max_length is None
    publish(client, "a", "b", "a")
    world.advance(10.0)
    assert PASSING in world.queue_names


# --- what is refused --------------------------------------------------------------------------------------

SIZE = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"
TTL = "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"
PERSISTENCE = "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, SIZE),
        ({"x_cache_size": long(0)}, SIZE),
        ({"x_cache_size": long(-1)}, SIZE),
        ({"x_cache_size": boolean(True)}, SIZE),
        ({"x_cache_size": longstr("many")}, SIZE),
        ({"x_cache_size": long(10**9)}, SIZE),
        ({"x_cache_size": long(1), "x_cache_ttl": long(0)}, TTL),
        ({"x_cache_size": long(1), "x_cache_ttl": longstr("x")}, TTL),
        ({"x_cache_size": long(1), "x_cache_persistence": longstr("tape")}, PERSISTENCE),
        ({"x_cache_size": long(1), "x_cache_persistence": boolean(True)}, PERSISTENCE),
    ],
)
def test_refused_arguments(arguments: dict[str, Field], text: str) -> None:
    client = World().client()
    assert client.refusal(declaration(**arguments)) == (
        ReplyCode.PRECONDITION_FAILED,
        f"PRECONDITION_FAILED - {text}",
    )


@pytest.mark.parametrize("size", [longstr("100"), Field("b", 7), Field("I", 7)])
def test_taken_arguments(size: Field) -> None:
    arguments = {"x_cache_size": size, "x_cache_ttl": longstr("5"), "x_cache_persistence": longstr("disk")}
    assert World().client().ask(1, declaration(**arguments)) == ExchangeDeclareOk()


@pytest.mark.parametrize(
    "method",
    [
        QueuePurge(queue=PASSING),
        BasicGet(queue=PASSING),
        BasicConsume(queue=PASSING),
        QueueBind(queue=PASSING, exchange="amq.direct", routing_key="k"),
        QueueDeclare(queue=PASSING, passive=True),
    ],
)
def test_clients_do_not_reach_its_queue(method: QueuePurge) -> None:
    _, client = fabric()
    code, text = client.refusal(method)
    assert (code, "belongs to an exchange" in text) == (ReplyCode.ACCESS_REFUSED, True)


def test_the_queue_goes_with_the_exchange() -> None:
    world, client = fabric()
    publish(client, "a")
    assert client.ask(1, ExchangeDelete(exchange="x")) == ExchangeDeleteOk()
    assert world.queue_names == {"q"}
