"""The exchange types of RabbitMQ's plug-ins: x-consistent-hash, x-modulus-hash, x-random.

Both servers have to send each message to the same queue, as its key is hashed by Erlang's functions: see
`node.plugins.exchanges.erlang_hash`, which says here what is due. docs/differences.md has what differs on purpose.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from node.amqp.field_table import Field, Table, array, boolean, long, longstr, table, timestamp
from node.amqp.methods import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueUnbind,
)
from node.amqp.properties import Properties
from node.plugins.exchanges.erlang_hash import UNDEFINED, Term, jump, phash2, term_of
from tests.conformance.entities import alternate, bound_queue, declare_exchange, is_routed, refused
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection
from tests.kit.servers import Server, start_server

Name = Callable[[str], str]

PLUGINS = ("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_sharding")
KEYS = [f"key.{number}" for number in range(60)]


@pytest.fixture(scope="module")
def plugged() -> Iterator[Server]:
    """A server with the plug-ins."""
    server = start_server(plugins=PLUGINS)
    yield server
    server.stop()


@pytest.fixture
def peer(plugged: Server, connect: Callable[..., Connection]) -> Channel:
    """A channel of that server."""
    return connect(to=plugged).channel(1)


def bind(channel: Channel, exchange: str, key: str, queue: str = "", **fields: Table) -> str:
    """Bind a queue, by default one of its own."""
    queue = queue or channel.declare(exclusive=True)
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key=key, **fields)
    return queue


def spread(
    channel: Channel,
    exchange: str,
    queues: Sequence[str],
    messages: Sequence[tuple[str, Properties | bytes]],
) -> list[str | None]:
    """Publish messages by routing key and properties, and return the queue that each of them came to."""
    for number, (key, properties) in enumerate(messages):
        channel.publish(exchange, key, b"%d" % number, properties)
    found: list[str | None] = [None] * len(messages)
    for queue in queues:
        for body in drain(channel, queue):
            assert found[int(body)] is None, f"message {body!r} came twice"
            found[int(body)] = queue
    return found


def by_keys(keys: Sequence[str]) -> list[tuple[str, Properties | bytes]]:
    return [(key, b"\0\0") for key in keys]


def due(values: Sequence[Term], weighted: Sequence[tuple[str, int]]) -> list[str]:
    """Return the queue for each value that is hashed, with queues and weights in the order of their bindings."""
    buckets = [queue for queue, weight in weighted for _ in range(weight)]
    return [buckets[jump(phash2(value), len(buckets))] for value in values]


# --- x-consistent-hash --------------------------------------------------------------------------------------


def hash_exchange(channel: Channel, name: Name, **arguments: Field) -> str:
    asked = {key.replace("_", "-"): value for key, value in arguments.items()}
    return declare_exchange(channel, name("ch"), "x-consistent-hash", auto_delete=True, arguments=asked)


def test_weights_and_keys_choose_the_queue(peer: Channel, name: Name) -> None:
    exchange = hash_exchange(peer, name)
    a, b, c = (bind(peer, exchange, weight) for weight in ("1", "+2", "03"))
    values = [key.encode() for key in KEYS]
    found = spread(peer, exchange, [a, b, c], by_keys(KEYS))
    assert found == due(values, [(a, 1), (b, 2), (c, 3)])
    assert len(set(found)) == 3
    # A queue that leaves gives up its buckets, and those after them move up.
    peer.call(QueueUnbind, queue=b, exchange=exchange, routing_key="+2")
    assert spread(peer, exchange, [a, b, c], by_keys(KEYS)) == due(values, [(a, 1), (c, 3)])
    bind(peer, exchange, "5", b)
    assert spread(peer, exchange, [a, b, c], by_keys(KEYS)) == due(values, [(a, 1), (c, 3), (b, 5)])


def test_few_keys_move_when_a_queue_comes(peer: Channel, name: Name) -> None:
    exchange = hash_exchange(peer, name)
    queues = [bind(peer, exchange, "1") for _ in range(4)]
    before = spread(peer, exchange, queues, by_keys(KEYS))
    queues.append(bind(peer, exchange, "1"))
    after = spread(peer, exchange, queues, by_keys(KEYS))
    moved = [now for then, now in zip(before, after, strict=True) if then != now]
    assert set(moved) == {queues[-1]}


def test_a_binding_more_to_a_queue_changes_nothing(peer: Channel, name: Name) -> None:
    exchange = hash_exchange(peer, name)
    a, b = bind(peer, exchange, "1"), bind(peer, exchange, "1")
    bind(peer, exchange, "7", a)
    expected = due([key.encode() for key in KEYS], [(a, 1), (b, 1)])
    assert spread(peer, exchange, [a, b], by_keys(KEYS)) == expected


def test_of_several_keys_the_first_is_hashed(peer: Channel, name: Name) -> None:
    exchange = hash_exchange(peer, name)
    queues = [bind(peer, exchange, "1") for _ in range(3)]
    properties = Properties(headers={"CC": array([longstr("other"), longstr("more")])})
    messages: list[tuple[str, Properties | bytes]] = [(key, properties) for key in KEYS]
    expected = due([key.encode() for key in KEYS], [(queue, 1) for queue in queues])
    assert spread(peer, exchange, queues, messages) == expected


HEADERS: list[Table] = [
    *({"h": longstr(f"value {number}")} for number in range(20)),
    *({"h": Field("I", number)} for number in (0, 1, -1, 2**31 - 1, -(2**31), 2**27, -(2**27))),
    {"h": Field("l", 2**63 - 1)},
    {"h": Field("l", -(2**63))},
    {"h": boolean(True)},
    {"h": boolean(False)},
    {"h": Field("d", 1.5)},
    {"h": Field("V", None)},
    {"h": Field("D", (2, 314))},
    {"h": timestamp(1_700_000_000)},
    {"h": array([longstr("a"), Field("I", 1), Field("b", -1)])},
    {"h": table({"k": longstr("v"), "n": long(5)})},
    {"h": longstr("")},
    {"other": longstr("value 1")},
    {},
]


def test_a_header_is_hashed(peer: Channel, name: Name) -> None:
    """The routing key is not. Type and value count; all messages without the header go to one queue."""
    exchange = hash_exchange(peer, name, hash_header=longstr("h"))
    queues = [bind(peer, exchange, "2") for _ in range(4)]
    messages: list[tuple[str, Properties | bytes]] = [
        (f"key {number}", Properties(headers=headers)) for number, headers in enumerate(HEADERS)
    ]
    messages.append(("no headers", b"\0\0"))
    values = [term_of(headers["h"]) if "h" in headers else UNDEFINED for headers in [*HEADERS, {}]]
    expected = due(values, [(queue, 2) for queue in queues])
    assert spread(peer, exchange, queues, messages) == expected


@pytest.mark.parametrize("field", ["message_id", "correlation_id", "timestamp"])
def test_a_property_is_hashed(peer: Channel, name: Name, field: str) -> None:
    exchange = hash_exchange(peer, name, hash_property=longstr(field))
    queues = [bind(peer, exchange, "1") for _ in range(3)]
    numbers = range(1_700_000_000, 1_700_000_030)
    messages: list[tuple[str, Properties | bytes]] = [
        (f"key {number}", Properties(**{field: number if field == "timestamp" else f"{number}"}))  # type: ignore[arg-type]
        for number in numbers
    ]
    messages.append(("none", b"\0\0"))
    values: list[Term] = [b"%d" % number for number in numbers]
    expected = due([*values, UNDEFINED], [(queue, 1) for queue in queues])
    assert spread(peer, exchange, queues, messages) == expected


def test_exchanges_are_destinations_and_sources(peer: Channel, name: Name) -> None:
    """A message that another exchange passes on is hashed as one that is published."""
    source, exchange = declare_exchange(peer, name("f"), "fanout"), hash_exchange(peer, name)
    inner = declare_exchange(peer, name("f"), "fanout")
    peer.call(ExchangeBind, destination=exchange, source=source)
    a = bind(peer, exchange, "1")
    peer.call(ExchangeBind, destination=inner, source=exchange, routing_key="1")
    b, c = bound_queue(peer, inner), bound_queue(peer, source)
    expected = due([key.encode() for key in KEYS], [(a, 1), (b, 1)])
    assert spread(peer, source, [a, b], by_keys(KEYS)) == expected
    assert len(drain(peer, c)) == len(KEYS)


def test_an_exchange_without_bindings_routes_nothing(peer: Channel, name: Name) -> None:
    """An alternate exchange takes it."""
    for type_ in ("x-consistent-hash", "x-modulus-hash", "x-random"):
        exchange = declare_exchange(peer, name("e"), type_)
        assert not is_routed(peer, exchange)
        spare = declare_exchange(peer, name("spare"), "fanout")
        queue = bound_queue(peer, spare)
        other = declare_exchange(peer, name("e"), type_, arguments=alternate(spare))
        assert is_routed(peer, other)
        assert drain(peer, queue) == [b"probe"]


def test_weights_are_positive_integers(peer: Channel, name: Name) -> None:
    exchange, queue = hash_exchange(peer, name), peer.declare(exclusive=True)
    for weight, text in (
        ("a", 'The binding key must be an integer: <<"a">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ("0", "The binding key must be greater than 0"),
        ("-3", "The binding key must be greater than 0"),
    ):
        refused(peer, 406, text, QueueBind, queue=queue, exchange=exchange, routing_key=weight)


def test_one_supported_thing_is_hashed(peer: Channel, name: Name) -> None:
    for arguments, text in (
        ({"hash-property": longstr("type")}, "Unsupported property: type"),
        (
            {"hash-property": longstr("message_id"), "hash-header": longstr("h")},
            "hash-header and hash-property are mutually exclusive",
        ),
    ):
        fields = {"exchange": name("ch"), "type": "x-consistent-hash", "arguments": arguments}
        refused(peer, 406, text, ExchangeDeclare, **fields)


# --- x-modulus-hash -----------------------------------------------------------------------------------------


def test_modulus_numbers_bindings_by_key_and_name(peer: Channel, name: Name) -> None:
    """A queue with two bindings has two numbers; an exchange comes before a queue."""
    exchange = declare_exchange(peer, name("mh"), "x-modulus-hash")
    inner = declare_exchange(peer, name("f"), "fanout")
    z, b, a = (peer.declare(name(prefix), exclusive=True) for prefix in ("z", "b", "a"))
    inside = bound_queue(peer, inner)
    bind(peer, exchange, "1", z)
    bind(peer, exchange, "2", a)
    bind(peer, exchange, "", b)
    bind(peer, exchange, "2", b)
    peer.call(ExchangeBind, destination=inner, source=exchange, routing_key="2")
    order = [b, z, inside, a, b]
    queues = [z, b, a, inside]
    expected = [order[phash2([key.encode()]) % len(order)] for key in KEYS]
    assert spread(peer, exchange, queues, by_keys(KEYS)) == expected
    peer.call(QueueUnbind, queue=z, exchange=exchange, routing_key="1")
    order.remove(z)
    expected = [order[phash2([key.encode()]) % len(order)] for key in KEYS]
    assert spread(peer, exchange, queues, by_keys(KEYS)) == expected


def test_modulus_hashes_all_keys(peer: Channel, name: Name) -> None:
    exchange = declare_exchange(peer, name("mh"), "x-modulus-hash")
    order = sorted(bind(peer, exchange, "", peer.declare(name("q"), exclusive=True)) for _ in range(5))
    headers = {"CC": array([longstr("one"), longstr("two")]), "BCC": array([longstr("three")])}
    messages: list[tuple[str, Properties | bytes]] = [(key, Properties(headers=headers)) for key in KEYS]
    expected = [order[phash2([key.encode(), b"one", b"two", b"three"]) % 5] for key in KEYS]
    assert spread(peer, exchange, order, messages) == expected


# --- x-random -----------------------------------------------------------------------------------------------


def test_random_takes_one_binding_for_each_message(peer: Channel, name: Name) -> None:
    """Messages that are alike in all part ways; a queue with more bindings gets more."""
    exchange = declare_exchange(peer, name("r"), "x-random")
    a, b = bind(peer, exchange, "any"), bind(peer, exchange, "other")
    for key in "12345678":
        bind(peer, exchange, key, b)
    counts = Counter(spread(peer, exchange, [a, b], by_keys(["same"] * 500)))
    assert set(counts) == {a, b}
    assert counts[b] > counts[a] > 10, "nine of ten bindings lead to b"


# --- the plug-ins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_a_type_is_unknown_without_its_plugin(
    connect: Callable[..., Connection], name: Name, type_: str
) -> None:
    """A node on which nobody enabled a plug-in has the four types of AMQP."""
    connection = connect()
    channel = connection.channel(1)
    channel.send(ExchangeDeclare, exchange=name("e"), type=type_)
    text = f"COMMAND_INVALID - unknown exchange type '{type_}'"
    connection.expect_connection_close(503, text, ExchangeDeclare)
