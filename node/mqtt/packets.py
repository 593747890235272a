"""The control packets of MQTT, as both sides see them, in all versions.

What a version does not have is at its default: properties are empty and reason codes are 0 before 5.0. Publishes and
their acknowledgements come and go in runs, so that a thousand small messages cost a few objects.
Source: MQTT 3.1.1 and 5.0, chapter 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from node.mqtt.constants import PacketType, Version
from node.mqtt.properties import (
    NO_ACK,
    NO_AUTH,
    NO_CONNACK,
    NO_CONNECT,
    NO_DISCONNECT,
    NO_PUBLISH,
    NO_SUBSCRIBE,
    NO_UNSUBSCRIBE,
    NO_WILL,
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


class Will(NamedTuple):
    """The message that a server publishes when it loses the client."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: WillProperties = NO_WILL


class Connect(NamedTuple):
    """CONNECT, the first packet of a client.

    keep_alive_s: 0 turns keep-alive off.   is_bridge: the client forwards for another broker (bit 7 of the level,
    which mosquitto and others set).
    """

    version: Version
    client_id: str
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: ConnectProperties = NO_CONNECT
    is_bridge: bool = False


class Connack(NamedTuple):
    """CONNACK, the server's answer to CONNECT.   code: a `ReasonCode` in 5.0, else a `ReturnCode`."""

    session_present: bool = False
    code: int = 0
    properties: ConnackProperties = NO_CONNACK


class Publishes(NamedTuple):
    """PUBLISH, one or more that differ in their payloads and packet ids only.

    topic: empty if the property `topic_alias` stands for it.   packet_ids: one for each payload; empty with QoS 0.
    """

    topic: str
    payloads: Sequence[bytes]
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_ids: Sequence[int] = ()
    properties: PublishProperties = NO_PUBLISH


AckType = Literal[PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]


class Acks(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, one or more that differ in their packet ids only."""

    type: AckType
    packet_ids: Sequence[int]
    code: int = 0
    properties: AckProperties = NO_ACK


class Subscription(NamedTuple):
    """One filter of a SUBSCRIBE with its options.   qos: the maximum of what is delivered.

    retain_handling: 0: send retained messages; 1: only if the subscription is new; 2: never.
    """

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(NamedTuple):
    """SUBSCRIBE, with at least one filter."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: SubscribeProperties = NO_SUBSCRIBE


class Suback(NamedTuple):
    """SUBACK, with a code for each filter of the SUBSCRIBE."""

    packet_id: int
    codes: tuple[int, ...]
    properties: AckProperties = NO_ACK


class Unsubscribe(NamedTuple):
    """UNSUBSCRIBE, with at least one filter."""

    packet_id: int
    filters: tuple[str, ...]
    properties: UnsubscribeProperties = NO_UNSUBSCRIBE


class Unsuback(NamedTuple):
    """UNSUBACK.   codes: one for each filter in 5.0, none before."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: AckProperties = NO_ACK


@dataclass(frozen=True, slots=True)
class Pingreq:
    """PINGREQ, by which a client shows that it is there."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """PINGRESP, the answer to PINGREQ."""


class Disconnect(NamedTuple):
    """DISCONNECT, the last packet of a connection; a server sends it in 5.0 only."""

    code: int = 0
    properties: DisconnectProperties = NO_DISCONNECT


class Auth(NamedTuple):
    """AUTH, a step of enhanced authentication in 5.0."""

    code: int = 0
    properties: AuthProperties = NO_AUTH


PINGREQ: Final = Pingreq()
PINGRESP: Final = Pingresp()

Packet = (
    Connect
    | Connack
    | Publishes
    | Acks
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
