"""amqp-behaviour §3.9 and §3.10: which queue arguments are taken, refused and compared."""

import re
from collections.abc import Callable

import pytest

from node.amqp.field_table import VOID, Field, Table, array, boolean, longstr, table, timestamp
from node.amqp.methods import QueueDeclare, QueueDelete
from tests.conformance.entities import refused
from tests.kit.amqp_client import Channel

Name = Callable[[str], str]

TEN_YEARS_MS = 315_360_000_000
INTEGER_TAGS = "bBsuIil"


def integer(value: int) -> Field:
    return Field("I", value)


def long(value: int) -> Field:
    return Field("l", value)


def invalid(queue: str, key: str, detail: str) -> str:
    return f"invalid arg '{key}' for queue '{queue}' in vhost '/': {detail}"


def inequivalent(queue: str, key: str, verdict: str) -> str:
    return f"inequivalent arg '{key}' for queue '{queue}' in vhost '/': {verdict}"


# §3.9 Argument equivalence on redeclare

DLX = {"x-dead-letter-exchange": longstr("dlx")}

COMPARED = [
    ("x-message-ttl", integer(60000), integer(60001), {}),
    ("x-expires", integer(60000), integer(60001), {}),
    ("x-max-length", integer(5), integer(6), {}),
    ("x-max-length-bytes", integer(5), integer(6), {}),
    ("x-max-priority", integer(5), integer(6), {}),
    ("x-overflow", longstr("drop-head"), longstr("reject-publish"), {}),
    ("x-dead-letter-exchange", longstr("dlx"), longstr("dlx2"), {}),
    ("x-dead-letter-routing-key", longstr("a"), longstr("b"), DLX),
    ("x-queue-mode", longstr("default"), longstr("lazy"), {}),
    ("x-queue-version", integer(1), integer(2), {}),
    ("x-single-active-consumer", boolean(True), boolean(False), {}),
    ("x-queue-master-locator", longstr("client-local"), longstr("min-masters"), {}),
]
"""Key, two values and what must go with it, of the rows of §3.10 marked cmp."""


def shown(value: Field) -> str:
    """A value as an error text has it."""
    if isinstance(value.value, bytes):
        return f"'{value.value.decode()}'"
    return f"'{str(value.value).lower()}'"


@pytest.mark.parametrize(("key", "one", "two", "needed"), COMPARED)
def test_compared_argument(
    channel: Channel, name: Name, key: str, one: Field, two: Field, needed: Table
) -> None:
    """§3.9: equal values are fine; other, missing and added ones are told apart in the text."""
    type_name = {"I": "signedint", "S": "longstr", "t": "bool"}[one.tag]
    queue = channel.declare(name("q"), arguments=needed | {key: one})
    channel.declare(queue, arguments=needed | {key: one})
    text = inequivalent(queue, key, f"received {shown(two)} but current is {shown(one)}")
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=needed | {key: two})
    absent = f"received none but current is the value {shown(one)} of type '{type_name}'"
    refused(channel, 406, inequivalent(queue, key, absent), QueueDeclare, queue=queue, arguments=needed)
    queue = channel.declare(name("q"), arguments=needed)
    added = f"received the value {shown(one)} of type '{type_name}' but current is none"
    text = inequivalent(queue, key, added)
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=needed | {key: one})


def test_unknown_arguments_are_not_compared(channel: Channel, name: Name) -> None:
    """§3.9, §3.10 row "any other key": accepted and ignored."""
    queue = channel.declare(name("q"), arguments={"x-unknown": longstr("a"), "y": VOID})
    channel.declare(queue, arguments={"x-unknown": integer(1), "z": VOID})
    channel.declare(queue)


@pytest.mark.parametrize("first", INTEGER_TAGS)
def test_integers_of_any_width_are_equal(channel: Channel, name: Name, first: str) -> None:
    """§3.9: b, B, s, u, I, i, l are one class."""
    queue = channel.declare(name("q"), arguments={"x-max-length": Field(first, 5)})
    for second in INTEGER_TAGS:
        channel.declare(queue, arguments={"x-max-length": Field(second, 5)})


@pytest.mark.parametrize("second", INTEGER_TAGS)
def test_integers_of_any_width_may_differ(channel: Channel, name: Name, second: str) -> None:
    """§3.9: … and differ by their values."""
    queue = channel.declare(name("q"), arguments={"x-max-length": Field("l", 5)})
    text = inequivalent(queue, "x-max-length", "received '6' but current is '5'")
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={"x-max-length": Field(second, 6)})


@pytest.mark.parametrize(
    ("received", "verdict"),
    [
        (Field("d", 5.0), "received '5.0' but current is '5'"),
        (Field("f", 5.0), "received '5.0' but current is '5'"),
        (longstr("5"), "received '5' but current is '5'"),
        (boolean(True), "received 'true' but current is '5'"),
    ],
)
def test_other_classes_are_not_equal_to_integers(
    channel: Channel, name: Name, received: Field, verdict: str
) -> None:
    """§3.9: f and d are floats, the others are of their own type."""
    queue = channel.declare(name("q"), arguments={"x-max-length": integer(5)})
    text = inequivalent(queue, "x-max-length", verdict)
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={"x-max-length": received})


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        ("x-max-length", integer(5), timestamp(5)),
        ("x-dead-letter-exchange", longstr("dlx"), Field("x", b"dlx")),
        ("x-overflow", longstr("drop-head"), Field("x", b"drop-head")),
    ],
)
def test_same_value_of_another_type_is_equal(
    channel: Channel, name: Name, key: str, first: Field, second: Field
) -> None:
    """§3.9, by RabbitMQ 3.10.8: types count only where the values differ."""
    queue = channel.declare(name("q"), arguments={key: first})
    channel.declare(queue, arguments={key: second})


def test_absent_queue_type_is_classic(channel: Channel, name: Name) -> None:
    """§3.9: x-queue-type absent ≡ `classic`."""
    classic = {"x-queue-type": longstr("classic")}
    channel.declare(channel.declare(name("q"), durable=True), durable=True, arguments=classic)
    channel.declare(channel.declare(name("q"), durable=True, arguments=classic), durable=True)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (None, "quorum", "received the value 'quorum' of type 'longstr' but current is none"),
        ("classic", "quorum", "received 'quorum' but current is 'classic'"),
        ("quorum", None, "received none but current is the value 'quorum' of type 'longstr'"),
        ("quorum", "classic", "received 'classic' but current is 'quorum'"),
    ],
)
def test_inequivalent_queue_type(
    channel: Channel, name: Name, first: str | None, second: str | None, verdict: str
) -> None:
    """§3.9: absent and classic against quorum."""

    def arguments(kind: str | None) -> Table:
        return {} if kind is None else {"x-queue-type": longstr(kind)}

    queue = channel.declare(name("q"), durable=True, arguments=arguments(first))
    text = inequivalent(queue, "x-queue-type", verdict)
    refused(channel, 406, text, QueueDeclare, queue=queue, durable=True, arguments=arguments(second))
    channel.call(QueueDelete, queue=queue)


# §3.10 Queue arguments

ACCEPTED = [
    *[("x-message-ttl", Field(tag, 100)) for tag in INTEGER_TAGS],
    ("x-message-ttl", integer(0)),
    ("x-message-ttl", long(TEN_YEARS_MS)),
    ("x-expires", integer(1000)),
    ("x-expires", long(TEN_YEARS_MS)),
    ("x-max-length", integer(0)),
    ("x-max-length", long(2**63 - 1)),
    ("x-max-length-bytes", integer(0)),
    ("x-max-length-bytes", long(2**63 - 1)),
    ("x-max-priority", integer(0)),
    ("x-max-priority", integer(1)),
    ("x-max-priority", integer(255)),
    ("x-overflow", longstr("drop-head")),
    ("x-overflow", longstr("reject-publish")),
    ("x-overflow", longstr("reject-publish-dlx")),
    ("x-dead-letter-exchange", longstr("")),
    ("x-dead-letter-exchange", longstr("missing exchange")),
    ("x-queue-mode", longstr("default")),
    ("x-queue-mode", longstr("lazy")),
    ("x-queue-version", integer(1)),
    ("x-queue-version", integer(2)),
    ("x-single-active-consumer", boolean(True)),
    ("x-single-active-consumer", boolean(False)),
    ("x-queue-type", longstr("classic")),
    ("x-queue-master-locator", longstr("client-local")),
    ("x-unknown", longstr("anything")),
    ("unknown", table({"deep": array([VOID, Field("d", 1.5)])})),
    ("", VOID),
]


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_accepted_argument(channel: Channel, name: Name, key: str, value: Field) -> None:
    """§3.10 column accepted; the queue works and is declared again with the same."""
    arguments = {key: value}
    queue = channel.declare(name("q"), arguments=arguments)
    assert channel.declare(queue, arguments=arguments) == queue
    channel.call(QueueDelete, queue=queue)


@pytest.mark.parametrize("value", [longstr("bogus"), Field("I", 5), VOID])
def test_queue_master_locator_is_not_validated(channel: Channel, name: Name, value: Field) -> None:
    """§3.10 row x-queue-master-locator: any type and value.

    Of exclusive queues, which have no choice of node: for others RabbitMQ 3.10.8 fails with 541.
    """
    channel.declare(name("q"), exclusive=True, arguments={"x-queue-master-locator": value})


def test_accepted_dead_letter_routing_key(channel: Channel, name: Name) -> None:
    """§3.10 row x-dead-letter-routing-key: longstr and DLX argument present."""
    channel.declare(name("q"), exclusive=True, arguments=DLX | {"x-dead-letter-routing-key": longstr("")})


NOT_INTEGER = {
    "longstr": longstr("5"),
    "bool": boolean(True),
    "double": Field("d", 5.0),
    "float": Field("f", 5.0),
    "void": VOID,
    "decimal": Field("D", (0, 5)),
    "timestamp": timestamp(5),
    "binary": Field("x", b"5"),
    "table": table({}),
    "array": array([]),
}

INTEGER_KEYS = [
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-queue-version",
]


@pytest.mark.parametrize("type_name", NOT_INTEGER)
@pytest.mark.parametrize("key", INTEGER_KEYS)
def test_argument_that_is_no_integer(channel: Channel, name: Name, key: str, type_name: str) -> None:
    """§3.10: `"expected integer, got …"` with the type's name."""
    queue, arguments = name("q"), {key: NOT_INTEGER[type_name]}
    text = invalid(queue, key, f'"expected integer, got {type_name}"')
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=arguments)


REFUSED = [
    ("x-message-ttl", integer(-1), "{value_negative,-1}"),
    ("x-message-ttl", long(TEN_YEARS_MS + 1), f"{{value_too_large,{TEN_YEARS_MS + 1}}}"),
    ("x-expires", integer(-1), "{value_negative,-1}"),
    ("x-expires", integer(0), "{value_zero,0}"),
    ("x-expires", long(TEN_YEARS_MS + 1), f"{{value_too_large,{TEN_YEARS_MS + 1}}}"),
    ("x-max-length", integer(-1), "{value_negative,-1}"),
    ("x-max-length-bytes", Field("b", -1), "{value_negative,-1}"),
    ("x-max-priority", integer(-1), "{value_negative,-1}"),
    ("x-max-priority", integer(256), "{max_value_exceeded,256}"),
    ("x-overflow", longstr("bogus"), "invalid_overflow"),
    ("x-overflow", longstr(""), "invalid_overflow"),
    ("x-overflow", integer(5), "{unacceptable_type,signedint}"),
    ("x-dead-letter-routing-key", longstr("key"), "routing_key_but_no_dlx_defined"),
    ("x-dead-letter-routing-key", integer(5), "{unacceptable_type,signedint}"),
    ("x-queue-mode", longstr("bogus"), "\"unsupported queue mode 'bogus'\""),
    ("x-queue-mode", integer(5), "{unacceptable_type,signedint}"),
    ("x-queue-version", integer(0), "\"unsupported queue version '0'\""),
    ("x-queue-version", integer(3), "\"unsupported queue version '3'\""),
    ("x-queue-version", integer(-1), "{value_negative,-1}"),
    ("x-single-active-consumer", longstr("true"), "{unacceptable_type,longstr}"),
    ("x-single-active-consumer", integer(1), "{unacceptable_type,signedint}"),
    ("x-queue-type", longstr("bogus"), "\"unsupported queue type 'bogus'\""),
    ("x-queue-type", longstr(""), "\"unsupported queue type ''\""),
    ("x-queue-type", integer(5), "{unacceptable_type,signedint}"),
]


@pytest.mark.parametrize(("key", "value", "detail"), REFUSED)
def test_refused_argument(channel: Channel, name: Name, key: str, value: Field, detail: str) -> None:
    """§3.10 column DETAIL."""
    queue = name("q")
    text = invalid(queue, key, detail)
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={key: value})


def test_dead_letter_routing_key_of_another_type(channel: Channel, name: Name) -> None:
    """§3.10 row x-dead-letter-routing-key: with the DLX argument present."""
    queue, key = name("q"), "x-dead-letter-routing-key"
    text = invalid(queue, key, "{unacceptable_type,signedint}")
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=DLX | {key: integer(5)})


@pytest.mark.parametrize("type_name", ["bool", "void", "binary", "array", "decimal"])
def test_dead_letter_exchange_of_another_type(channel: Channel, name: Name, type_name: str) -> None:
    """§3.10 row x-dead-letter-exchange: text of §3.7 step 8."""
    queue, key = name("q"), "x-dead-letter-exchange"
    text = f"invalid type '{type_name}' for arg '{key}' in queue '{queue}' in vhost '/'"
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments={key: NOT_INTEGER[type_name]})


FOREIGN = {
    "x-dead-letter-strategy": longstr("at-most-once"),
    "x-max-age": longstr("1D"),
    "x-max-in-memory-length": integer(5),
    "x-max-in-memory-bytes": integer(5),
    "x-initial-cluster-size": integer(1),
    "x-quorum-initial-group-size": integer(1),
    "x-queue-leader-locator": longstr("client-local"),
    "x-stream-max-segment-size-bytes": integer(500),
}


def foreign(queue: str, key: str) -> str:
    return f"invalid arg '{key}' for queue '{queue}' in vhost '/' of queue type rabbit_classic_queue"


@pytest.mark.parametrize("key", FOREIGN)
def test_argument_of_another_queue_type(channel: Channel, name: Name, key: str) -> None:
    """§3.10: known keys of other queue types are rejected, with right and wrong values."""
    for arguments in ({key: FOREIGN[key]}, {key: VOID, "x-queue-type": longstr("classic")}):
        queue = name("q")
        refused(channel, 406, foreign(queue, key), QueueDeclare, queue=queue, arguments=arguments)


def test_order_of_validation(channel: Channel, name: Name) -> None:
    """§3.10: the queue type first, then values, then foreign keys."""
    queue = name("q")
    arguments = {
        "x-max-in-memory-length": integer(5),
        "x-max-length": integer(-1),
        "x-queue-type": longstr("bogus"),
    }
    text = invalid(queue, "x-queue-type", "\"unsupported queue type 'bogus'\"")
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=arguments)
    arguments["x-queue-type"] = longstr("classic")
    text = invalid(queue, "x-max-length", "{value_negative,-1}")
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=arguments)
    arguments["x-max-length"] = integer(1)
    refused(
        channel, 406, foreign(queue, "x-max-in-memory-length"), QueueDeclare, queue=queue, arguments=arguments
    )


def test_refused_declare_leaves_no_queue(channel: Channel, name: Name) -> None:
    """§3.10: after a refusal the name is free for other arguments."""
    queue = name("q")
    arguments = {"x-max-length": integer(-1)}
    refused(
        channel, 406, invalid(queue, "x-max-length", "{value_negative,-1}"), QueueDeclare,
        queue=queue, arguments=arguments,
    )  # fmt: skip
    assert channel.declare(queue, exclusive=True) == queue


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": False}, "non-durable"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_quorum_queue_with_impossible_property(
    channel: Channel, name: Name, fields: dict[str, bool], word: str
) -> None:
    """§3.10 last bullet."""
    queue = name("q")
    text = f"invalid property '{word}' for queue '{queue}' in vhost '/'"
    arguments = {"x-queue-type": longstr("quorum")}
    refused(channel, 406, text, QueueDeclare, queue=queue, arguments=arguments, **fields)


def test_server_named_queue_with_refused_argument(channel: Channel) -> None:
    """§3.10: the text has the name that the server chose."""
    channel.send(QueueDeclare, queue="", arguments={"x-max-length": integer(-1)})
    text = re.compile(
        r"PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'amq\.gen-[\w-]{22}' in vhost '/': "
        r"\{value_negative,-1\}"
    )
    channel.expect_close(406, text, QueueDeclare)
