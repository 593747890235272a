"""Messages that expire or are refused while they are acknowledged, over a broker without sockets."""

from node.amqp.field_table import long, longstr
from node.amqp.methods import BasicGet, QueueBind, QueueDeclare, QueuePurge
from node.mqtt.constants import PacketType
from node.mqtt.packets import Acks
from node.mqtt.properties import PublishProperties
from node.mqtt.reason_codes import ReasonCode
from tests.kit.world import Client, World
from tests.node.mqtt.mqtt_client import V4, V5, MqttClient, connected

SHORT_LIVED = PublishProperties(message_expiry_s=5)


def full_queue(world: World) -> Client:
    """Return a client of AMQP that has bound a queue with room for one message to the topic `full`."""
    amqp = world.client()
    limits = {"x-max-length": long(1), "x-overflow": longstr("reject-publish")}
    amqp.ask(1, QueueDeclare(queue="q", arguments=limits))
    amqp.ask(1, QueueBind(queue="q", exchange="amq.topic", routing_key="full"))
    return amqp


def test_expiry_does_not_end_what_was_sent() -> None:
    """A message with QoS 2 that was sent is completed, though its time is over [MQTT-4.3.3-7]."""
    world = World()
    client = connected(world, version=V5, acks=False)
    client.subscribe("t", qos=2)
    connected(world, "p", V5).publish("t", b"m", qos=2, properties=SHORT_LIVED)
    (found,) = client.published()
    world.advance(20.0)
    client.send(Acks(PacketType.PUBREC, found.packet_ids))
    assert client.acked(PacketType.PUBREL) == list(found.packet_ids)
    client.send(Acks(PacketType.PUBCOMP, found.packet_ids))
    assert not client.is_reset


def test_expiry_does_not_end_the_acknowledgements() -> None:
    """A publish with QoS 2 is acknowledged to its end, though its time is over [MQTT-4.3.3-13]."""
    world = World()
    client = connected(world, version=V5, acks=False)
    client.publish("t", b"m", qos=2, packet_ids=[7], properties=SHORT_LIVED)
    assert client.acked(PacketType.PUBREC) == [7]
    world.advance(20.0)
    client.send(Acks(PacketType.PUBREL, (7,)))
    assert client.acked(PacketType.PUBCOMP) == [7]


def test_behind_a_refusal_the_identifier_is_that_of_a_new_message() -> None:
    """A PUBREC with an error ends a message: its identifier may be used at once [MQTT-4.3.3-9]."""
    world = World()
    amqp = full_queue(world)
    client = connected(world, version=V5)
    client.publish("full", b"1", qos=2, packet_ids=[7])
    assert client.acked(PacketType.PUBCOMP) == [7]
    client.publish("full", b"2", qos=2, packet_ids=[7])
    (refused,) = [each for each in client.told() if isinstance(each, Acks)]
    assert (refused.type, refused.code) == (PacketType.PUBREC, ReasonCode.QUOTA_EXCEEDED)
    amqp.ask(1, QueuePurge(queue="q"))
    client.publish("full", b"3", qos=2, packet_ids=[7])
    assert client.acked(PacketType.PUBCOMP) == [7]
    amqp.send(1, BasicGet(queue="q", no_ack=True))
    assert [each.body for each in amqp.received() if each.body] == [b"3"]


def test_what_cannot_be_carried_out_ends_a_connection_of_3_1_1() -> None:
    """A queue that is full is a passing error, which MQTT 3.1.1 can tell in no other way (3.1.1: [MQTT-4.8.0-2])."""
    world = World()
    full_queue(world)
    client = connected(world, version=V4)
    client.publish("full", b"1", b"2", qos=1, packet_ids=[1, 2])
    assert client.is_reset


def test_a_message_that_a_member_refuses_goes_to_no_other() -> None:
    """A refused message of a shared subscription is discarded [MQTT-4.8.2-6]."""
    world = World()
    one = connected(world, "a", V5, acks=False)
    one.subscribe("$share/g/t", qos=1)
    connected(world, "p").publish("t", b"m", qos=1)
    (found,) = one.published()
    other = MqttClient(world, V5)
    assert other.connect("b").code == 0
    other.subscribe("$share/g/t", qos=1)
    one.send(Acks(PacketType.PUBACK, found.packet_ids, ReasonCode.UNSPECIFIED_ERROR))
    one.cut()
    world.advance(1.0)
    assert (other.bodies(), world.queue("mqtt-subscription-$share/g/t").next_seq) == ([], 2)
