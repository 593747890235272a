"""Properties and traits: amqp-behaviour §1.7 row "garbage property list", §4.1, §10."""

from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, Table, array, boolean, encode_table, long, longstr
from node.amqp.properties import (
    PERSISTENT,
    TRANSIENT,
    Properties,
    Traits,
    content_header,
    decode_properties,
    encode_properties,
    read_headers,
    read_traits,
)

FULL = Properties(
    content_type="a/b",
    content_encoding="gzip",
    headers={"h": long(1)},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=2**64 - 1,
    type="t",
    user_id="u",
    app_id="app",
    cluster_id="cl",
)


def traits_of(**properties: Any) -> Traits:
    """The traits of a message with these properties, read amid other bytes."""
    raw = encode_properties(Properties(**properties))
    assert decode_properties(raw, 0, len(raw)) == Properties(**properties)
    return read_traits(b"before" + raw + b"after" * 9, 6, 6 + len(raw))


# properties


def test_all_14_in_the_order_of_10() -> None:
    raw = encode_properties(FULL)
    assert raw == (
        b"\xff\xfc"
        + (b"\x03a/b" + b"\x04gzip" + encode_table({"h": long(1)}) + b"\x02" + b"\x09" + b"\x01c" + b"\x01r")
        + (b"\x0560000" + b"\x01m" + b"\xff" * 8 + b"\x01t" + b"\x01u" + b"\x03app" + b"\x02cl")
    )
    assert decode_properties(raw, 0, len(raw)) == FULL


@pytest.mark.parametrize("place", range(14))
def test_each_property_has_its_bit(place: int) -> None:
    name = list(Properties.__dataclass_fields__)[place]
    alone = Properties(**{name: getattr(FULL, name)})
    raw = encode_properties(alone)
    assert raw[:2] == pack(">H", 1 << (15 - place))
    assert decode_properties(raw, 0, len(raw)) == alone


@pytest.mark.parametrize(
    "without", [(), ("content_type",), ("content_encoding",), ("content_type", "content_encoding")]
)
def test_headers_are_found_behind_what_is_before_them(without: tuple[str, ...]) -> None:
    """Two other properties may stand there."""
    data = b"--" + encode_properties(replace(FULL, **dict.fromkeys(without)))
    assert read_headers(data, 2, {b"h", b"i"}) == {"h": long(1)}
    assert read_headers(data, 2, {b"i"}) == {}


def test_there_may_be_no_headers() -> None:
    data = encode_properties(replace(FULL, headers=None))
    assert read_headers(data, 0, {b"h"}) == {}


def test_none_at_all() -> None:
    assert encode_properties(Properties()) == b"\0\0"
    assert decode_properties(b"\0\0", 0, 2) == Properties()


def test_empty_values_are_not_absent() -> None:
    empty = Properties(content_type="", headers={}, delivery_mode=0, timestamp=0)
    raw = encode_properties(empty)
    assert decode_properties(raw, 0, len(raw)) == empty


def test_strings_may_be_any_bytes() -> None:
    raw = b"\x80\x00\x02\xff\xc3"
    found = decode_properties(raw, 0, len(raw))
    assert found.content_type == "\udcff\udcc3"
    assert encode_properties(found) == raw


def test_the_two_lowest_flags_are_ignored_as_rabbitmq_does() -> None:
    for flags in (b"\0\x01", b"\0\x02", b"\0\x03"):
        assert decode_properties(flags, 0, 2) == Properties()
        assert read_traits(flags, 0, 2) is TRANSIENT
    assert read_traits(b"\x10\x01\x02", 0, 3) is PERSISTENT


GARBAGE = {
    "nothing": b"",
    "half of the flags": b"\0",
    "left over": b"\0\0\0",
    "left over after a value": b"\x10\0\x02\0",
    "string cut short": b"\x80\0\x05abc",
    "no string": b"\x80\0",
    "no delivery mode": b"\x10\0",
    "timestamp cut short": b"\0\x40\0\0\0\0\0\0\0",
    "headers cut short": b"\x20\0\0\0\0\x05\x01k",
    "headers of unknown type": b"\x20\0\0\0\0\x03\x01kZ",
    "headers cut short by the payload": b"\x20\0\0\0\0\x04\x01kV",
    "user id cut short": b"\0\x10\x02u",
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("follows", [b"", b"\0" * 40, b"\x01" * 40])
def test_1_7_row_garbage_property_list(raw: bytes, follows: bytes) -> None:
    """Whether the payload is the end of what was received, or other frames follow."""
    for read in (decode_properties, read_traits):
        with pytest.raises(ProtocolError) as caught:
            read(b"xx" + raw + follows, 2, 2 + len(raw))
        assert caught.value.code == ReplyCode.INTERNAL_ERROR
        assert caught.value.reply_text == "INTERNAL_ERROR"
        assert (caught.value.class_id, caught.value.method_id) == (0, 0)


def test_a_string_of_our_own_that_is_too_long_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        encode_properties(Properties(content_type="x" * 256))


def test_content_header() -> None:
    header = content_header(258, Properties(delivery_mode=1))
    assert header == b"\0\x3c" + b"\0\0" + b"\0\0\0\0\0\0\x01\x02" + b"\x10\0" + b"\x01"


# traits


def test_plain_messages_share_their_traits() -> None:
    headers = {"a": longstr("x"), "b": boolean(True), "cc": longstr("lower case")}
    assert traits_of() is TRANSIENT
    assert traits_of(delivery_mode=1) is TRANSIENT
    assert traits_of(delivery_mode=2) is PERSISTENT
    assert traits_of(content_type="text/plain", delivery_mode=2) is PERSISTENT
    assert traits_of(headers=headers, message_id="m", timestamp=1, app_id="a") is TRANSIENT
    assert traits_of(headers=headers, delivery_mode=2, cluster_id="c", type="t") is PERSISTENT
    assert traits_of(delivery_mode=2, reply_to="a.queue", correlation_id="1") is PERSISTENT


def test_delivery_mode_absent_or_1_is_transient() -> None:
    """§4.1: delivery_mode absent = transient."""
    assert not TRANSIENT.persistent
    assert PERSISTENT.persistent


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_4_1_row_10_other_delivery_modes_are_told(mode: int) -> None:
    assert traits_of(delivery_mode=mode) == Traits(delivery_mode=mode)
    assert not traits_of(delivery_mode=mode).persistent


def test_each_trait_alone() -> None:
    assert traits_of(priority=255) == Traits(priority=255)
    assert traits_of(priority=0) == Traits(priority=0)
    assert traits_of(expiration="") == Traits(expiration="")
    assert traits_of(user_id="") == Traits(user_id="")
    assert traits_of(reply_to="amq.rabbitmq.reply-to") == Traits(reply_to="amq.rabbitmq.reply-to")
    assert traits_of(reply_to="amq.rabbitmq.reply-to.x") is TRANSIENT


def test_traits_of_a_message_with_everything() -> None:
    raw = encode_properties(FULL)
    assert read_traits(raw, 0, len(raw)) == Traits(2, 9, "60000", "u")


def test_traits_can_be_keys() -> None:
    assert {traits_of(priority=1): 1}[Traits(priority=1)] == 1


def test_sender_selected_keys() -> None:
    headers = {"CC": array([longstr("a"), longstr("b")]), "BCC": array([longstr("ü")])}
    assert traits_of(headers=headers) == Traits(cc=("a", "b"), bcc=("ü",))
    assert traits_of(headers={"BCC": headers["BCC"]}, delivery_mode=2) == Traits(2, bcc=("ü",))
    assert traits_of(headers={"CC": array([])}) is TRANSIENT


def test_4_1_entries_that_are_no_longstr_are_ignored() -> None:
    headers = {"CC": array([long(1), longstr("a"), Field("x", b"b"), array([longstr("c")])])}
    assert traits_of(headers=headers) == Traits(cc=("a",))


@pytest.mark.parametrize(
    ("headers", "bad"),
    [
        ({"CC": longstr("a")}, ("CC", "longstr")),
        ({"BCC": long(1)}, ("BCC", "long")),
        ({"BCC": long(1), "CC": Field("V", None)}, ("CC", "void")),
        ({"CC": array([longstr("a")]), "BCC": Field("F", {})}, ("BCC", "table")),
    ],
)
def test_4_1_row_10_cc_that_is_no_array_is_told(headers: Table, bad: tuple[str, str]) -> None:
    """CC is looked at first, whatever the order in the table."""
    traits = traits_of(headers=headers, priority=3)
    assert traits == Traits(priority=3, bad_sender_selected=bad)


def test_the_letters_cc_elsewhere_mean_nothing() -> None:
    assert traits_of(headers={"a": longstr("CC"), "CCC": longstr("x"), "xCC": long(1)}) is TRANSIENT
    assert traits_of(headers={"a": Field("F", {"CC": longstr("x")})}, delivery_mode=2) is PERSISTENT
