"""Faults of clients, on whole connections: in 5.0 each is told by its reason code, before it the connection just ends.

The bytes are written out, so that nothing between the client and the decoder corrects them.
Source: MQTT 3.1.1 and 5.0 §4.13; MQTT 3.1.1 §4.8.
"""

from collections.abc import Iterable

import pytest

from node.mqtt.constants import Version
from node.mqtt.packets import Connack, Disconnect, Packet
from node.mqtt.reason_codes import ReasonCode, ReturnCode
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V3, V4, V5, MqttClient, connected

MALFORMED = ReasonCode.MALFORMED_PACKET
PROTOCOL_ERROR = ReasonCode.PROTOCOL_ERROR

AFTER_CONNECT = {
    "packet type 0": (b"\0\0", MALFORMED),
    "a second CONNECT": (b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c", PROTOCOL_ERROR),
    "CONNACK": (b"\x20\2\0\0", PROTOCOL_ERROR),
    "SUBACK": (b"\x90\3\0\1\0", PROTOCOL_ERROR),
    "UNSUBACK": (b"\xb0\2\0\1", PROTOCOL_ERROR),
    "PINGRESP": (b"\xd0\0", PROTOCOL_ERROR),
    "a remaining length of five bytes": (b"\x30\xff\xff\xff\xff\x01", MALFORMED),
    "PUBLISH with QoS 3": (b"\x36\6\0\1a\0\1\0", MALFORMED),
    "PUBLISH with DUP and QoS 0": (b"\x38\5\0\1a\0x", MALFORMED),
    "PUBLISH with the packet identifier 0": (b"\x32\6\0\1a\0\0\0", PROTOCOL_ERROR),
    "PUBLISH without topic": (b"\x30\4\0\0\0x", PROTOCOL_ERROR),
    "PUBLISH to a wildcard": (b"\x30\5\0\1#\0x", ReasonCode.TOPIC_NAME_INVALID),
    "PUBLISH with ill-formed UTF-8": (b"\x30\5\0\1\xff\0x", MALFORMED),
    "PUBLISH with U+0000": (b"\x30\5\0\1\0\0x", MALFORMED),
    "PUBLISH that ends in its topic": (b"\x30\3\0\5a", MALFORMED),
    "PUBREL with flags 0": (b"\x60\2\0\1", MALFORMED),
    "PUBACK with flags": (b"\x42\2\0\1", MALFORMED),
    "PUBACK of 0": (b"\x40\2\0\0", PROTOCOL_ERROR),
    "SUBSCRIBE with flags 0": (b"\x80\7\0\1\0\0\1a\0", MALFORMED),
    "UNSUBSCRIBE with flags 0": (b"\xa0\6\0\1\0\0\1a", MALFORMED),
    "PINGREQ with a body": (b"\xc0\1\0", MALFORMED),
    "PINGREQ with flags": (b"\xc1\0", MALFORMED),
    "DISCONNECT with flags": (b"\xe1\0", MALFORMED),
}
"""Bytes behind an accepted CONNECT that are wrong in all versions but 3.1, and the reason code of 5.0."""

AFTER_CONNECT_3_1_1 = {
    "SUBSCRIBE without filter": b"\x82\2\0\1",
    "SUBSCRIBE with the packet identifier 0": b"\x82\6\0\0\0\1a\0",
    "SUBSCRIBE with QoS 3": b"\x82\6\0\1\0\1a\3",
    "SUBSCRIBE with reserved bits": b"\x82\6\0\1\0\1a\4",
    "SUBSCRIBE with ill-formed UTF-8": b"\x82\6\0\1\0\1\xff\0",
    "UNSUBSCRIBE without filter": b"\xa2\2\0\1",
    "PUBACK with a reason code": b"\x40\3\0\1\0",
    "DISCONNECT with a reason code": b"\xe0\1\0",
    "AUTH": b"\xf0\0",
}

AFTER_CONNECT_5 = {
    "SUBSCRIBE without filter": (b"\x82\3\0\1\0", PROTOCOL_ERROR),
    "SUBSCRIBE with QoS 3": (b"\x82\7\0\1\0\0\1a\3", MALFORMED),
    "SUBSCRIBE with reserved bits": (b"\x82\7\0\1\0\0\1a\x40", MALFORMED),
    "SUBSCRIBE with retain handling 3": (b"\x82\7\0\1\0\0\1a\x30", PROTOCOL_ERROR),
    "SUBSCRIBE, shared and no-local": (b"\x82\x10\0\1\0\0\x0a$share/g/a\4", PROTOCOL_ERROR),
    "SUBSCRIBE with the identifier 0": (b"\x82\x09\0\1\2\x0b\0\0\1a\0", PROTOCOL_ERROR),
    "UNSUBSCRIBE without filter": (b"\xa2\3\0\1\0", PROTOCOL_ERROR),
    "PUBLISH with an alias of 0": (b"\x30\x07\0\1a\3\x23\0\0", ReasonCode.TOPIC_ALIAS_INVALID),
    "PUBLISH with an alias above the maximum": (
        b"\x30\x07\0\1a\3\x23\xff\xff",
        ReasonCode.TOPIC_ALIAS_INVALID,
    ),
    "PUBLISH with an alias that was not set": (b"\x30\6\0\0\3\x23\0\1", PROTOCOL_ERROR),
    "PUBLISH with a subscription identifier": (b"\x30\6\0\1a\2\x0b\1", PROTOCOL_ERROR),
    "PUBLISH with a property of CONNECT": (b"\x30\7\0\1a\3\x21\0\1", MALFORMED),
    "PUBLISH with a property twice": (b"\x30\x08\0\1a\4\1\0\1\0", PROTOCOL_ERROR),
    "PUBLISH with a payload format of 2": (b"\x30\6\0\1a\2\1\2", PROTOCOL_ERROR),
    "PUBLISH whose response topic is a wildcard": (b"\x30\x08\0\1a\4\x08\0\1#", PROTOCOL_ERROR),
    "PUBLISH whose properties are longer": (b"\x30\4\0\1a\x09", MALFORMED),
    "PUBACK with the code of another packet": (b"\x40\3\0\1\x92", PROTOCOL_ERROR),
    "DISCONNECT with a code of servers": (b"\xe0\1\x8e", PROTOCOL_ERROR),
    "AUTH without a method": (b"\xf0\2\x18\0", PROTOCOL_ERROR),
    "AUTH with no code": (b"\xf0\0", PROTOCOL_ERROR),
    "a remaining length that is too long": (b"\xc0\x80\0", MALFORMED),
}


def last_words(client: MqttClient, data: bytes) -> list[Packet]:
    """Send bytes to a connection that ends by them.   Returns: what it is told meanwhile."""
    client.told()
    client.feed(data)
    found = client.told()
    assert client.is_reset, f"the connection goes on: {found}"
    return found


def reasons(packets: Iterable[Packet]) -> list[ReasonCode]:
    """Return the codes of packets that are all DISCONNECT."""
    found = []
    for packet in packets:
        assert isinstance(packet, Disconnect)
        assert packet.properties.reason_string, "the client is told why"
        found.append(ReasonCode(packet.code))
    return found


@pytest.mark.parametrize(("data", "code"), AFTER_CONNECT.values(), ids=AFTER_CONNECT)
def test_faults_end_a_connection_of_5_with_their_code(data: bytes, code: ReasonCode) -> None:
    """A DISCONNECT with the reason comes before the end [MQTT-4.13.1-1, MQTT-4.13.2-1]."""
    assert reasons(last_words(connected(World(), version=V5), data)) == [code]


@pytest.mark.parametrize(("data", "code"), AFTER_CONNECT_5.values(), ids=AFTER_CONNECT_5)
def test_faults_of_5(data: bytes, code: ReasonCode) -> None:
    """Properties, reason codes and options are of 5.0 alone [MQTT-4.13.1-1]."""
    assert reasons(last_words(connected(World(), version=V5), data)) == [code]


@pytest.mark.parametrize("data", [each for each, _ in AFTER_CONNECT.values()], ids=AFTER_CONNECT)
def test_faults_end_a_connection_of_3_1_1(data: bytes) -> None:
    """No packet of a server could say why (3.1.1: [MQTT-4.8.0-1])."""
    assert last_words(connected(World(), version=V4), data) == []


@pytest.mark.parametrize("data", AFTER_CONNECT_3_1_1.values(), ids=AFTER_CONNECT_3_1_1)
def test_faults_of_3_1_1(data: bytes) -> None:
    """Packets that 5.0 has added are wrong before it, too (3.1.1: [MQTT-4.8.0-1])."""
    assert last_words(connected(World(), version=V4), data) == []


@pytest.mark.parametrize("version", [V3, V4, V5])
def test_nothing_behind_a_fault_is_carried_out(version: Version) -> None:
    """A message in the same read, in front of the fault, may arrive or not; one behind it does not."""
    world = World()
    subscriber = connected(world, "s")
    subscriber.subscribe("a")
    middle = b"\0" if version == V5 else b""
    message = bytes((0x30, 4 + len(middle))) + b"\0\1a" + middle
    last_words(connected(world, "p", version), message + b"1" + b"\0\0" + message + b"2")
    assert subscriber.bodies() in ([], [b"1"])


CONNECTS = {
    "the reserved flag": (b"\x10\x0d\0\4MQTT\4\3\0\0\0\1c", b"\x10\x0e\0\4MQTT\5\3\0\0\0\0\1c", MALFORMED),
    "flags of the fixed header": (
        b"\x11\x0d\0\4MQTT\4\2\0\0\0\1c",
        b"\x11\x0e\0\4MQTT\5\2\0\0\0\0\1c",
        MALFORMED,
    ),
    "a will's QoS of 3": (
        b"\x10\x12\0\4MQTT\4\x1e\0\0\0\1c\0\1w\0\0",
        b"\x10\x14\0\4MQTT\5\x1e\0\0\0\0\1c\0\0\1w\0\0",
        MALFORMED,
    ),
    "a will's flags without a will": (
        b"\x10\x0d\0\4MQTT\4\x22\0\0\0\1c",
        b"\x10\x0e\0\4MQTT\5\x22\0\0\0\0\1c",
        MALFORMED,
    ),
    "a will whose topic is a wildcard": (
        b"\x10\x12\0\4MQTT\4\6\0\0\0\1c\0\1#\0\0",
        b"\x10\x14\0\4MQTT\5\6\0\0\0\0\1c\0\0\1#\0\0",
        ReasonCode.TOPIC_NAME_INVALID,
    ),
    "no user name behind its flag": (
        b"\x10\x0d\0\4MQTT\4\x82\0\0\0\1c",
        b"\x10\x0e\0\4MQTT\5\x82\0\0\0\0\1c",
        MALFORMED,
    ),
    "more than its fields": (
        b"\x10\x0e\0\4MQTT\4\2\0\0\0\1c!",
        b"\x10\x0f\0\4MQTT\5\2\0\0\0\0\1c!",
        MALFORMED,
    ),
    "a client id that is not UTF-8": (
        b"\x10\x0d\0\4MQTT\4\2\0\0\0\1\xff",
        b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1\xff",
        MALFORMED,
    ),
}
"""A CONNECT with a fault, in 3.1.1 and in 5.0, and the reason code."""


@pytest.mark.parametrize(("data", "code"), [each[1:] for each in CONNECTS.values()], ids=CONNECTS)
def test_faults_of_a_connect_of_5(data: bytes, code: ReasonCode) -> None:
    """A CONNACK says what is wrong, and the connection ends [MQTT-3.1.4-1, MQTT-3.2.2-7]."""
    (connack,) = last_words(MqttClient(World(), V5), data)
    assert isinstance(connack, Connack)
    assert connack.code == code
    assert connack.properties.reason_string


@pytest.mark.parametrize("data", [each[0] for each in CONNECTS.values()], ids=CONNECTS)
def test_faults_of_a_connect_of_3_1_1(data: bytes) -> None:
    """The connection ends without a CONNACK (3.1.1: [MQTT-3.1.4-1, MQTT-3.2.2-6])."""
    assert last_words(MqttClient(World(), V4), data) == []


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (b"\x10\x0d\0\4MQTT\6\2\0\0\0\1c", V5, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
        (b"\x10\x0d\0\4MQTT\3\2\0\0\0\1c", V4, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (b"\x10\x0f\0\6MQIsdp\4\2\0\0\0\1c", V4, ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION),
    ],
)
def test_another_level_is_refused_with_its_code(data: bytes, version: Version, code: int) -> None:
    """The answer is in the format that is next to what the client asked for [MQTT-3.1.2-2]."""
    (connack,) = last_words(MqttClient(World(), version), data)
    assert isinstance(connack, Connack)
    assert connack.code == code


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x10\x0d\0\4mqtt\4\2\0\0\0\1c", id="another name"),
        pytest.param(b"GET / HTTP/1.1\r\n", id="HTTP"),
        pytest.param(b"AMQP\0\0\x09\1", id="AMQP"),
        pytest.param(b"\x16\3\1\2\0\1\0", id="TLS"),
        pytest.param(b"\xc0\0", id="no CONNECT"),
    ],
)
def test_other_protocols_are_not_answered(data: bytes) -> None:
    """Nothing tells whether the peer would understand it [MQTT-3.1.0-1, MQTT-3.1.2-1]."""
    assert last_words(MqttClient(World(), V4), data) == []


def test_a_connect_that_is_too_long_is_refused_by_its_length() -> None:
    """Before the login a packet has a lower limit, and not a byte of its body is waited for."""
    assert last_words(MqttClient(World(), V4), b"\x10\xff\xff\xff\x7f") == []


def test_a_packet_above_the_maximum_is_refused_by_its_length() -> None:
    """The maximum that the server announced holds [MQTT-3.2.2-15]."""
    client = MqttClient(World(), V5, settings={"max_packet_size_authenticated": 1000})
    assert client.connect().properties.maximum_packet_bytes == 1000
    assert reasons(last_words(client, b"\x30\xff\x7f")) == [ReasonCode.PACKET_TOO_LARGE]
