"""Any bytes give a value or a ProtocolError, never anything else; what was read is written back the same."""

from dataclasses import fields
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.errors import ProtocolError
from node.amqp.field_table import TYPE_NAMES, Field, check_table, decode_table, encode_table
from node.amqp.method_codec import decode_method, encode_method
from node.amqp.methods import METHODS, FieldType, Method
from node.amqp.properties import Properties, Traits, decode_properties, encode_properties, read_traits

shortstr = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


SCALARS = {
    "S": st.binary(max_size=20),
    "T": unsigned(64),
    "I": signed(32),
    "i": unsigned(32),
    "b": signed(8),
    "B": unsigned(8),
    "s": signed(16),
    "u": unsigned(16),
    "l": signed(64),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "f": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "t": st.booleans(),
    "D": st.tuples(unsigned(8), unsigned(32)),
    "x": st.binary(max_size=20),
    "V": st.none(),
}
assert SCALARS.keys() | {"F", "A"} == TYPE_NAMES.keys()

scalar = st.one_of([st.builds(Field, st.just(tag), value) for tag, value in SCALARS.items()])
field = st.recursive(
    scalar,
    lambda inner: st.one_of(
        st.builds(Field, st.just("F"), st.dictionaries(shortstr, inner, max_size=4)),
        st.builds(Field, st.just("A"), st.lists(inner, max_size=4)),
    ),
    max_leaves=12,
)
table = st.dictionaries(shortstr, field, max_size=5)

# Bytes that look like tables, so that the readers get beyond the first octets.
tag = st.sampled_from([letter.encode() for letter in [*TYPE_NAMES, "L", "Z"]])
garbled_entry = st.builds(
    lambda key, letter, data: bytes((len(key),)) + key + letter + data,
    st.binary(max_size=3),
    tag,
    st.one_of(st.binary(max_size=9), st.binary(max_size=9).map(lambda raw: pack(">I", len(raw)) + raw)),
)
garbled_table = st.lists(garbled_entry, max_size=5).map(b"".join).map(lambda raw: pack(">I", len(raw)) + raw)

WIRE = {
    FieldType.OCTET: unsigned(8),
    FieldType.SHORT: unsigned(16),
    FieldType.LONG: unsigned(32),
    FieldType.LONGLONG: unsigned(64),
    FieldType.SHORTSTR: shortstr,
    FieldType.LONGSTR: st.binary(max_size=60),
    FieldType.TABLE: table,
    FieldType.BIT: st.booleans(),
}


def arbitrary(cls: type[Method]) -> st.SearchStrategy[Method]:
    return st.builds(cls, *[WIRE[hint.__metadata__[0]] for hint in cls.__annotations__.values()])


method = st.sampled_from(list(METHODS.values())).flatmap(arbitrary)

properties = st.builds(
    Properties,
    **{
        item.name: st.none()
        | {
            "headers": table,
            "delivery_mode": unsigned(8),
            "priority": unsigned(8),
            "timestamp": unsigned(64),
        }.get(item.name, shortstr)
        for item in fields(Properties)
    },
)
sender_selected = st.dictionaries(st.sampled_from(["CC", "BCC", "cc", "a"]), field, max_size=4)


@given(table)
def test_tables_go_there_and_back(value: dict[str, Field]) -> None:
    raw = encode_table(value)
    assert decode_table(raw) == (value, len(raw))
    assert check_table(raw) == len(raw)


@given(
    st.one_of(st.binary(max_size=80), garbled_table, table.map(encode_table)),
    st.binary(max_size=12),
    st.data(),
)
def test_both_readers_of_tables_have_one_verdict(raw: bytes, follows: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    whole = b"xyz" + raw + follows
    try:
        value, after = decode_table(whole, 3, 3 + end)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            check_table(whole, 3, 3 + end)
        return
    assert check_table(whole, 3, 3 + end) == after
    again = encode_table(value)
    assert decode_table(again) == (value, len(again))
    assert len(again) <= after - 3, "only keys that came twice are lost"


@given(method)
def test_methods_go_there_and_back(value: Method) -> None:
    assert decode_method(encode_method(value)) == value


@given(method, st.data())
def test_damaged_methods_are_read_or_refused(value: Method, data: st.DataObject) -> None:
    raw = bytearray(encode_method(value))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=4))
    read_method(bytes(raw))


@given(st.sampled_from(list(METHODS)), st.binary(max_size=60))
def test_any_arguments_are_read_or_refused(ids: tuple[int, int], arguments: bytes) -> None:
    read_method(pack(">HH", *ids) + arguments)


@given(st.binary(max_size=20))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    read_method(payload)


def read_method(payload: bytes) -> None:
    try:
        value = decode_method(payload)
    except ProtocolError:
        return
    assert decode_method(encode_method(value)) == value


@given(properties)
def test_properties_go_there_and_back(value: Properties) -> None:
    raw = encode_properties(value)
    assert decode_properties(raw, 0, len(raw)) == value


@given(properties, sender_selected | st.none())
def test_traits_agree_with_the_properties(value: Properties, headers: dict[str, Field] | None) -> None:
    value.headers = headers
    raw = encode_properties(value)
    assert read_traits(raw, 0, len(raw)) == traits_by_the_book(value)


def traits_by_the_book(value: Properties) -> Traits:
    """amqp-behaviour §4.1, from the decoded properties."""
    keys: dict[str, tuple[str, ...]] = {}
    bad = None
    for name in ("CC", "BCC"):
        entry = (value.headers or {}).get(name)
        if entry is not None and entry.tag != "A":
            bad = bad or (name, TYPE_NAMES[entry.tag])
        elif entry is not None and isinstance(entry.value, list):
            raw = [item.value for item in entry.value if item.tag == "S" and isinstance(item.value, bytes)]
            keys[name] = tuple(item.decode("utf-8", "surrogateescape") for item in raw)
    return Traits(
        delivery_mode=None if value.delivery_mode == 1 else value.delivery_mode,
        priority=value.priority,
        expiration=value.expiration,
        user_id=value.user_id,
        reply_to=value.reply_to if value.reply_to == "amq.rabbitmq.reply-to" else None,
        cc=() if bad else keys.get("CC", ()),
        bcc=None if bad else keys.get("BCC"),
        bad_sender_selected=bad,
    )


damaged_properties = st.builds(
    lambda raw, place, piece: (
        raw[: place % (len(raw) + 1)] + piece + raw[place % (len(raw) + 1) + len(piece) :]
    ),
    properties.map(encode_properties),
    st.integers(0, 200),
    st.binary(max_size=4),
)


@given(st.one_of(st.binary(max_size=60), damaged_properties), st.binary(max_size=20))
def test_both_readers_of_properties_have_one_verdict(raw: bytes, follows: bytes) -> None:
    whole = b"xyz" + raw + follows
    end = 3 + len(raw)
    try:
        value = decode_properties(whole, 3, end)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            read_traits(whole, 3, end)
        return
    assert read_traits(whole, 3, end) == traits_by_the_book(value)
    again = encode_properties(value)
    assert decode_properties(again, 0, len(again)) == value
