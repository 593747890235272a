"""A client of MQTT in a `World`, without a socket: it sends packets, and notes those that come."""

from collections.abc import Sequence

from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.extension.setting import Settings
from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import (
    Acks,
    AckType,
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
from node.mqtt.plugin import MqttListener
from node.mqtt.properties import (
    NO_CONNECT,
    NO_PUBLISH,
    ConnectProperties,
    PublishProperties,
    SubscribeProperties,
)
from tests.kit.world import World

V3, V4, V5 = Version.MQTT_3_1, Version.MQTT_3_1_1, Version.MQTT_5


class MqttClient:
    """One client.   received: packets that came, in order; a run of publishes is taken apart.

    acks: acknowledge what has QoS 1 or 2 at once.
    """

    def __init__(
        self,
        world: World,
        version: Version = V4,
        *,
        settings: Settings | None = None,
        peer: ClientEndpoint | None = None,
        acks: bool = True,
    ) -> None:
        self.world = world
        self.version = version
        self.acks = acks
        self.received: list[Packet] = []
        self.is_reset = False
        self._decoder = Decoder(is_server=False, version=version)
        self._last_id = 0
        self.connection = SessionConnection(
            world.broker,
            peer or ClientEndpoint(),
            plugin="rabbitmq_mqtt",
            listener=MqttListener(settings or {}),
            now=world.now,
            on_change=lambda: None,
        )
        world.clients[self.connection] = self  # type: ignore[assignment]

    # --- the socket ---

    def send(self, *packets: Packet) -> None:
        """Send packets in one read."""
        self.feed(b"".join(encode(self.version, packet) for packet in packets))
        self.world.settle()

    def feed(self, data: bytes) -> None:
        """Send bytes."""
        if not self.is_reset:
            self.connection.receive_data(data, self.world.now)

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        data = b"".join(self.connection.take_output())
        if self.connection.is_finished:
            self.lose()
        elif self.connection.is_writable:
            self.connection.flushed()
        for packet in self._decoder.feed(data):
            self._note(packet)

    def lose(self) -> None:
        """Close the socket."""
        if not self.is_reset:
            self.is_reset = True
            del self.world.clients[self.connection]
            self.connection.lost(self.world.now)

    def cut(self) -> None:
        """Close the socket, and let the broker do all that follows."""
        self.lose()
        self.world.settle()

    def _note(self, packet: Packet) -> None:
        if not isinstance(packet, Publishes):
            self.received.append(packet)
            if self.acks and isinstance(packet, Acks):
                answer = {PacketType.PUBREC: PacketType.PUBREL, PacketType.PUBREL: PacketType.PUBCOMP}
                if packet.type in answer and packet.code < 0x80:
                    self._answer(answer[packet.type], packet.packet_ids)
            return
        ids: Sequence[int] = packet.packet_ids or [0] * len(packet.payloads)
        for packet_id, payload in zip(ids, packet.payloads, strict=True):
            self.received.append(
                packet._replace(payloads=(payload,), packet_ids=(packet_id,) if packet_id else ())
            )
        if self.acks and packet.qos:
            type_ = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            self._answer(type_, packet.packet_ids)

    def _answer(self, type_: AckType, packet_ids: Sequence[int]) -> None:
        self.feed(encode(self.version, Acks(type_, tuple(packet_ids))))

    # --- what came ---

    def told(self) -> list[Packet]:
        """Return the packets since the last call."""
        self.world.settle()
        received, self.received = self.received, []
        return received

    def published(self) -> list[Publishes]:
        """Return the messages since the last call, and drop all other packets."""
        return [packet for packet in self.told() if isinstance(packet, Publishes)]

    def bodies(self) -> list[bytes]:
        """Return the payloads since the last call."""
        return [packet.payloads[0] for packet in self.published()]

    # --- what a client does ---

    def connect(
        self,
        client_id: str = "c",
        *,
        clean: bool = True,
        expiry_s: int | None = None,
        will: Will | None = None,
        keep_alive_s: int = 0,
        user: str | None = None,
        password: bytes | None = None,
        properties: ConnectProperties = NO_CONNECT,
    ) -> Connack:
        """Connect, and return the answer."""
        if expiry_s is not None:
            properties = properties._replace(session_expiry_s=expiry_s)
        self.send(Connect(self.version, client_id, clean, keep_alive_s, will, user, password, properties))
        for packet in list(self.received):
            if isinstance(packet, Connack):
                self.received.remove(packet)
                return packet
        raise AssertionError(self.received)

    def next_id(self) -> int:
        """Return a packet identifier."""
        self._last_id += 1
        return self._last_id

    def subscribe(
        self, *wanted: Subscription | str, qos: int = 0, identifier: int | None = None
    ) -> tuple[int, ...]:
        """Subscribe, and return the codes. What else comes meanwhile stays in `received`."""
        packet_id = self.next_id()
        subscriptions = tuple(Subscription(each, qos) if isinstance(each, str) else each for each in wanted)
        self.send(Subscribe(packet_id, subscriptions, SubscribeProperties(identifier)))
        (answer,) = (each for each in self.received if isinstance(each, Suback))
        assert answer.packet_id == packet_id
        self.received.remove(answer)
        return answer.codes

    def unsubscribe(self, *filters: str) -> Unsuback:
        """Unsubscribe, and return the answer."""
        self.send(Unsubscribe(self.next_id(), filters))
        (answer,) = (each for each in self.received if isinstance(each, Unsuback))
        self.received.remove(answer)
        return answer

    def publish(
        self,
        topic: str,
        *payloads: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_ids: Sequence[int] | None = None,
        properties: PublishProperties = NO_PUBLISH,
    ) -> None:
        """Publish messages in one read."""
        if packet_ids is None:
            packet_ids = [self.next_id() for _ in payloads] if qos else []
        self.send(Publishes(topic, payloads, qos, retain, dup, packet_ids, properties))

    def disconnect(self, code: int = 0) -> None:
        """Disconnect in good order."""
        self.send(Disconnect(code))

    def acked(self, type_: AckType) -> list[int]:
        """Return the packet identifiers of acknowledgements of a type that came."""
        return [
            packet_id
            for packet in self.told()
            if isinstance(packet, Acks) and packet.type is type_
            for packet_id in packet.packet_ids
        ]


def connected(
    world: World, client_id: str = "c", version: Version = V4, *, acks: bool = True, **options: object
) -> MqttClient:
    """Return a client that is connected."""
    client = MqttClient(world, version, acks=acks)
    answer = client.connect(client_id, **options)  # type: ignore[arg-type]
    assert answer.code == 0, answer
    return client
