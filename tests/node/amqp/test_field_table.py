"""Field tables against amqp-behaviour §0.4."""

from struct import pack

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import (
    TABLE_DEPTH_MAX,
    VOID,
    Field,
    Table,
    array,
    boolean,
    check_table,
    decode_table,
    encode_table,
    long,
    longstr,
    pick_fields,
    table,
    timestamp,
    type_name,
)


def sized(raw: bytes) -> bytes:
    return pack(">I", len(raw)) + raw


def one(value: bytes) -> bytes:
    """A table with the key `k` and this tag and data."""
    return sized(b"\x01k" + value)


# §0.4, row by row: the octets, what they mean, the name of the type.
ROWS = [
    (b"S\x00\x00\x00\x02ab", Field("S", b"ab"), "longstr"),
    (b"T\xff\xff\xff\xff\xff\xff\xff\xff", Field("T", 2**64 - 1), "timestamp"),
    (b"I\xff\xff\xff\xfe", Field("I", -2), "signedint"),
    (b"i\xff\xff\xff\xfe", Field("i", 2**32 - 2), "unsignedint"),
    (b"b\xfe", Field("b", -2), "byte"),
    (b"B\xfe", Field("B", 254), "unsignedbyte"),
    (b"s\xff\xfe", Field("s", -2), "short"),
    (b"u\xff\xfe", Field("u", 65534), "unsignedshort"),
    (b"l\xff\xff\xff\xff\xff\xff\xff\xfe", Field("l", -2), "long"),
    (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", Field("d", 1.5), "double"),
    (b"f\xbf\xc0\x00\x00", Field("f", -1.5), "float"),
    (b"t\x01", Field("t", True), "bool"),
    (b"t\x00", Field("t", False), "bool"),
    (b"D\x02\x00\x00\x01\x3a", Field("D", (2, 314)), "decimal"),
    (b"F" + sized(b"\x01at\x01"), Field("F", {"a": Field("t", True)}), "table"),
    (b"A" + sized(b"t\x01B\x07"), Field("A", [Field("t", True), Field("B", 7)]), "array"),
    (b"x\x00\x00\x00\x02\x00\xff", Field("x", b"\x00\xff"), "binary"),
    (b"V", VOID, "void"),
]


@pytest.mark.parametrize(("raw", "field", "name"), ROWS, ids=lambda value: str(value)[:12])
def test_each_type_of_0_4_is_kept_as_received(raw: bytes, field: Field, name: str) -> None:
    data = one(raw)
    assert decode_table(data) == ({"k": field}, len(data))
    assert encode_table({"k": field}) == data
    assert type_name(field.tag) == name
    assert check_table(data) == len(data)


def test_0_4_row_L_is_a_signed_long_and_written_back_as_l() -> None:
    value, _ = decode_table(one(b"L\xff\xff\xff\xff\xff\xff\xff\xfe"))
    assert value == {"k": Field("l", -2)}
    assert encode_table(value) == one(b"l\xff\xff\xff\xff\xff\xff\xff\xfe")


def test_0_4_row_t_any_octet_but_zero_is_true_and_written_back_as_1() -> None:
    value, _ = decode_table(one(b"t\x07"))
    assert value == {"k": Field("t", True)}
    assert encode_table(value) == one(b"t\x01")


def test_the_constructors_use_the_types_of_common_clients() -> None:
    made = {
        "a": longstr("é"),
        "b": longstr(b"\xff"),
        "c": long(-1),
        "d": boolean(True),
        "e": table({"x": VOID}),
        "f": array([long(1)]),
        "g": timestamp(5),
    }
    assert [field.tag for field in made.values()] == list("SSltFAT")
    assert decode_table(encode_table(made))[0] == made


def test_a_table_is_read_where_it_stands() -> None:
    data = b"before" + one(b"t\x01") + b"after"
    assert decode_table(data, 6) == ({"k": Field("t", True)}, len(data) - 5)
    assert check_table(data, 6) == len(data) - 5


def test_the_empty_table() -> None:
    assert decode_table(b"\0\0\0\0") == ({}, 4)
    assert encode_table({}) == b"\0\0\0\0"
    assert check_table(b"\0\0\0\0") == 4


def test_order_is_kept_and_the_first_of_equal_keys_counts() -> None:
    data = sized(b"\x01bB\x01" + b"\x01aB\x02" + b"\x01bB\x03")
    value, _ = decode_table(data)
    assert list(value.items()) == [("b", Field("B", 1)), ("a", Field("B", 2))]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_fields_are_picked_as_they_are_decoded(number: int) -> None:
    """Behind and before each other type of value; of equal keys the first counts."""
    raw, field, _ = ROWS[number]
    others = b"".join(b"\x01%c%s" % (key, value) for key, (value, _, _) in enumerate(ROWS))
    data = b"before" + sized(others + b"\x04\xffkey" + raw + others + b"\x04\xffkey" + b"V")
    assert pick_fields(data, 6, {b"\xffkey"}) == {"\udcffkey": field}
    assert pick_fields(data, 6, {b"\xffkey", b"\x00", b"nope"}) == {"\udcffkey": field, "\x00": ROWS[0][1]}
    assert pick_fields(data, 6, ()) == {}


def test_nothing_is_picked_of_the_empty_table() -> None:
    assert pick_fields(b"\0\0\0\0rest", 0, {b"k"}) == {}


def test_keys_may_be_any_bytes() -> None:
    data = sized(b"\x02\xff\xc3V" + b"\x00V")
    value, _ = decode_table(data)
    assert list(value) == ["\udcff\udcc3", ""]
    assert encode_table(value) == data


MALFORMED = {
    "no size": b"\0\0\0",
    "size beyond the data": b"\0\0\0\x01",
    "key beyond the table": sized(b"\x05k"),
    "no value": sized(b"\x01k"),
    "unknown type": one(b"Z"),
    "longstr without size": one(b"S\0\0"),
    "longstr beyond the table": one(b"S\0\0\0\x03ab"),
    "number cut short": one(b"I\0\0\0"),
    "decimal cut short": one(b"D\0\0\0\0"),
    "bool cut short": one(b"t"),
    "nested table beyond the table": one(b"F\0\0\0\x01"),
    "nested table cut short": one(b"F" + sized(b"\x01")),
    "array beyond the table": one(b"A\0\0\0\x01"),
    "array cut short": one(b"A" + sized(b"I\0")),
    "unknown type in an array": one(b"A" + sized(b"?")),
    "double NaN": one(b"d" + pack(">d", float("nan"))),
    "double infinity": one(b"d" + pack(">d", float("inf"))),
    "float infinity": one(b"f" + pack(">f", float("-inf"))),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_a_frame_error_for_both_readers(data: bytes) -> None:
    for read in (decode_table, check_table):
        for tail in (b"", b"\0" * 40):
            if data in (MALFORMED["no size"], MALFORMED["size beyond the data"]) and tail:
                continue  # with more bytes they are well-formed
            with pytest.raises(ProtocolError) as caught:
                read(data + tail)
            assert caught.value.code == ReplyCode.FRAME_ERROR
            assert caught.value.explanation.startswith("malformed field table: ")


def test_the_limit_of_the_caller_holds_even_if_there_are_more_bytes() -> None:
    data = one(b"t\x01")
    for read in (decode_table, check_table):
        with pytest.raises(ProtocolError):
            read(data, 0, len(data) - 1)
    assert check_table(data, 0, len(data)) == len(data)


def nested(depth: int) -> Table:
    """As many tables, one in the other."""
    value: Table = {}
    for _ in range(depth - 1):
        value = {"k": table(value)}
    return value


def test_nesting_is_bounded() -> None:
    deepest = encode_table(nested(TABLE_DEPTH_MAX))
    assert encode_table(decode_table(deepest)[0]) == deepest
    assert check_table(deepest) == len(deepest)
    too_deep = encode_table(nested(TABLE_DEPTH_MAX + 1))
    for read in (decode_table, check_table):
        with pytest.raises(ProtocolError, match="nested too deep"):
            read(too_deep)


def test_arrays_count_for_the_nesting_too() -> None:
    raw = b""
    for _ in range(10_000):
        raw = b"A" + sized(raw)
    for read in (decode_table, check_table):
        with pytest.raises(ProtocolError, match="nested too deep"):
            read(one(raw))


def test_a_bomb_of_voids_shares_one_object() -> None:
    value, _ = decode_table(one(b"A" + sized(b"V" * 100_000)))
    voids = value["k"].value
    assert isinstance(voids, list)
    assert len(voids) == 100_000
    assert all(void is VOID for void in voids)


def test_a_key_of_our_own_that_is_too_long_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        encode_table({"k" * 256: VOID})
