"""The state of QoS 2 that a session of MQTT stores covers all that a lost node may have kept, and stays bounded."""

import json

from node.amqp.methods import BasicGet
from node.mqtt.constants import PACKET_ID_MAX, PacketType
from node.mqtt.packets import Acks, Publishes
from node.mqtt.properties import PublishProperties
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V4, V5, MqttClient, connected

STATE = "mqtt-subscription-cstate"
SHORT_LIVED = PublishProperties(message_expiry_s=5)


def persistent(world: World) -> MqttClient:
    """Return a client that acknowledges nothing by itself, with its persistent session."""
    return connected(world, "c", V4, clean=False, acks=False)


def snapshot(world: World) -> dict[str, dict[str, str] | list[str]]:
    """Return the last snapshot of the session's state, and leave the others in their queue."""
    amqp = world.client()
    found = []
    for _ in range(3):
        amqp.send(1, BasicGet(queue=STATE))
        world.settle()
        found += [json.loads(each.body) for each in amqp.received() if each.body]
    amqp.lose()
    world.settle()
    last: dict[str, dict[str, str] | list[str]] = max(found, key=lambda each: int(each["number"]))
    return last


def test_all_messages_are_known_whose_settlements_a_lost_node_may_have_kept() -> None:
    """The broker delivers `mqtt.prefetch` messages without a settlement: after a failover so many come again."""
    world = World()
    client = persistent(world)
    client.subscribe("a", qos=2)
    publisher = connected(world, "p")
    publisher.publish("a", *(b"%d" % number for number in range(100)), qos=2)
    packet_ids = tuple(packet_id for each in client.published() for packet_id in each.packet_ids)
    assert len(packet_ids) == 100
    client.send(Acks(PacketType.PUBREC, packet_ids))
    client.send(Acks(PacketType.PUBCOMP, packet_ids))
    client.told()
    publisher.publish("a", b"the next one", qos=2)
    assert len(client.bodies()) == 1
    found = snapshot(world)
    assert (len(found["released"]), len(found["sent"])) == (0, 1)
    assert len(found["recent"]) == 100


def test_a_message_that_has_expired_since_it_was_sent_gives_its_packet_identifier_back() -> None:
    world = World()
    client = persistent(world)
    client.subscribe("a", qos=2)
    publisher = connected(world, "p", V5)
    publisher.publish("a", b"short", qos=2, properties=SHORT_LIVED)
    (sent,) = client.published()
    client.cut()
    world.advance(20.0)
    client = persistent(world)
    assert client.told() == []
    publisher.publish("a", b"next", qos=2)
    release, message = client.told()
    assert isinstance(release, Acks)
    assert (release.type, tuple(release.packet_ids)) == (PacketType.PUBREL, tuple(sent.packet_ids))
    assert isinstance(message, Publishes)
    assert (message.payloads[0], message.dup) == (b"next", False)
    assert message.packet_ids != sent.packet_ids, "the client has not let go of that identifier yet"
    client.send(Acks(PacketType.PUBCOMP, tuple(sent.packet_ids)))
    client.send(Acks(PacketType.PUBREC, tuple(message.packet_ids)))
    found = snapshot(world)
    assert (found["sent"], list(found["released"])) == ({}, [str(message.packet_ids[0])])


def test_messages_that_come_again_keep_their_packet_identifiers_before_newer_ones() -> None:
    world = World()
    client = persistent(world)
    client.subscribe("a", qos=2)
    publisher = connected(world, "p")
    publisher.publish("a", b"1", b"2", b"3", qos=2)
    sent = [(each.payloads[0], each.packet_ids) for each in client.published()]
    client.cut()
    publisher.publish("a", b"4", qos=2)
    client = persistent(world)
    told = client.told()
    assert not [each for each in told if isinstance(each, Acks)], "nothing is given up"
    again = [(each.payloads[0], each.packet_ids) for each in told if isinstance(each, Publishes)]
    assert again[:3] == sent
    assert [body for body, _ in again] == [b"1", b"2", b"3", b"4"]


def test_a_retained_message_gives_its_packet_identifier_back_too() -> None:
    """Such a message has another id each time, by which no later connection could know it again."""
    world = World()
    connected(world, "p").publish("a", b"kept", qos=2, retain=True)
    client = persistent(world)
    client.subscribe("a", qos=2)
    for _ in range(3):
        (sent,) = client.published()
        client.cut()
        client = persistent(world)
        release = client.received[0]
        assert isinstance(release, Acks)
        assert release.type is PacketType.PUBREL
        assert sent.packet_ids[0] in release.packet_ids
        client.send(Acks(PacketType.PUBCOMP, tuple(release.packet_ids)))
    assert len(snapshot(world)["sent"]) == 1


def test_a_snapshot_that_leaves_no_packet_identifier_is_left_out() -> None:
    """A client of AMQP may put anything into the queue, and must not keep the node busy with it."""
    world = World()
    client = persistent(world)
    client.subscribe("a", qos=2)
    publisher = connected(world, "p")
    publisher.publish("a", b"1", qos=2)
    client.cut()
    used = {str(packet_id): f"id {packet_id}" for packet_id in range(1, PACKET_ID_MAX + 1)}
    forged = {"number": 1_000_000, "received": {}, "sent": used, "released": {}, "recent": []}
    amqp = world.client()
    amqp.publish(1, STATE, json.dumps(forged).encode())
    world.settle()
    assert persistent(world).bodies() == [b"1"]
