"""Coverage-guided fuzzing of the MQTT decoder: any bytes give packets or an `MqttError`, nothing else.

    pip install atheris && python tests/fuzz/atheris_mqtt.py -max_total_time=60 [corpus folder]

The first octet of the input chooses side and version. atheris is optional, and pytest doesn't collect this file.
"""

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["node.mqtt"]):
    from node.mqtt.constants import Version
    from node.mqtt.decoder import Decoder
    from node.mqtt.encoder import encode
    from node.mqtt.errors import MqttError
    from node.mqtt.topics import check_topic_filter, check_topic_name, is_topic_name
    from tests.kit.mqtt_packets import read
    from tests.kit.mqtt_topics import matches

VERSIONS = tuple(Version)
CONNECTS = (
    b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c",
    b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c",
    b"\x10\x0e\0\4MQTT\5\2\0\0\0\0\1c",
)
CONNACKS = (b"\x20\2\0\0", b"\x20\2\0\0", b"\x20\3\0\0\0")


def fuzz_stream(kind: int, data: bytes) -> None:
    """A stream gives the same packets and fault whole, cut in two and octet by octet, and they can be written."""
    is_server, number = bool(kind & 1), (kind >> 1) % 3
    version = VERSIONS[number]
    raw = (CONNECTS if is_server else CONNACKS)[number] + data[1:] if kind & 0x80 else data[1:]
    cut = data[0] if data else 0

    def decoder() -> Decoder:
        return Decoder(is_server=is_server, version=None if is_server else version, packet_max_bytes=4096)

    whole = read(decoder(), raw)
    assert read(decoder(), raw[:cut], raw[cut:]) == whole
    assert read(decoder(), *(raw[at : at + 1] for at in range(len(raw)))) == whole
    packets, _ = whole
    if kind & 0x80:
        assert read(decoder(), b"".join(encode(version, each) for each in packets)) == (packets, None)


def fuzz_topics(data: bytes) -> None:
    """Names and filters are taken or refused, and what was taken can be matched."""
    topic, _, text = data.decode("utf-8", "surrogateescape").partition("\n")
    if is_topic_name(topic):
        check_topic_name(topic)
        try:
            check_topic_filter(text)
        except (MqttError, UnicodeEncodeError):
            return
        matches(text, topic)


def fuzz_one(data: bytes) -> None:
    """Run the target that the first octet chooses."""
    if data and data[0] == 0:
        fuzz_topics(data[1:])
    elif data:
        fuzz_stream(data[0], data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
