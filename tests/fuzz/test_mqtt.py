"""Any bytes give MQTT packets or an `MqttError`, never anything else, however they are cut; they are written back."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mqtt.constants import Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.errors import MqttError
from node.mqtt.topics import check_topic_filter, check_topic_name, is_topic_name, shared_subscription
from tests.kit.mqtt_packets import connects, of_client, of_server, read
from tests.kit.mqtt_topics import matches

CONNECTS = {
    Version.MQTT_3_1: b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c",
    Version.MQTT_3_1_1: b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c",
    Version.MQTT_5: b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c",
}
CONNACKS = {
    Version.MQTT_3_1: b"\x20\2\0\0",
    Version.MQTT_3_1_1: b"\x20\2\0\0",
    Version.MQTT_5: b"\x20\3\0\0\0",
}

version = st.sampled_from(Version)


@st.composite
def garbled(draw: st.DrawFn) -> tuple[Version, bytes]:
    """Return bytes that are nearly packets: some written well, then octets changed, added and taken away."""
    of = draw(version)
    packets = draw(st.lists(of_client(of) | of_server(of) | connects(of), min_size=1, max_size=3))
    raw = bytearray(b"".join(encode(of, each) for each in packets))
    for at, octet, kind in draw(
        st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255), st.integers(0, 2)), max_size=4)
    ):
        place = at % (len(raw) + 1)
        if kind == 0:
            raw.insert(place, octet)
        elif place < len(raw) and kind == 1:
            raw[place] = octet
        else:
            del raw[place : place + 1]
    return of, bytes(raw)


@st.composite
def framed(draw: st.DrawFn) -> tuple[Version, bytes]:
    """Return packets with right lengths and any bytes inside."""
    parts = st.tuples(st.integers(0, 255), st.binary(max_size=40))
    packets = draw(st.lists(parts, min_size=1, max_size=4))
    return draw(version), b"".join(bytes((first, len(body))) + body for first, body in packets)


anything = st.tuples(version, st.binary(max_size=60)) | framed() | garbled()


@pytest.mark.parametrize("is_server", [True, False])
@given(given_bytes=anything, cut=st.integers(0, 100))
def test_any_bytes_give_packets_or_a_fault(
    is_server: bool, given_bytes: tuple[Version, bytes], cut: int
) -> None:
    """Packets and the fault are the same whole, cut in two, and byte by byte; what was read can be written."""
    of, raw = given_bytes
    raw = (CONNECTS if is_server else CONNACKS)[of] + raw

    def decoder() -> Decoder:
        return Decoder(is_server=is_server, version=of)

    whole, code = read(decoder(), raw)
    assert (whole, code) == read(decoder(), raw[:cut], raw[cut:])
    assert (whole, code) == read(decoder(), *(raw[at : at + 1] for at in range(len(raw))))
    again = b"".join(encode(of, each) for each in whole)
    assert read(decoder(), again) == (whole, None)


@given(st.binary(max_size=60))
def test_any_first_bytes(raw: bytes) -> None:
    """A server's decoder that has read nothing yet."""
    for head in (b"", b"\x10", b"\x10\x0d\0\4MQTT\4", b"\x10\x20\0\4MQTT\5"):
        data = head + raw
        whole = read(Decoder(is_server=True), data)
        assert whole == read(Decoder(is_server=True), *(data[at : at + 1] for at in range(len(data))))


text = (
    st.text(max_size=10)
    | st.text("a/+#$\0", max_size=10)
    | st.text("a/+", max_size=6).map("$share/g/".__add__)
)


@given(text, text)
def test_any_topics(one: str, other: str) -> None:
    """Names and filters are taken or refused, and what was taken can be matched."""
    topics, filters = [], []
    for each in (one, other):
        if _accepts_name(each):
            topics.append(each)
        if _accepts_filter(each):
            shared = shared_subscription(each)
            filters.append(shared.filter if shared is not None else each)
    for topic in topics:
        assert matches(topic, topic)
        assert matches("#", topic) != topic.startswith("$")
        for each in filters:
            matches(each, topic)


def _accepts_name(name: str) -> bool:
    is_accepted = _accepts(check_topic_name, name)
    assert is_accepted == is_topic_name(name)
    return is_accepted


def _accepts_filter(name: str) -> bool:
    return _accepts(check_topic_filter, name)


def _accepts(check: Callable[[str], None], name: str) -> bool:
    try:
        check(name)
    except MqttError:
        return False
    return True
