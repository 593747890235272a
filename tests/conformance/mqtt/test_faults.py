"""Faults of clients on the wire: what Fluffle's plug-in and RabbitMQ 3.10.8's do with bytes that the standard forbids.

RabbitMQ lets some of them through: docs/differences.md has the list. `tests/node/mqtt/test_faults.py` has many more.
"""

from collections.abc import Callable, Iterator

import pytest

from node.mqtt.constants import PacketType, Version
from node.mqtt.errors import MqttError
from node.mqtt.packets import Connack, Connect, Disconnect, Pingresp, Suback, Subscription
from node.mqtt.reason_codes import ReasonCode
from tests.conformance.mqtt.conftest import MqttServer
from tests.kit.mqtt_client import ConnectionEnded, MqttClient
from tests.kit.server_cluster import is_rabbitmq

V3, V4, V5 = Version

Open = Callable[..., MqttClient]

needs_5 = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ 3.10 has no MQTT 5.0")


@pytest.fixture
def raw(mqtt_server: MqttServer) -> Iterator[Open]:
    """Connections that have sent nothing yet: `raw()`, `raw(V5)`."""
    opened: list[MqttClient] = []

    def connect(version: Version = V4) -> MqttClient:
        opened.append(MqttClient("127.0.0.1", mqtt_server.mqtt_port, version))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def connected(raw: Open, name: Callable[[str], str]) -> Open:
    """Connections that are logged in."""

    def connect(version: Version = V4) -> MqttClient:
        client = raw(version)
        client.connect(Connect(version, name("c"), user_name="guest", password=b"guest"))
        return client

    return connect


def goes_on(client: MqttClient, data: bytes) -> bool:
    """Send bytes, and return whether a PINGREQ behind them is answered."""
    client.send_bytes(data)
    client.send_bytes(b"\xc0\0")
    try:
        while not isinstance(client.next_packet(), Pingresp):
            pass
    except ConnectionEnded:
        return False
    except MqttError:
        return True  # RabbitMQ answers a packet identifier of 0 with another one
    return True


CLOSED_BY_BOTH = {
    "QoS 3 [MQTT-3.3.1-4]": b"\x36\6\0\1a\0\1x",
    "SUBSCRIBE with flags 0 [MQTT-3.8.1-1]": b"\x80\6\0\1\0\1a\0",
    "SUBSCRIBE with QoS 3 [MQTT-3.8.3-4]": b"\x82\6\0\1\0\1a\3",
}


@pytest.mark.parametrize("data", CLOSED_BY_BOTH.values(), ids=CLOSED_BY_BOTH)
def test_faults_that_end_a_connection_to_both(connected: Open, data: bytes) -> None:
    assert not goes_on(connected(), data)


CLOSED_HERE = {
    "DUP with QoS 0 [MQTT-3.3.1-2]": b"\x38\4\0\1ax",
    "the packet identifier 0 [MQTT-2.3.1-1]": b"\x32\6\0\1a\0\0x",
    "a topic with a wildcard [MQTT-3.3.2-2]": b"\x30\5\0\3a/+",
    "an empty topic [MQTT-4.7.3-1]": b"\x30\3\0\0x",
    "a topic that is not UTF-8 [MQTT-1.5.3-1]": b"\x30\4\0\1\xffx",
}


@pytest.mark.parametrize("data", CLOSED_HERE.values(), ids=CLOSED_HERE)
def test_faults_that_rabbitmq_lets_through(connected: Open, data: bytes) -> None:
    assert goes_on(connected(), data) is is_rabbitmq()


@pytest.mark.parametrize("text", ["", "a#", "a/#/b", "+a"])
def test_invalid_filters(connected: Open, text: str) -> None:
    """A filter is refused by its code in the SUBACK; RabbitMQ grants it."""
    suback = connected().subscribe(Subscription(text), Subscription("a"))
    assert suback.codes == ((0, 0) if is_rabbitmq() else (0x80, 0))


def test_a_password_without_user_name(raw: Open) -> None:
    """No CONNACK answers a CONNECT that does not conform (3.1.1: [MQTT-3.1.2-22, MQTT-3.1.4-1])."""
    client = raw()
    client.send_bytes(b"\x10\x10\0\4MQTT\4\x42\0\0\0\1c\0\1p")
    if is_rabbitmq():
        assert client.expect(Connack).code == 4
    client.expect_end()


def test_an_empty_client_id_without_clean_session(raw: Open) -> None:
    """The return code is 2, and the connection ends (3.1.1: [MQTT-3.1.3-8])."""
    client = raw()
    client.connect(Connect(V4, "", clean_start=False, user_name="guest", password=b"guest"), code=2)
    client.expect_end()


@pytest.mark.parametrize("protocol", [b"\0\4mqtt\4", b"\0\4HTTP\4"])
def test_another_protocol_is_not_answered(raw: Open, protocol: bytes) -> None:
    """The connection just ends [MQTT-3.1.2-1]."""
    client = raw()
    client.send_bytes(b"\x10\x0d" + protocol + b"\2\0\0\0\1c")
    client.expect_end()


def test_another_level_is_refused(raw: Open) -> None:
    """The return code is 1 (3.1.1: [MQTT-3.1.2-2]); RabbitMQ says nothing."""
    client = raw()
    client.send_bytes(b"\x10\x0d\0\4MQTT\3\2\0\0\0\1c")
    if not is_rabbitmq():
        assert client.expect(Connack).code == 1
    client.expect_end()


def test_a_connect_that_goes_on_behind_its_last_field(raw: Open) -> None:
    client = raw()
    client.send_bytes(b"\x10\x0e\0\4MQTT\4\2\0\0\0\1c!")
    client.expect_end()


@pytest.mark.parametrize("version", [V3, V4])
def test_packets_may_be_cut_anywhere(raw: Open, name: Callable[[str], str], version: Version) -> None:
    """A server reads the same if each byte comes by itself."""
    client, text = raw(version), name("t").encode()
    head = b"\0\6MQIsdp\3" if version is V3 else b"\0\4MQTT\4"
    texts = b"".join(bytes((0, len(each))) + each for each in (text, b"guest", b"guest"))
    topic = bytes((0, len(text))) + text
    bodies = {0x10: head + b"\xc2\0\0" + texts, 0x82: b"\0\1" + topic + b"\0", 0x30: topic + b"hi"}
    stream = b"".join(bytes((first, len(body))) + body for first, body in bodies.items())
    for at in range(len(stream)):
        client.send_bytes(stream[at : at + 1])
    assert client.expect(Connack).code == 0
    assert client.expect(Suback).codes == (0,)
    client.expect_message(text.decode(), b"hi")


@needs_5
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x36\6\0\1a\0\1\0", ReasonCode.MALFORMED_PACKET),
        (b"\x32\6\0\1a\0\0\0", ReasonCode.PROTOCOL_ERROR),
        (b"\x30\5\0\1#\0x", ReasonCode.TOPIC_NAME_INVALID),
        (b"\x30\7\0\1a\3\x23\xff\xff", ReasonCode.TOPIC_ALIAS_INVALID),
    ],
)
def test_faults_of_5_have_their_reason(connected: Open, data: bytes, code: ReasonCode) -> None:
    """DISCONNECT tells the code before the end [MQTT-4.13.1-1]."""
    client = connected(V5)
    client.send_bytes(data)
    assert client.expect(Disconnect).code == code
    client.expect_end()


@needs_5
def test_level_6_is_refused_in_the_format_of_5(raw: Open) -> None:
    """The reason code is 0x84 [MQTT-3.1.2-2]."""
    client = raw(V5)
    client.send_bytes(b"\x10\x0d\0\4MQTT\6\2\0\0\0\1c")
    assert client.expect(Connack).code == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    client.expect_end()


@needs_5
def test_an_acknowledgement_of_nothing(connected: Open) -> None:
    """PUBREL of an unknown identifier is completed with 0x92, and PUBACK of one is ignored."""
    client = connected(V5)
    client.send_bytes(b"\x40\2\0\7" + b"\x62\2\0\7")
    client.expect_ack(PacketType.PUBCOMP, 7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
    client.ping()
