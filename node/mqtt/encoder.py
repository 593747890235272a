"""The encoder: from packets to bytes, for both sides and all versions.

What a version does not have is left out: properties and reason codes before 5.0. The caller keeps the rules of the
standard; what cannot be written at all, such as a string of more than 65,535 bytes, is an assertion.
Source: MQTT 3.1.1 and 5.0, chapters 2 and 3.
"""

from collections.abc import Sequence
from typing import Any, Final, assert_never

from node.mqtt.constants import PACKET_ID_MAX, PacketType, Version
from node.mqtt.packets import (
    Acks,
    AckType,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from node.mqtt.properties import (
    NO_ACK,
    NO_AUTH,
    NO_DISCONNECT,
    NO_PUBLISH,
    AckProperties,
    PublishProperties,
)
from node.mqtt.property_codec import P, properties_bytes
from node.mqtt.strings import TWO_BYTES, binary, string, variable, variable_bytes

PINGREQ_BYTES: Final = b"\xc0\0"
PINGRESP_BYTES: Final = b"\xd0\0"

_PROTOCOL_NAMES: Final = {
    Version.MQTT_3_1: "MQIsdp",
    Version.MQTT_3_1_1: "MQTT",
    Version.MQTT_5: "MQTT",
}
_BRIDGE_BIT: Final = 0x80
_WITH_REASON: Final = (Acks, Connack, Suback, Unsuback, Disconnect, Auth)
"""The packets whose reason string and user properties are for diagnosis only."""

_FLAGS: Final = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


def _packet(type_: PacketType, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((type_ << 4 | _FLAGS.get(type_, 0),)) + variable(len(body)) + body


def _properties(version: Version, properties: P) -> bytes:
    return properties_bytes(properties) if version is Version.MQTT_5 else b""


def encode(version: Version, packet: Packet) -> bytes:
    """Return the bytes of a packet, or of a run of packets.   version: that of the connection."""
    match packet:
        case Publishes():
            return encode_publishes(version, *packet)
        case Acks(type_, packet_ids, code, properties):
            return encode_acks(version, type_, packet_ids, code, properties)
        case Pingreq():
            return PINGREQ_BYTES
        case Pingresp():
            return PINGRESP_BYTES
        case Connect():
            assert packet.version is version
            return _connect(packet)
        case Connack():
            return encode_connack(version, packet)
        case Subscribe(packet_id, subscriptions, properties):
            assert subscriptions, "a SUBSCRIBE has at least one filter"
            filters = [string(each.filter) + bytes((_options(each),)) for each in subscriptions]
            head = TWO_BYTES.pack(packet_id) + _properties(version, properties)
            return _packet(PacketType.SUBSCRIBE, head, *filters)
        case Suback(packet_id, codes, properties):
            head = TWO_BYTES.pack(packet_id) + _properties(version, properties)
            return _packet(PacketType.SUBACK, head, bytes(codes))
        case Unsubscribe(packet_id, filters_, properties):
            assert filters_, "an UNSUBSCRIBE has at least one filter"
            head = TWO_BYTES.pack(packet_id) + _properties(version, properties)
            return _packet(PacketType.UNSUBSCRIBE, head, *map(string, filters_))
        case Unsuback(packet_id, codes, properties):
            head = TWO_BYTES.pack(packet_id) + _properties(version, properties)
            return _packet(PacketType.UNSUBACK, head, bytes(codes) if version is Version.MQTT_5 else b"")
        case Disconnect(code, properties):
            if version is not Version.MQTT_5:
                return _packet(PacketType.DISCONNECT)
            return _packet(PacketType.DISCONNECT, _code_and_properties(code, properties, NO_DISCONNECT))
        case Auth(code, properties):
            assert version is Version.MQTT_5, "AUTH is of 5.0"
            return _packet(PacketType.AUTH, _code_and_properties(code, properties, NO_AUTH))
        case _:
            assert_never(packet)


def _code_and_properties(code: int, properties: P, empty: P) -> bytes:
    """Return reason code and properties, either of which is left out if nothing follows that is not the default."""
    if properties != empty:
        return bytes((code,)) + properties_bytes(properties)
    return bytes((code,)) if code else b""


def encode_connack(version: Version, packet: Connack) -> bytes:
    """Return the bytes of a CONNACK."""
    head = bytes((packet.session_present, packet.code))
    return _packet(PacketType.CONNACK, head, _properties(version, packet.properties))


def _connect(packet: Connect) -> bytes:
    version = packet.version
    level = version | _BRIDGE_BIT if packet.is_bridge else version
    flags = packet.clean_start << 1
    payload = [string(packet.client_id)]
    if packet.will is not None:
        flags |= 0x04 | packet.will.qos << 3 | packet.will.retain << 5
        payload += _will(version, packet.will)
    if packet.user_name is not None:
        flags |= 0x80
        payload.append(string(packet.user_name))
    if packet.password is not None:
        assert packet.user_name is not None or version is Version.MQTT_5
        flags |= 0x40
        payload.append(binary(packet.password))
    head = string(_PROTOCOL_NAMES[version]) + bytes((level, flags)) + TWO_BYTES.pack(packet.keep_alive_s)
    return _packet(PacketType.CONNECT, head, _properties(version, packet.properties), *payload)


def _will(version: Version, will: Will) -> list[bytes]:
    return [_properties(version, will.properties), string(will.topic), binary(will.payload)]


def _options(each: Subscription) -> int:
    return each.qos | each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4


def encode_publishes(
    version: Version,
    topic: str,
    payloads: Sequence[bytes],
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_ids: Sequence[int] = (),
    properties: PublishProperties = NO_PUBLISH,
) -> bytes:
    """Return the bytes of PUBLISH packets that differ in payload and packet identifier only.

    packet_ids: one for each payload, and none with QoS 0.
    """
    first = bytes((PacketType.PUBLISH << 4 | dup << 3 | qos << 1 | retain,))
    topic_field = string(topic)
    properties_field = b""
    if version is Version.MQTT_5:
        properties_field = b"\0" if properties is NO_PUBLISH else properties_bytes(properties)
    if qos:
        return _with_ids(first, topic_field, payloads, packet_ids, properties_field)
    assert not packet_ids
    field = topic_field + properties_field
    heads: dict[int, bytes] = {}  # by the payload's length
    parts: list[bytes] = []
    for payload in payloads:
        size = len(payload)
        head = heads.get(size)
        if head is None:
            head = heads[size] = first + variable(len(field) + size) + field
        parts += head, payload
    return b"".join(parts)


def _with_ids(
    first: bytes,
    topic_field: bytes,
    payloads: Sequence[bytes],
    packet_ids: Sequence[int],
    properties_field: bytes,
) -> bytes:
    field_bytes = len(topic_field) + 2 + len(properties_field)
    heads: dict[int, bytes] = {}  # by the payload's length
    parts: list[bytes] = []
    pack = TWO_BYTES.pack
    for payload, packet_id in zip(payloads, packet_ids, strict=True):
        assert packet_id, "0 is no packet identifier"
        size = len(payload)
        head = heads.get(size)
        if head is None:
            head = heads[size] = first + variable(field_bytes + size) + topic_field
        parts += head, pack(packet_id), properties_field, payload
    return b"".join(parts)


def publish_bytes(
    version: Version, topic: str, payload_bytes: int, qos: int = 0, properties: PublishProperties = NO_PUBLISH
) -> int:
    """Return how many bytes a PUBLISH has on the wire, which a peer may have limited [MQTT-3.1.2-24]."""
    length = 2 + len(topic.encode()) + payload_bytes + (2 if qos else 0)
    if version is Version.MQTT_5:
        length += 1 if properties is NO_PUBLISH else len(properties_bytes(properties))
    return 1 + variable_bytes(length) + length


def encode_acks(
    version: Version,
    type_: AckType,
    packet_ids: Sequence[int],
    code: int = 0,
    properties: AckProperties = NO_ACK,
) -> bytes:
    """Return the bytes of PUBACK, PUBREC, PUBREL or PUBCOMP packets that differ in packet identifier only."""
    rest = _code_and_properties(code, properties, NO_ACK) if version is Version.MQTT_5 else b""
    head = bytes((type_ << 4 | _FLAGS.get(type_, 0),)) + variable(2 + len(rest))
    assert not packet_ids or (min(packet_ids) > 0 and max(packet_ids) <= PACKET_ID_MAX)
    pack = TWO_BYTES.pack
    if rest:
        return b"".join([head + pack(each) + rest for each in packet_ids])
    return head + head.join(map(pack, packet_ids)) if packet_ids else b""


def encode_within(version: Version, packet: Packet, limit_bytes: int) -> bytes | None:
    """Return the bytes of a packet that is at most so long, without its reason string or user properties if need be.

    packet: one, no run of several.   None: it is too long without them.
    Source: MQTT 5.0 §3.1.2.11.4 [MQTT-3.2.2-19, MQTT-3.2.2-20].
    """
    assert not isinstance(packet, Publishes) or len(packet.payloads) == 1
    assert not isinstance(packet, Acks) or len(packet.packet_ids) == 1
    data = encode(version, packet)
    if len(data) > limit_bytes and isinstance(packet, _WITH_REASON):
        shorter: Any = packet
        for dropped in ({"reason_string": None}, {"user_properties": ()}):
            shorter = shorter._replace(properties=shorter.properties._replace(**dropped))
            data = encode(version, shorter)
            if len(data) <= limit_bytes:
                break
    return data if len(data) <= limit_bytes else None
