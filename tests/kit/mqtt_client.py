"""A synchronous MQTT client that sends any packets and any bytes, also invalid ones.

It hides nothing: every packet that arrives must be asked for, and one that was not expected fails the test with both
spelled out. It answers nothing by itself, and gives each packet of a run by itself.
"""

import contextlib
import socket
import ssl
import time
from collections import deque
from typing import Final, TypeVar

from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import (
    PINGREQ,
    Acks,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
)
from node.mqtt.properties import NO_PUBLISH, NO_SUBSCRIBE, PublishProperties, SubscribeProperties
from tests.kit.mqtt_packets import single
from tests.kit.patience import patience

TIMEOUT_S: Final = 10.0
"""An answer may take this long on a quiet machine; only a failing test waits so long."""

READ_BYTES: Final = 65_536

T = TypeVar("T", bound=Packet)


class ConnectionEnded(AssertionError):
    """The server ended the connection when the test did not expect it."""


class NothingArrived(AssertionError):
    """The server sent nothing in time."""


class MqttClient:
    """A connection.   version: of the packets, whatever the CONNECT that is sent says.   socket: for floods."""

    def __init__(
        self,
        host: str,
        port: int,
        version: Version = Version.MQTT_3_1_1,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.version = version
        plain = socket.create_connection((host, port), TIMEOUT_S * patience())
        self.socket = tls.wrap_socket(plain, server_hostname=host) if tls is not None else plain
        self._decoder = Decoder(is_server=False, version=version)
        self._arrived: deque[Packet] = deque()

    def __enter__(self) -> "MqttClient":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket without a word. Idempotent."""
        self.socket.close()

    # --- what a client sends ---

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes. A server may end the connection meanwhile: that is seen by what is read next."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.socket.sendall(data)

    def send(self, *packets: Packet) -> None:
        """Send packets, together."""
        self.send_bytes(b"".join(encode(self.version, each) for each in packets))

    def connect(
        self, connect: Connect | None = None, *, code: int = 0, session_present: bool = False
    ) -> Connack:
        """Send CONNECT, and take the CONNACK that is expected.   connect: if None, with a clean start and no id."""
        self.send(connect or Connect(self.version, ""))
        connack = self.expect(Connack)
        assert (connack.code, connack.session_present) == (code, session_present), connack
        return connack

    def subscribe(
        self, *subscriptions: Subscription, packet_id: int = 1, properties: SubscribeProperties = NO_SUBSCRIBE
    ) -> Suback:
        """Subscribe, and take the SUBACK."""
        self.send(Subscribe(packet_id, subscriptions, properties))
        suback = self.expect(Suback)
        assert suback.packet_id == packet_id, suback
        return suback

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        packet_id: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        properties: PublishProperties = NO_PUBLISH,
    ) -> None:
        """Send a PUBLISH."""
        ids = (packet_id,) if packet_id else ()
        self.send(Publishes(topic, (payload,), qos, retain, dup, ids, properties))

    def ping(self) -> None:
        """Send PINGREQ, and take the PINGRESP: the server has read all before it, and sent nothing else."""
        self.send(PINGREQ)
        self.expect(Pingresp)

    def disconnect(self) -> None:
        """Send DISCONNECT, and wait until the server has closed the connection."""
        self.send(Disconnect())
        self.expect_end()

    # --- what a server sends ---

    def expect(self, kind: type[T]) -> T:
        """Take the next packet, which is of this type.   Raises: ConnectionEnded; NothingArrived."""
        packet = self.next_packet()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    def expect_ack(self, type_: PacketType, packet_id: int, code: int = 0) -> Acks:
        """Take the next packet, which is this acknowledgement."""
        acks = self.expect(Acks)
        assert (acks.type, tuple(acks.packet_ids), acks.code) == (type_, (packet_id,), code), acks
        return acks

    def expect_message(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> Publishes:
        """Take the next packet, which is this message.   Returns: it, with its packet identifier and properties."""
        message = self.expect(Publishes)
        found = (message.topic, message.payloads[0], message.qos, message.retain)
        assert found == (topic, payload, qos, retain), message
        return message

    def expect_end(self) -> None:
        """Take the end of the connection, before which nothing else comes."""
        packet = self._next(within_s=TIMEOUT_S * patience())
        assert packet is None, f"expected the end, got {packet}"

    def expect_nothing(self, within_s: float) -> None:
        """Check that nothing comes for so long.   A `ping` is quicker where the server's order says enough."""
        with contextlib.suppress(NothingArrived):
            packet = self._next(within_s)
            raise AssertionError(f"expected nothing, got {packet or 'the end of the connection'}")

    def next_packet(self) -> Packet:
        """Return the next packet.   Raises: ConnectionEnded; NothingArrived."""
        packet = self._next(within_s=TIMEOUT_S * patience())
        if packet is None:
            raise ConnectionEnded("the server has closed the connection")
        return packet

    def _next(self, within_s: float) -> Packet | None:
        """Return the next packet; None: the connection has ended."""
        deadline = time.monotonic() + within_s
        while not self._arrived:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise NothingArrived(f"nothing came for {within_s:.1f} s")
            self.socket.settimeout(left_s)
            try:
                data = self.socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            except ConnectionError:
                return None
            if not data:
                return None
            self._arrived += single(self._decoder.feed(data))
        return self._arrived.popleft()
