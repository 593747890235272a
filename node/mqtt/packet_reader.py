"""The readers of all packets but CONNECT and PUBLISH: from the bytes behind the fixed header to an object.

Each reader takes the bytes, where the variable header begins, where the packet ends, and the version.
Source: MQTT 3.1.1 and 5.0, chapter 3.
"""

from collections.abc import Callable, Collection
from typing import Final, cast

from node.mqtt import allowed_codes
from node.mqtt.constants import SHARE_PREFIX, PacketType, Version
from node.mqtt.errors import MqttError, malformed, protocol_error
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    AckType,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.properties import (
    NO_ACK,
    NO_AUTH,
    NO_CONNACK,
    NO_DISCONNECT,
    NO_SUBSCRIBE,
    NO_UNSUBSCRIBE,
    AckProperties,
    AuthProperties,
    ConnackProperties,
    DisconnectProperties,
    SubscribeProperties,
    UnsubscribeProperties,
)
from node.mqtt.property_codec import read_properties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.strings import read_byte, read_string, read_two_bytes

FILTERS_MAX: Final = 10_000
"""The limit of filters in one SUBSCRIBE or UNSUBSCRIBE: four bytes on the wire may cost 200 in memory."""

_QOS: Final = 0x03
_NO_LOCAL: Final = 0x04
_RETAIN_AS_PUBLISHED: Final = 0x08
_RETAIN_HANDLING_SHIFT: Final = 4
_RESERVED_OPTIONS: Final = 0xC0


def read_packet_id(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a packet identifier, which is not 0 [MQTT-2.2.1-3, MQTT-2.3.1-1]."""
    packet_id, pos = read_two_bytes(data, pos, end)
    if not packet_id:
        raise protocol_error("a packet identifier is 0")
    return packet_id, pos


def _check_code(code: int, allowed: Collection[int], name: str) -> None:
    if code not in allowed:
        raise protocol_error(f"{name} has the reason code 0x{code:02x}")


def _check_end(pos: int, end: int, name: str) -> None:
    if pos != end:
        raise malformed(f"bytes follow the last field of {name}")


def read_acks(type_: PacketType, data: bytes, pos: int, end: int, version: Version) -> Acks:
    """Read one PUBACK, PUBREC, PUBREL or PUBCOMP."""
    packet_id, pos = read_packet_id(data, pos, end)
    code, properties = 0, NO_ACK
    if version is Version.MQTT_5 and pos < end:
        code, pos = read_byte(data, pos, end)
        _check_code(code, allowed_codes.ACKS[type_], type_.name)
        if pos < end:
            properties, pos = read_properties(AckProperties, data, pos, end)
    _check_end(pos, end, type_.name)
    return Acks(cast(AckType, type_), (packet_id,), code, properties)


def read_subscribe(data: bytes, pos: int, end: int, version: Version) -> Subscribe:
    """Read SUBSCRIBE. Its filters are not checked: a bad one is refused by its code in the SUBACK."""
    packet_id, pos = read_packet_id(data, pos, end)
    properties = NO_SUBSCRIBE
    if version is Version.MQTT_5:
        properties, pos = read_properties(SubscribeProperties, data, pos, end)
    subscriptions: list[Subscription] = []
    while pos < end:
        if len(subscriptions) >= FILTERS_MAX:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"SUBSCRIBE has more than {FILTERS_MAX} filters")
        text, pos = read_string(data, pos, end)
        options, pos = read_byte(data, pos, end)
        subscriptions.append(_subscription(text, options, version))
    if not subscriptions:
        raise protocol_error("SUBSCRIBE has no filter")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _subscription(text: str, options: int, version: Version) -> Subscription:
    qos = options & _QOS
    if qos == 3:
        raise malformed("the QoS of a subscription is 3")
    if version is not Version.MQTT_5:
        if version is Version.MQTT_3_1_1 and options != qos:
            raise malformed("reserved bits of a subscription are set")
        return Subscription(text, qos)
    if options & _RESERVED_OPTIONS:
        raise malformed("reserved bits of a subscription are set")
    handling = options >> _RETAIN_HANDLING_SHIFT & 3
    if handling == 3:
        raise protocol_error("the retain handling of a subscription is 3")
    no_local = bool(options & _NO_LOCAL)
    if no_local and text.startswith(SHARE_PREFIX):
        raise protocol_error("a shared subscription has no-local")
    return Subscription(text, qos, no_local, bool(options & _RETAIN_AS_PUBLISHED), handling)


def read_suback(data: bytes, pos: int, end: int, version: Version) -> Suback:
    """Read SUBACK."""
    packet_id, pos = read_packet_id(data, pos, end)
    properties = NO_ACK
    if version is Version.MQTT_5:
        properties, pos = read_properties(AckProperties, data, pos, end)
    codes = tuple(data[pos:end])
    allowed = allowed_codes.SUBACK if version is Version.MQTT_5 else allowed_codes.SUBACK_3_1_1
    for code in codes:
        _check_code(code, allowed, "SUBACK")
    if not codes:
        raise protocol_error("SUBACK has no code")
    return Suback(packet_id, codes, properties)


def read_unsubscribe(data: bytes, pos: int, end: int, version: Version) -> Unsubscribe:
    """Read UNSUBSCRIBE."""
    packet_id, pos = read_packet_id(data, pos, end)
    properties = NO_UNSUBSCRIBE
    if version is Version.MQTT_5:
        properties, pos = read_properties(UnsubscribeProperties, data, pos, end)
    filters: list[str] = []
    while pos < end:
        if len(filters) >= FILTERS_MAX:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"UNSUBSCRIBE has more than {FILTERS_MAX} filters")
        text, pos = read_string(data, pos, end)
        filters.append(text)
    if not filters:
        raise protocol_error("UNSUBSCRIBE has no filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


def read_unsuback(data: bytes, pos: int, end: int, version: Version) -> Unsuback:
    """Read UNSUBACK, which has a code for each filter in 5.0 only."""
    packet_id, pos = read_packet_id(data, pos, end)
    if version is not Version.MQTT_5:
        _check_end(pos, end, "UNSUBACK")
        return Unsuback(packet_id)
    properties, pos = read_properties(AckProperties, data, pos, end)
    codes = tuple(data[pos:end])
    for code in codes:
        _check_code(code, allowed_codes.UNSUBACK, "UNSUBACK")
    if not codes:
        raise protocol_error("UNSUBACK has no code")
    return Unsuback(packet_id, codes, properties)


def read_connack(data: bytes, pos: int, end: int, version: Version) -> Connack:
    """Read CONNACK.

    A server that does not know 5.0 answers in the format of 3.1.1, so one without properties is read as such.
    """
    flags, pos = read_byte(data, pos, end)
    code, pos = read_byte(data, pos, end)
    if flags > 1:
        raise malformed("reserved flags of CONNACK are set")
    properties = NO_CONNACK
    if version is Version.MQTT_5 and pos < end:
        _check_code(code, allowed_codes.CONNACK, "CONNACK")
        properties, pos = read_properties(ConnackProperties, data, pos, end)
    _check_end(pos, end, "CONNACK")
    if flags and code:
        raise protocol_error("CONNACK refuses and has a session present")
    return Connack(flags == 1, code, properties)


def read_disconnect(data: bytes, pos: int, end: int, version: Version, *, is_server: bool) -> Disconnect:
    """Read DISCONNECT.   is_server: the reader is the server."""
    code, properties = 0, NO_DISCONNECT
    if version is Version.MQTT_5 and pos < end:
        code, pos = read_byte(data, pos, end)
        allowed = allowed_codes.DISCONNECT_BY_CLIENT if is_server else allowed_codes.DISCONNECT_BY_SERVER
        _check_code(code, allowed, "DISCONNECT")
        if pos < end:
            properties, pos = read_properties(DisconnectProperties, data, pos, end)
        if properties.session_expiry_s is not None and not is_server:
            raise protocol_error("a server's DISCONNECT has a session expiry")
    _check_end(pos, end, "DISCONNECT")
    return Disconnect(code, properties)


def read_auth(data: bytes, pos: int, end: int, *, is_server: bool) -> Auth:
    """Read AUTH.   is_server: the reader is the server."""
    code, properties = 0, NO_AUTH
    if pos < end:
        code, pos = read_byte(data, pos, end)
        if pos < end:
            properties, pos = read_properties(AuthProperties, data, pos, end)
    _check_code(code, allowed_codes.AUTH_BY_CLIENT if is_server else allowed_codes.AUTH_BY_SERVER, "AUTH")
    _check_end(pos, end, "AUTH")
    return Auth(code, properties)


def read_pingreq(data: bytes, pos: int, end: int, version: Version) -> Pingreq:
    """Read PINGREQ."""
    _check_end(pos, end, "PINGREQ")
    return PINGREQ


def read_pingresp(data: bytes, pos: int, end: int, version: Version) -> Pingresp:
    """Read PINGRESP."""
    _check_end(pos, end, "PINGRESP")
    return PINGRESP


_Reader = Callable[[bytes, int, int, Version], Packet]

_OF_CLIENT: Final[dict[PacketType, _Reader]] = {
    PacketType.SUBSCRIBE: read_subscribe,
    PacketType.UNSUBSCRIBE: read_unsubscribe,
    PacketType.PINGREQ: read_pingreq,
}
_OF_SERVER: Final[dict[PacketType, _Reader]] = {
    PacketType.CONNACK: read_connack,
    PacketType.SUBACK: read_suback,
    PacketType.UNSUBACK: read_unsuback,
    PacketType.PINGRESP: read_pingresp,
}


def read_packet(
    type_: PacketType, data: bytes, pos: int, end: int, version: Version, *, is_server: bool
) -> Packet:
    """Read the rest of a packet whose type is known and that is not CONNECT, PUBLISH or an acknowledgement.

    is_server: the reader is the server.   Raises: MqttError, also if the peer may not send such a packet.
    """
    if type_ is PacketType.DISCONNECT and (is_server or version is Version.MQTT_5):
        return read_disconnect(data, pos, end, version, is_server=is_server)
    if type_ is PacketType.AUTH and version is Version.MQTT_5:
        return read_auth(data, pos, end, is_server=is_server)
    read = (_OF_CLIENT if is_server else _OF_SERVER).get(type_)
    if read is None:
        raise protocol_error(f"{type_.name} is not allowed here")
    return read(data, pos, end, version)
