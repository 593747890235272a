"""The reader of CONNECT, which says in which version all that follows is written.

Source: MQTT 3.1 §3.1; MQTT 3.1.1 and 5.0 §3.1.
"""

from typing import Final

from node.mqtt.constants import Version
from node.mqtt.errors import MqttError, malformed, protocol_error
from node.mqtt.packets import Connect, Will
from node.mqtt.properties import NO_CONNECT, NO_WILL, ConnectProperties, WillProperties
from node.mqtt.property_codec import read_properties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.strings import read_binary, read_byte, read_string, read_two_bytes
from node.mqtt.topics import check_topic_name

_RESERVED: Final = 0x01
_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS_SHIFT: Final = 3
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80

_BRIDGE_BIT: Final = 0x80

_LEVELS: Final = {
    "MQIsdp": {Version.MQTT_3_1: Version.MQTT_3_1},
    "MQTT": {Version.MQTT_3_1_1: Version.MQTT_3_1_1, Version.MQTT_5: Version.MQTT_5},
}
"""The protocol levels that go with each protocol name [MQTT-3.1.2-1]."""


class UnsupportedVersion(MqttError):
    """A CONNECT of another version.

    version: the one in which a CONNACK says so [MQTT-3.1.2-2]; None if the name is of another protocol.
    """

    def __init__(self, name: str, level: int) -> None:
        super().__init__(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, f"protocol {name[:16]!a}, level {level}")
        self.version = None
        if name in _LEVELS:
            self.version = Version.MQTT_5 if level > Version.MQTT_5 else Version.MQTT_3_1_1


def read_version(data: bytes, pos: int, end: int) -> tuple[Version, bool, int]:
    """Read the protocol's name and level.   Returns: the version, whether the client is a bridge, and what comes next.

    Raises: UnsupportedVersion, or MqttError if they cannot be read.
    """
    name, pos = read_string(data, pos, end)
    level, pos = read_byte(data, pos, end)
    is_bridge = level in {Version.MQTT_3_1 | _BRIDGE_BIT, Version.MQTT_3_1_1 | _BRIDGE_BIT}
    version = _LEVELS.get(name, {}).get(level & ~_BRIDGE_BIT if is_bridge else level)  # type: ignore[call-overload]
    if version is None:
        raise UnsupportedVersion(name, level)
    return version, is_bridge, pos


def read_connect(data: bytes, pos: int, end: int, version: Version, *, is_bridge: bool) -> Connect:
    """Read what follows the level of a CONNECT."""
    flags, pos = read_byte(data, pos, end)
    _check_flags(flags, version)
    keep_alive_s, pos = read_two_bytes(data, pos, end)
    properties = NO_CONNECT
    if version is Version.MQTT_5:
        properties, pos = read_properties(ConnectProperties, data, pos, end)
    client_id, pos = read_string(data, pos, end)
    will = None
    if flags & _WILL:
        will, pos = _read_will(data, pos, end, flags, version)
    user_name = password = None
    # MQTT 3.1 allows flags without what they announce, if the packet ends there.
    is_lenient = version is Version.MQTT_3_1
    if flags & _USER_NAME and not (is_lenient and pos == end):
        user_name, pos = read_string(data, pos, end)
    if flags & _PASSWORD and not (is_lenient and pos == end):
        password, pos = read_binary(data, pos, end)
    if pos != end:
        raise malformed("bytes follow the last field of a CONNECT")
    return Connect(
        version,
        client_id,
        bool(flags & _CLEAN_START),
        keep_alive_s,
        will,
        user_name,
        password,
        properties,
        is_bridge,
    )


def _check_flags(flags: int, version: Version) -> None:
    if version is Version.MQTT_3_1:
        # The standard says nothing of the lowest bit, and of a will's flags without a will that they don't count.
        flags &= ~_RESERVED if flags & _WILL else ~(_RESERVED | _WILL_RETAIN | 3 << _WILL_QOS_SHIFT)
    if flags & _RESERVED:
        raise malformed("the reserved flag of a CONNECT is set")
    qos = flags >> _WILL_QOS_SHIFT & 3
    if qos == 3:
        raise malformed("the QoS of a will is 3")
    if not flags & _WILL and (qos or flags & _WILL_RETAIN):
        raise malformed("a CONNECT has flags of a will and no will")
    if version is not Version.MQTT_5 and flags & _PASSWORD and not flags & _USER_NAME:
        raise protocol_error("a CONNECT has a password and no user name")


def _read_will(data: bytes, pos: int, end: int, flags: int, version: Version) -> tuple[Will, int]:
    properties = NO_WILL
    if version is Version.MQTT_5:
        properties, pos = read_properties(WillProperties, data, pos, end)
    topic, pos = read_string(data, pos, end)
    check_topic_name(topic)
    payload, pos = read_binary(data, pos, end)
    return Will(topic, payload, flags >> _WILL_QOS_SHIFT & 3, bool(flags & _WILL_RETAIN), properties), pos
