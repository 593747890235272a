"""The codec of methods, byte for byte, and the errors of amqp-behaviour §1.7."""

from struct import pack

import pytest

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Field, long, longstr
from node.amqp.method_codec import UnknownMethod, decode_method, encode_method
from node.amqp.methods import (
    METHODS,
    AccessRequest,
    BasicAck,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    ChannelClose,
    ChannelOpenOk,
    ConnectionStartOk,
    ConnectionTune,
    ExchangeDeclare,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
)

EXAMPLES = [
    (TxSelect(), b"\0\x5a\0\x0a"),
    (BasicAck(delivery_tag=258, multiple=True), b"\0\x3c\0\x50" + b"\0\0\0\0\0\0\x01\x02" + b"\x01"),
    (
        BasicNack(delivery_tag=1, multiple=False, requeue=True),
        b"\0\x3c\0\x78" + b"\0\0\0\0\0\0\0\x01" + b"\x02",
    ),
    (BasicQos(0, 5, True), b"\0\x3c\0\x0a" + b"\0\0\0\0" + b"\0\x05" + b"\x01"),
    (BasicPublish(0, "x", "rk", True, False), b"\0\x3c\0\x28" + b"\0\0" + b"\x01x" + b"\x02rk" + b"\x01"),
    (
        BasicDeliver("c", 7, True, "x", "é"),
        b"\0\x3c\0\x3c" + b"\x01c" + b"\0\0\0\0\0\0\0\x07" + b"\x01" + b"\x01x" + b"\x02\xc3\xa9",
    ),
    (ConnectionTune(2047, 131072, 60), b"\0\x0a\0\x1e" + b"\x07\xff" + b"\0\x02\0\0" + b"\0\x3c"),
    (ChannelOpenOk(), b"\0\x14\0\x0b" + b"\0\0\0\0"),
    (ChannelClose(404, "no", 50, 10), b"\0\x14\0\x28" + b"\x01\x94" + b"\x02no" + b"\0\x32" + b"\0\x0a"),
    (QueueDeclareOk("q", 2, 3), b"\0\x32\0\x0b" + b"\x01q" + b"\0\0\0\x02" + b"\0\0\0\x03"),
    (
        QueueDeclare(queue="q", durable=True, nowait=True, arguments={"a": long(1)}),
        b"\0\x32\0\x0a" + b"\0\0" + b"\x01q" + b"\x12" + b"\0\0\0\x0b" + b"\x01al\0\0\0\0\0\0\0\x01",
    ),
    (
        ConnectionStartOk({"product": longstr("p")}, "PLAIN", b"\0guest\0guest", "en_US"),
        b"\0\x0a\0\x0b"
        + (b"\0\0\0\x0e" + b"\x07productS\0\0\0\x01p")
        + b"\x05PLAIN"
        + b"\0\0\0\x0c\0guest\0guest"
        + b"\x05en_US",
    ),
]


@pytest.mark.parametrize(("method", "payload"), EXAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_examples_by_hand(method: Method, payload: bytes) -> None:
    assert encode_method(method) == payload
    assert decode_method(payload) == method


@pytest.mark.parametrize("cls", METHODS.values(), ids=lambda cls: cls.name)
def test_every_method_goes_there_and_back(cls: type[Method]) -> None:
    method = cls()
    payload = encode_method(method)
    assert payload[:4] == pack(">HH", cls.class_id, cls.method_id)
    assert decode_method(payload) == method


@pytest.mark.parametrize("name", ["exclusive", "passive", "active", "write", "read"])
def test_bits_are_packed_lowest_first(name: str) -> None:
    names = ["exclusive", "passive", "active", "write", "read"]
    method = AccessRequest(realm="", **{each: each == name for each in names})
    assert encode_method(method) == b"\0\x1e\0\x0a\0" + bytes([1 << names.index(name)])
    assert decode_method(encode_method(method)) == method


def test_bits_beyond_the_last_field_are_ignored() -> None:
    assert decode_method(b"\0\x3c\0\x50" + bytes(8) + b"\xfe") == BasicAck(0, False)


@pytest.mark.parametrize(
    "payload", [b"\0\x3c\0\x79", b"\0\x00\0\x0a", b"\0\x28\0\x29rest", b"\xff\xff\xff\xff"]
)
def test_1_7_row_unknown_class_or_method_id(payload: bytes) -> None:
    with pytest.raises(UnknownMethod) as caught:
        decode_method(payload)
    assert caught.value.reply_text == "COMMAND_INVALID - unimplemented method"
    assert (caught.value.class_id, caught.value.method_id) == (
        int.from_bytes(payload[:2]),
        int.from_bytes(payload[2:4]),
    )


def test_1_7_row_truncated_args() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_method(b"\0\x32\0\x0a\0")
    assert caught.value.reply_text == "FRAME_ERROR - cannot decode <<0>>"
    assert (caught.value.class_id, caught.value.method_id) == (50, 10)


def test_1_7_row_trailing_bytes() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_method(encode_method(TxSelect()) + b"ab")
    # ~w: numbers even for text
    assert caught.value.reply_text == "FRAME_ERROR - cannot decode <<97,98>>"
    assert (caught.value.class_id, caught.value.method_id) == (90, 10)


@pytest.mark.parametrize("method", [method for method, _ in EXAMPLES], ids=lambda method: method.name)
def test_1_7_row_truncated_or_trailing_at_any_place(method: Method) -> None:
    payload = encode_method(method)
    for broken in [payload[:length] for length in range(4, len(payload))] + [payload + b"\0"]:
        with pytest.raises(ProtocolError) as caught:
            decode_method(broken)
        assert caught.value.code == ReplyCode.FRAME_ERROR
        what = f"<<{','.join(map(str, broken[4:]))}>>"
        if method.name in ("connection.start-ok", "connection.secure-ok", "connection.update-secret"):
            what = f"the arguments of {method.name}"  # passwords are in them
        assert caught.value.explanation == f"cannot decode {what}"
        assert (caught.value.class_id, caught.value.method_id) == (method.class_id, method.method_id)


def test_the_rendering_of_a_huge_payload_is_bounded_and_cut_as_ever() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_method(encode_method(TxSelect()) + b"\0" * 100_000)
    assert len(caught.value.explanation) < 1000
    assert caught.value.reply_text == f"FRAME_ERROR - cannot decode <<{'0,' * 120}"[:252] + "..."


def test_0_4_shortstr_arguments_must_be_utf_8() -> None:
    for payload in (b"\0\x32\0\x0a\0\0\x01\xff\0\0\0\0\0", b"\0\x14\0\x0a\x02\xc3("):
        with pytest.raises(ProtocolError) as caught:
            decode_method(payload)
        assert caught.value.reply_text == "FRAME_ERROR - Malformed UTF-8 in shortstr"
        assert (caught.value.class_id, caught.value.method_id) == (0, 0)


def test_a_string_cut_within_a_character_is_cut_short() -> None:
    with pytest.raises(ProtocolError, match="cannot decode"):
        decode_method(b"\0\x14\0\x0a\x02\xc3")


def test_the_strings_of_methods_with_content_may_be_any_bytes() -> None:
    payload = b"\0\x3c\0\x28\0\0\x01x\x01\xff\0"
    method = decode_method(payload)
    assert method == BasicPublish(0, "x", "\udcff")
    assert encode_method(method) == payload


def test_a_malformed_table_is_a_frame_error() -> None:
    payload = encode_method(ExchangeDeclare(exchange="x", arguments={"k": Field("V", None)}))
    with pytest.raises(ProtocolError, match="malformed field table: unknown type 90") as caught:
        decode_method(payload[:-1] + b"Z")
    assert caught.value.code == ReplyCode.FRAME_ERROR


def test_a_table_that_is_longer_than_the_payload_is_cut_short() -> None:
    with pytest.raises(ProtocolError, match="cannot decode"):
        decode_method(b"\0\x32\0\x0a\0\0\0\0\0\0\0\x01")


def test_a_shortstr_of_our_own_that_is_too_long_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        encode_method(QueueDeclare(queue="q" * 256))
