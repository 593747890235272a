"""The properties of MQTT 5.0 to and from bytes, by one table: identifier, data type and values that are allowed.

Source: MQTT 5.0 §2.2.2, and the section of each property in chapter 3.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from node.mqtt.constants import VARIABLE_INTEGER_MAX
from node.mqtt.errors import MqttError, malformed, protocol_error
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
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.strings import (
    FOUR_BYTES,
    TWO_BYTES,
    binary,
    read_binary,
    read_byte,
    read_four_bytes,
    read_string,
    read_two_bytes,
    read_variable,
    string,
    variable,
)

USER_PROPERTIES_MAX: Final = 1000
"""The limit of user properties in one packet: five bytes on the wire may cost 200 in memory."""

SUBSCRIPTION_IDS_MAX: Final = 1000
"""The limit of subscription identifiers in one PUBLISH."""

P = TypeVar(
    "P",
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

Reader = Callable[[bytes, int, int], tuple[Any, int]]


class _Kind(NamedTuple):
    """A property.   most: how often it may stand in one packet."""

    name: str
    read: Reader
    write: Callable[[Any], bytes]
    most: int = 1


def _read_flag(data: bytes, pos: int, end: int) -> tuple[bool, int]:
    value, after = read_byte(data, pos, end)
    if value > 1:
        raise protocol_error("a property that is 0 or 1 has another value")
    return value == 1, after


def _read_zero_or_one(data: bytes, pos: int, end: int) -> tuple[int, int]:
    value, after = _read_flag(data, pos, end)
    return int(value), after


def _write_byte(value: int) -> bytes:
    assert value in {0, 1}
    return bytes((value,))


def _positive(read: Reader, name: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> Reader:
    """Return a reader of integers that refuses 0."""

    def read_positive(data: bytes, pos: int, end: int) -> tuple[int, int]:
        value, after = read(data, pos, end)
        if not value:
            raise MqttError(code, f"the {name} is 0")
        return value, after

    return read_positive


def _read_pair(data: bytes, pos: int, end: int) -> tuple[tuple[str, str], int]:
    name, pos = read_string(data, pos, end)
    value, pos = read_string(data, pos, end)
    return (name, value), pos


def _write_pair(pair: tuple[str, str]) -> bytes:
    return string(pair[0]) + string(pair[1])


def _write_subscription_id(value: int) -> bytes:
    assert 0 < value <= VARIABLE_INTEGER_MAX
    return variable(value)


def _read_topic(data: bytes, pos: int, end: int) -> tuple[str, int]:
    text, after = read_string(data, pos, end)
    if not text or "#" in text or "+" in text:
        raise protocol_error("the response topic is empty or has a wildcard")
    return text, after


_TWO: Final = (read_two_bytes, TWO_BYTES.pack)
_FOUR: Final = (read_four_bytes, FOUR_BYTES.pack)
_FLAG: Final = (_read_flag, _write_byte)
_NUMBER: Final = (_read_zero_or_one, _write_byte)
_TEXT: Final = (read_string, string)
_DATA: Final = (read_binary, binary)

_KINDS: Final[dict[int, tuple[_Kind, ...]]] = {
    0x01: (_Kind("payload_format_indicator", *_NUMBER),),
    0x02: (_Kind("message_expiry_s", *_FOUR),),
    0x03: (_Kind("content_type", *_TEXT),),
    0x08: (_Kind("response_topic", _read_topic, string),),
    0x09: (_Kind("correlation_data", *_DATA),),
    0x0B: (
        _Kind("subscription_id", _positive(read_variable, "subscription identifier"), _write_subscription_id),
        _Kind(
            "subscription_ids",
            _positive(read_variable, "subscription identifier"),
            _write_subscription_id,
            SUBSCRIPTION_IDS_MAX,
        ),
    ),
    0x11: (_Kind("session_expiry_s", *_FOUR),),
    0x12: (_Kind("assigned_client_id", *_TEXT),),
    0x13: (_Kind("server_keep_alive_s", *_TWO),),
    0x15: (_Kind("authentication_method", *_TEXT),),
    0x16: (_Kind("authentication_data", *_DATA),),
    0x17: (_Kind("request_problem_information", *_FLAG),),
    0x18: (_Kind("will_delay_s", *_FOUR),),
    0x19: (_Kind("request_response_information", *_FLAG),),
    0x1A: (_Kind("response_information", *_TEXT),),
    0x1C: (_Kind("server_reference", *_TEXT),),
    0x1F: (_Kind("reason_string", *_TEXT),),
    0x21: (_Kind("receive_maximum", _positive(read_two_bytes, "receive maximum"), TWO_BYTES.pack),),
    0x22: (_Kind("topic_alias_maximum", *_TWO),),
    0x23: (
        _Kind(
            "topic_alias",
            _positive(read_two_bytes, "topic alias", ReasonCode.TOPIC_ALIAS_INVALID),
            TWO_BYTES.pack,
        ),
    ),
    0x24: (_Kind("maximum_qos", *_NUMBER),),
    0x25: (_Kind("retain_available", *_FLAG),),
    0x26: (_Kind("user_properties", _read_pair, _write_pair, USER_PROPERTIES_MAX),),
    0x27: (
        _Kind("maximum_packet_bytes", _positive(read_four_bytes, "maximum packet size"), FOUR_BYTES.pack),
    ),
    0x28: (_Kind("wildcard_subscription_available", *_FLAG),),
    0x29: (_Kind("subscription_ids_available", *_FLAG),),
    0x2A: (_Kind("shared_subscription_available", *_FLAG),),
}

_OF_NAME: Final = {kind.name: (bytes((number,)), kind) for number, kinds in _KINDS.items() for kind in kinds}


def _allowed(fields: tuple[str, ...]) -> dict[int, _Kind]:
    """Return the properties that a kind of packet may have, by their identifiers."""
    return {number: kind for number, kinds in _KINDS.items() for kind in kinds if kind.name in fields}


_ALLOWED: Final[dict[type, dict[int, _Kind]]] = {
    each: _allowed(each._fields)
    for each in (
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
}


def read_properties(of: type[P], data: bytes, pos: int, end: int) -> tuple[P, int]:
    """Read the properties of a packet, the length in front included, up to `end` at most.

    of: the kind of packet.   Returns: them, and the position after them.
    Raises: MqttError, for a property that the packet may not have, that is there twice, or whose value is not allowed.
    """
    length, pos = read_variable(data, pos, end)
    if not length:
        return of(), pos
    after = pos + length
    if after > end:
        raise malformed("the properties are longer than their packet")
    allowed = _ALLOWED[of]
    values: dict[str, Any] = {}
    while pos < after:
        # Identifiers are variable byte integers, and all that there are have one byte.
        kind = allowed.get(data[pos])
        if kind is None:
            raise malformed(f"property 0x{data[pos]:02x} is not allowed here")
        value, pos = kind.read(data, pos + 1, after)
        if kind.most > 1:
            several = values.setdefault(kind.name, [])
            if len(several) >= kind.most:
                raise MqttError(ReasonCode.QUOTA_EXCEEDED, f"more than {kind.most} {kind.name}")
            several.append(value)
        elif kind.name in values:
            raise protocol_error(f"the property {kind.name} is there twice")
        else:
            values[kind.name] = value
    if "authentication_data" in values and "authentication_method" not in values:
        raise protocol_error("authentication data without an authentication method")
    for name, value in values.items():
        if type(value) is list:
            values[name] = tuple(value)
    return of(**values), pos


def properties_bytes(properties: P) -> bytes:
    """Return the bytes of properties, the length in front included."""
    parts: list[bytes] = []
    values: tuple[Any, ...] = properties
    for name, value in zip(properties._fields, values, strict=True):
        if value is None or value == ():
            continue
        number, kind = _OF_NAME[name]
        if kind.most > 1:
            for each in value:
                parts += number, kind.write(each)
        else:
            parts += number, kind.write(value)
    if not parts:
        return b"\0"
    joined = b"".join(parts)
    return variable(len(joined)) + joined
