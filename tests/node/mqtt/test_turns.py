"""Turns: a client that sends very much at once does not keep the node to itself, and all that it sent is handled."""

import pytest

from node.mqtt.connection import PACKET_COST, TURN_COST
from node.mqtt.constants import PacketType
from node.mqtt.encoder import encode
from node.mqtt.packets import PINGREQ, Disconnect, Pingresp, Publishes
from node.mqtt.runs import RUN_MAX
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V4, connected

MANY = 10_000


def test_a_read_of_many_packets_takes_many_turns() -> None:
    world = World()
    client = connected(world)
    client.feed(encode(V4, PINGREQ) * MANY)
    client.flush()
    assert 0 < len(client.received) <= 2 * TURN_COST // PACKET_COST, "as many as fit into two turns"
    assert client.told() == [Pingresp()] * MANY


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_long_read_come_in_order(qos: int) -> None:
    world = World()
    subscriber = connected(world, "s")
    subscriber.subscribe("t", qos=0)
    client = connected(world)
    payloads = [b"%d" % number for number in range(3 * RUN_MAX)]
    ids = range(1, len(payloads) + 1) if qos else ()
    client.feed(encode(V4, Publishes("t", payloads, qos, packet_ids=ids)) + encode(V4, PINGREQ))
    world.settle()
    assert subscriber.bodies() == payloads
    if qos:
        acked = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        assert client.acked(acked) == list(ids)


def test_a_disconnect_behind_a_long_read_ends_the_connection_in_order() -> None:
    world = World()
    subscriber = connected(world, "s")
    subscriber.subscribe("#", qos=0)
    client = connected(world)
    messages = b"".join(encode(V4, Publishes(f"t/{number}", [b"x"])) for number in range(1000))
    client.feed(messages + encode(V4, Disconnect()))
    world.settle()
    assert client.is_reset
    assert len(subscriber.bodies()) == 1000


def test_a_client_that_is_lost_while_it_rests() -> None:
    world = World()
    client = connected(world)
    client.feed(encode(V4, PINGREQ) * MANY)
    client.cut()
    assert world.clients == {}
