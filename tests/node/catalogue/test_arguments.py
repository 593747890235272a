"""Arguments of declare and consume: amqp-behaviour §3.3, §3.7-§3.10, §4.6.

[E]: RabbitMQ 3.10.8 was seen to answer so, or for single values of a list: its source says so.
"""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import VOID, Field, Table, array, boolean, long, longstr, table, timestamp
from node.catalogue.arguments import (
    ConsumeArguments,
    alternate_exchange,
    check_exchange_equivalence,
    check_queue_equivalence,
    check_server_named,
    dead_letter_exchange,
    parse_consume_arguments,
    print_value,
    validate_queue_arguments,
    with_default_queue_type,
)
from node.catalogue.records import Exchange, QueueRecord, QueueType

QUORUM: Table = {"x-queue-type": longstr("quorum")}
STREAM: Table = {"x-queue-type": longstr("stream")}
NODE = "rabbit@host"


def signed_int(value: int) -> Field:
    return Field("I", value)


def double(value: float) -> Field:
    return Field("d", value)


def decimal(scale: int, unscaled: int) -> Field:
    return Field("D", (scale, unscaled))


def validate(
    arguments: Table, *, durable: bool = True, exclusive: bool = False, auto_delete: bool = False
) -> QueueType:
    return validate_queue_arguments(arguments, "Q", "V", durable, exclusive, auto_delete, NODE)


def refusal(arguments: Table, **properties: bool) -> str:
    with pytest.raises(ProtocolError) as caught:
        validate(arguments, **properties)
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    return caught.value.explanation


def invalid(key: str, detail: str) -> str:
    return f"invalid arg '{key}' for queue 'Q' in vhost 'V': {detail}"


# --- §3.10: values of classic queues ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("x-message-ttl", long(0)),
        ("x-message-ttl", long(315_360_000_000)),
        ("x-expires", long(1)),
        ("x-expires", long(315_360_000_000)),
        ("x-max-length", long(0)),
        ("x-max-length-bytes", long(2**60)),
        ("x-max-priority", long(0)),
        ("x-max-priority", long(255)),
        *(("x-overflow", longstr(word)) for word in ("drop-head", "reject-publish", "reject-publish-dlx")),
        ("x-dead-letter-exchange", longstr("")),
        ("x-queue-mode", longstr("default")),
        ("x-queue-mode", longstr("lazy")),
        ("x-queue-version", long(1)),
        ("x-queue-version", long(2)),
        ("x-single-active-consumer", boolean(False)),
        ("x-group-header", longstr("g")),
        ("x-group-header", longstr("g" * 255)),
        ("x-message-deduplication", boolean(True)),
        ("x-queue-type", longstr("classic")),
        ("x-queue-master-locator", longstr("bogus")),
        ("x-queue-master-locator", array([])),
        ("anything-else", VOID),
        ("x-anything-else", long(-1)),
    ],
)
def test_accepted_value(key: str, field: Field) -> None:
    """§3.10, column `accepted`."""
    assert validate({key: field}) == "classic"


@pytest.mark.parametrize("tag", list("bBsuIil"))
def test_integers_of_any_width(tag: str) -> None:
    """§3.10: "int" = any of b,B,s,u,I,i,l."""
    for key in ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority"):
        assert validate({key: Field(tag, 5)}) == "classic"


INTEGER_KEYS = [
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-queue-version",
]


@pytest.mark.parametrize("key", INTEGER_KEYS)
@pytest.mark.parametrize(
    ("field", "name"),
    [
        (longstr("5"), "longstr"),
        (boolean(True), "bool"),
        (double(5.0), "double"),
        (Field("f", 5.0), "float"),
        (VOID, "void"),
        (decimal(0, 5), "decimal"),
        (timestamp(5), "timestamp"),
        (table({}), "table"),
        (array([]), "array"),
        (Field("x", b"5"), "binary"),
    ],
)
def test_not_an_integer(key: str, field: Field, name: str) -> None:
    """§3.10 rows of integer keys: the name of the type, in quotes. [E]"""
    assert refusal({key: field}) == invalid(key, f'"expected integer, got {name}"')


@pytest.mark.parametrize("key", INTEGER_KEYS)
def test_negative_integer(key: str) -> None:
    """§3.10: `{value_negative,-1}`. [E]"""
    assert refusal({key: signed_int(-1)}) == invalid(key, "{value_negative,-1}")


@pytest.mark.parametrize(
    ("key", "field", "detail"),
    [
        ("x-message-ttl", long(315_360_000_001), "{value_too_large,315360000001}"),
        ("x-expires", long(315_360_000_001), "{value_too_large,315360000001}"),
        ("x-expires", long(0), "{value_zero,0}"),
        ("x-max-priority", long(256), "{max_value_exceeded,256}"),
        ("x-overflow", longstr("bogus"), "invalid_overflow"),
        ("x-overflow", signed_int(5), "{unacceptable_type,signedint}"),
        ("x-overflow", VOID, "{unacceptable_type,void}"),
        ("x-dead-letter-routing-key", longstr("k"), "routing_key_but_no_dlx_defined"),
        ("x-dead-letter-routing-key", signed_int(5), "{unacceptable_type,signedint}"),
        ("x-queue-mode", longstr("bogus"), "\"unsupported queue mode 'bogus'\""),
        ("x-queue-mode", signed_int(5), "{unacceptable_type,signedint}"),
        ("x-queue-mode", Field("x", b"lazy"), "{unacceptable_type,binary}"),
        ("x-queue-version", long(3), "\"unsupported queue version '3'\""),
        ("x-queue-version", long(0), "\"unsupported queue version '0'\""),
        ("x-single-active-consumer", longstr("true"), "{unacceptable_type,longstr}"),
        ("x-group-header", signed_int(1), "{unacceptable_type,signedint}"),
        ("x-group-header", longstr(""), "invalid_header_name"),
        ("x-group-header", longstr("g" * 256), "invalid_header_name"),
        ("x-message-deduplication", longstr("true"), "{unacceptable_type,longstr}"),
        ("x-queue-type", longstr("bogus"), "\"unsupported queue type 'bogus'\""),
        ("x-queue-type", longstr('é"q'), '"unsupported queue type \'é\\"q\'"'),
        ("x-queue-type", signed_int(5), "{unacceptable_type,signedint}"),
    ],
)
def test_refused_value(key: str, field: Field, detail: str) -> None:
    """§3.10, column `DETAIL on failure`. [E]"""
    assert refusal({key: field}) == invalid(key, detail)


def test_word_that_cannot_be_printed() -> None:
    """A list of numbers when an octet is not printable in Latin-1. [E]"""
    octets = ",".join(str(octet) for octet in b"unsupported queue type '\xd0\x96'")
    assert refusal({"x-queue-type": longstr("Ж")}) == invalid("x-queue-type", f"[{octets}]")


def test_dead_letter_routing_key_with_an_exchange() -> None:
    """§3.10 row x-dead-letter-routing-key: longstr and DLX arg present, which may be ''."""
    arguments = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr("k")}
    assert validate(arguments) == "classic"


@pytest.mark.parametrize(
    "key",
    [
        "x-dead-letter-strategy",
        "x-max-age",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
        "x-queue-leader-locator",
        "x-stream-max-segment-size-bytes",
    ],
)
def test_foreign_key_of_a_classic_queue(key: str) -> None:
    """§3.10: known keys of other queue types are rejected, whatever their value. [E]"""
    expected = f"invalid arg '{key}' for queue 'Q' in vhost 'V' of queue type rabbit_classic_queue"
    assert refusal({key: VOID}) == expected


def test_order_of_checks() -> None:
    """§3.10: type, then values in their own order, then foreign keys in the client's order. [E]"""
    arguments: Table = {
        "x-max-age": long(1),
        "x-queue-leader-locator": long(1),
        "x-max-length": longstr("a"),
        "x-expires": longstr("b"),
        "x-queue-type": longstr("bogus"),
    }
    assert "x-queue-type" in refusal(arguments)
    del arguments["x-queue-type"]
    assert "x-expires" in refusal(arguments)
    del arguments["x-expires"]
    assert "x-max-length" in refusal(arguments)
    del arguments["x-max-length"]
    assert "x-max-age" in refusal(arguments)
    del arguments["x-max-age"]
    assert "x-queue-leader-locator" in refusal(arguments)


def test_a_delivery_limit_of_a_classic_queue() -> None:
    """Here each type of queue has one; RabbitMQ refuses it for a classic queue (docs/differences.md)."""
    assert validate({"x-delivery-limit": long(5)}) == "classic"
    limit: Table = {"x-delivery-limit": signed_int(1)}
    assert difference(limit, {"x-delivery-limit": signed_int(2)}) == inequivalent(
        "x-delivery-limit", "'2'", "'1'"
    )


# --- §3.10: quorum queues and streams -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("x-delivery-limit", long(5)),
        ("x-delivery-limit", long(-1)),
        ("x-delivery-limit", longstr("abc")),
        ("x-dead-letter-strategy", longstr("at-most-once")),
        ("x-dead-letter-strategy", longstr("at-least-once")),
        ("x-quorum-initial-group-size", long(1)),
        *(
            ("x-queue-leader-locator", longstr(word))
            for word in ("client-local", "balanced", "random", "least-leaders")
        ),
        ("x-max-in-memory-length", long(0)),
        ("x-max-in-memory-bytes", long(0)),
        ("x-max-length", long(1)),
        ("x-max-length-bytes", long(1)),
        ("x-expires", long(1)),
        ("x-message-ttl", long(0)),
        ("x-overflow", longstr("reject-publish-dlx")),
        ("x-single-active-consumer", boolean(True)),
        ("x-dead-letter-exchange", longstr("x")),
        ("anything-else", VOID),
    ],
)
def test_accepted_value_of_a_quorum_queue(key: str, field: Field) -> None:
    """x-delivery-limit is taken with any value. [E]"""
    assert validate({**QUORUM, key: field}) == "quorum"


@pytest.mark.parametrize(
    ("key", "field", "detail"),
    [
        ("x-dead-letter-strategy", longstr("foo"), "invalid_dlx_strategy"),
        ("x-dead-letter-strategy", signed_int(5), "{unacceptable_type,signedint}"),
        ("x-quorum-initial-group-size", long(0), "{value_zero,0}"),
        ("x-quorum-initial-group-size", long(-1), "{value_negative,-1}"),
        ("x-quorum-initial-group-size", longstr("a"), '"expected integer, got longstr"'),
        ("x-queue-leader-locator", longstr("foo"), "invalid_queue_locator_arg"),
        ("x-queue-leader-locator", boolean(True), "{unacceptable_type,bool}"),
        ("x-max-in-memory-length", long(-1), "{value_negative,-1}"),
        ("x-max-in-memory-bytes", long(-1), "{value_negative,-1}"),
        ("x-expires", long(0), "{value_zero,0}"),
        ("x-dead-letter-routing-key", longstr("a"), "routing_key_but_no_dlx_defined"),
    ],
)
def test_refused_value_of_a_quorum_queue(key: str, field: Field, detail: str) -> None:
    """[E]"""
    assert refusal({**QUORUM, key: field}) == invalid(key, detail)


@pytest.mark.parametrize(
    "key",
    [
        "x-max-priority",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-master-locator",
        "x-max-age",
        "x-initial-cluster-size",
        "x-stream-max-segment-size-bytes",
    ],
)
def test_foreign_key_of_a_quorum_queue(key: str) -> None:
    """A foreign key of a quorum queue is refused even if a property is wrong too: arguments come first. [E]"""
    expected = f"invalid arg '{key}' for queue 'Q' in vhost 'V' of queue type rabbit_quorum_queue"
    assert refusal({**QUORUM, key: long(1)}, durable=False) == expected


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"auto_delete": True, "exclusive": True, "durable": False}, "auto-delete"),
        ({"exclusive": True, "durable": False}, "exclusive-owner"),
        ({"durable": False}, "non-durable"),
    ],
)
def test_properties_that_a_quorum_queue_cannot_have(properties: dict[str, bool], name: str) -> None:
    """§3.10: `invalid property`, in this order. [E]"""
    assert refusal(QUORUM, **properties) == f"invalid property '{name}' for queue 'Q' in vhost 'V'"
    assert validate({}, **properties) == "classic"


@pytest.mark.parametrize("durable", [True, False])
def test_streams_are_refused(durable: bool) -> None:
    """As RabbitMQ with the feature flag `stream_queue` disabled: connection error 541. [E]"""
    with pytest.raises(ProtocolError) as caught:
        validate(STREAM, durable=durable)
    assert caught.value.code is ReplyCode.INTERNAL_ERROR
    assert caught.value.explanation == (
        "Cannot declare a queue 'queue 'Q' in vhost 'V'' of type 'rabbit_stream_queue' "
        "on node 'rabbit@host': the corresponding feature flag is disabled"
    )


@pytest.mark.parametrize("name", ["quorum", "stream"])
def test_server_named_queue_of_another_type(name: str) -> None:
    """[E]"""
    with pytest.raises(ProtocolError) as caught:
        check_server_named({"x-queue-type": longstr(name)})
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    expected = f"Cannot declare a server-named queue for type rabbit_{name}_queue"
    assert caught.value.explanation == expected


@pytest.mark.parametrize("field", [None, longstr("classic"), longstr("bogus"), longstr(b"\xff"), long(5)])
def test_server_named_classic_queue(field: Field | None) -> None:
    check_server_named({} if field is None else {"x-queue-type": field})


@pytest.mark.parametrize(
    ("default", "durable", "exclusive", "auto_delete", "given"),
    [
        ("quorum", True, False, False, "quorum"),
        ("quorum", False, False, False, None),
        ("quorum", True, True, False, None),
        ("quorum", True, False, True, None),
        ("classic", False, True, True, "classic"),
        ("", True, False, False, None),
    ],
)
def test_default_queue_type(
    default: str, durable: bool, exclusive: bool, auto_delete: bool, given: str | None
) -> None:
    """§3.7 step 2: injected if absent and compatible."""
    result = with_default_queue_type({"a": long(1)}, default, durable, exclusive, auto_delete)
    assert result == {"a": long(1), **({"x-queue-type": longstr(given)} if given else {})}


def test_default_queue_type_does_not_replace() -> None:
    asked: Table = {"x-queue-type": longstr("classic")}
    assert with_default_queue_type(asked, "quorum", True, False, False) == asked


# --- names of other exchanges -------------------------------------------------------------------------------


def test_dead_letter_exchange() -> None:
    assert dead_letter_exchange({}, "Q", "V") is None
    assert dead_letter_exchange({"x-dead-letter-exchange": longstr("é")}, "Q", "V") == "é"
    with pytest.raises(ProtocolError) as caught:
        dead_letter_exchange({"x-dead-letter-exchange": signed_int(5)}, "Q", "V")
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    expected = "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'Q' in vhost 'V'"
    assert caught.value.explanation == expected


def test_alternate_exchange() -> None:
    assert alternate_exchange({}, "X", "V") is None
    assert alternate_exchange({"alternate-exchange": longstr("")}, "X", "V") == ""
    for field, name in ((signed_int(5), "signedint"), (Field("x", b"a"), "binary")):
        with pytest.raises(ProtocolError) as caught:
            alternate_exchange({"alternate-exchange": field}, "X", "V")
        assert caught.value.code is ReplyCode.PRECONDITION_FAILED
        expected = f"invalid type '{name}' for arg 'alternate-exchange' in exchange 'X' in vhost 'V'"
        assert caught.value.explanation == expected


# --- §3.9: queues declared again ----------------------------------------------------------------------------


def queue(arguments: Table, type_: QueueType = "classic") -> QueueRecord:
    return QueueRecord("V", "Q", "uid", durable=True, arguments=arguments, type=type_)


def difference(current: Table, received: Table, type_: QueueType = "classic") -> str:
    with pytest.raises(ProtocolError) as caught:
        check_queue_equivalence(queue(current, type_), True, False, received)
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    return caught.value.explanation


def inequivalent(key: str, received: str, current: str) -> str:
    return (
        f"inequivalent arg '{key}' for queue 'Q' in vhost 'V': received {received} but current is {current}"
    )


@pytest.mark.parametrize("tag", list("bBsuIil"))
def test_integers_of_different_width_are_equal(tag: str) -> None:
    """§3.9: int 5 as `I` equals 5 as `l`."""
    check_queue_equivalence(queue({"x-max-length": long(5)}), True, False, {"x-max-length": Field(tag, 5)})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (signed_int(5), timestamp(5)),
        (double(0.5), Field("f", 0.5)),
        (longstr("a"), Field("x", b"a")),
        (table({}), array([])),
        (VOID, VOID),
    ],
)
def test_equal_values(one: Field, other: Field) -> None:
    """§3.9 type classes; the others since RabbitMQ compares the bare values as well. [E]"""
    key = "x-queue-master-locator"
    check_queue_equivalence(queue({key: one}), True, False, {key: other})
    check_queue_equivalence(queue({key: other}), True, False, {key: one})


@pytest.mark.parametrize(
    ("current", "received", "current_shown", "received_shown"),
    [
        (signed_int(5), signed_int(6), "'5'", "'6'"),
        (signed_int(5), double(5.0), "'5'", "'5.0'"),
        (double(5.0), double(6.5), "'5.0'", "'6.5'"),
        (boolean(True), boolean(False), "'true'", "'false'"),
        (longstr("a"), signed_int(5), "'a'", "'5'"),
        (longstr("é"), longstr("Ж"), "'é'", "'Ж'"),
        (longstr("true"), boolean(True), "'true'", "'true'"),
        (array([signed_int(5)]), array([double(5.0)]), "'[{signedint,5}]'", "'[{double,5.0}]'"),
        (
            table({"a": signed_int(1)}),
            table({"a": longstr("b")}),
            "'[{<<\"a\">>,signedint,1}]'",
            '\'[{<<"a">>,longstr,<<"b">>}]\'',
        ),
        (VOID, signed_int(5), "none", "'5'"),
        (signed_int(5), timestamp(6), "'5'", "'6'"),
    ],
)
def test_different_values(current: Field, received: Field, current_shown: str, received_shown: str) -> None:
    """§3.9, text of `both present, values differ`. [E]"""
    key = "x-queue-master-locator"
    assert difference({key: current}, {key: received}) == inequivalent(key, received_shown, current_shown)


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        (signed_int(5), "the value '5' of type 'signedint'"),
        (longstr("é"), "the value 'é' of type 'longstr'"),
        (double(1.5), "the value '1.5' of type 'double'"),
        (boolean(True), "the value 'true' of type 'bool'"),
        (VOID, "the value 'undefined' of type 'void'"),
        (decimal(1, 15), "the value '{1,15}' of type 'decimal'"),
        (table({}), "the value '[]' of type 'table'"),
        (array([signed_int(1)]), "the value '[{signedint,1}]' of type 'array'"),
    ],
)
def test_value_and_none(field: Field, shown: str) -> None:
    """§3.9, text of `one missing`, both ways. [E]"""
    key = "x-queue-master-locator"
    assert difference({}, {key: field}) == inequivalent(key, shown, "none")
    assert difference({key: field}, {}) == inequivalent(key, "none", shown)


def test_absent_type_is_classic() -> None:
    """§3.9: x-queue-type absent ≡ `classic`. [E]"""
    classic: Table = {"x-queue-type": longstr("classic")}
    check_queue_equivalence(queue({}), True, False, classic)
    check_queue_equivalence(queue(classic), True, False, {})


def test_the_word_classic_elsewhere_is_no_default() -> None:
    expected = inequivalent("x-overflow", "the value 'classic' of type 'longstr'", "none")
    assert difference({}, {"x-overflow": longstr("classic")}) == expected


def test_other_queue_type() -> None:
    """§3.9: absent vs quorum; no validation of what is received. [E]"""
    shown = "the value '{}' of type 'longstr'"
    assert difference({}, QUORUM) == inequivalent("x-queue-type", shown.format("quorum"), "none")
    assert difference(QUORUM, {}, "quorum") == inequivalent("x-queue-type", "none", shown.format("quorum"))
    bogus: Table = {"x-queue-type": longstr("bogus")}
    assert difference({}, bogus) == inequivalent("x-queue-type", shown.format("bogus"), "none")
    classic: Table = {"x-queue-type": longstr("classic")}
    assert difference(classic, QUORUM) == inequivalent("x-queue-type", "'quorum'", "'classic'")


def test_compared_keys() -> None:
    """§3.9: the keys of the existing queue's own type; unknown args are ignored. [E]"""
    check_queue_equivalence(queue({}), True, False, {"foo": long(1), "x-max-in-memory-length": long(1)})
    limit: Table = {**QUORUM, "x-delivery-limit": signed_int(1)}
    more: Table = {**QUORUM, "x-delivery-limit": signed_int(2)}
    assert difference(limit, more, "quorum") == inequivalent("x-delivery-limit", "'2'", "'1'")
    check_queue_equivalence(queue(QUORUM, "quorum"), True, False, {**QUORUM, "x-max-priority": long(1)})


def test_order_of_compared_keys() -> None:
    """[E]"""
    received: Table = {"x-max-length": signed_int(5)}
    expected = inequivalent("x-expires", "none", "the value '50000' of type 'signedint'")
    assert difference({"x-expires": signed_int(50000)}, received) == expected


@pytest.mark.parametrize("current", [True, False])
def test_queue_flags(current: bool) -> None:
    """§3.9: durable, then auto_delete, then arguments."""
    record = QueueRecord("V", "Q", "uid", durable=current, auto_delete=current)
    shown = [f"'{str(flag).lower()}'" for flag in (not current, current)]
    with pytest.raises(ProtocolError) as caught:
        check_queue_equivalence(record, not current, not current, {"x-expires": long(1)})
    assert caught.value.explanation == inequivalent("durable", *shown)
    with pytest.raises(ProtocolError) as caught:
        check_queue_equivalence(record, current, not current, {"x-expires": long(1)})
    assert caught.value.explanation == inequivalent("auto_delete", *shown)
    check_queue_equivalence(record, current, current, {})


# --- §3.3: exchanges declared again -------------------------------------------------------------------------


def exchange_difference(
    record: Exchange, type_: str, flags: tuple[bool, bool, bool], arguments: Table
) -> str:
    with pytest.raises(ProtocolError) as caught:
        check_exchange_equivalence(record, type_, *flags, arguments)
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    prefix = "inequivalent arg "
    assert caught.value.explanation.startswith(prefix)
    return caught.value.explanation.removeprefix(prefix)


def test_exchange_order_of_checks() -> None:
    """§3.3 step 5: type, durable, auto_delete, internal, alternate-exchange. [E]"""
    record = Exchange("V", "X", "direct")
    where = "for exchange 'X' in vhost 'V': received"
    other: Table = {"alternate-exchange": longstr("a")}
    received = exchange_difference(record, "fanout", (True, True, True), other)
    assert received == f"'type' {where} 'fanout' but current is 'direct'"
    received = exchange_difference(record, "direct", (True, True, True), other)
    assert received == f"'durable' {where} 'true' but current is 'false'"
    received = exchange_difference(record, "direct", (False, True, True), other)
    assert received == f"'auto_delete' {where} 'true' but current is 'false'"
    received = exchange_difference(record, "direct", (False, False, True), other)
    assert received == f"'internal' {where} 'true' but current is 'false'"
    received = exchange_difference(record, "direct", (False, False, False), other)
    assert received == f"'alternate-exchange' {where} the value 'a' of type 'longstr' but current is none"
    check_exchange_equivalence(record, "direct", False, False, False, {"other": long(1)})


@pytest.mark.parametrize(
    ("field", "received", "current"),
    [
        (longstr("a"), "'a'", "'b'"),
        (signed_int(5), "'5'", "'b'"),
        (None, "none", "the value 'b' of type 'longstr'"),
    ],
)
def test_other_alternate_exchange(field: Field | None, received: str, current: str) -> None:
    """§3.3 step 5, in the texts of §3.9. [E]"""
    record = Exchange("V", "X", "direct", arguments={"alternate-exchange": longstr("b")})
    arguments = {} if field is None else {"alternate-exchange": field}
    text = exchange_difference(record, "direct", (False, False, False), arguments)
    assert text == (
        f"'alternate-exchange' for exchange 'X' in vhost 'V': received {received} but current is {current}"
    )


# --- §4.6: consumers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ConsumeArguments()),
        ({"x-priority": Field("b", -5)}, ConsumeArguments(priority=-5)),
        ({"x-priority": long(10)}, ConsumeArguments(priority=10)),
        ({"x-cancel-on-ha-failover": boolean(True)}, ConsumeArguments(cancel_on_ha_failover=True)),
        ({"x-cancel-on-ha-failover": boolean(False)}, ConsumeArguments()),
        ({"foo": VOID, "x-credit": table({})}, ConsumeArguments()),
    ],
)
def test_consume_arguments(arguments: Table, expected: ConsumeArguments) -> None:
    """§4.6 rows x-priority, x-cancel-on-ha-failover, unknown args."""
    assert parse_consume_arguments(arguments, "Q", "V", "classic") == expected


@pytest.mark.parametrize(
    ("type_", "arguments", "text"),
    [
        ("classic", {"x-priority": longstr("a")}, invalid("x-priority", '"expected integer, got longstr"')),
        ("classic", {"x-priority": double(1.0)}, invalid("x-priority", '"expected integer, got double"')),
        (
            "classic",
            {"x-cancel-on-ha-failover": longstr("a")},
            invalid("x-cancel-on-ha-failover", "{unacceptable_type,longstr}"),
        ),
        (
            "classic",
            {"x-stream-offset": longstr("first")},
            "invalid arg 'x-stream-offset' for queue 'Q' in vhost 'V' of queue type rabbit_classic_queue",
        ),
        (
            "classic",
            {"x-stream-offset": longstr("first"), "x-priority": boolean(True)},
            invalid("x-priority", '"expected integer, got bool"'),
        ),
        (
            "quorum",
            {"x-cancel-on-ha-failover": boolean(True)},
            "invalid arg 'x-cancel-on-ha-failover' for queue 'Q' in vhost 'V' "
            "of queue type rabbit_quorum_queue",
        ),
        (
            "quorum",
            {"x-stream-offset": long(1), "x-cancel-on-ha-failover": boolean(True)},
            "invalid arg 'x-stream-offset' for queue 'Q' in vhost 'V' of queue type rabbit_quorum_queue",
        ),
    ],
)
def test_refused_consume_arguments(type_: QueueType, arguments: Table, text: str) -> None:
    """§4.6 rows x-priority, x-cancel-on-ha-failover, x-stream-offset. [E]"""
    with pytest.raises(ProtocolError) as caught:
        parse_consume_arguments(arguments, "Q", "V", type_)
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    assert caught.value.explanation == text


# --- printing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (5.0, "5.0"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1.0e-5"),
        (1e-7, "1.0e-7"),
        (100.0, "100.0"),
        (1000.0, "1.0e3"),
        (50000.0, "5.0e4"),
        (123456.0, "123456.0"),
        (2.0**53 - 1, "9007199254740991.0"),
        (2.0**53, "9.007199254740992e15"),
        (123456789012345678.0, "1.2345678901234568e17"),
        (1.5e300, "1.5e300"),
    ],
)
def test_floats_as_erlang_prints_them(value: float, text: str) -> None:
    """Compared with io:format("~p") of Erlang 25."""
    assert print_value(double(value)) == text
