"""CONNECT, byte by byte: MQTT 3.1.1 and 5.0 §3.1, by numbered statement.

The decoder reads each of them, as it does for a server.
"""

import pytest

from node.mqtt.connect_reader import UnsupportedVersion
from node.mqtt.constants import Version
from node.mqtt.decoder import Decoder
from node.mqtt.errors import MqttError
from node.mqtt.packets import Connect, Will
from node.mqtt.properties import ConnectProperties, WillProperties
from node.mqtt.reason_codes import ReasonCode

V3_1, V3_1_1, V5 = Version

NAMES = {V3_1: b"\0\6MQIsdp\3", V3_1_1: b"\0\4MQTT\4", V5: b"\0\4MQTT\5"}


def packet(version: Version, flags: int, payload: bytes = b"\0\1c", keep_alive: bytes = b"\0\x3c") -> bytes:
    """Return a CONNECT.   payload: with the properties of the will in 5.0."""
    middle = b"\0" if version is V5 else b""
    return raw(NAMES[version] + bytes((flags,)) + keep_alive + middle + payload)


def raw(body: bytes, first: int = 0x10) -> bytes:
    assert len(body) < 128
    return bytes((first, len(body))) + body


def read(data: bytes) -> Connect:
    (found,) = Decoder(is_server=True).feed(data)
    assert isinstance(found, Connect)
    return found


def refusal(data: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        read(data)
    return caught.value.code


# --- the fields ---


def test_the_shortest_packet_of_each_version() -> None:
    assert read(packet(V3_1, 2)) == Connect(V3_1, "c", True, 60)
    assert read(packet(V3_1_1, 2)) == Connect(V3_1_1, "c", True, 60)
    assert read(packet(V5, 2)) == Connect(V5, "c", True, 60)


def test_clean_start_and_keep_alive() -> None:
    assert read(packet(V3_1_1, 0, keep_alive=b"\xff\xff")) == Connect(V3_1_1, "c", False, 65_535)


def test_all_fields_of_3_1_1() -> None:
    """The fields come as client id, will topic, will message, user name, password [MQTT-3.1.3-1]."""
    data = packet(V3_1_1, 0b1110_1110, b"\0\2id\0\1w\0\2hi\0\1u\0\1p")
    assert read(data) == Connect(V3_1_1, "id", True, 60, Will("w", b"hi", 1, True), "u", b"p")


def test_all_fields_of_5() -> None:
    properties = b"\x05\x11\0\0\0\x0a"
    will = b"\x05\x18\0\0\0\x07\0\1w\0\0"
    body = NAMES[V5] + b"\xd6\0\0" + properties + b"\0\2id" + will + b"\0\1u\0\1p"
    wanted = Will("w", b"", 2, False, WillProperties(will_delay_s=7))
    assert read(raw(body)) == Connect(
        V5, "id", True, 0, wanted, "u", b"p", ConnectProperties(session_expiry_s=10)
    )


def test_an_empty_client_id_can_be_read() -> None:
    """Whether it is allowed is the session's business [MQTT-3.1.3-6]."""
    assert read(packet(V3_1_1, 2, b"\0\0")).client_id == ""


@pytest.mark.parametrize("version", Version)
def test_the_client_id_is_there(version: Version) -> None:
    """The client id is the first field of the payload and must be present [MQTT-3.1.3-3]."""
    assert refusal(packet(version, 2, b"")) is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(2, b"\0\1\xff", id="client id [MQTT-3.1.3-4]"),
        pytest.param(6, b"\0\1c\0\1\xff\0\0", id="will topic [MQTT-3.1.3-9]"),
        pytest.param(0x82, b"\0\1c\0\1\xff", id="user name [MQTT-3.1.3-10]"),
        pytest.param(0x82, b"\0\1c\0\1\0", id="user name with U+0000"),
    ],
)
def test_texts_are_utf_8(flags: int, payload: bytes) -> None:
    """Client id, will topic and user name are UTF-8 (3.1.1: [MQTT-3.1.3-4, MQTT-3.1.3-10, MQTT-3.1.3-11])."""
    assert refusal(packet(V3_1_1, flags, payload)) is ReasonCode.MALFORMED_PACKET


def test_a_password_and_a_wills_message_are_binary() -> None:
    found = read(packet(V3_1_1, 0xC6, b"\0\1c\0\1w\0\1\xff\0\1u\0\2\0\xff"))
    assert found.password == b"\0\xff"
    assert found.will == Will("w", b"\xff")


@pytest.mark.parametrize("topic", [b"\0\0", b"\0\1#", b"\0\3a/+"])
def test_a_wills_topic_is_one_of_a_message(topic: bytes) -> None:
    assert refusal(packet(V3_1_1, 6, b"\0\1c" + topic + b"\0\0")) is ReasonCode.TOPIC_NAME_INVALID


# --- the flags ---


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_the_reserved_flag_is_0(version: Version) -> None:
    """The lowest flag is checked [MQTT-3.1.2-3]."""
    assert refusal(packet(version, 3)) is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("flags", [0x08, 0x10, 0x20])
def test_without_a_will_its_flags_are_0(version: Version, flags: int) -> None:
    """QoS and retain of a will are 0 without one [MQTT-3.1.2-11, MQTT-3.1.2-13, MQTT-3.1.2-15]."""
    assert refusal(packet(version, flags | 2)) is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("version", Version)
def test_the_qos_of_a_will_is_not_3(version: Version) -> None:
    """A will's QoS is 0, 1 or 2 [MQTT-3.1.2-14]."""
    assert refusal(packet(version, 0x1E, b"\0\1c\0\1w\0\0")) is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("qos", range(3))
@pytest.mark.parametrize("retain", [False, True])
def test_the_flags_of_a_will(qos: int, retain: bool) -> None:
    data = packet(V3_1_1, 6 | qos << 3 | retain << 5, b"\0\1c\0\1w\0\1m")
    assert read(data).will == Will("w", b"m", qos, retain)


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(6, b"\0\1c", id="will [MQTT-3.1.2-9]"),
        pytest.param(6, b"\0\1c\0\1w", id="will without message [MQTT-3.1.2-9]"),
        pytest.param(0x82, b"\0\1c", id="user name [MQTT-3.1.2-19]"),
        pytest.param(0xC2, b"\0\1c\0\1u", id="password [MQTT-3.1.2-21]"),
    ],
)
def test_what_a_flag_announces_is_there(flags: int, payload: bytes) -> None:
    """A field whose flag is set is present [MQTT-3.1.2-9, MQTT-3.1.2-19, MQTT-3.1.2-21]."""
    assert refusal(packet(V3_1_1, flags, payload)) is ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("version", Version)
def test_no_field_is_there_without_its_flag(version: Version) -> None:
    """Bytes behind the last field that the flags announce are malformed.

    [MQTT-3.1.2-11, MQTT-3.1.2-18, MQTT-3.1.2-20].
    """
    assert refusal(packet(version, 2, b"\0\1c\0\1u")) is ReasonCode.MALFORMED_PACKET


def test_a_password_needs_a_user_name_before_5() -> None:
    """In 3.1.1 the flag of the password may not stand alone (3.1.1: [MQTT-3.1.2-22]); in 5.0 it may."""
    assert refusal(packet(V3_1_1, 0x42, b"\0\1c\0\1p")) is ReasonCode.PROTOCOL_ERROR
    assert read(packet(V5, 0x42, b"\0\1c\0\1p")).password == b"p"


# --- MQTT 3.1 ---


def test_3_1_allows_flags_without_user_name_and_password() -> None:
    """The remaining length takes precedence over these flags in MQTT 3.1."""
    assert read(packet(V3_1, 0xC2)) == Connect(V3_1, "c", True, 60)
    assert read(packet(V3_1, 0xC2, b"\0\1c\0\1u")) == Connect(V3_1, "c", True, 60, None, "u")


def test_3_1_does_not_use_some_bits() -> None:
    assert read(packet(V3_1, 0x3B)) == Connect(V3_1, "c", True, 60)
    assert read(raw(NAMES[V3_1] + b"\x02\0\0\0\1c", 0x1F)) == Connect(V3_1, "c", True, 0)


# --- the protocol ---


@pytest.mark.parametrize(
    ("name", "answered_as"),
    [
        (b"\0\4MQTT\6", V5),
        (b"\0\4MQTT\xff", V5),
        (b"\0\4MQTT\3", V3_1_1),
        (b"\0\4MQTT\0", V3_1_1),
        (b"\0\6MQIsdp\4", V3_1_1),
        (b"\0\6MQIsdp\5", V3_1_1),
        (b"\0\4mqtt\4", None),
        (b"\0\4HTTP\4", None),
        (b"\0\0\4", None),
    ],
)
def test_unsupported_versions(name: bytes, answered_as: Version | None) -> None:
    """A CONNACK can tell the client in the format that it may know, unless the name is of another protocol.

    [MQTT-3.1.2-1, MQTT-3.1.2-2].
    """
    decoder = Decoder(is_server=True)
    with pytest.raises(UnsupportedVersion) as caught:
        list(decoder.feed(raw(name + b"\2\0\0\0\1c")))
    assert caught.value.code is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert decoder.version is answered_as


def test_a_bridge_says_so_in_its_level() -> None:
    assert read(raw(b"\0\4MQTT\x84\2\0\0\0\1c")) == Connect(V3_1_1, "c", True, is_bridge=True)
    assert read(raw(b"\0\6MQIsdp\x83\2\0\0\0\1c")) == Connect(V3_1, "c", True, is_bridge=True)
    with pytest.raises(UnsupportedVersion):
        read(raw(b"\0\4MQTT\x85\2\0\0\0\0\1c"))


@pytest.mark.parametrize("cut", range(12))
def test_a_cut_packet_is_malformed(cut: int) -> None:
    """A packet that ends within a field does not conform, and the connection is closed [MQTT-3.1.4-1]."""
    body = packet(V3_1_1, 2)[2:]
    assert refusal(raw(body[:cut])) is ReasonCode.MALFORMED_PACKET
