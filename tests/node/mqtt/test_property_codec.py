"""The properties of MQTT 5.0 §2.2.2, byte by byte."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mqtt import properties
from node.mqtt.errors import MqttError
from node.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    PublishProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    WillProperties,
)
from node.mqtt.property_codec import (
    SUBSCRIPTION_IDS_MAX,
    USER_PROPERTIES_MAX,
    P,
    properties_bytes,
    read_properties,
)
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.strings import variable
from tests.kit.mqtt_packets import properties_of

KINDS: tuple[type[Any], ...] = (
    ConnectProperties,
    WillProperties,
    ConnackProperties,
    PublishProperties,
    AckProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    DisconnectProperties,
    AuthProperties,
)

ROWS: list[tuple[bytes, dict[str, object], tuple[type, ...]]] = [
    (b"\x01\x01", {"payload_format_indicator": 1}, (WillProperties, PublishProperties)),
    (b"\x02\0\0\1\0", {"message_expiry_s": 256}, (WillProperties, PublishProperties)),
    (b"\x03\0\1t", {"content_type": "t"}, (WillProperties, PublishProperties)),
    (b"\x08\0\1r", {"response_topic": "r"}, (WillProperties, PublishProperties)),
    (b"\x09\0\1\xff", {"correlation_data": b"\xff"}, (WillProperties, PublishProperties)),
    (b"\x0b\x80\x01", {"subscription_ids": (128,)}, (PublishProperties,)),
    (b"\x0b\x80\x01", {"subscription_id": 128}, (SubscribeProperties,)),
    (
        b"\x11\0\0\0\5",
        {"session_expiry_s": 5},
        (ConnectProperties, ConnackProperties, DisconnectProperties),
    ),
    (b"\x12\0\1c", {"assigned_client_id": "c"}, (ConnackProperties,)),
    (b"\x13\0\x3c", {"server_keep_alive_s": 60}, (ConnackProperties,)),
    (
        b"\x15\0\1m",
        {"authentication_method": "m"},
        (ConnectProperties, ConnackProperties, AuthProperties),
    ),
    (
        b"\x15\0\1m\x16\0\1\xfe",
        {"authentication_method": "m", "authentication_data": b"\xfe"},
        (ConnectProperties, ConnackProperties, AuthProperties),
    ),
    (b"\x17\0", {"request_problem_information": False}, (ConnectProperties,)),
    (b"\x18\0\0\0\7", {"will_delay_s": 7}, (WillProperties,)),
    (b"\x19\1", {"request_response_information": True}, (ConnectProperties,)),
    (b"\x1a\0\1i", {"response_information": "i"}, (ConnackProperties,)),
    (b"\x1c\0\1s", {"server_reference": "s"}, (ConnackProperties, DisconnectProperties)),
    (
        b"\x1f\0\1w",
        {"reason_string": "w"},
        (ConnackProperties, AckProperties, DisconnectProperties, AuthProperties),
    ),
    (b"\x21\0\1", {"receive_maximum": 1}, (ConnectProperties, ConnackProperties)),
    (b"\x22\xff\xff", {"topic_alias_maximum": 65_535}, (ConnectProperties, ConnackProperties)),
    (b"\x23\0\1", {"topic_alias": 1}, (PublishProperties,)),
    (b"\x24\1", {"maximum_qos": 1}, (ConnackProperties,)),
    (b"\x25\0", {"retain_available": False}, (ConnackProperties,)),
    (b"\x26\0\1k\0\1v", {"user_properties": (("k", "v"),)}, KINDS),
    (b"\x27\0\0\0\1", {"maximum_packet_bytes": 1}, (ConnectProperties, ConnackProperties)),
    (b"\x28\0", {"wildcard_subscription_available": False}, (ConnackProperties,)),
    (b"\x29\0", {"subscription_ids_available": False}, (ConnackProperties,)),
    (b"\x2a\0", {"shared_subscription_available": False}, (ConnackProperties,)),
]
"""The standard's table: what is on the wire, what it means, and the packets that may have it."""


def sized(raw: bytes) -> bytes:
    return variable(len(raw)) + raw


def read(kind: type[P], raw: bytes) -> P:
    data = sized(raw)
    value, after = read_properties(kind, data, 0, len(data))
    assert after == len(data)
    return value


def refusal(kind: type[P], raw: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        read(kind, raw)
    return caught.value.code


@pytest.mark.parametrize(("raw", "fields", "kinds"), ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_property_is_read_where_it_may_be(
    raw: bytes, fields: dict[str, object], kinds: tuple[type, ...], kind: type[PublishProperties]
) -> None:
    """A property of another packet is malformed; the table has all that there are."""
    if kind in kinds:
        assert read(kind, raw) == kind(**fields)  # type: ignore[arg-type]
        assert properties_bytes(kind(**fields)) == sized(raw)  # type: ignore[arg-type]
    elif raw[:1] != b"\x0b" or kind not in (PublishProperties, SubscribeProperties):
        assert refusal(kind, raw) is ReasonCode.MALFORMED_PACKET


def test_the_table_has_all_properties() -> None:
    fields = {name for kind in KINDS for name in kind._fields}
    assert {name for _, row, _ in ROWS for name in row} == fields


@pytest.mark.parametrize("number", sorted(set(range(128)) - {row[0][0] for row in ROWS}))
def test_other_identifiers_are_malformed(number: int) -> None:
    for kind in KINDS:
        assert refusal(kind, bytes((number, 0, 0, 0, 0))) is ReasonCode.MALFORMED_PACKET


def test_an_identifier_of_two_bytes_is_malformed() -> None:
    """Identifiers are variable byte integers: 0x81 0x00 is 1 written too long, and none needs two bytes."""
    assert refusal(PublishProperties, b"\x81\x00\x01") is ReasonCode.MALFORMED_PACKET
    assert refusal(PublishProperties, b"\x81\x01\x01") is ReasonCode.MALFORMED_PACKET


def test_no_properties_are_a_length_of_0() -> None:
    """The length is there even if nothing follows [MQTT-2.2.2-1]."""
    assert read(PublishProperties, b"") == properties.NO_PUBLISH
    assert properties_bytes(properties.NO_PUBLISH) == b"\0"
    with pytest.raises(MqttError):
        read_properties(PublishProperties, b"", 0, 0)


def test_properties_end_with_their_packet() -> None:
    with pytest.raises(MqttError, match="longer than their packet"):
        read_properties(AckProperties, b"\x05\x1f\0\1w", 0, 5)


@pytest.mark.parametrize(("raw", "fields", "kinds"), ROWS)
def test_a_cut_property_is_malformed(
    raw: bytes, fields: dict[str, object], kinds: tuple[type[PublishProperties], ...]
) -> None:
    """A property ends within the properties, even if bytes of the packet follow."""
    for end in range(1, len(raw)):
        if raw[:1] == b"\x15" and end == 4:
            continue  # the method is whole, and the data is not there
        with pytest.raises(MqttError) as caught:
            read_properties(kinds[0], bytes((end,)) + raw, 0, 1 + len(raw))
        assert caught.value.code is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    ("raw", "fields", "kinds"),
    [row for row in ROWS if row[1].keys() <= {"subscription_id"} or len(row[1]) == 1],
)
def test_a_property_is_there_once(
    raw: bytes, fields: dict[str, object], kinds: tuple[type[PublishProperties], ...]
) -> None:
    """Only user properties, and a message's subscription identifiers, may be there several times."""
    (name,) = fields
    for kind in kinds:
        if name in {"user_properties", "subscription_ids"}:
            assert len(getattr(read(kind, raw + raw), name)) == 2
        else:
            assert refusal(kind, raw + raw) is ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (ConnectProperties, b"\x21\0\0"),
        (ConnectProperties, b"\x27\0\0\0\0"),
        (SubscribeProperties, b"\x0b\0"),
        (PublishProperties, b"\x0b\0"),
        (ConnectProperties, b"\x17\2"),
        (ConnectProperties, b"\x19\2"),
        (ConnackProperties, b"\x24\2"),
        (ConnackProperties, b"\x25\2"),
        (ConnackProperties, b"\x28\2"),
        (PublishProperties, b"\x01\2"),
        (ConnectProperties, b"\x16\0\0"),
    ],
)
def test_values_that_are_protocol_errors(kind: type[PublishProperties], raw: bytes) -> None:
    """Some values are not allowed, and authentication data needs a method."""
    assert refusal(kind, raw) is ReasonCode.PROTOCOL_ERROR


def test_a_topic_alias_is_not_0() -> None:
    """The alias 0 is not allowed [MQTT-3.3.2-8]."""
    assert refusal(PublishProperties, b"\x23\0\0") is ReasonCode.TOPIC_ALIAS_INVALID


@pytest.mark.parametrize("topic", [b"", b"#", b"a/+"])
def test_a_response_topic_has_no_wildcard(topic: bytes) -> None:
    """A response topic is a topic of a message [MQTT-3.3.2-14]."""
    raw = b"\x08\0" + bytes((len(topic),)) + topic
    assert refusal(PublishProperties, raw) is ReasonCode.PROTOCOL_ERROR
    assert refusal(WillProperties, raw) is ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("number", [0x03, 0x08])
def test_texts_of_properties_are_utf_8(number: int) -> None:
    """Response topic and content type are UTF-8 [MQTT-3.3.2-13, MQTT-3.3.2-19]."""
    assert refusal(PublishProperties, bytes((number, 0, 1, 0xFF))) is ReasonCode.MALFORMED_PACKET


def test_both_texts_of_a_user_property_are_utf_8() -> None:
    """Name and value are UTF-8 strings [MQTT-1.5.7-1]."""
    assert refusal(AckProperties, b"\x26\0\1\xff\0\1v") is ReasonCode.MALFORMED_PACKET
    assert refusal(AckProperties, b"\x26\0\1k\0\1\xff") is ReasonCode.MALFORMED_PACKET


def test_user_properties_keep_their_order_and_may_be_alike() -> None:
    """The order on the wire is that of the tuple [MQTT-3.3.2-18]."""
    raw = b"\x26\0\1b\0\0\x26\0\1a\0\0\x26\0\1b\0\0"
    assert read(AckProperties, raw).user_properties == (("b", ""), ("a", ""), ("b", ""))


def test_user_properties_have_a_limit() -> None:
    """Small properties in great number would cost much memory for few bytes."""
    one = b"\x26\0\0\0\0"
    assert len(read(AckProperties, one * USER_PROPERTIES_MAX).user_properties) == USER_PROPERTIES_MAX
    assert refusal(AckProperties, one * (USER_PROPERTIES_MAX + 1)) is ReasonCode.QUOTA_EXCEEDED


def test_subscription_identifiers_have_a_limit() -> None:
    one = b"\x0b\1"
    assert len(read(PublishProperties, one * SUBSCRIPTION_IDS_MAX).subscription_ids) == SUBSCRIPTION_IDS_MAX
    assert refusal(PublishProperties, one * (SUBSCRIPTION_IDS_MAX + 1)) is ReasonCode.QUOTA_EXCEEDED


@given(st.data())
def test_properties_are_read_as_they_were_written(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    value = data.draw(properties_of(kind))
    raw = properties_bytes(value)
    assert read_properties(kind, raw + b"rest", 0, len(raw) + 4) == (value, len(raw))
