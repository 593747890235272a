"""A client's MQTT session without I/O: what it keeps from one connection to the next, and what it answers.

It sends each message until it is confirmed, once more on each new connection, and takes each message of QoS 2 once, as
the standard asks of clients. So whatever is missing or there twice in the end is the broker's doing.

    connect() ─► take() to the socket     from the socket ─► received(bytes) ─► events, and take() to the socket
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from node.mqtt.constants import PACKET_ID_MAX, PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode, encode_acks, encode_publishes
from node.mqtt.packets import (
    PINGREQ,
    Acks,
    AckType,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.properties import (
    NO_PUBLISH,
    NO_SUBSCRIBE,
    DisconnectProperties,
    PublishProperties,
    SubscribeProperties,
)
from node.mqtt.reason_codes import FIRST_ERROR, ReasonCode
from node.mqtt.topic_aliases import InboundAliases

RECEIVE_MAXIMUM: Final = 65_535
"""The number of messages that a server takes unconfirmed unless it says otherwise."""


class Message(NamedTuple):
    """A message that the server sent.   packet_id: 0 with QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    properties: PublishProperties


class Confirmed(NamedTuple):
    """A publish has come to its end.   code: from 0x80 on it failed."""

    packet_id: int
    code: int


Event = Connack | Message | Confirmed | Suback | Unsuback | Pingresp | Disconnect | Auth


@dataclass(slots=True)
class _Outgoing:
    """A publish that is not confirmed.   is_released: its PUBREC has come, so PUBREL is what is sent again."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: PublishProperties
    is_sent: bool = False
    is_released: bool = False


class MqttSession:
    """The session of a client.

    connect: the CONNECT of each connection.   acks_by_hand: messages are acknowledged by `acknowledge` only.
    lost_sessions: how often a server had no session although this client had one.
    connections: how many were begun.
    """

    def __init__(self, connect: Connect, *, acks_by_hand: bool = False) -> None:
        self.connect_packet = connect
        self.acks_by_hand = acks_by_hand
        self.is_connected = False
        self.lost_sessions = 0
        self.connections = 0
        self._version = connect.version
        self._has_state = False
        self._decoder = self._new_decoder()
        self._aliases = InboundAliases()
        self._output: list[bytes] = []
        self._outgoing: dict[int, _Outgoing] = {}  # in the order in which they were published
        self._waiting: deque[int] = deque()  # of these, the ones that were not sent on this connection
        self._in_flight = 0
        self._receive_maximum = RECEIVE_MAXIMUM
        self._received: set[int] = set()  # packet identifiers of QoS 2 that were not released
        self._requests: set[int] = set()  # packet identifiers of SUBSCRIBE and UNSUBSCRIBE
        self._last_id = 0

    def _new_decoder(self) -> Decoder:
        return Decoder(is_server=False, version=self._version)

    @property
    def unconfirmed(self) -> int:
        """The number of publishes with QoS 1 and 2 that were not confirmed."""
        return len(self._outgoing)

    def take(self) -> bytes:
        """Return what is to be written."""
        data = b"".join(self._output)
        self._output.clear()
        return data

    # --- what a client does ---

    def connect(self) -> None:
        """Begin a new connection."""
        self.connections += 1
        self.disconnected()
        self._decoder = self._new_decoder()
        self._aliases = InboundAliases(self.connect_packet.properties.topic_alias_maximum or 0)
        self._output.append(encode(self._version, self.connect_packet))

    def disconnected(self) -> None:
        """Note that the connection is gone."""
        self.is_connected = False
        self._output.clear()
        self._requests.clear()

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: PublishProperties = NO_PUBLISH,
    ) -> int:
        """Publish, now or on the next connection; with QoS 0 only if there is one.

        Returns: the packet identifier, which `Confirmed` will name; 0 with QoS 0.
        """
        if not qos:
            if self.is_connected:
                self._output.append(
                    encode_publishes(self._version, topic, (payload,), 0, retain, properties=properties)
                )
            return 0
        packet_id = self._next_id()
        self._outgoing[packet_id] = _Outgoing(topic, payload, qos, retain, properties)
        self._waiting.append(packet_id)
        self._send_waiting()
        return packet_id

    def subscribe(self, *subscriptions: Subscription, properties: SubscribeProperties = NO_SUBSCRIBE) -> int:
        """Subscribe.   Returns: the packet identifier, which a SUBACK will name."""
        packet_id = self._request_id()
        self._output.append(encode(self._version, Subscribe(packet_id, subscriptions, properties)))
        return packet_id

    def unsubscribe(self, *filters: str) -> int:
        """Unsubscribe.   Returns: the packet identifier, which an UNSUBACK will name."""
        packet_id = self._request_id()
        self._output.append(encode(self._version, Unsubscribe(packet_id, filters)))
        return packet_id

    def acknowledge(self, message: Message, code: int = 0) -> None:
        """Acknowledge a message: the first answer that its QoS asks for."""
        assert message.qos, "messages with QoS 0 are not acknowledged"
        self._ack(PacketType.PUBACK if message.qos == 1 else PacketType.PUBREC, message.packet_id, code)
        if code >= FIRST_ERROR:
            self._received.discard(message.packet_id)

    def ping(self) -> None:
        """Send a PINGREQ."""
        self._output.append(encode(self._version, PINGREQ))

    def disconnect(self, code: int = 0, session_expiry_s: int | None = None) -> None:
        """Send a DISCONNECT."""
        properties = DisconnectProperties(session_expiry_s)
        self._output.append(encode(self._version, Disconnect(code, properties)))

    # --- what a server does ---

    def received(self, data: bytes) -> list[Event]:
        """Take bytes of the server.   Returns: what they mean. Raises: MqttError, if the server breaks the standard."""
        events: list[Event] = []
        for packet in self._decoder.feed(data):
            match packet:
                case Publishes():
                    self._messages(packet, events.append)
                case Acks(type_, packet_ids, code):
                    for packet_id in packet_ids:
                        self._acked(type_, packet_id, code, events.append)
                case Connack():
                    self._connected(packet)
                    events.append(packet)
                case Suback(packet_id) | Unsuback(packet_id):
                    self._requests.discard(packet_id)
                    events.append(packet)
                case _:
                    events.append(cast(Event, packet))
        self._send_waiting()
        return events

    def _connected(self, connack: Connack) -> None:
        if connack.code:
            return
        self.is_connected = True
        self._receive_maximum = connack.properties.receive_maximum or RECEIVE_MAXIMUM
        if not connack.session_present:
            self.lost_sessions += self._has_state
            self._received.clear()
            for each in self._outgoing.values():
                # The server knows none of them: those that it had received, too, are published anew.
                each.is_sent = each.is_released = False
        self._has_state = not self._is_forgotten()
        self._waiting = deque(self._outgoing)
        self._in_flight = 0

    def _is_forgotten(self) -> bool:
        """Return whether the server forgets the session with the connection."""
        if self._version is Version.MQTT_5:
            return not self.connect_packet.properties.session_expiry_s
        return self.connect_packet.clean_start

    def _send_waiting(self) -> None:
        while self.is_connected and self._waiting and self._in_flight < self._receive_maximum:
            packet_id = self._waiting.popleft()
            each = self._outgoing[packet_id]
            self._in_flight += 1
            if each.is_released:
                self._ack(PacketType.PUBREL, packet_id)
            else:
                self._output.append(
                    encode_publishes(
                        self._version,
                        each.topic,
                        (each.payload,),
                        each.qos,
                        each.retain,
                        each.is_sent,
                        (packet_id,),
                        each.properties,
                    )
                )
                each.is_sent = True

    def _messages(self, run: Publishes, tell: Callable[[Event], None]) -> None:
        run = self._aliases.resolve(run)
        for number, payload in enumerate(run.payloads):
            packet_id = run.packet_ids[number] if run.qos else 0
            message = Message(run.topic, payload, run.qos, run.retain, run.dup, packet_id, run.properties)
            is_known = run.qos == 2 and packet_id in self._received
            if run.qos == 2:
                self._received.add(packet_id)
            if not is_known:
                tell(message)
            if run.qos and (is_known or not self.acks_by_hand):
                self.acknowledge(message)

    def _acked(self, type_: AckType, packet_id: int, code: int, tell: Callable[[Event], None]) -> None:
        if type_ is PacketType.PUBREL:
            is_known = packet_id in self._received
            self._received.discard(packet_id)
            self._ack(PacketType.PUBCOMP, packet_id, 0 if is_known else self._not_found)
            return
        outgoing = self._outgoing.get(packet_id)
        if type_ is PacketType.PUBREC and code < FIRST_ERROR:
            if outgoing is not None:
                outgoing.is_released = True
            self._ack(PacketType.PUBREL, packet_id, 0 if outgoing is not None else self._not_found)
        elif outgoing is not None:
            del self._outgoing[packet_id]
            if packet_id in self._waiting:
                self._waiting.remove(packet_id)  # the confirm of an earlier connection
            else:
                self._in_flight -= 1
            tell(Confirmed(packet_id, code))

    @property
    def _not_found(self) -> int:
        return ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self._version is Version.MQTT_5 else 0

    def _ack(self, type_: AckType, packet_id: int, code: int = 0) -> None:
        self._output.append(encode_acks(self._version, type_, (packet_id,), code))

    def _request_id(self) -> int:
        assert self.is_connected, "SUBSCRIBE and UNSUBSCRIBE need a connection"
        packet_id = self._next_id()
        self._requests.add(packet_id)
        return packet_id

    def _next_id(self) -> int:
        for _ in range(PACKET_ID_MAX):
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self._outgoing and self._last_id not in self._requests:
                return self._last_id
        raise AssertionError("all packet identifiers are in use")
