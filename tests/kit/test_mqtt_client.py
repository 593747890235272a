"""The synchronous MQTT client, on a socket, against a server that sends what the test says."""

import socket
from collections.abc import Iterator

import pytest

from node.mqtt.constants import PacketType, Version
from node.mqtt.encoder import encode
from node.mqtt.packets import PINGRESP, Acks, Connack, Packet, Publishes, Suback, Subscription
from tests.kit.mqtt_client import ConnectionEnded, MqttClient

pytestmark = pytest.mark.real

V3 = Version.MQTT_3_1_1


class Peer:
    """A client, and the server's end of its connection."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = MqttClient(*listener.getsockname())
            self.socket, _ = listener.accept()

    def will_send(self, *packets: Packet) -> None:
        """Send what the client will read later."""
        self.socket.sendall(b"".join(encode(V3, each) for each in packets))

    def received(self, size: int) -> bytes:
        return self.socket.recv(size, socket.MSG_WAITALL)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.client.close()
    peer.socket.close()


def test_a_conversation(peer: Peer) -> None:
    message = Publishes("t", (b"x", b"y"), 1, packet_ids=(1, 2))
    peer.will_send(Connack(), Suback(1, (1,)), message, Acks(PacketType.PUBACK, (7,)), PINGRESP)
    peer.client.connect()
    assert peer.client.subscribe(Subscription("t", 1)).codes == (1,)
    peer.client.publish("t", b"z", 1, 7)
    assert peer.client.expect_message("t", b"x", 1).packet_ids == (1,)
    assert peer.client.expect_message("t", b"y", 1).packet_ids == (2,)
    peer.client.expect_ack(PacketType.PUBACK, 7)
    peer.client.ping()
    wanted = b"\x10\x0c\0\4MQTT\4\2\0\0\0\0" + b"\x82\6\0\1\0\1t\1" + b"\x32\6\0\1t\0\7z" + b"\xc0\0"
    assert peer.received(len(wanted)) == wanted


def test_another_packet_fails_a_test(peer: Peer) -> None:
    peer.will_send(Connack(False, 5), PINGRESP)
    with pytest.raises(AssertionError, match="code=5"):
        peer.client.connect()
    with pytest.raises(AssertionError, match="expected Suback, got Pingresp"):
        peer.client.expect(Suback)
    peer.will_send(PINGRESP)
    with pytest.raises(AssertionError, match="expected the end, got Pingresp"):
        peer.client.expect_end()


def test_the_end_of_a_connection(peer: Peer) -> None:
    peer.will_send(Connack())
    peer.client.connect()
    peer.socket.close()
    with pytest.raises(ConnectionEnded):
        peer.client.next_packet()
    peer.client.expect_end()


def test_nothing_comes(peer: Peer) -> None:
    peer.will_send(Connack())
    peer.client.connect()
    peer.client.expect_nothing(0.01)
    peer.will_send(PINGRESP)
    with pytest.raises(AssertionError, match="expected nothing, got Pingresp"):
        peer.client.expect_nothing(30.0)
