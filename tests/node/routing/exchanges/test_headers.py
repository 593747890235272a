"""The headers exchange: amqp-behaviour §3.17.

[E]: RabbitMQ 3.10.8 was seen to answer so, or for single values of a list: its source says so.
"""

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import (
    VOID,
    Field,
    Table,
    array,
    boolean,
    long,
    longstr,
    table,
    timestamp,
)
from node.catalogue.records import Binding
from node.routing.exchanges import Destination
from node.routing.exchanges.headers import HeadersIndex, check_binding_arguments

X_MATCH = "x-match"


def signed_int(value: int) -> Field:
    return Field("I", value)


def double(value: float) -> Field:
    return Field("d", value)


def to_queue(name: str, arguments: Table, key: str = "") -> Binding:
    return Binding("/", "amq.headers", "queue", name, key, arguments)


def selects(arguments: Table, headers: Table | None) -> bool:
    check_binding_arguments(arguments)
    index = HeadersIndex()
    index.bind(to_queue("q", arguments))
    return list(index.match("any key", headers)) == [Destination("queue", "q")]


A: Table = {"a": long(1)}
AB: Table = {"a": long(1), "b": longstr("z")}


# --- x-match ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, {}, {"z": long(1)}])
@pytest.mark.parametrize("mode", [None, "all", "all-with-x"])
def test_all_without_conditions_selects_everything(mode: str | None, headers: Table | None) -> None:
    """§3.17 row `{}` or only x-match=all."""
    assert selects({X_MATCH: longstr(mode)} if mode else {}, headers)


@pytest.mark.parametrize("headers", [None, {}, {"z": long(1)}, {X_MATCH: longstr("any")}])
@pytest.mark.parametrize("mode", ["any", "any-with-x"])
def test_any_without_conditions_selects_nothing(mode: str, headers: Table | None) -> None:
    """§3.17 row only x-match=any."""
    assert not selects({X_MATCH: longstr(mode)}, headers)


@pytest.mark.parametrize("mode", [None, "all", "all-with-x"])
def test_all_needs_every_header(mode: str | None) -> None:
    """§3.17: absent = all. Extra headers never hurt."""
    pattern = {**AB, **({X_MATCH: longstr(mode)} if mode else {})}
    assert selects(pattern, AB)
    assert selects(pattern, {**AB, "c": long(3)})
    assert not selects(pattern, A)
    assert not selects(pattern, {**AB, "b": longstr("y")})
    assert not selects(pattern, None)


@pytest.mark.parametrize("mode", ["any", "any-with-x"])
def test_any_needs_one_header(mode: str) -> None:
    pattern = {**AB, X_MATCH: longstr(mode)}
    assert selects(pattern, A)
    assert selects(pattern, {"a": long(2), "b": longstr("z")})
    assert not selects(pattern, {"a": long(2), "b": longstr("y")})
    assert not selects(pattern, None)


@pytest.mark.parametrize(
    ("mode", "headers", "expected"),
    [
        ("all", {}, True),
        ("any", {"x-a": long(1)}, False),
        ("all-with-x", {}, False),
        ("all-with-x", {"x-a": long(1)}, True),
        ("any-with-x", {"x-a": long(1)}, True),
        ("any-with-x", {"x-a": long(2)}, False),
    ],
)
def test_x_keys_take_part_only_with_x(mode: str, headers: Table, expected: bool) -> None:
    """§3.17 rows `keys beginning x-` and `all-with-x / any-with-x`. [E]"""
    assert selects({X_MATCH: longstr(mode), "x-a": long(1)}, headers) is expected


def test_x_match_itself_is_no_condition() -> None:
    """§3.17: `x-` keys take part (except `x-match`)."""
    assert selects({X_MATCH: longstr("all-with-x"), "a": long(1)}, A)
    assert not selects({X_MATCH: longstr("any-with-x")}, {X_MATCH: longstr("any-with-x")})


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [long(5), longstr("x"), VOID, boolean(False), table({}), array([])])
def test_void_asks_for_presence(value: Field) -> None:
    """§3.17 row a=void."""
    assert selects({"a": VOID}, {"a": value})
    assert selects({"a": VOID, X_MATCH: longstr("any")}, {"a": value})
    assert not selects({"a": VOID}, {"b": value})


EQUAL = [
    (signed_int(5), long(5)),
    (signed_int(5), double(5.0)),
    (timestamp(5), signed_int(5)),
    (long(2**53), double(2.0**53)),
    (longstr("1"), Field("x", b"1")),
    (Field("D", (1, 15)), Field("D", (1, 15))),
    (table({}), array([])),
    (array([signed_int(1)]), array([signed_int(1)])),
    (table({"k": long(1), "l": VOID}), table({"k": long(1), "l": VOID})),
]
DIFFERENT = [
    (signed_int(5), longstr("5")),
    (boolean(True), long(1)),
    (boolean(False), long(0)),
    (boolean(True), longstr("true")),
    (longstr("1"), VOID),
    (long(2**53 + 1), double(2.0**53)),
    (Field("D", (1, 15)), double(1.5)),
    (array([signed_int(1)]), array([long(1)])),
    (array([signed_int(1)]), array([double(1.0)])),
    (array([VOID]), array([signed_int(1)])),
    (array([boolean(True)]), array([boolean(False)])),
    (table({"k": long(1), "l": long(2)}), table({"l": long(2), "k": long(1)})),
    (table({"k": long(1)}), table({"k": signed_int(1)})),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values(one: Field, other: Field) -> None:
    """§3.17 rows `numeric equality, types ignored`, `'1' longstr`, `table / array`. [E]"""
    assert selects({"a": one}, {"a": other})
    assert selects({"a": other}, {"a": one})


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_values(one: Field, other: Field) -> None:
    """§3.17 rows `a=5 / a=true / a='1'` and `table / array`. [E]"""
    assert not selects({"a": one}, {"a": other})


def test_void_header_is_no_other_value() -> None:
    """§3.17 row `a=5 / a=true / a='1'` against void."""
    for value in (signed_int(5), boolean(True), longstr("1"), longstr("undefined")):
        assert not selects({"a": value}, {"a": VOID})


def test_keys_are_case_sensitive() -> None:
    """§3.17, below the table."""
    assert not selects({"a": long(1)}, {"A": long(1)})


# --- bindings -----------------------------------------------------------------------------------------------


def test_unbinding_one_pattern_leaves_the_other() -> None:
    index = HeadersIndex()
    index.bind(to_queue("q", A))
    index.bind(to_queue("q", {"b": long(2)}))
    index.unbind(to_queue("q", A))
    assert not list(index.match("", A))
    assert list(index.match("", {"b": long(2)})) == [Destination("queue", "q")]


@pytest.mark.parametrize(
    "second",
    [to_queue("q", A, "other key"), to_queue("q", {"a": signed_int(1)}), to_queue("q", {**A, "x-b": VOID})],
)
def test_bindings_with_one_meaning_are_counted(second: Binding) -> None:
    index = HeadersIndex()
    index.bind(to_queue("q", A))
    index.bind(second)
    index.unbind(to_queue("q", A))
    assert list(index.match("", A)) == [Destination("queue", "q")]
    index.unbind(second)
    assert not list(index.match("", A))


def test_all_destinations_whose_pattern_fits() -> None:
    index = HeadersIndex()
    index.bind(to_queue("q1", A))
    index.bind(to_queue("q2", A))
    index.bind(to_queue("q3", {"b": long(1)}))
    index.bind(Binding("/", "amq.headers", "exchange", "x", "", {}))
    expected = {Destination("queue", "q1"), Destination("queue", "q2"), Destination("exchange", "x")}
    assert set(index.match("", A)) == expected


def test_unbinding_what_is_not_bound_is_our_own_mistake() -> None:
    index = HeadersIndex()
    index.bind(to_queue("q", A))
    with pytest.raises(KeyError):
        index.unbind(to_queue("q", AB))


# --- the check at bind --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        (longstr("foo"), '<<"foo">>'),
        (longstr('a"b'), r'<<"a\"b">>'),
        (longstr("a\nb"), r'<<"a\nb">>'),
        (longstr("é"), '<<"é">>'),
        (longstr("Ж"), "<<208,150>>"),
        (longstr("All"), '<<"All">>'),
    ],
)
def test_unknown_word(field: Field, shown: str) -> None:
    """§3.17, bind errors: 406 with the word as Erlang prints it. [E]"""
    with pytest.raises(ProtocolError) as caught:
        check_binding_arguments({X_MATCH: field})
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    expected = f"Invalid x-match field value {shown}; expected all, any, all-with-x, or any-with-x"
    assert caught.value.explanation == expected


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        (signed_int(5), "signedint (value 5)"),
        (double(1.5), "double (value 1.5)"),
        (boolean(True), "bool (value true)"),
        (VOID, "void (value undefined)"),
        (timestamp(1577836800), "timestamp (value 1577836800)"),
        (Field("x", b"all"), 'binary (value <<"all">>)'),
        (Field("D", (1, 15)), "decimal (value {1,15})"),
        (table({}), "table (value [])"),
        (table({"a": signed_int(1)}), 'table (value [{<<"a">>,signedint,1}])'),
        (array([signed_int(1), longstr("a")]), 'array (value [{signedint,1},{longstr,<<"a">>}])'),
    ],
)
def test_wrong_type(field: Field, shown: str) -> None:
    """§3.17, bind errors: 406 with the type and the value as Erlang prints it. [E]"""
    with pytest.raises(ProtocolError) as caught:
        check_binding_arguments({X_MATCH: field})
    assert caught.value.code is ReplyCode.PRECONDITION_FAILED
    assert caught.value.explanation == f"Invalid x-match field type {shown}; expected longstr"
