"""MQTT over WebSocket in a world: binary frames, whose bounds are not those of packets."""

from node.client.endpoint import ClientEndpoint
from node.client.session import SessionConnection
from node.mqtt.constants import Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import PINGREQ, Connack, Connect, Pingresp, Publishes, Suback, Subscribe, Subscription
from node.mqtt.web_plugin import PLUGIN, WebMqttListener
from tests.kit.websocket_frames import BINARY, CLOSE, PING, PONG, TEXT, client_frame, request, server_frames
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import connected

V4 = Version.MQTT_3_1_1
CONNECT = encode(V4, Connect(V4, "w"))


class WebClient:
    """A client's socket, on which the WebSocket is open."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.is_reset = False
        self._written = b""
        self._decoder = Decoder(is_server=False, version=V4)
        self.connection = SessionConnection(
            self.world.broker,
            ClientEndpoint(),
            plugin=PLUGIN.name,
            listener=WebMqttListener(PLUGIN.listener_settings({})),
            now=self.world.now,
            on_change=lambda: None,
        )
        self.world.clients[self.connection] = self  # type: ignore[assignment]
        answer = self.ask(request(protocols="mqtt"))
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer

    def ask(self, data: bytes) -> bytes:
        """Send bytes, and return what is answered."""
        self.connection.receive_data(data, self.world.now)
        self.world.settle()
        answer, self._written = self._written, b""
        return answer

    def flush(self) -> None:
        """Flush the connection as the shell does after a turn."""
        self._written += b"".join(self.connection.take_output())
        if self.connection.is_finished:
            self.is_reset = True
            del self.world.clients[self.connection]
            self.connection.lost(self.world.now)
        elif self.connection.is_writable:
            self.connection.flushed()

    def packets(self, data: bytes) -> list[type]:
        """Send bytes, and return the types of the packets that come in binary frames; others are left out."""
        frames = server_frames(self.ask(data))
        found = b"".join(each.payload for each in frames if each.opcode == BINARY)
        return [type(packet) for packet in self._decoder.feed(found)]


def test_another_frame_than_a_binary_one_closes_the_connection() -> None:
    """Packets are in binary frames; a text frame closes the connection [MQTT-6.0.0-1]."""
    client = WebClient()
    (close,) = server_frames(client.ask(client_frame(TEXT, CONNECT)))
    assert (close.opcode, close.payload[:2]) == (CLOSE, (1003).to_bytes(2))
    client.world.advance(60.0)
    assert client.is_reset


def test_a_client_id_belongs_to_one_connection_on_tcp_and_websocket_together() -> None:
    """A second connection with a client id takes over, however it comes [MQTT-3.1.4-3]."""
    world = World()
    first = connected(world, "w", clean=False)
    second = WebClient(world)
    assert second.packets(client_frame(BINARY, CONNECT)) == [Connack]
    assert first.is_reset
    third = connected(world, "w", clean=False)
    assert second.is_reset
    assert not third.is_reset


def test_control_frames_are_no_data() -> None:
    client = WebClient()
    assert client.packets(client_frame(BINARY, CONNECT)) == [Connack]
    assert server_frames(client.ask(client_frame(PING, b"x"))) == [(PONG, b"x")]
    assert client.packets(client_frame(BINARY, encode(V4, PINGREQ))) == [Pingresp]


def test_packets_and_frames_have_bounds_of_their_own() -> None:
    """A packet may be in several frames, and a frame may have several packets [MQTT-6.0.0-2]."""
    client = WebClient()
    for at in range(len(CONNECT) - 1):
        assert client.packets(client_frame(BINARY, CONNECT[at : at + 1])) == []
    rest = encode(V4, Subscribe(1, (Subscription("t", 0),))) + encode(V4, Publishes("t", (b"m" * 300,)))
    together = CONNECT[-1:] + rest
    first = client_frame(BINARY, together[:-200], final=False)
    assert client.packets(first) == [Connack, Suback]
    assert client.packets(client_frame(0, together[-200:])) == [Publishes]
