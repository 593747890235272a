"""Acknowledgements leave in the order of the client's packets [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""

from node.mqtt.acknowledgements import Acknowledgements
from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.encoder import encode
from node.mqtt.packets import Acks, Connack

PUBACK, PUBREC = PacketType.PUBACK, PacketType.PUBREC


def written(version: Version, data: list[bytes]) -> list[tuple[PacketType, tuple[int, ...], int]]:
    """Return what was written, decoded."""
    data = [encode(version, Connack()), *data]  # which comes first on any connection
    packets = Decoder(is_server=False, version=version).feed(b"".join(data))
    return [(each.type, tuple(each.packet_ids), each.code) for each in packets if isinstance(each, Acks)]


def test_an_acknowledgement_waits_for_those_before_it() -> None:
    """PUBACK and PUBREC come in the order of the publishes [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
    data: list[bytes] = []
    acks = Acknowledgements(Version.MQTT_5, data.append)
    first, second, third = acks.expect(PUBACK, 1, 1), acks.expect(PUBACK, 2, 2), acks.expect(PUBREC, 3, 0)
    acks.flush()
    assert data == []
    second.missing = 0
    acks.flush()
    assert data == []
    first.missing = 0
    acks.flush()
    assert written(Version.MQTT_5, data) == [(PUBACK, (1, 2), 0), (PUBREC, (3,), 0)]
    assert len(acks) == 0
    assert third.missing == 0


def test_a_run_has_one_code() -> None:
    data: list[bytes] = []
    acks = Acknowledgements(Version.MQTT_5, data.append)
    for packet_id in range(1, 5):
        acks.expect(PUBACK, packet_id, 0).code = 0x97 if packet_id == 2 else 0
    acks.flush()
    assert written(Version.MQTT_5, data) == [(PUBACK, (1,), 0), (PUBACK, (2,), 0x97), (PUBACK, (3, 4), 0)]
