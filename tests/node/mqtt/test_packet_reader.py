"""Packets other than CONNECT and PUBLISH, byte by byte: MQTT 3.1.1 and 5.0, chapter 3, by numbered statement.

The decoder reads each of them behind a CONNECT or CONNACK, as it does on a connection.
"""

import pytest

from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.errors import MqttError
from node.mqtt.packet_reader import FILTERS_MAX
from node.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    Acks,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from node.mqtt.properties import (
    AckProperties,
    AuthProperties,
    ConnackProperties,
    DisconnectProperties,
    SubscribeProperties,
    UnsubscribeProperties,
)
from node.mqtt.reason_codes import ReasonCode

V3_1, V3_1_1, V5 = Version

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR

CONNECTS = {
    V3_1: b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c",
    V3_1_1: b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c",
    V5: b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c",
}
CONNACKS = {V3_1: b"\x20\2\0\0", V3_1_1: b"\x20\2\0\0", V5: b"\x20\3\0\0\0"}


def behind_connect(version: Version, data: bytes) -> Packet:
    """Return the packet that a server reads behind CONNECT."""
    _, found = Decoder(is_server=True).feed(CONNECTS[version] + data)
    return found


def behind_connack(version: Version, data: bytes) -> Packet:
    """Return the packet that a client reads behind CONNACK."""
    _, found = Decoder(is_server=False, version=version).feed(CONNACKS[version] + data)
    return found


def fault_of_client(version: Version, data: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        behind_connect(version, data)
    return caught.value.code


def fault_of_server(version: Version, data: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        behind_connack(version, data)
    return caught.value.code


# --- CONNACK ---


def connack(version: Version, data: bytes) -> Packet:
    (found,) = Decoder(is_server=False, version=version).feed(data)
    return found


def test_connack() -> None:
    assert connack(V3_1_1, b"\x20\2\1\0") == Connack(True)
    assert connack(V3_1, b"\x20\2\0\5") == Connack(False, 5)
    assert connack(V5, b"\x20\6\1\0\3\x21\0\7") == Connack(True, 0, ConnackProperties(receive_maximum=7))
    assert connack(V5, b"\x20\3\0\x87\0") == Connack(False, ReasonCode.NOT_AUTHORIZED)


def test_a_server_without_5_is_understood() -> None:
    """Such a server answers in the format of 3.1.1, without properties."""
    assert connack(V5, b"\x20\2\0\1") == Connack(False, 1)


@pytest.mark.parametrize(
    ("version", "data", "code"),
    [
        pytest.param(V3_1_1, b"\x20\2\2\0", MALFORMED, id="reserved flags [MQTT-3.2.2-1]"),
        pytest.param(V3_1_1, b"\x20\2\1\5", PROTOCOL_ERROR, id="refused, session present [MQTT-3.2.2-6]"),
        pytest.param(V5, b"\x20\3\1\x87\0", PROTOCOL_ERROR, id="the same in 5.0"),
        pytest.param(V5, b"\x20\3\0\1\0", PROTOCOL_ERROR, id="no such code [MQTT-3.2.2-8]"),
        pytest.param(V3_1_1, b"\x20\3\0\0\0", MALFORMED, id="too long"),
        pytest.param(V3_1_1, b"\x20\1\0", MALFORMED, id="too short"),
        pytest.param(V3_1_1, b"\x21\2\0\0", MALFORMED, id="flags of the fixed header"),
    ],
)
def test_malformed_connacks(version: Version, data: bytes, code: ReasonCode) -> None:
    with pytest.raises(MqttError) as caught:
        connack(version, data)
    assert caught.value.code is code


# --- acknowledgements ---

ACKS = [
    (PacketType.PUBACK, 0x40),
    (PacketType.PUBREC, 0x50),
    (PacketType.PUBREL, 0x62),
    (PacketType.PUBCOMP, 0x70),
]


@pytest.mark.parametrize(("kind", "first"), ACKS)
@pytest.mark.parametrize("version", Version)
def test_acknowledgements(kind: PacketType, first: int, version: Version) -> None:
    for read in (behind_connect, behind_connack):
        assert read(version, bytes((first, 2, 1, 2))) == Acks(kind, (258,))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "first"), ACKS)
def test_acknowledgements_with_reason_code_and_properties(kind: PacketType, first: int) -> None:
    code = 0x92 if kind in (PacketType.PUBREL, PacketType.PUBCOMP) else 0x97
    data = bytes((first, 3, 0, 1, code))
    assert behind_connect(V5, data) == Acks(kind, (1,), code)  # type: ignore[arg-type]
    assert behind_connect(V5, bytes((first, 4, 0, 1, code, 0))) == Acks(kind, (1,), code)  # type: ignore[arg-type]
    data = bytes((first, 8, 0, 1, code, 4)) + b"\x1f\0\1w"
    wanted = Acks(kind, (1,), code, AckProperties("w"))  # type: ignore[arg-type]
    assert behind_connect(V5, data) == wanted


@pytest.mark.parametrize(("kind", "first"), ACKS)
@pytest.mark.parametrize("version", Version)
def test_an_acknowledgement_has_a_packet_identifier(kind: PacketType, first: int, version: Version) -> None:
    """The identifier is there and not 0."""
    assert fault_of_client(version, bytes((first, 2, 0, 0))) is PROTOCOL_ERROR
    assert fault_of_client(version, bytes((first, 1, 1))) is MALFORMED
    assert fault_of_client(version, bytes((first, 0))) is MALFORMED


@pytest.mark.parametrize(("kind", "first"), ACKS)
def test_before_5_an_acknowledgement_has_nothing_else(kind: PacketType, first: int) -> None:
    assert fault_of_client(V3_1_1, bytes((first, 3, 0, 1, 0))) is MALFORMED


@pytest.mark.parametrize(("kind", "first"), ACKS)
def test_an_acknowledgement_has_one_of_its_reason_codes(kind: PacketType, first: int) -> None:
    """Each kind has its own codes [MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1]."""
    code = 0x97 if kind in (PacketType.PUBREL, PacketType.PUBCOMP) else 0x92
    assert fault_of_client(V5, bytes((first, 3, 0, 1, code))) is PROTOCOL_ERROR
    assert fault_of_server(V5, bytes((first, 3, 0, 1, 0x01))) is PROTOCOL_ERROR


@pytest.mark.parametrize("first", [0x41, 0x48, 0x52, 0x60, 0x63, 0x6A, 0x72])
@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_the_flags_of_acknowledgements_are_fixed(first: int, version: Version) -> None:
    """PUBREL has 0010 and the others 0000 [MQTT-2.1.3-1, MQTT-3.6.1-1] (3.1.1: [MQTT-2.2.2-1, MQTT-2.2.2-2])."""
    assert fault_of_client(version, bytes((first, 2, 0, 1))) is MALFORMED


def test_3_1_allows_dup_in_pubrel() -> None:
    assert behind_connect(V3_1, b"\x6a\2\0\1") == Acks(PacketType.PUBREL, (1,))


# --- SUBSCRIBE ---


def test_subscribe() -> None:
    data = b"\x82\x0c\0\x0a\0\3a/b\x01\0\1#\x02"
    wanted = Subscribe(10, (Subscription("a/b", 1), Subscription("#", 2)))
    assert behind_connect(V3_1_1, data) == wanted
    assert behind_connect(V3_1, data) == wanted


def test_subscribe_with_options_and_identifier() -> None:
    data = b"\x82\x09\0\x0a\2\x0b\7\0\1a\x2d"
    wanted = Subscription("a", 1, no_local=True, retain_as_published=True, retain_handling=2)
    assert behind_connect(V5, data) == Subscribe(10, (wanted,), SubscribeProperties(subscription_id=7))


@pytest.mark.parametrize("version", Version)
def test_a_subscribe_has_a_filter(version: Version) -> None:
    """At least one filter is there [MQTT-3.8.3-2] (3.1.1: [MQTT-3.8.3-3])."""
    data = b"\x82\3\0\1\0" if version is V5 else b"\x82\2\0\1"
    assert fault_of_client(version, data) is PROTOCOL_ERROR


@pytest.mark.parametrize("version", Version)
def test_a_subscribe_has_a_packet_identifier(version: Version) -> None:
    """The identifier is not 0 [MQTT-2.2.1-3] (3.1.1: [MQTT-2.3.1-1])."""
    data = b"\x82\7\0\0\0\0\1a\0" if version is V5 else b"\x82\6\0\0\0\1a\0"
    assert fault_of_client(version, data) is PROTOCOL_ERROR


@pytest.mark.parametrize("first", [0x80, 0x83, 0x8A])
@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_the_flags_of_subscribe_are_fixed(first: int, version: Version) -> None:
    """The flags are 0010 [MQTT-3.8.1-1]."""
    data = b"\7\0\1\0\0\1a\0" if version is V5 else b"\6\0\1\0\1a\0"
    assert fault_of_client(version, bytes((first,)) + data) is MALFORMED


def test_3_1_does_not_use_the_flags_of_subscribe() -> None:
    assert behind_connect(V3_1, b"\x8a\6\0\1\0\1a\0") == Subscribe(1, (Subscription("a"),))


@pytest.mark.parametrize("options", [0x03, 0x04, 0x80, 0xFC])
def test_reserved_bits_of_a_subscription_are_0_in_3_1_1(options: int) -> None:
    """QoS 3 and other bits are malformed (3.1.1: [MQTT-3.8.3-4])."""
    assert fault_of_client(V3_1_1, b"\x82\6\0\1\0\1a" + bytes((options,))) is MALFORMED


@pytest.mark.parametrize("options", [0x03, 0x40, 0x80])
def test_reserved_bits_of_a_subscription_are_0_in_5(options: int) -> None:
    """QoS 3 and the two highest bits are malformed [MQTT-3.8.3-5]."""
    assert fault_of_client(V5, b"\x82\7\0\1\0\0\1a" + bytes((options,))) is MALFORMED


def test_retain_handling_3_is_a_protocol_error() -> None:
    assert fault_of_client(V5, b"\x82\7\0\1\0\0\1a\x30") is PROTOCOL_ERROR


def test_a_shared_subscription_has_no_no_local() -> None:
    """The option is a protocol error there [MQTT-3.8.3-4]."""
    data = b"\x82\x10\0\1\0\0\x0a$share/g/a\4"
    assert fault_of_client(V5, data) is PROTOCOL_ERROR
    assert isinstance(behind_connect(V5, data[:-1] + b"\0"), Subscribe)


@pytest.mark.parametrize("version", Version)
def test_filters_are_utf_8(version: Version) -> None:
    """Filters of SUBSCRIBE and UNSUBSCRIBE are UTF-8 [MQTT-3.8.3-1, MQTT-3.10.3-1]."""
    middle = b"\0" if version is V5 else b""
    head = b"\0\1" + middle + b"\0\1\xff"
    assert fault_of_client(version, b"\x82" + bytes((len(head) + 1,)) + head + b"\0") is MALFORMED
    assert fault_of_client(version, b"\xa2" + bytes((len(head),)) + head) is MALFORMED


def test_bad_filters_are_left_to_the_session() -> None:
    """A SUBACK refuses each of them by itself."""
    found = behind_connect(V3_1_1, b"\x82\7\0\1\0\2a#\0")
    assert found == Subscribe(1, (Subscription("a#"),))


def long_packet(first: int, body: bytes) -> bytes:
    """Return a packet whose remaining length has three bytes."""
    size = len(body)
    return bytes((first, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + body


def test_the_number_of_filters_has_a_limit() -> None:
    """Small filters in great number would cost much memory for few bytes."""
    found = behind_connect(V3_1_1, long_packet(0x82, b"\0\1" + b"\0\1a\0" * FILTERS_MAX))
    assert isinstance(found, Subscribe)
    assert len(found.subscriptions) == FILTERS_MAX
    too_many = long_packet(0x82, b"\0\1" + b"\0\1a\0" * (FILTERS_MAX + 1))
    assert fault_of_client(V3_1_1, too_many) is ReasonCode.QUOTA_EXCEEDED
    too_many = long_packet(0xA2, b"\0\1" + b"\0\1a" * (FILTERS_MAX + 1))
    assert fault_of_client(V3_1_1, too_many) is ReasonCode.QUOTA_EXCEEDED


# --- SUBACK ---


def test_suback() -> None:
    assert behind_connack(V3_1_1, b"\x90\5\0\1\0\2\x80") == Suback(1, (0, 2, 0x80))
    assert behind_connack(V5, b"\x90\x09\0\1\4\x1f\0\1w\1\x8f") == Suback(1, (1, 0x8F), AckProperties("w"))


@pytest.mark.parametrize("code", [3, 0x81, 0xFF])
def test_suback_has_one_of_its_codes(code: int) -> None:
    """Others are reserved [MQTT-3.9.3-2]."""
    assert fault_of_server(V3_1_1, b"\x90\3\0\1" + bytes((code,))) is PROTOCOL_ERROR
    assert fault_of_server(V5, b"\x90\4\0\1\0" + bytes((code,))) is PROTOCOL_ERROR


def test_suback_has_a_code() -> None:
    assert fault_of_server(V3_1_1, b"\x90\2\0\1") is PROTOCOL_ERROR


# --- UNSUBSCRIBE and UNSUBACK ---


def test_unsubscribe() -> None:
    assert behind_connect(V3_1_1, b"\xa2\x08\0\1\0\1a\0\1#") == Unsubscribe(1, ("a", "#"))
    wanted = Unsubscribe(1, ("a",), UnsubscribeProperties((("k", "v"),)))
    assert behind_connect(V5, b"\xa2\x0d\0\1\7\x26\0\1k\0\1v\0\1a") == wanted


@pytest.mark.parametrize("version", Version)
def test_an_unsubscribe_has_a_filter(version: Version) -> None:
    """At least one filter is there [MQTT-3.10.3-2]."""
    data = b"\xa2\3\0\1\0" if version is V5 else b"\xa2\2\0\1"
    assert fault_of_client(version, data) is PROTOCOL_ERROR


@pytest.mark.parametrize("first", [0xA0, 0xA3])
def test_the_flags_of_unsubscribe_are_fixed(first: int) -> None:
    """The flags are 0010 [MQTT-3.10.1-1]."""
    assert fault_of_client(V3_1_1, bytes((first,)) + b"\5\0\1\0\1a") is MALFORMED
    assert fault_of_client(V5, bytes((first,)) + b"\6\0\1\0\0\1a") is MALFORMED


def test_unsuback() -> None:
    assert behind_connack(V3_1_1, b"\xb0\2\0\1") == Unsuback(1)
    assert behind_connack(V5, b"\xb0\5\0\1\0\0\x11") == Unsuback(1, (0, 0x11))


def test_unsuback_has_one_of_its_codes() -> None:
    """Codes of SUBACK are not of UNSUBACK [MQTT-3.11.3-2]."""
    assert fault_of_server(V5, b"\xb0\4\0\1\0\1") is PROTOCOL_ERROR
    assert fault_of_server(V5, b"\xb0\3\0\1\0") is PROTOCOL_ERROR
    assert fault_of_server(V3_1_1, b"\xb0\3\0\1\0") is MALFORMED


# --- PINGREQ, PINGRESP, DISCONNECT, AUTH ---


@pytest.mark.parametrize("version", Version)
def test_pings(version: Version) -> None:
    assert behind_connect(version, b"\xc0\0") == PINGREQ
    assert behind_connack(version, b"\xd0\0") == PINGRESP
    assert fault_of_client(version, b"\xc0\1a") is MALFORMED
    assert fault_of_server(version, b"\xd0\1a") is MALFORMED


@pytest.mark.parametrize("version", Version)
def test_disconnect_of_a_client(version: Version) -> None:
    assert behind_connect(version, b"\xe0\0") == Disconnect()


def test_disconnect_with_a_reason() -> None:
    assert behind_connect(V5, b"\xe0\1\4") == Disconnect(ReasonCode.DISCONNECT_WITH_WILL)
    assert behind_connect(V5, b"\xe0\2\0\0") == Disconnect()
    wanted = Disconnect(0, DisconnectProperties(session_expiry_s=1))
    assert behind_connect(V5, b"\xe0\7\0\5\x11\0\0\0\1") == wanted
    assert behind_connack(V5, b"\xe0\1\x8e") == Disconnect(ReasonCode.SESSION_TAKEN_OVER)


def test_disconnect_has_one_of_its_codes() -> None:
    """Some are for clients only, and some for servers [MQTT-3.14.2-1]."""
    assert fault_of_client(V5, b"\xe0\1\x8e") is PROTOCOL_ERROR
    assert fault_of_server(V5, b"\xe0\1\4") is PROTOCOL_ERROR


def test_a_servers_disconnect_has_no_session_expiry() -> None:
    """Only a client may send the property [MQTT-3.14.2-2]."""
    assert fault_of_server(V5, b"\xe0\7\0\5\x11\0\0\0\1") is PROTOCOL_ERROR


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_the_flags_of_disconnect_are_0(version: Version) -> None:
    """Reserved bits are checked [MQTT-3.14.1-1]."""
    assert fault_of_client(version, b"\xe1\0") is MALFORMED


def test_before_5_a_server_sends_no_disconnect() -> None:
    assert fault_of_server(V3_1_1, b"\xe0\0") is PROTOCOL_ERROR
    assert fault_of_client(V3_1_1, b"\xe0\1\0") is MALFORMED


def test_auth() -> None:
    wanted = Auth(0x18, AuthProperties("m", b"d"))
    assert behind_connect(V5, b"\xf0\x0a\x18\x08\x15\0\1m\x16\0\1d") == wanted
    assert behind_connack(V5, b"\xf0\x0a\x18\x08\x15\0\1m\x16\0\1d") == wanted
    assert behind_connack(V5, b"\xf0\0") == Auth()


def test_auth_has_one_of_its_codes() -> None:
    """A client continues or begins again; a server continues or has succeeded [MQTT-3.15.2-1]."""
    assert behind_connect(V5, b"\xf0\1\x19") == Auth(ReasonCode.RE_AUTHENTICATE)
    assert fault_of_client(V5, b"\xf0\0") is PROTOCOL_ERROR
    assert fault_of_server(V5, b"\xf0\1\x19") is PROTOCOL_ERROR


def test_the_flags_of_auth_are_0() -> None:
    """Reserved bits are checked [MQTT-3.15.1-1]."""
    assert fault_of_client(V5, b"\xf2\1\x18") is MALFORMED


def test_before_5_there_is_no_auth() -> None:
    assert fault_of_client(V3_1_1, b"\xf0\0") is PROTOCOL_ERROR
    assert fault_of_server(V3_1_1, b"\xf0\0") is PROTOCOL_ERROR


# --- directions ---


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("data", [b"\x20\2\0\0", b"\x90\3\0\1\0", b"\xb0\2\0\1", b"\xd0\0"])
def test_a_client_does_not_send_a_servers_packets(version: Version, data: bytes) -> None:
    assert fault_of_client(version, data) is PROTOCOL_ERROR


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "data", [b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c", b"\x82\6\0\1\0\1a\0", b"\xa2\5\0\1\0\1a", b"\xc0\0"]
)
def test_a_server_does_not_send_a_clients_packets(version: Version, data: bytes) -> None:
    assert fault_of_server(version, data) is PROTOCOL_ERROR


@pytest.mark.parametrize("version", Version)
def test_packet_type_0_is_malformed(version: Version) -> None:
    assert fault_of_client(version, b"\0\0") is MALFORMED
