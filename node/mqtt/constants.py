"""The numbers of MQTT: packet types, protocol levels and limits of the format.

Source: MQTT 3.1.1 and 5.0, chapters 1.5, 2.1 and 3.1.2.
"""

from enum import IntEnum
from typing import Final


class Version(IntEnum):
    """Lists the versions of MQTT by their protocol level."""

    MQTT_3_1 = 3
    MQTT_3_1_1 = 4
    MQTT_5 = 5


VERSION_NAMES: Final = {Version.MQTT_3_1: "3.1.0", Version.MQTT_3_1_1: "3.1.1", Version.MQTT_5: "5-0"}
"""The versions as operators see them: as in RabbitMQ 3.10.8, and 5.0 as in 3.13, the first one that has it."""


class PacketType(IntEnum):
    """Lists the types of control packets: the high four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


STRING_MAX_BYTES: Final = 65_535
"""The length of a string or of binary data is two bytes on the wire."""

VARIABLE_INTEGER_MAX: Final = 268_435_455
"""The largest variable byte integer: four bytes of seven bits each. No packet is longer, without its fixed header."""

VARIABLE_INTEGER_MAX_BYTES: Final = 4

FIXED_HEADER_MAX_BYTES: Final = 1 + VARIABLE_INTEGER_MAX_BYTES

PACKET_MAX_BYTES: Final = VARIABLE_INTEGER_MAX + FIXED_HEADER_MAX_BYTES

PACKET_ID_MAX: Final = 65_535
"""Packet identifiers go from 1 to here."""

NEVER_EXPIRES: Final = 0xFFFFFFFF
"""The session expiry interval that means that a session never ends (MQTT 5.0 chapter 3.1.2.11.2)."""

SHARE_PREFIX: Final = "$share/"
"""The beginning of the filter of a shared subscription."""
