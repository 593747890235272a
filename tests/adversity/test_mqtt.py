"""Hostile clients of MQTT: what they announce, hold back, ask for in great number, or do not read (docs/limits.md)."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from node.mqtt.constants import Version
from node.mqtt.encoder import encode
from node.mqtt.packet_reader import FILTERS_MAX
from node.mqtt.packets import (
    PINGREQ,
    Connack,
    Connect,
    Disconnect,
    Publishes,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from node.mqtt.properties import ConnectProperties, PublishProperties
from node.mqtt.property_codec import USER_PROPERTIES_MAX
from node.mqtt.reason_codes import ReasonCode
from tests.adversity.siege import Siege
from tests.kit.attack import flood
from tests.kit.mqtt_client import MqttClient
from tests.kit.node_process import NodeProcess
from tests.kit.ports import free_port
from tests.kit.server_process import MIB

pytestmark = pytest.mark.slow

V4, V5 = Version.MQTT_3_1_1, Version.MQTT_5

Begin = Callable[..., Siege]
Open = Callable[..., MqttClient]
Attack = Callable[..., AbstractContextManager[Open]]

CONNECT_MAX_BYTES = 65_536
"""The default of `mqtt.max_packet_size_unauthenticated`."""

UNREAD_MIB = 16 + 2 * 16
"""Unread output: docs/limits.md, "Output"."""

SECONDS = 2.0


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def node(start_node: Callable[..., NodeProcess], port: int) -> NodeProcess:
    """A node with the plug-in, whose sockets have the smallest send buffer."""
    settings = {
        "mqtt.listeners.tcp.default": f"127.0.0.1:{port}",
        "mqtt.subscription_ttl": "1000",
        "tcp_listen_options.sndbuf": "4096",
    }
    return start_node(settings, plugins=("rabbitmq_mqtt",))


@pytest.fixture
def attacker(node: NodeProcess, port: int) -> Iterator[Open]:
    """Connections that have sent nothing yet: `attacker()`, `attacker(V5)`."""
    opened: list[MqttClient] = []

    def connect(version: Version = V4) -> MqttClient:
        opened.append(MqttClient("127.0.0.1", port, version))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def attack(siege: Begin, attacker: Open) -> Attack:
    """Begin an attack whose connections are closed before the node is to be as it was: `with attack(peak_mib=…)`."""

    @contextmanager
    def begin(**limits: float) -> Iterator[Open]:
        opened: list[MqttClient] = []

        def connect(version: Version = V4) -> MqttClient:
            opened.append(attacker(version))
            return opened[-1]

        with siege(**limits):
            yield connect
            for each in opened:
                each.close()

    return begin


def connected(client: MqttClient, client_id: str = "", **fields: object) -> MqttClient:
    """Log a client in."""
    client.send(Connect(client.version, client_id, **fields))  # type: ignore[arg-type]
    assert client.expect(Connack).code == 0
    return client


def test_what_is_announced_before_the_login_costs_nothing(attack: Attack) -> None:
    """A CONNECT of 256 MiB is refused by its length, however much of it is sent."""
    with attack(peak_mib=8) as attacker:
        clients = [attacker() for _ in range(20)]
        for client in clients:
            client.send_bytes(b"\x10\xff\xff\xff\x7f")
            flood(client.socket, bytes(MIB), seconds=0.2)
            client.close()


def test_an_unfinished_connect_costs_its_bytes(attack: Attack) -> None:
    """200 clients hold all of the longest CONNECT but its last byte."""
    size = CONNECT_MAX_BYTES - 4
    head = b"\x10" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14)) + b"\0\4MQTT\4"
    with attack(peak_mib=2 * 200 * CONNECT_MAX_BYTES // MIB + 8) as attacker:
        clients = [attacker() for _ in range(200)]
        for client in clients:
            client.send_bytes(head + bytes(size - 8))
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("pings", encode(V4, PINGREQ) * 5_000),
        ("publishes with QoS 1", encode(V4, Publishes("a", [b"x"] * 5_000, 1, packet_ids=range(1, 5_001)))),
        ("publishes with QoS 2", encode(V4, Publishes("a", [b"x"] * 5_000, 2, packet_ids=range(1, 5_001)))),
        ("PUBREL of nothing", b"\x62\2\0\7" * 5_000),
        ("subscribing again", encode(V4, Subscribe(1, (Subscription("a"),) * 50)) * 20),
    ],
)
def test_requests_without_reading_the_answers(attack: Attack, name: str, data: bytes) -> None:
    """The node stops reading, and the client is alone with that."""
    with attack(peak_mib=UNREAD_MIB) as attacker:
        client = connected(attacker())
        flood(client.socket, data, seconds=SECONDS)
        client.close()


def test_a_storm_of_subscriptions_that_goes_with_its_client(siege: Begin, attacker: Open) -> None:
    """The most filters that one packet may have, then the client vanishes; a binding costs some 6 KiB."""
    filters = tuple(Subscription(f"storm/{number}/+/#") for number in range(FILTERS_MAX))

    def storm() -> None:
        client = connected(attacker())
        client.send(Subscribe(1, filters))
        while not isinstance(client.next_packet(), Suback):
            pass
        client.close()

    storm()  # what Python keeps of the first storm serves the next
    with siege(peak_mib=FILTERS_MAX * 6 // 1024):
        storm()


def test_one_filter_too_many(attack: Attack) -> None:
    with attack(peak_mib=16) as attacker:
        client = connected(attacker(V5))
        client.send(Subscribe(1, tuple(Subscription("a") for _ in range(FILTERS_MAX + 1))))
        assert client.expect(Disconnect).code == ReasonCode.QUOTA_EXCEEDED
        client.expect_end()


def test_a_bomb_of_user_properties(attack: Attack) -> None:
    """Each costs five bytes on the wire: 1 MiB of them is refused when there are too many."""
    pair = b"\x26\0\0\0\0"
    count = MIB // len(pair)
    properties = count * len(pair)
    length = bytes((properties & 0x7F | 0x80, properties >> 7 & 0x7F | 0x80, properties >> 14))
    body = b"\0\1a" + length + pair * count
    size = len(body)
    head = b"\x30" + bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
    assert count > USER_PROPERTIES_MAX
    with attack(peak_mib=24) as attacker:
        for _ in range(10):
            client = connected(attacker(V5))
            client.send_bytes(head + body)
            assert client.expect(Disconnect).code == ReasonCode.QUOTA_EXCEEDED
            client.close()


def test_filters_in_all_combinations(attack: Attack) -> None:
    """1,024 filters of ten levels match each message; the client gets it once."""
    levels = 10
    filters = tuple(Subscription("/".join(each)) for each in itertools.product("a+", repeat=levels))
    with attack(peak_mib=32) as attacker:
        subscriber = connected(attacker())
        subscriber.send(Subscribe(1, filters))
        subscriber.expect(Suback)
        topic = "/".join("a" * levels)
        publisher = connected(attacker())
        publisher.send(Publishes(topic, [b"%d" % number for number in range(500)]))
        for number in range(500):
            subscriber.expect_message(topic, b"%d" % number)
        subscriber.ping()


def test_retained_messages_by_the_thousand(attack: Attack) -> None:
    """2,000 topics are retained, given to a client that asks for all of them, and removed."""
    count = 2_000
    topics = [f"kept/{number}" for number in range(count)]
    with attack(peak_mib=48) as attacker:
        publisher = connected(attacker())
        for packet_id, topic in enumerate(topics, 1):
            publisher.publish(topic, b"x" * 100, 1, packet_id, retain=True)
        _take_acks(publisher, count)
        subscriber = connected(attacker())
        subscriber.send(Subscribe(1, (Subscription("kept/#"),)))
        found = set()
        while len(found) < count:
            packet = subscriber.next_packet()
            if isinstance(packet, Publishes):
                assert packet.retain
                found.add(packet.topic)
        for packet_id, topic in enumerate(topics, 1):
            publisher.publish(topic, b"", 1, packet_id, retain=True)
        _take_acks(publisher, count)
        subscriber.close()
        late = connected(attacker())
        late.subscribe(Subscription("kept/#"))
        late.ping()


def _take_acks(client: MqttClient, count: int) -> None:
    left = count
    while left:
        packet = client.next_packet()
        left -= len(packet.packet_ids)  # type: ignore[union-attr]


def test_wills_by_the_hundred(attack: Attack) -> None:
    """300 clients are lost at once, and each will is published."""
    count = 300
    with attack(peak_mib=48) as attacker:
        witness = connected(attacker())
        witness.subscribe(Subscription("will/+"))
        clients = [
            connected(attacker(), f"w{number}", will=Will(f"will/{number}", b"gone"))
            for number in range(count)
        ]
        for client in clients:
            client.close()
        topics = {witness.expect(Publishes).topic for _ in range(count)}
        assert len(topics) == count


def test_sessions_by_the_hundred_expire(attack: Attack) -> None:
    """300 persistent sessions, with a subscription each, are left alone and gone after `mqtt.subscription_ttl`."""
    with attack(peak_mib=48) as attacker:
        for number in range(300):
            client = connected(attacker(), f"s{number}", clean_start=False)
            client.subscribe(Subscription(f"s/{number}", 1))
            client.close()


def test_takeovers_without_end(attack: Attack) -> None:
    """Clients with one client id throw each other out, 100 times; the last one stays."""
    with attack(peak_mib=24) as attacker:
        last = None
        for _ in range(100):
            client = connected(attacker(V5), "same", properties=ConnectProperties(session_expiry_s=60))
            if last is not None:
                assert last.expect(Disconnect).code == ReasonCode.SESSION_TAKEN_OVER
            last = client
        assert last is not None
        last.ping()
        last.send(Disconnect())


def test_large_messages_to_a_client_that_does_not_read(siege: Begin, attacker: Open) -> None:
    """Deliveries stop at the limit of unsent output; a window of 100 messages of 100 KiB is what may wait."""

    def send() -> None:
        deaf = connected(attacker())
        deaf.subscribe(Subscription("large", 1))
        publisher = connected(attacker())
        for packet_id in range(1, 101):
            publisher.publish("large", bytes(100 * 1024), 1, packet_id)
        _take_acks(publisher, 100)
        deaf.close()
        publisher.close()

    send()  # the store's file of large messages is opened once
    with siege(peak_mib=100 * 100 // 1024 + UNREAD_MIB):
        send()


def test_properties_of_messages_are_bounded_by_their_packet(attack: Attack) -> None:
    """The most user properties that are allowed go all the way to a subscriber, again and again."""
    properties = PublishProperties(user_properties=tuple((f"k{number}", "v") for number in range(1000)))
    with attack(peak_mib=48) as attacker:
        subscriber = connected(attacker(V5))
        subscriber.subscribe(Subscription("p"))
        publisher = connected(attacker(V5))
        for _ in range(50):
            publisher.publish("p", b"x", properties=properties)
            assert len(subscriber.expect(Publishes).properties.user_properties) == 1000
