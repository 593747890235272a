"""The encoder, byte by byte. That all it writes is read again is shown with the decoder."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mqtt.constants import PacketType, Version
from node.mqtt.encoder import (
    encode,
    encode_acks,
    encode_connack,
    encode_publishes,
    encode_within,
    publish_bytes,
)
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from node.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    PublishProperties,
    SubscribeProperties,
    WillProperties,
)
from node.mqtt.reason_codes import ReasonCode
from tests.kit.mqtt_packets import publishes

V3_1, V3_1_1, V5 = Version

ROWS: list[tuple[Version, Packet, bytes]] = [
    (V3_1, Connect(V3_1, "c"), b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c"),
    (V3_1_1, Connect(V3_1_1, "c", False, 60), b"\x10\x0d\0\4MQTT\4\0\0\x3c\0\1c"),
    (V3_1_1, Connect(V3_1_1, "c", is_bridge=True), b"\x10\x0d\0\4MQTT\x84\2\0\0\0\1c"),
    (
        V3_1_1,
        Connect(V3_1_1, "c", True, 0, Will("w", b"m", 2, True), "u", b"p"),
        b"\x10\x19\0\4MQTT\4\xf6\0\0\0\1c\0\1w\0\1m\0\1u\0\1p",
    ),
    (
        V5,
        Connect(
            V5,
            "c",
            will=Will("w", b"", properties=WillProperties(will_delay_s=1)),
            password=b"p",
            properties=ConnectProperties(receive_maximum=9),
        ),
        b"\x10\x1f\0\4MQTT\5\x46\0\0\3\x21\0\x09\0\1c\5\x18\0\0\0\1\0\1w\0\0\0\1p",
    ),
    (V3_1_1, Connack(True), b"\x20\2\1\0"),
    (V5, Connack(False, 0x87), b"\x20\3\0\x87\0"),
    (V5, Connack(properties=ConnackProperties(retain_available=False)), b"\x20\5\0\0\2\x25\0"),
    (V3_1_1, Publishes("a", [b"x", b"yz"]), b"\x30\4\0\1ax\x30\5\0\1ayz"),
    (V3_1_1, Publishes("a", [b"x", b"y"], 1, True, True, [1, 2]), b"\x3b\6\0\1a\0\1x\x3b\6\0\1a\0\2y"),
    (V5, Publishes("a", [b"x"]), b"\x30\5\0\1a\0x"),
    (
        V5,
        Publishes("", [b"x"], 2, packet_ids=[7], properties=PublishProperties(topic_alias=1)),
        b"\x34\x09\0\0\0\7\3\x23\0\1x",
    ),
    (V3_1_1, Acks(PacketType.PUBACK, [1, 2]), b"\x40\2\0\1\x40\2\0\2"),
    (V3_1_1, Acks(PacketType.PUBREL, [1]), b"\x62\2\0\1"),
    (V3_1_1, Acks(PacketType.PUBREC, [1], 0x97), b"\x50\2\0\1"),
    (V5, Acks(PacketType.PUBREC, [1, 2], 0x97), b"\x50\3\0\1\x97\x50\3\0\2\x97"),
    (V5, Acks(PacketType.PUBCOMP, [1], 0, AckProperties("w")), b"\x70\x08\0\1\0\4\x1f\0\1w"),
    (V3_1_1, Subscribe(1, (Subscription("a", 1), Subscription("#"))), b"\x82\x0a\0\1\0\1a\1\0\1#\0"),
    (
        V5,
        Subscribe(1, (Subscription("a", 2, True, True, 1),), SubscribeProperties(5)),
        b"\x82\x09\0\1\2\x0b\5\0\1a\x1e",
    ),
    (V3_1_1, Suback(1, (0, 0x80)), b"\x90\4\0\1\0\x80"),
    (V5, Suback(1, (2,)), b"\x90\4\0\1\0\2"),
    (V3_1_1, Unsubscribe(1, ("a", "b")), b"\xa2\x08\0\1\0\1a\0\1b"),
    (V5, Unsubscribe(1, ("a",)), b"\xa2\6\0\1\0\0\1a"),
    (V3_1_1, Unsuback(1, (0,)), b"\xb0\2\0\1"),
    (V5, Unsuback(1, (0, 0x11)), b"\xb0\5\0\1\0\0\x11"),
    (V3_1_1, PINGREQ, b"\xc0\0"),
    (V5, PINGRESP, b"\xd0\0"),
    (V3_1_1, Disconnect(4), b"\xe0\0"),
    (V5, Disconnect(), b"\xe0\0"),
    (V5, Disconnect(4), b"\xe0\1\4"),
    (V5, Disconnect(0, DisconnectProperties(reason_string="w")), b"\xe0\6\0\4\x1f\0\1w"),
    (V5, Auth(0x18, AuthProperties("m")), b"\xf0\6\x18\4\x15\0\1m"),
    (V5, Auth(), b"\xf0\0"),
]


@pytest.mark.parametrize(("version", "packet", "raw"), ROWS)
def test_packets_are_written_as_the_standard_has_them(version: Version, packet: Packet, raw: bytes) -> None:
    """No properties are a length of 0 in 5.0 [MQTT-2.2.2-1], and not there before."""
    assert encode(version, packet) == raw


def test_connack_has_a_function_of_its_own() -> None:
    assert encode_connack(V3_1_1, Connack(False, 5)) == b"\x20\2\0\5"


def test_what_cannot_be_written_is_our_mistake() -> None:
    for version, packet in (
        (V3_1_1, Subscribe(1, ())),
        (V3_1_1, Unsubscribe(1, ())),
        (V3_1_1, Auth()),
        (V3_1_1, Connect(V5, "c")),
        (V3_1_1, Connect(V3_1_1, "c", password=b"p")),
        (V3_1_1, Publishes("a", [b"x"], 1, packet_ids=[0])),
        (V3_1_1, Publishes("a", [b"x"], 0, packet_ids=[1])),
        (V3_1_1, Acks(PacketType.PUBACK, [0])),
        (V3_1_1, Acks(PacketType.PUBACK, [65_536])),
    ):
        with pytest.raises(AssertionError):
            encode(version, packet)
    with pytest.raises(ValueError, match="shorter"):
        encode_publishes(V3_1_1, "a", [b"x", b"y"], 1, packet_ids=[1])


@given(st.data(), st.sampled_from(Version))
def test_the_size_of_a_publish_is_known_before(data: st.DataObject, version: Version) -> None:
    run = data.draw(publishes(version, by_client=False))
    total = sum(
        publish_bytes(version, run.topic, len(each), run.qos, run.properties) for each in run.payloads
    )
    assert total == len(encode(version, run))


@pytest.mark.parametrize("size", [0, 122, 123, 124, 16_378, 16_379, 2_097_146, 2_097_147])
def test_the_size_of_a_publish_counts_its_length_field(size: int) -> None:
    assert publish_bytes(V3_1_1, "abc", size) == len(encode_publishes(V3_1_1, "abc", [bytes(size)]))


FULL = AckProperties("a reason", (("k", "v"),))


@pytest.mark.parametrize(
    "packet",
    [
        Acks(PacketType.PUBACK, (1,), 0x97, FULL),
        Suback(1, (0,), FULL),
        Unsuback(1, (0,), FULL),
        Disconnect(0x8E, DisconnectProperties(reason_string="a reason", user_properties=(("k", "v"),))),
        Connack(False, 0x87, ConnackProperties(reason_string="a reason", user_properties=(("k", "v"),))),
        Auth(0x18, AuthProperties("m", None, "a reason", (("k", "v"),))),
    ],
)
def test_reason_string_and_user_properties_are_left_out_where_they_do_not_fit(packet: Any) -> None:
    """The peer's maximum packet size comes first.

    [MQTT-3.1.2-27, MQTT-3.2.2-19, MQTT-3.2.2-20, MQTT-3.4.2-2, MQTT-3.4.2-3, MQTT-3.9.2-1, MQTT-3.9.2-2,
    MQTT-3.11.2-1, MQTT-3.11.2-2, MQTT-3.14.2-3, MQTT-3.14.2-4, MQTT-3.15.2-2].
    """
    properties = packet.properties
    without_reason = packet._replace(properties=properties._replace(reason_string=None))
    bare = packet._replace(properties=properties._replace(reason_string=None, user_properties=()))
    full = encode(V5, packet)
    assert encode_within(V5, packet, len(full)) == full
    assert encode_within(V5, packet, len(full) - 1) == encode(V5, without_reason)
    assert encode_within(V5, packet, len(encode(V5, without_reason)) - 1) == encode(V5, bare)
    assert encode_within(V5, packet, len(encode(V5, bare)) - 1) is None


def test_other_packets_fit_or_not() -> None:
    """Nothing is taken from a message: the sender drops it [MQTT-3.1.2-28]."""
    message = Publishes("a", [b"x"], properties=PublishProperties(user_properties=(("k", "v"),)))
    assert encode_within(V5, message, 100) == encode(V5, message)
    assert encode_within(V5, message, 10) is None
    assert encode_within(V5, PINGRESP, 2) == b"\xd0\0"
    assert encode_within(V5, PINGRESP, 1) is None
    assert encode_within(V3_1_1, Acks(PacketType.PUBACK, [1], ReasonCode.SUCCESS), 4) == b"\x40\2\0\1"


def test_acknowledgements_of_none_are_nothing() -> None:
    assert encode_acks(V5, PacketType.PUBACK, []) == b""
    assert encode_publishes(V5, "a", []) == b""
