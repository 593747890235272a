"""Clients that do anything in any order: the plug-in never fails, and nothing is left of clean sessions."""

from random import Random

import pytest

from node.mqtt.constants import PacketType
from node.mqtt.packets import (
    PINGREQ,
    Acks,
    Disconnect,
    Packet,
    Publishes,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from tests.kit.world import World, check_invariants
from tests.node.mqtt.mqtt_client import V3, V4, V5, MqttClient

TOPICS = ("a", "a/b", "b", "$x", "a//b", "a.b")
FILTERS = (
    "a",
    "a/+",
    "#",
    "+",
    "$x",
    "a/#",
    "$share/g/a/#",
    "$share/g/#",
    "$share/h/b",
    "a#",
    "+/b",
    "x" * 300,
)
ACKS = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)


def any_packet(choose: Random) -> Packet:
    """Return a packet that a client may send, though perhaps not now."""
    match choose.randrange(8):
        case 0 | 1 | 2:
            qos = choose.randrange(3)
            count = choose.randint(1, 3)
            ids = tuple(choose.sample(range(1, 6), count)) if qos else ()
            payloads = tuple(choose.choice((b"", b"m", b"x" * 1000)) for _ in range(count))
            is_dup = bool(qos) and choose.random() < 0.3
            return Publishes(choose.choice(TOPICS), payloads, qos, choose.random() < 0.2, is_dup, ids)
        case 3:
            filters = choose.choices(FILTERS, k=choose.randint(1, 3))
            return Subscribe(
                choose.randint(1, 9), tuple(Subscription(each, choose.randrange(3)) for each in filters)
            )
        case 4:
            return Unsubscribe(choose.randint(1, 9), tuple(choose.choices(FILTERS, k=2)))
        case 5 | 6:
            return Acks(choose.choice(ACKS), (choose.randint(1, 5),))  # type: ignore[arg-type]
        case _:
            return PINGREQ


def connect(world: World, choose: Random, client_id: str) -> MqttClient:
    """Return a client that has connected somehow."""
    version = choose.choice((V3, V4, V5))
    client = MqttClient(world, version, acks=choose.random() < 0.5)
    will = Will("a", b"gone", choose.randrange(3), choose.random() < 0.3) if choose.random() < 0.4 else None
    clean = choose.random() < 0.5
    expiry_s = choose.choice((0, 5, 1000)) if version is V5 else None
    assert client.connect(client_id, clean=clean, expiry_s=expiry_s, will=will).code == 0
    return client


@pytest.mark.parametrize("seed", range(60))
def test_clients_do_anything(seed: int) -> None:
    choose, world = Random(seed), World()
    names = [f"c{number}" for number in range(3)]
    clients = {name: connect(world, choose, name) for name in names}
    for _ in range(80):
        name = choose.choice(names)
        client = clients[name]
        if client.is_reset or choose.random() < 0.05:
            clients[name] = connect(world, choose, name)  # and takes over, if the other one lives
        elif choose.random() < 0.04:
            client.cut()
        elif choose.random() < 0.04:
            client.send(Disconnect())
        elif choose.random() < 0.05:
            world.advance(choose.choice((0.1, 3.0, 30.0)))
        else:
            client.send(*(any_packet(choose) for _ in range(choose.randint(1, 4))))
        assert world.broker.exchange_types.failures == {}, seed
    for client in clients.values():
        if not client.is_reset:
            client.send(Disconnect())
    for _ in range(4):
        world.advance(100_000.0)
    left = {name for name in world.queue_names if not name.startswith("amq.")}
    assert left == set(), seed
    assert len(world.broker.client_names) == 0
    check_invariants(world)
