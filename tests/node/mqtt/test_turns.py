"""Turns: a client that sends very much at once does not keep the node to itself, and all that it sent is handled."""

import pytest

from node.mqtt.connection import PACKET_COST, TURN_COST
from node.mqtt.constants import PacketType, Version
from node.mqtt.encoder import encode
from node.mqtt.packets import PINGREQ, Disconnect, Pingresp, Publishes, Subscription
from node.mqtt.properties import NO_PUBLISH, PublishProperties
from node.mqtt.runs import RUN_MAX
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V4, V5, connected

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


@pytest.mark.parametrize("version", [V4, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_alone_takes_one_turn(version: Version, qos: int) -> None:
    world = World()
    subscriber, client = connected(world, "s", version), connected(world, "p", version)
    subscriber.subscribe("t", qos=qos)
    for number in range(1, 4):
        packet_ids = (number,) if qos else ()
        client.feed(encode(version, Publishes("t", (b"m",), qos, packet_ids=packet_ids)))
        for connection in world.broker.turn(world.now):
            world.clients[connection].flush()
        assert not world.broker.has_work, "also the subscriber's acknowledgement is carried out"
        assert len(client.received) == (number if qos else 0)
        assert len(subscriber.received) == number


def test_messages_with_and_without_properties_keep_their_own() -> None:
    """Messages without properties share the object that the node is given."""
    world = World()
    subscriber, client = connected(world, "s", V5), connected(world, "p", V5)
    subscriber.subscribe(Subscription("t", 1, retain_as_published=True))
    asked = PublishProperties(response_topic="answers")
    for retain, properties in ((False, NO_PUBLISH), (True, NO_PUBLISH), (False, asked), (False, NO_PUBLISH)):
        for qos in (1, 0):
            client.publish("t", b"m", qos=qos, retain=retain, properties=properties)
    found = [(each.qos, each.retain, each.properties.response_topic) for each in subscriber.published()]
    kinds = ((False, None), (True, None), (False, "answers"), (False, None))
    assert found == [(qos, *kind) for kind in kinds for qos in (1, 0)]
