"""The decoder: the order of packets, PUBLISH, runs, limits, and streams that are cut anywhere."""

from itertools import pairwise
from sys import getrefcount

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import CACHED_TOPIC_MAX_BYTES, Decoder
from node.mqtt.encoder import encode
from node.mqtt.errors import MqttError
from node.mqtt.packets import PINGREQ, Acks, Connack, Disconnect, Packet, Publishes
from node.mqtt.properties import PublishProperties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.runs import RUN_MAX
from tests.kit.mqtt_packets import connects, disconnects, in_runs, of_client, of_server, read, single

V3_1, V3_1_1, V5 = Version

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR

CONNECTS = {
    V3_1: b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c",
    V3_1_1: b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c",
    V5: b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c",
}
PING = b"\xc0\0"


def server(version: Version = V3_1_1) -> Decoder:
    """Return a server's decoder behind a CONNECT."""
    decoder = Decoder(is_server=True)
    assert len(list(decoder.feed(CONNECTS[version]))) == 1
    return decoder


def packets(data: bytes, version: Version = V3_1_1) -> list[Packet]:
    return list(server(version).feed(data))


def fault(data: bytes, version: Version = V3_1_1) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        packets(data, version)
    return caught.value.code


# --- the order of packets ---


@pytest.mark.parametrize("data", [PING, b"\x30\5\0\1ahi", b"\xe0\0", b"GET / HTTP/1.1\r\n", b"\0\0"])
def test_the_first_packet_is_connect(data: bytes) -> None:
    """All else is a protocol error, as soon as its first byte is there [MQTT-3.1.0-1]."""
    for cut in (data, data[:1]):
        with pytest.raises(MqttError) as caught:
            list(Decoder(is_server=True).feed(cut))
        assert caught.value.code is PROTOCOL_ERROR


def test_a_tls_handshake_is_malformed() -> None:
    """The first byte of a TLS handshake is that of a CONNECT with flags, which MQTT 3.1 does not use."""
    with pytest.raises(MqttError) as caught:
        list(Decoder(is_server=True).feed(b"\x16\3\1\2\0\1\0"))
    assert caught.value.code is MALFORMED


@pytest.mark.parametrize("version", Version)
def test_a_second_connect_is_a_protocol_error(version: Version) -> None:
    """A client connects once [MQTT-3.1.0-2]."""
    assert fault(CONNECTS[version], version) is PROTOCOL_ERROR


def test_the_first_packet_of_a_server_is_connack() -> None:
    """Only AUTH may stand before it in 5.0 [MQTT-3.2.0-1]; a second one is a protocol error [MQTT-3.2.0-2]."""
    with pytest.raises(MqttError):
        list(Decoder(is_server=False, version=V3_1_1).feed(b"\xd0\0"))
    decoder = Decoder(is_server=False, version=V5)
    assert len(list(decoder.feed(b"\xf0\1\x18" + b"\x20\3\0\0\0" + b"\xd0\0"))) == 3
    with pytest.raises(MqttError) as caught:
        list(decoder.feed(b"\x20\3\0\0\0"))
    assert caught.value.code is PROTOCOL_ERROR


def test_nothing_is_read_behind_a_disconnect() -> None:
    """The client must not send anything behind it [MQTT-3.14.4-1]; it costs no memory, either."""
    decoder = server()
    assert list(decoder.feed(b"\xe0\0" + PING + b"\xff")) == [Disconnect()]
    assert list(decoder.feed(PING)) == []
    assert decoder.buffered_bytes == 0


def test_nothing_is_read_behind_a_fault() -> None:
    decoder = server()
    with pytest.raises(MqttError):
        list(decoder.feed(b"\0\0" + PING))
    assert list(decoder.feed(PING)) == []
    assert decoder.buffered_bytes == 0


def test_packets_before_a_fault_are_handed_on() -> None:
    found, code = read(server(), PING + b"\x30\5\0\1ahi" + b"\x30\5\0\1ayo" + b"\x30\2\0\1" + PING)
    assert found == single([PINGREQ, Publishes("a", [b"hi", b"yo"])])
    assert code is MALFORMED


def test_the_version_is_that_of_the_connect() -> None:
    for version in Version:
        decoder = Decoder(is_server=True)
        assert decoder.version is None
        list(decoder.feed(CONNECTS[version]))
        assert decoder.version is version


def test_the_version_is_known_even_if_the_rest_is_malformed() -> None:
    decoder = Decoder(is_server=True)
    with pytest.raises(MqttError):
        list(decoder.feed(b"\x10\7\0\4MQTT\5"))
    assert decoder.version is V5


# --- PUBLISH ---


def test_publish() -> None:
    assert packets(b"\x30\x07\0\3a/bhi") == [Publishes("a/b", [b"hi"], packet_ids=[])]
    assert packets(b"\x3d\x07\0\1a\1\2hi") == [Publishes("a", [b"hi"], 2, True, True, [258])]
    assert packets(b"\x30\3\0\1a") == [Publishes("a", [b""], packet_ids=[])]


def test_publish_with_properties() -> None:
    data = b"\x32\x0d\0\1a\0\7\5\2\0\0\0\x0ahi"
    wanted = Publishes("a", [b"hi"], 1, packet_ids=[7], properties=PublishProperties(message_expiry_s=10))
    assert packets(data, V5) == [wanted]


def test_a_publish_with_qos_0_has_no_packet_identifier() -> None:
    """The payload begins behind the topic [MQTT-2.2.1-2] (3.1.1: [MQTT-2.3.1-5])."""
    assert packets(b"\x30\5\0\1a\0\1") == [Publishes("a", [b"\0\1"], packet_ids=[])]


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
def test_the_qos_of_a_publish_is_not_3(version: Version, first: int) -> None:
    """Both bits of the QoS are never set [MQTT-3.3.1-4]."""
    assert fault(bytes((first,)) + b"\6\0\1a\0\1\0", version) is MALFORMED


@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_dup_is_not_set_with_qos_0(version: Version) -> None:
    """DUP is of QoS 1 and 2 [MQTT-3.3.1-2]."""
    assert fault(b"\x38\5\0\1a\0x", version) is MALFORMED


def test_3_1_lets_dup_stand_with_qos_0() -> None:
    assert packets(b"\x38\3\0\1a", V3_1) == [Publishes("a", [b""], 0, False, True, [])]


@pytest.mark.parametrize("version", Version)
def test_a_packet_identifier_is_not_0(version: Version) -> None:
    """Identifiers are from 1 to 65,535 [MQTT-2.2.1-3] (3.1.1: [MQTT-2.3.1-1])."""
    assert fault(b"\x32\6\0\1a\0\0\0", version) is PROTOCOL_ERROR


@pytest.mark.parametrize("topic", [b"#", b"+", b"a/#", b"a/+/b"])
def test_a_topic_has_no_wildcard(topic: bytes) -> None:
    """The topic of a message is no filter [MQTT-3.3.2-2]."""
    data = bytes((0x30, 2 + len(topic), 0, len(topic))) + topic
    assert fault(data) is ReasonCode.TOPIC_NAME_INVALID


def test_a_topic_is_utf_8() -> None:
    """Ill-formed UTF-8 and U+0000 are malformed [MQTT-3.3.2-1], in short topics and in long ones."""
    for topic in (b"\xff", b"a\0", b"\xff" + b"a" * CACHED_TOPIC_MAX_BYTES):
        body = len(topic).to_bytes(2, "big") + topic
        head = (
            bytes((0x30, len(body)))
            if len(body) < 128
            else bytes((0x30, len(body) & 0x7F | 0x80, len(body) >> 7))
        )
        assert fault(head + body) is MALFORMED


def test_a_long_topic() -> None:
    topic = "é" * CACHED_TOPIC_MAX_BYTES
    publishes = Publishes(topic, [b"x"], packet_ids=[])
    assert packets(encode(V3_1_1, publishes)) == [publishes]


def test_a_topic_is_there() -> None:
    """Without a topic there is an alias, in 5.0 [MQTT-4.7.3-1]."""
    assert fault(b"\x30\2\0\0") is PROTOCOL_ERROR
    assert fault(b"\x30\3\0\0\0", V5) is PROTOCOL_ERROR
    wanted = Publishes("", [b"hi"], packet_ids=[], properties=PublishProperties(topic_alias=1))
    assert packets(b"\x30\x08\0\0\3\x23\0\1hi", V5) == [wanted]


def test_a_client_sends_no_subscription_identifier() -> None:
    """Only a server does [MQTT-3.3.4-6]."""
    data = b"\x30\6\0\1a\2\x0b\1"
    assert fault(data, V5) is PROTOCOL_ERROR
    _, found = Decoder(is_server=False, version=V5).feed(b"\x20\3\0\0\0" + data)
    assert found == Publishes("a", [b""], packet_ids=[], properties=PublishProperties(subscription_ids=(1,)))


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_cut_publish_is_malformed(cut: int) -> None:
    assert fault(bytes((0x32, cut)) + b"\0\1a\0\1"[:cut]) is MALFORMED


# --- the fixed header ---


@pytest.mark.parametrize("size", [0, 1, 121, 122, 16_377, 16_378, 2_097_145, 2_097_146])
@pytest.mark.parametrize("version", Version)
def test_lengths_around_the_bounds_of_the_fixed_header(version: Version, size: int) -> None:
    wanted = Publishes("top", [bytes(size), b"next"], packet_ids=[])
    assert packets(encode(version, wanted), version) == [wanted]


def test_a_remaining_length_has_four_bytes_at_most() -> None:
    for version in Version:
        assert fault(b"\xc0\xff\xff\xff\xff", version) is MALFORMED
    with pytest.raises(MqttError):
        list(Decoder(is_server=True).feed(b"\x10\x80\x80\x80\x80"))


def test_5_wants_the_remaining_length_as_short_as_it_can_be() -> None:
    """3.1.1 asks for no such thing [MQTT-1.5.5-1]."""
    assert packets(b"\xc0\x80\0") == [PINGREQ]
    assert fault(b"\xc0\x80\0", V5) is MALFORMED
    connect = CONNECTS[V5]
    with pytest.raises(MqttError):
        list(Decoder(is_server=True).feed(b"\x10" + bytes((connect[1] | 0x80, 0)) + connect[2:]))
    connect = CONNECTS[V3_1_1]
    assert list(Decoder(is_server=True).feed(b"\x10" + bytes((connect[1] | 0x80, 0)) + connect[2:]))


def test_a_length_that_is_too_long_ends_a_run_before_it_is_a_fault() -> None:
    found, code = read(server(V5), b"\x30\5\0\1a\0x" * 2 + b"\x30\x85\0\0\1a\0x")
    assert found == single([Publishes("a", [b"x", b"x"])])
    assert code is MALFORMED
    found, code = read(server(), b"\x30\4\0\1ax" * 2 + b"\x30\x84\0\0\1ax")
    assert found == single([Publishes("a", [b"x"] * 3)])
    assert code is None


def test_a_packet_has_a_maximum_size() -> None:
    """A longer one is refused by its fixed header, before its bytes are there; the maximum may change."""
    decoder = server()
    decoder.packet_max_bytes = 10
    assert list(decoder.feed(b"\x30\x08\0\1aabcde")) == [Publishes("a", [b"abcde"], packet_ids=[])]
    with pytest.raises(MqttError) as caught:
        list(decoder.feed(b"\x30\x09"))
    assert caught.value.code is ReasonCode.PACKET_TOO_LARGE


def test_the_maximum_holds_within_a_run() -> None:
    decoder = server()
    decoder.packet_max_bytes = 10
    small, large = b"\x30\x08\0\1aabcde", b"\x30\x09\0\1aabcdef"
    found, code = read(decoder, small * 6 + large)
    assert found == single([Publishes("a", [b"abcde"] * 6)])
    assert code is ReasonCode.PACKET_TOO_LARGE


def test_the_maximum_holds_within_a_run_with_packet_identifiers() -> None:
    decoder = server()
    decoder.packet_max_bytes = 10
    small, large = b"\x32\x08\0\1a\0\1abc", b"\x32\x09\0\1a\0\1abcd"
    found, code = read(decoder, small * 6 + large)
    assert found == single([Publishes("a", [b"abc"] * 6, 1, packet_ids=[1] * 6)])
    assert code is ReasonCode.PACKET_TOO_LARGE


def test_the_first_packet_may_have_its_own_maximum() -> None:
    decoder = Decoder(is_server=True, packet_max_bytes=14)
    with pytest.raises(MqttError) as caught:
        list(decoder.feed(CONNECTS[V5][:2]))
    assert caught.value.code is ReasonCode.PACKET_TOO_LARGE


# --- runs ---


def publish(payload: bytes, packet_id: int = 0, topic: bytes = b"t", first: int = 0x30) -> bytes:
    middle = packet_id.to_bytes(2, "big") if packet_id else b""
    body = len(topic).to_bytes(2, "big") + topic + middle + payload
    return bytes((first, len(body))) + body


def test_publishes_that_differ_in_payload_only_are_one_run() -> None:
    payloads = [b"a", b"bb", b"cc", b"dd", b"ee", b"ff", b"gg", b"", b"h"]
    assert packets(b"".join(map(publish, payloads))) == [Publishes("t", payloads, packet_ids=[])]


def test_publishes_with_packet_identifiers_are_one_run() -> None:
    payloads = [b"aa", b"bb", b"cc", b"dd", b"ee", b"f", b""]
    ids = [5, 6, 7, 1, 65_535, 5, 8]
    data = b"".join(publish(payload, each, first=0x34) for payload, each in zip(payloads, ids, strict=True))
    assert packets(data) == [Publishes("t", payloads, 2, packet_ids=ids)]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(publish(b"x", topic=b"u"), id="topic"),
        pytest.param(publish(b"x", topic=b"t/"), id="longer topic"),
        pytest.param(publish(b"x", first=0x31), id="retain"),
        pytest.param(publish(b"x", 1, first=0x32), id="QoS"),
        pytest.param(PING, id="type"),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 4, 5, 20])
def test_other_packets_end_a_run(other: bytes, count: int) -> None:
    """The packets before and behind are the same, in short runs and in long ones."""
    one = publish(b"y")
    before, _, behind = packets(one * count + other + one)
    assert before == Publishes("t", [b"y"] * count, packet_ids=[])
    assert behind == Publishes("t", [b"y"], packet_ids=[])


def test_properties_that_differ_end_a_run() -> None:
    plain, other = b"\x30\5\0\1t\0x", b"\x30\7\0\1t\2\1\1x"
    found = packets(plain * 5 + other * 5 + plain, V5)
    assert found == [
        Publishes("t", [b"x"] * 5, packet_ids=[]),
        Publishes("t", [b"x"] * 5, packet_ids=[], properties=PublishProperties(payload_format_indicator=1)),
        Publishes("t", [b"x"], packet_ids=[]),
    ]


def test_properties_that_differ_end_a_run_with_packet_identifiers() -> None:
    """Properties stand behind the identifier, in packets of one length."""
    one, other = b"\x32\x09\0\1t\0\7\2\1\1x", b"\x32\x09\0\1t\0\7\2\1\0x"
    found = packets(one * 3 + other + one * 6 + other, V5)
    assert [len(each.payloads) for each in found if isinstance(each, Publishes)] == [3, 1, 6, 1]


@pytest.mark.parametrize("count", [1, 10])
def test_a_packet_identifier_of_0_within_a_run_is_a_fault(count: int) -> None:
    good, bad = publish(b"x", 1, first=0x32), b"\x32\6\0\1t\0\0x"
    found, code = read(server(), good * count + bad + good)
    assert found == single([Publishes("t", [b"x"] * count, 1, packet_ids=[1] * count)])
    assert code is PROTOCOL_ERROR


def test_a_payload_may_look_like_a_packet() -> None:
    inner = publish(b"x")
    payloads = [inner * 3, inner * 3, inner, inner * 2 + b"y"]
    data = b"".join(map(publish, payloads))
    assert packets(data * 3) == [Publishes("t", payloads * 3, packet_ids=[])]


def test_a_packet_that_is_shorter_than_its_fields_ends_a_run() -> None:
    """The bytes behind it would match if they were its own."""
    data = publish(b"x", topic=b"abc") * 5 + b"\x30\4\0\3ab" + b"c" + publish(b"x")
    found, code = read(server(), data)
    assert found == single([Publishes("abc", [b"x"] * 5)])
    assert code is MALFORMED
    data = publish(b"x", 1, b"abc", 0x32) * 5 + b"\x32\6\0\3abc\0" + b"\1" + publish(b"x", 1, b"abc", 0x32)
    found, code = read(server(), data)
    assert found == single([Publishes("abc", [b"x"] * 5, 1, packet_ids=[1] * 5)])
    assert code is MALFORMED


@pytest.mark.parametrize(
    ("kind", "first"), [("PUBACK", 0x40), ("PUBREC", 0x50), ("PUBREL", 0x62), ("PUBCOMP", 0x70)]
)
def test_acknowledgements_are_one_run(kind: str, first: int) -> None:
    data = b"".join(bytes((first, 2)) + each.to_bytes(2, "big") for each in range(1, 300))
    (found,) = packets(data)
    assert found == Acks(PacketType[kind], list(range(1, 300)))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_run_has_a_limit(size: int, qos: int) -> None:
    """Tiny messages in great number come in several runs, of equal sizes and of any sizes."""
    count = 2 * RUN_MAX + 7
    payloads = [bytes(size * (number % 3)) for number in range(count)]
    ids = list(range(1, count + 1)) if qos else []
    found = packets(encode(V3_1_1, Publishes("t", payloads, qos, packet_ids=ids)))
    assert single(found) == single([Publishes("t", payloads, qos, packet_ids=ids)])
    assert [len(each.payloads) for each in found if isinstance(each, Publishes)] == [RUN_MAX, RUN_MAX, 7]


def test_a_run_of_acknowledgements_has_a_limit() -> None:
    found = packets(encode(V3_1_1, Acks(PacketType.PUBACK, range(1, RUN_MAX + 8))))
    assert [len(each.packet_ids) for each in found if isinstance(each, Acks)] == [RUN_MAX, 7]


def test_acknowledgements_that_differ_end_a_run() -> None:
    good, failed = b"\x40\2\0\1", b"\x40\3\0\2\x97"
    found = packets(good * 2 + failed * 3 + good + b"\x50\2\0\1", V5)
    assert found == [
        Acks(PacketType.PUBACK, [1, 1]),
        Acks(PacketType.PUBACK, [2, 2, 2], 0x97),
        Acks(PacketType.PUBACK, (1,)),
        Acks(PacketType.PUBREC, (1,)),
    ]


def test_an_acknowledgement_of_0_within_a_run_is_a_fault() -> None:
    found, code = read(server(), b"\x40\2\0\1" * 3 + b"\x40\2\0\0")
    assert len(found) == 3
    assert code is PROTOCOL_ERROR


# --- pauses and pieces ---


def test_reading_goes_on_where_an_iterator_was_left() -> None:
    decoder = server()
    for packet in decoder.feed(PING + publish(b"a") + PING):
        assert packet == PINGREQ
        break
    decoder.feed(publish(b"b"))
    assert decoder.buffered_bytes == len(publish(b"a") + PING + publish(b"b"))
    assert single(decoder.packets()) == single([Publishes("t", [b"a"]), PINGREQ, Publishes("t", [b"b"])])
    assert decoder.buffered_bytes == 0


def test_bytes_are_kept_if_nobody_iterates() -> None:
    decoder = server()
    decoder.feed(publish(b"a"))
    decoder.feed(publish(b"b")[:3])
    assert list(decoder.feed(publish(b"b")[3:])) == [Publishes("t", [b"a", b"b"], packet_ids=[])]


def test_a_large_packet_in_small_pieces_is_joined_once() -> None:
    """Pieces are looked at when the packet is complete, so the work is linear."""
    wanted = Publishes("t", [bytes(100_000)], packet_ids=[])
    data = encode(V3_1_1, wanted)
    decoder = server()
    for at in range(0, len(data) - 10, 10):
        piece = data[at : at + 10]
        references = getrefcount(piece)
        assert list(decoder.feed(piece)) == []
        assert not at or getrefcount(piece) == references + 1, "it was joined to others"
    assert decoder.buffered_bytes == at + 10
    assert list(decoder.feed(data[at + 10 :])) == [wanted]


def test_a_cut_packet_does_not_hold_the_bytes_before_it() -> None:
    decoder = server()
    data = PING * 1000 + b"\x30"
    references = getrefcount(data)
    list(decoder.feed(data))
    assert getrefcount(data) == references
    assert decoder.buffered_bytes == 1
    assert list(decoder.feed(b"\3\0\1a")) == [Publishes("a", [b""], packet_ids=[])]


@pytest.mark.parametrize("version", Version)
@given(data=st.data())
@settings(max_examples=30)
def test_a_client_is_read_however_its_bytes_are_cut(version: Version, data: st.DataObject) -> None:
    """All that was written comes back, whole, cut at random, and byte by byte."""
    sent: list[Packet] = [data.draw(connects(version))]
    sent += data.draw(st.lists(of_client(version), max_size=5))
    sent.append(data.draw(disconnects(version, by_client=True)))
    raw = b"".join(encode(version, each) for each in sent)
    whole = list(Decoder(is_server=True).feed(raw))
    assert single(whole) == single(sent)
    assert [_normal(each) for each in whole] == [_normal(each) for each in in_runs(sent)]
    assert read(Decoder(is_server=True), *_pieces(raw, data)) == (single(sent), None)
    assert read(Decoder(is_server=True), *(raw[at : at + 1] for at in range(len(raw)))) == (
        single(sent),
        None,
    )


@pytest.mark.parametrize("version", Version)
@given(data=st.data())
@settings(max_examples=30)
def test_a_server_is_read_however_its_bytes_are_cut(version: Version, data: st.DataObject) -> None:
    """All that was written comes back, whole, cut at random, and byte by byte."""
    sent: list[Packet] = [Connack()]
    sent += data.draw(st.lists(of_server(version), max_size=5))
    if version is V5:
        sent.append(data.draw(disconnects(version, by_client=False)))
    raw = b"".join(encode(version, each) for each in sent)

    def decoder() -> Decoder:
        return Decoder(is_server=False, version=version)

    assert read(decoder(), raw) == (single(sent), None)
    assert read(decoder(), *_pieces(raw, data)) == (single(sent), None)
    assert read(decoder(), *(raw[at : at + 1] for at in range(len(raw)))) == (single(sent), None)


def _pieces(raw: bytes, data: st.DataObject) -> list[bytes]:
    cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw)), max_size=5))})
    return [raw[begin:end] for begin, end in pairwise(cuts)]


def _normal(packet: Packet) -> object:
    if isinstance(packet, Publishes):
        return packet._replace(payloads=tuple(packet.payloads), packet_ids=tuple(packet.packet_ids))
    if isinstance(packet, Acks):
        return packet._replace(packet_ids=tuple(packet.packet_ids))
    return packet
