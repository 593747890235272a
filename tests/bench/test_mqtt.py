"""The load generator's client of MQTT, and what its workloads ask for beside each broker."""

import pytest

from bench.__main__ import Bench, Brokers, _required
from bench.client import BenchError
from bench.mosquitto import Mosquitto
from bench.mqtt import MQTT_WORKLOADS, TOPIC
from bench.mqtt_client import (
    BODY_BYTES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    acks,
    connect_packet,
    cycle,
    kinds,
    shape,
    split,
    turned,
)
from bench.report import AtLeast, Row
from bench.servers import RabbitMQ
from bench.workloads import QUICK, Outcome, Scale, Workload
from node.mqtt.constants import PacketType, Version
from node.mqtt.decoder import Decoder
from node.mqtt.packets import Acks, Connect, Publishes
from tests.bench.test_main import Idle


def read(data: bytes) -> list[object]:
    """Return packets as the node's decoder reads them behind a CONNECT, which is the first of them."""
    return list(Decoder(is_server=True).feed(connect_packet("c", 60) + data))


def test_a_client_logs_in_with_a_clean_session() -> None:
    (connect,) = read(b"")
    assert isinstance(connect, Connect)
    assert (connect.version, connect.client_id, connect.clean_start) == (Version.MQTT_3_1_1, "c", True)
    assert (connect.user_name, connect.password, connect.keep_alive_s) == ("guest", b"guest", 60)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_have_one_length_and_their_numbers(qos: int) -> None:
    data = cycle(TOPIC, qos, 300)
    assert len(data) == 300 * shape(TOPIC, qos).size_bytes
    _, run = read(data)
    assert isinstance(run, Publishes)
    assert (run.topic, run.qos) == (TOPIC, qos)
    assert [int(payload[:8], 16) for payload in run.payloads] == list(range(300))
    assert {len(payload) for payload in run.payloads} == {BODY_BYTES}
    assert list(run.packet_ids) == ([] if qos == 0 else list(range(1, 301)))


def test_acknowledgements_of_what_was_read() -> None:
    data = cycle(TOPIC, 2, 300)
    received = acks(PUBREC, data, shape(TOPIC, 2))
    _, recs = read(bytes(received))
    assert isinstance(recs, Acks)
    assert (recs.type, list(recs.packet_ids)) == (PacketType.PUBREC, list(range(1, 301)))
    _, rels = read(bytes(turned(PUBREL, bytes(received))))
    assert isinstance(rels, Acks)
    assert (rels.type, list(rels.packet_ids)) == (PacketType.PUBREL, list(range(1, 301)))


def test_what_comes_is_taken_apart() -> None:
    form = shape(TOPIC, 2)
    three = cycle(TOPIC, 2, 3)
    answers = acks(PUBREL, three, form)
    data = three[: form.size_bytes] + answers + three[form.size_bytes :] + bytes(answers[:3])
    assert split(data, form) == (three, answers, answers[:3])
    mixed = bytes(answers) + bytes(turned(PUBCOMP, bytes(answers[:4])))
    assert list(kinds(mixed)) == [(PUBREL, answers), (PUBCOMP, turned(PUBCOMP, bytes(answers[:4])))]
    assert turned(PUBACK, b"\x62\x02\0\x07") == b"\x40\x02\0\x07"


def test_another_packet_is_a_fault() -> None:
    with pytest.raises(BenchError, match="not expected"):
        split(b"\xe0\0", shape(TOPIC, 1))


def test_what_is_asked_for_depends_on_the_broker() -> None:
    row = Row("rate", "msg/s", AtLeast(4.0), {Mosquitto.name: AtLeast(1.0)})
    assert _required(row, RabbitMQ.name).required == AtLeast(4.0)
    assert _required(row, Mosquitto.name).required == AtLeast(1.0)
    assert _required(row, "57925ec").required == AtLeast(0.95)
    assert _required(Row("rate", "msg/s", AtLeast(4.0)), Mosquitto.name).required is None


def test_rabbitmq_has_no_qos_2() -> None:
    """RabbitMQ makes QoS 1 of it, so there is nothing to compare."""
    assert [each.name for each in MQTT_WORKLOADS if RabbitMQ.name in each.lacking] == ["mqtt-qos2"]
    assert all(each.mqtt for each in MQTT_WORKLOADS)


def test_mosquitto_gets_its_settings_as_lines() -> None:
    server = Mosquitto()
    server.settings = ["max_keepalive 60"]
    assert server.configuration()[0].startswith("listener ")
    assert server.configuration()[-1] == "max_keepalive 60"


def test_a_broker_of_mqtt_alone_takes_part_where_it_can() -> None:
    """Mosquitto runs for workloads of MQTT alone; a broker without what is measured does not run."""
    fluffle, rabbit, mosquitto = Idle("Fluffle"), Idle("RabbitMQ"), Idle("Mosquitto")
    order: list[object] = []

    def run(broker: object, scale: Scale) -> Outcome:
        order.append(broker)
        return Outcome({}, 0, 1.0, 0.0, 0.0)

    bench = Bench(Brokers([fluffle, rabbit], [], [], [mosquitto]), ["RabbitMQ"], QUICK, 1)
    bench.measure(Workload("mqtt", run, [], mqtt=True))
    bench.measure(Workload("mqtt-2", run, [], mqtt=True, lacking=["RabbitMQ"]))
    assert mosquitto.running
    bench.measure(Workload("amqp", run, []))
    assert order == [fluffle, rabbit, mosquitto, fluffle, mosquitto, fluffle, rabbit]
    assert not mosquitto.running
