"""The reason codes that each kind of packet may carry, in each direction.

Source: MQTT 5.0, the tables of reason codes in chapter 3.
"""

from typing import Final

from node.mqtt.constants import PacketType
from node.mqtt.reason_codes import ReasonCode as Code

_FAILED: Final = frozenset({Code.UNSPECIFIED_ERROR, Code.IMPLEMENTATION_SPECIFIC_ERROR, Code.NOT_AUTHORIZED})

_RECEIVED: Final = _FAILED | {
    Code.SUCCESS,
    Code.NO_MATCHING_SUBSCRIBERS,
    Code.TOPIC_NAME_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
    Code.QUOTA_EXCEEDED,
    Code.PAYLOAD_FORMAT_INVALID,
}
_RELEASED: Final = frozenset({Code.SUCCESS, Code.PACKET_IDENTIFIER_NOT_FOUND})

ACKS: Final[dict[PacketType, frozenset[int]]] = {
    PacketType.PUBACK: frozenset(_RECEIVED),
    PacketType.PUBREC: frozenset(_RECEIVED),
    PacketType.PUBREL: frozenset(_RELEASED),
    PacketType.PUBCOMP: frozenset(_RELEASED),
}

SUBACK: Final[frozenset[int]] = _FAILED | {
    Code.SUCCESS,
    Code.GRANTED_QOS_1,
    Code.GRANTED_QOS_2,
    Code.TOPIC_FILTER_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
    Code.QUOTA_EXCEEDED,
    Code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    Code.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    Code.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
}

SUBACK_3_1_1: Final[frozenset[int]] = frozenset({0, 1, 2, 0x80})

UNSUBACK: Final[frozenset[int]] = _FAILED | {
    Code.SUCCESS,
    Code.NO_SUBSCRIPTION_EXISTED,
    Code.TOPIC_FILTER_INVALID,
    Code.PACKET_IDENTIFIER_IN_USE,
}

CONNACK: Final[frozenset[int]] = frozenset(
    {
        Code.SUCCESS,
        Code.UNSPECIFIED_ERROR,
        Code.MALFORMED_PACKET,
        Code.PROTOCOL_ERROR,
        Code.IMPLEMENTATION_SPECIFIC_ERROR,
        Code.UNSUPPORTED_PROTOCOL_VERSION,
        Code.CLIENT_IDENTIFIER_NOT_VALID,
        Code.BAD_USER_NAME_OR_PASSWORD,
        Code.NOT_AUTHORIZED,
        Code.SERVER_UNAVAILABLE,
        Code.SERVER_BUSY,
        Code.BANNED,
        Code.BAD_AUTHENTICATION_METHOD,
        Code.TOPIC_NAME_INVALID,
        Code.PACKET_TOO_LARGE,
        Code.QUOTA_EXCEEDED,
        Code.PAYLOAD_FORMAT_INVALID,
        Code.RETAIN_NOT_SUPPORTED,
        Code.QOS_NOT_SUPPORTED,
        Code.USE_ANOTHER_SERVER,
        Code.SERVER_MOVED,
        Code.CONNECTION_RATE_EXCEEDED,
    }
)

DISCONNECT_BY_CLIENT: Final[frozenset[int]] = frozenset(
    {
        Code.SUCCESS,
        Code.DISCONNECT_WITH_WILL,
        Code.UNSPECIFIED_ERROR,
        Code.MALFORMED_PACKET,
        Code.PROTOCOL_ERROR,
        Code.IMPLEMENTATION_SPECIFIC_ERROR,
        Code.TOPIC_NAME_INVALID,
        Code.RECEIVE_MAXIMUM_EXCEEDED,
        Code.TOPIC_ALIAS_INVALID,
        Code.PACKET_TOO_LARGE,
        Code.MESSAGE_RATE_TOO_HIGH,
        Code.QUOTA_EXCEEDED,
        Code.ADMINISTRATIVE_ACTION,
        Code.PAYLOAD_FORMAT_INVALID,
    }
)

DISCONNECT_BY_SERVER: Final[frozenset[int]] = (DISCONNECT_BY_CLIENT - {Code.DISCONNECT_WITH_WILL}) | {
    Code.NOT_AUTHORIZED,
    Code.SERVER_BUSY,
    Code.SERVER_SHUTTING_DOWN,
    Code.BAD_AUTHENTICATION_METHOD,
    Code.KEEP_ALIVE_TIMEOUT,
    Code.SESSION_TAKEN_OVER,
    Code.TOPIC_FILTER_INVALID,
    Code.RETAIN_NOT_SUPPORTED,
    Code.QOS_NOT_SUPPORTED,
    Code.USE_ANOTHER_SERVER,
    Code.SERVER_MOVED,
    Code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    Code.CONNECTION_RATE_EXCEEDED,
    Code.MAXIMUM_CONNECT_TIME,
    Code.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED,
    Code.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
}

AUTH_BY_CLIENT: Final[frozenset[int]] = frozenset({Code.CONTINUE_AUTHENTICATION, Code.RE_AUTHENTICATE})
AUTH_BY_SERVER: Final[frozenset[int]] = frozenset({Code.SUCCESS, Code.CONTINUE_AUTHENTICATION})
