"""amqp-behaviour §3.1–3.6: exchanges, from their names to their end. Alternates: a file apart."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from node.amqp.field_table import Field, Table, array, boolean, longstr
from node.amqp.methods import (
    BasicReject,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDelete,
    QueueUnbind,
)
from tests.conformance.entities import (
    DEFAULT_EXCHANGE_REFUSED,
    access_refused,
    alternate,
    bound_queue,
    declare_exchange,
    exchange_exists,
    is_routed,
    limited_channel,
    no_exchange,
    publish_refused,
    refused,
)
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel, Connection

Name = Callable[[str], str]
Connect = Callable[..., Connection]

PREDECLARED = {
    "amq.direct": ("direct", False),
    "amq.fanout": ("fanout", False),
    "amq.headers": ("headers", False),
    "amq.match": ("headers", False),
    "amq.topic": ("topic", False),
    "amq.rabbitmq.trace": ("topic", True),
}
"""§3.2: type and internal flag by name; the default exchange is tested apart."""

ODD_NAMES = ["two words", "a/b", "tab\t", "nul\0", "'quoted'", "žluťoučký kůň", "\N{RABBIT FACE}", " "]


@pytest.fixture
def limited(make_user: Callable[..., str], connect: Connect) -> Channel:
    return limited_channel(make_user, connect)


# §3.1 Names


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_name_may_hold_any_characters(channel: Channel, name: Name, odd: str) -> None:
    """§3.1: no charset check beyond UTF-8."""
    assert exchange_exists(channel, declare_exchange(channel, name(odd) + odd))


@pytest.mark.parametrize("filler", ["x", "é"])
def test_name_may_have_255_bytes(channel: Channel, name: Name, filler: str) -> None:
    """§3.1: shortstr ≤ 255 bytes."""
    start = name("x")
    exchange = start + "x" * ((255 - len(start)) % 2) + filler * ((255 - len(start)) // 2)
    if filler == "x":
        exchange = exchange.ljust(255, "x")
    assert len(exchange.encode()) == 255
    assert exchange_exists(channel, declare_exchange(channel, exchange))


def test_cr_and_lf_are_deleted_on_declare(channel: Channel, name: Name) -> None:
    """§3.1: CR and LF are deleted from names in exchange.declare, active and passive."""
    exchange = name("x")
    declare_exchange(channel, f"\r{exchange[:2]}\r\n{exchange[2:]}\n")
    assert exchange_exists(channel, exchange)
    assert exchange_exists(channel, f"{exchange}\r\n")


def test_cr_and_lf_are_deleted_on_delete(channel: Channel, name: Name) -> None:
    """§3.1: … and in exchange.delete."""
    exchange = declare_exchange(channel, name("x"))
    channel.call(ExchangeDelete, exchange=f"{exchange}\r\n")
    assert not exchange_exists(channel, exchange)


def test_cr_and_lf_are_deleted_on_bind(channel: Channel, name: Name) -> None:
    """§3.1: … and in all names of exchange.bind and unbind."""
    source, destination = (
        declare_exchange(channel, name("x"), "fanout"),
        declare_exchange(channel, name("x"), "fanout"),
    )
    bound_queue(channel, destination)
    raw = {"source": f"\n{source}\r", "destination": f"{destination}\r\n"}
    channel.call(ExchangeBind, **raw)
    assert is_routed(channel, source)
    channel.call(ExchangeUnbind, **raw)
    assert not is_routed(channel, source)


def test_cr_and_lf_are_kept_on_publish(channel: Channel, name: Name) -> None:
    """§3.1: not stripped in publish, which fails with the raw name."""
    exchange = declare_exchange(channel, name("x"))
    publish_refused(channel, 404, no_exchange(f"{exchange}\r\n"), f"{exchange}\r\n")


@pytest.mark.parametrize("exchange", ["amq.foo", "amq."])
def test_reserved_prefix(channel: Channel, exchange: str) -> None:
    """§3.1: a new name may not start with `amq.`."""
    text = f"exchange name '{exchange}' contains reserved prefix 'amq.*'"
    refused(channel, 403, text, ExchangeDeclare, exchange=exchange, type="direct")


@pytest.mark.parametrize("exchange", ["amqp", "amq", "AMQ.x", "xamq."])
def test_other_prefixes_are_free(channel: Channel, exchange: str) -> None:
    """§3.1: only `amq.` itself is reserved."""
    declare_exchange(channel, exchange)
    channel.call(ExchangeDelete, exchange=exchange)


# §3.2 Pre-declared exchanges


@pytest.mark.parametrize("exchange", PREDECLARED)
def test_predeclared_exchange(channel: Channel, exchange: str) -> None:
    """§3.2 and §3.1: each may be declared again, with matching attributes only."""
    kind, internal = PREDECLARED[exchange]
    same = {"exchange": exchange, "type": kind, "durable": True, "internal": internal}
    channel.call(ExchangeDeclare, **same)
    for key, current in {"durable": True, "auto_delete": False, "internal": internal}.items():
        text = inequivalent(exchange, key, received=not current, current=current)
        refused(channel, 406, text, ExchangeDeclare, **(same | {key: not current}))


def inequivalent(exchange: str, key: str, received: object, current: object) -> str:
    return (
        f"inequivalent arg '{key}' for exchange '{exchange}' in vhost '/': "
        f"received '{str(received).lower()}' but current is '{str(current).lower()}'"
    )


def test_predeclared_exchanges_of_a_new_vhost(connect: Connect, make_vhost: Callable[[], str]) -> None:
    """§3.2, §6.9: a new vhost has them all."""
    channel = connect(vhost=make_vhost()).channel()
    assert all(exchange_exists(channel, exchange) for exchange in PREDECLARED)


def test_default_exchange_is_direct(channel: Channel) -> None:
    """§3.2 row ``: the default exchange routes by the exact queue name."""
    queue = channel.declare(exclusive=True)
    assert is_routed(channel, "", queue)
    assert not is_routed(channel, "", queue[:-1])


def test_trace_exchange_is_internal(channel: Channel) -> None:
    """§3.2 row amq.rabbitmq.trace."""
    text = "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    publish_refused(channel, 403, text, "amq.rabbitmq.trace")


# §3.3 exchange.declare


@pytest.mark.parametrize("kind", ["nope", "", "Direct", "x-no-such-type-1", "cafe\N{COMBINING ACUTE ACCENT}"])
def test_unknown_type(channel: Channel, name: Name, kind: str) -> None:
    """§3.3 step 1: connection 503, `unknown` or `invalid`."""
    channel.send(ExchangeDeclare, exchange=name("x"), type=kind)
    text = re.compile(rf"COMMAND_INVALID - (unknown|invalid) exchange type '{kind}'")
    channel.connection.expect_connection_close(503, text, ExchangeDeclare)


def test_type_is_checked_before_default_exchange(channel: Channel) -> None:
    """§3.3 step 1 before 2."""
    channel.send(ExchangeDeclare, exchange="", type="nope")
    text = re.compile(r"COMMAND_INVALID - (unknown|invalid) exchange type 'nope'")
    channel.connection.expect_connection_close(503, text, ExchangeDeclare)


def test_declare_of_default_exchange(channel: Channel, limited: Channel) -> None:
    """§3.3 step 2, also before the permission of step 3."""
    for each in (channel, limited):
        refused(each, 403, DEFAULT_EXCHANGE_REFUSED, ExchangeDeclare, exchange="", type="direct")


def test_declare_needs_configure(channel: Channel, limited: Channel, name: Name) -> None:
    """§3.3 step 3, before the steps 4 and 5: for a new, a reserved, and an existing exchange."""
    existing = declare_exchange(channel, name("wr"))
    for exchange in (name("wr"), "amq.foo", existing):
        text = access_refused(limited, f"exchange '{exchange}'")
        refused(limited, 403, text, ExchangeDeclare, exchange=exchange, type="fanout")


def test_declare_ignores_ticket(channel: Channel, name: Name) -> None:
    """§3.3: ticket ignored."""
    assert exchange_exists(channel, declare_exchange(channel, name("x"), ticket=4711))


@pytest.mark.parametrize(
    ("value", "type_name"),
    [
        (Field("I", 5), "signedint"),
        (boolean(True), "bool"),
        (Field("V", None), "void"),
        (Field("x", b"ae"), "binary"),
        (array([longstr("ae")]), "array"),
    ],
)
def test_alternate_exchange_must_be_longstr(
    channel: Channel, name: Name, value: Field, type_name: str
) -> None:
    """§3.3 step 4."""
    exchange = name("x")
    text = f"invalid type '{type_name}' for arg 'alternate-exchange' in exchange '{exchange}' in vhost '/'"
    arguments = {"alternate-exchange": value}
    refused(channel, 406, text, ExchangeDeclare, exchange=exchange, type="direct", arguments=arguments)


def test_reserved_prefix_before_alternate_exchange(channel: Channel) -> None:
    """§3.3 step 4: the order within it."""
    text = "exchange name 'amq.foo' contains reserved prefix 'amq.*'"
    arguments = {"alternate-exchange": Field("I", 5)}
    refused(channel, 403, text, ExchangeDeclare, exchange="amq.foo", type="direct", arguments=arguments)


def test_alternate_exchange_needs_read_on_exchange(limited: Channel, name: Name) -> None:
    """§3.3 step 4, §6.7: AE needs read on X, asked before write on AE."""
    exchange = name("c")
    text = access_refused(limited, f"exchange '{exchange}'")
    fields = {"exchange": exchange, "type": "direct", "arguments": alternate(name("none"))}
    refused(limited, 403, text, ExchangeDeclare, **fields)


def test_alternate_exchange_needs_write_on_alternate(limited: Channel, name: Name) -> None:
    """§3.3 step 4, §6.7: AE needs write on AE."""
    target = name("cr")
    text = access_refused(limited, f"exchange '{target}'")
    fields = {"exchange": name("cr"), "type": "direct", "arguments": alternate(target)}
    refused(limited, 403, text, ExchangeDeclare, **fields)
    declare_exchange(limited, name("cr"), arguments=alternate(name("w")))


def test_alternate_exchange_of_existing_exchange_needs_no_permission(
    channel: Channel, limited: Channel, name: Name
) -> None:
    """§6.7 row exchange.declare: AE "if given & new"."""
    arguments = alternate(name("none"))
    exchange = declare_exchange(channel, name("c"), arguments=arguments)
    declare_exchange(limited, exchange, arguments=arguments)


def test_alternate_exchange_need_not_exist(channel: Channel, name: Name) -> None:
    """§3.3: AE target need not exist."""
    exchange = declare_exchange(channel, name("x"), arguments=alternate(name("missing")))
    assert exchange_exists(channel, exchange)


def test_declare_is_idempotent(channel: Channel, name: Name) -> None:
    """§3.3: declare of the same exchange."""
    fields: dict[str, Any] = {
        "type": "topic",
        "auto_delete": True,
        "internal": True,
        "arguments": alternate("ae"),
    }
    exchange = name("x")
    for _ in range(2):
        declare_exchange(channel, exchange, **fields)


INEQUIVALENT = [
    ("type", "fanout", "direct"),
    ("durable", True, False),
    ("auto_delete", True, False),
    ("internal", True, False),
]


@pytest.mark.parametrize(("key", "received", "current"), INEQUIVALENT)
def test_inequivalent_attribute(
    channel: Channel, name: Name, key: str, received: object, current: object
) -> None:
    """§3.3 step 5, either way round."""
    for first, second in ((current, received), (received, current)):
        exchange = name("x")
        fields = {"exchange": exchange, "type": "direct"}
        channel.call(ExchangeDeclare, **(fields | {key: first}))
        text = inequivalent(exchange, key, received=second, current=first)
        refused(channel, 406, text, ExchangeDeclare, **(fields | {key: second}))


@pytest.mark.parametrize("start", range(len(INEQUIVALENT)))
def test_order_of_equivalence_checks(channel: Channel, name: Name, start: int) -> None:
    """§3.3 step 5: type, durable, auto_delete, internal, arguments; the first that differs is named."""
    exchange = declare_exchange(channel, name("x"))
    differing: dict[str, object] = {"exchange": exchange, "type": "direct", "arguments": alternate("ae")}
    differing |= {key: received for key, received, _ in INEQUIVALENT[start:]}
    key, received, current = INEQUIVALENT[start]
    text = inequivalent(exchange, key, received=received, current=current)
    refused(channel, 406, text, ExchangeDeclare, **differing)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (alternate("a"), alternate("b"), "received 'b' but current is 'a'"),
        (alternate("a"), {}, "received none but current is the value 'a' of type 'longstr'"),
        ({}, alternate("b"), "received the value 'b' of type 'longstr' but current is none"),
        (
            {},
            {"alternate-exchange": Field("I", 5)},
            "received the value '5' of type 'signedint' but current is none",
        ),
    ],
)
def test_inequivalent_alternate_exchange(
    channel: Channel, name: Name, first: Table, second: Table, verdict: str
) -> None:
    """§3.3 step 5: the argument `alternate-exchange`, in the shapes of §3.9."""
    exchange = declare_exchange(channel, name("x"), arguments=first)
    text = f"inequivalent arg 'alternate-exchange' for exchange '{exchange}' in vhost '/': {verdict}"
    refused(channel, 406, text, ExchangeDeclare, exchange=exchange, type="direct", arguments=second)


def test_other_arguments_are_not_compared(channel: Channel, name: Name) -> None:
    """§3.3 step 5."""
    exchange = declare_exchange(channel, name("x"), arguments={"a": longstr("1"), "b": Field("I", 1)})
    declare_exchange(channel, exchange, arguments={"a": longstr("2"), "c": Field("V", None)})


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "nope", "durable": True},
        {"type": "", "auto_delete": True, "internal": True},
        {"type": "topic", "arguments": {"alternate-exchange": Field("I", 5)}},
    ],
)
def test_passive_declare_looks_at_existence_only(
    channel: Channel, limited: Channel, name: Name, fields: dict[str, object]
) -> None:
    """§3.3 Passive: type, flags and arguments ignored, even a nonsense type; no permission needed."""
    exchange = declare_exchange(channel, name("none"))
    limited.call(ExchangeDeclare, exchange=exchange, passive=True, **fields)


@pytest.mark.parametrize("nowait", [False, True])
def test_passive_declare_of_missing_exchange(limited: Channel, name: Name, nowait: bool) -> None:
    """§3.3 Passive: missing; nowait does not suppress the error (§2.3)."""
    exchange = name("none")
    fields = {"exchange": exchange, "type": "direct", "passive": True, "nowait": nowait}
    refused(limited, 404, no_exchange(exchange), ExchangeDeclare, **fields)


def test_passive_declare_of_default_exchange(channel: Channel) -> None:
    """§3.3 Passive: the default exchange."""
    refused(channel, 403, DEFAULT_EXCHANGE_REFUSED, ExchangeDeclare, exchange="", type="direct", passive=True)


def test_declare_and_delete_with_nowait(channel: Channel, name: Name) -> None:
    """§2.3 of exchange.declare and delete: nowait suppresses the success reply."""
    exchange = name("x")
    channel.send(ExchangeDeclare, exchange=exchange, type="direct", nowait=True)
    channel.sync()
    assert exchange_exists(channel, exchange)
    channel.send(ExchangeDelete, exchange=exchange, nowait=True)
    channel.sync()
    assert not exchange_exists(channel, exchange)


# §3.4 exchange.delete


def test_delete_of_missing_exchange(channel: Channel, name: Name) -> None:
    """§3.4 row missing."""
    channel.call(ExchangeDelete, exchange=name("x"))
    channel.call(ExchangeDelete, exchange=name("x"), if_unused=True)


def test_delete_of_default_exchange(channel: Channel) -> None:
    """§3.4 row default."""
    refused(channel, 403, DEFAULT_EXCHANGE_REFUSED, ExchangeDelete, exchange="")


@pytest.mark.parametrize("exchange", [*PREDECLARED, "amq.foo"])
def test_delete_of_system_exchange(channel: Channel, exchange: str) -> None:
    """§3.4 row `amq.`, existing or not."""
    text = f"deletion of system exchange '{exchange}' in vhost '/' not allowed"
    refused(channel, 403, text, ExchangeDelete, exchange=exchange)


def test_delete_if_unused_of_bound_exchange(channel: Channel, name: Name) -> None:
    """§3.4 row if-unused, with a queue and with an exchange bound to it."""
    to_queue, to_exchange = declare_exchange(channel, name("x")), declare_exchange(channel, name("x"))
    queue = bound_queue(channel, to_queue)
    channel.call(ExchangeBind, destination=declare_exchange(channel, name("x")), source=to_exchange)
    for exchange in (to_queue, to_exchange):
        text = f"exchange '{exchange}' in vhost '/' in use"
        refused(channel, 406, text, ExchangeDelete, exchange=exchange, if_unused=True)
    channel.call(QueueUnbind, queue=queue, exchange=to_queue)
    channel.call(ExchangeDelete, exchange=to_queue, if_unused=True)
    assert not exchange_exists(channel, to_queue)


def test_delete_if_unused_of_a_destination(channel: Channel, name: Name) -> None:
    """§3.4: being a destination does not count as use."""
    source, destination = declare_exchange(channel, name("x")), declare_exchange(channel, name("x"))
    channel.call(ExchangeBind, destination=destination, source=source)
    channel.call(ExchangeDelete, exchange=destination, if_unused=True)
    channel.call(ExchangeDelete, exchange=source, if_unused=True)


def test_delete_of_used_exchange(channel: Channel, name: Name) -> None:
    """§3.4: without if-unused it goes, with the bindings from it."""
    exchange = declare_exchange(channel, name("x"), "fanout")
    bound_queue(channel, exchange)
    channel.call(ExchangeDelete, exchange=exchange)
    declare_exchange(channel, exchange, "fanout")
    assert not is_routed(channel, exchange)


def test_delete_removes_bindings_to_it(channel: Channel, name: Name) -> None:
    """§3.4: … and the bindings to it."""
    source, destination = (
        declare_exchange(channel, name("x"), "fanout"),
        declare_exchange(channel, name("x"), "fanout"),
    )
    channel.call(ExchangeBind, destination=destination, source=source)
    channel.call(ExchangeDelete, exchange=destination)
    declare_exchange(channel, destination, "fanout")
    bound_queue(channel, destination)
    assert not is_routed(channel, source)


# §3.5 auto-delete exchange


def test_auto_delete_after_unbind(channel: Channel, name: Name) -> None:
    """§3.5: the last binding as source is removed by unbind."""
    exchange = declare_exchange(channel, name("x"), auto_delete=True)
    queue = bound_queue(channel, exchange, "a")
    channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="b")
    channel.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="a")
    assert exchange_exists(channel, exchange)
    channel.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="b")
    assert not exchange_exists(channel, exchange)


def test_auto_delete_after_queue_deleted(channel: Channel, name: Name) -> None:
    """§3.5: … with its queue."""
    exchange = declare_exchange(channel, name("x"), auto_delete=True)
    channel.call(QueueDelete, queue=bound_queue(channel, exchange))
    assert not exchange_exists(channel, exchange)


def test_auto_delete_after_connection_of_queue_closed(connect: Connect, channel: Channel, name: Name) -> None:
    """§3.5: … with the connection that owns its exclusive queue."""
    exchange = declare_exchange(channel, name("x"), auto_delete=True)
    other = connect()
    bound_queue(other.channel(), exchange)
    other.close()
    assert not exchange_exists(channel, exchange)


def test_auto_delete_cascades(channel: Channel, name: Name) -> None:
    """§3.5, §3.4 chain: a destination deleted takes the auto-delete exchanges upstream with it."""
    chain = [declare_exchange(channel, name("x"), auto_delete=True) for _ in range(3)]
    last = declare_exchange(channel, name("x"))
    for source, destination in zip(chain, [*chain[1:], last], strict=True):
        channel.call(ExchangeBind, destination=destination, source=source)
    channel.call(ExchangeDelete, exchange=last)
    assert not any(exchange_exists(channel, exchange) for exchange in chain)


def test_auto_delete_needs_to_have_had_a_binding(channel: Channel, name: Name) -> None:
    """§3.5: never deleted if it never had a binding; one to it and an unbind of nothing are none."""
    exchange, source = (
        declare_exchange(channel, name("x"), auto_delete=True),
        declare_exchange(channel, name("x")),
    )
    channel.call(ExchangeBind, destination=exchange, source=source)
    channel.call(ExchangeUnbind, destination=exchange, source=source)
    queue = channel.declare(exclusive=True)
    channel.call(QueueUnbind, queue=queue, exchange=exchange, routing_key="never bound")
    assert exchange_exists(channel, exchange)


# §3.6 internal exchange


def test_publish_to_internal_exchange(channel: Channel, name: Name) -> None:
    """§3.6: refused."""
    exchange = declare_exchange(channel, name("x"), internal=True)
    text = f"cannot publish to internal exchange '{exchange}' in vhost '/'"
    publish_refused(channel, 403, text, exchange)


def test_internal_exchange_receives_via_binding(channel: Channel, name: Name) -> None:
    """§3.6: via e2e."""
    source = declare_exchange(channel, name("x"), "fanout")
    internal = declare_exchange(channel, name("x"), "fanout", internal=True)
    queue = bound_queue(channel, internal)
    channel.call(ExchangeBind, destination=internal, source=source)
    channel.publish(source, "", b"bound")
    assert drain(channel, queue) == [b"bound"]


def test_internal_exchange_receives_as_alternate(channel: Channel, name: Name) -> None:
    """§3.6: via AE."""
    internal = declare_exchange(channel, name("x"), "fanout", internal=True)
    queue = bound_queue(channel, internal)
    channel.publish(declare_exchange(channel, name("x"), arguments=alternate(internal)), "", b"alternate")
    assert drain(channel, queue) == [b"alternate"]


def test_internal_exchange_receives_dead_letters(channel: Channel, name: Name) -> None:
    """§3.6: via DLX."""
    internal = declare_exchange(channel, name("x"), "fanout", internal=True)
    target = bound_queue(channel, internal)
    queue = channel.declare(exclusive=True, arguments={"x-dead-letter-exchange": longstr(internal)})
    channel.publish("", queue, b"dead")
    content = channel.get(queue, no_ack=False)
    assert content
    channel.send(BasicReject, delivery_tag=content.method.delivery_tag, requeue=False)
    assert channel.wait_get(target).body == b"dead"
