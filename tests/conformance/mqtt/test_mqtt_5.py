"""MQTT 5.0 with paho, against Fluffle's plug-in; RabbitMQ 3.10.8's has no MQTT 5.0."""

from collections.abc import Callable

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from node.amqp.field_table import Field, longstr
from node.amqp.methods import QueueBind
from node.amqp.properties import Properties as AmqpProperties
from tests.conformance.mqtt.paho_client import V5, V311, Connect
from tests.kit.amqp_client import Channel
from tests.kit.patience import wait_until
from tests.kit.server_cluster import is_rabbitmq

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ 3.10.8 has no MQTT 5.0")

Name = Callable[[str], str]


def with_properties(**given: object) -> Properties:
    """Return the properties of a PUBLISH."""
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in given.items():
        setattr(properties, name, value)
    return properties


def test_a_request_and_its_response(mqtt: Connect, name: Name) -> None:
    """A responder learns from the request where its answer goes, and which request it answers."""
    requests, answers = name("requests"), name("answers")
    asker, responder = mqtt(name("a"), V5), mqtt(name("r"), V5)
    asker.subscribe((answers, 1))
    responder.subscribe((requests, 1))
    asked = with_properties(ResponseTopic=answers, CorrelationData=b"\x00\x01", UserProperty=("k", "v"))
    asker.paho.publish(requests, b"2 + 2", 1, properties=asked)
    wait_until(lambda: responder.messages, "the request")
    found = responder.messages[0].properties
    assert found is not None
    assert (found.ResponseTopic, found.CorrelationData, found.UserProperty) == (
        answers,
        b"\x00\x01",
        [("k", "v")],
    )
    answered = with_properties(CorrelationData=found.CorrelationData)
    responder.paho.publish(found.ResponseTopic, b"4", 1, properties=answered)
    wait_until(lambda: asker.messages, "the answer")
    assert asker.messages[0].payload == b"4"
    assert asker.messages[0].properties.CorrelationData == b"\x00\x01"


def test_properties_are_those_of_amqp(mqtt: Connect, channel: Channel, name: Name) -> None:
    queue, topic = channel.declare(exclusive=True), name("t")
    channel.call(QueueBind, queue=queue, exchange="amq.topic", routing_key=topic)
    client = mqtt(name("c"), V5)
    client.subscribe((topic, 1))
    sent = with_properties(
        ContentType="text/plain", CorrelationData=b"id", MessageExpiryInterval=60, UserProperty=("k", "v")
    )
    client.paho.publish(topic, b"m", 1, properties=sent)
    channel.consume(queue, no_ack=True)
    found = channel.deliver().properties
    assert (found.content_type, found.correlation_id, found.expiration) == ("text/plain", "id", "60000")
    assert (found.headers or {})["k"] == longstr("v")
    client.await_messages(1)
    given = AmqpProperties(
        content_type="a/b", correlation_id="x", headers={"h": longstr("w"), "n": Field("I", 1)}
    )
    channel.publish("amq.topic", topic, b"n", given)
    wait_until(lambda: client.messages, "AMQP's message")
    back = client.messages[0].properties
    assert (back.ContentType, back.CorrelationData, back.UserProperty) == ("a/b", b"x", [("h", "w")])


def test_a_shared_subscription(mqtt: Connect, name: Name) -> None:
    group, topic = name("g"), name("t")
    members = [mqtt(name("m"), V5) for _ in range(3)]
    for member in members:
        assert member.subscribe((f"$share/{group}/{topic}", 1)) == [1]
    publisher = mqtt(name("p"))
    for number in range(30):
        publisher.publish(topic, b"%d" % number)
    wait_until(lambda: sum(len(each.messages) for each in members) == 30, "all messages")
    assert all(each.messages for each in members)


def test_subscription_options(mqtt: Connect, name: Name) -> None:
    client, topic = mqtt(name("c"), V5), name("t")
    publisher = mqtt(name("p"), V5)
    publisher.publish(topic, b"kept", retain=True)
    options = paho.SubscribeOptions(1, noLocal=True, retainAsPublished=True, retainHandling=2)
    properties = Properties(PacketTypes.SUBSCRIBE)
    properties.SubscriptionIdentifier = 7
    client.paho.subscribe(topic, options=options, properties=properties)
    client.subscribe((name("other"), 0))  # which is answered behind it
    client.publish(topic, b"own")
    publisher.publish(topic, b"live", retain=True)
    wait_until(lambda: client.messages, "the message")
    (message,) = client.messages
    assert (message.payload, message.retain) == (b"live", True)
    assert message.properties.SubscriptionIdentifier == [7]


def test_a_refusal_has_a_reason(mqtt: Connect, name: Name) -> None:
    assert mqtt(name("c"), V5, password="wrong").connects == [0x86]
    client = mqtt(name("c"), V5)
    assert client.subscribe(("x" * 300, 1), (name("t"), 1)) == [0x8F, 1]


def test_a_delayed_will(mqtt: Connect, name: Name) -> None:
    topic, client_id = name("t"), name("c")
    watcher = mqtt(name("s"))
    watcher.subscribe((topic, 1))
    will = (topic, b"gone", 1, False)
    mqtt(client_id, V5, clean=False, expiry_s=600, will=will, will_delay_s=1).cut()
    assert watcher.await_messages(1) == [(topic, b"gone", 1, False)]
    mqtt(client_id, V5, clean=False, expiry_s=600, will=will, will_delay_s=600).cut()
    mqtt(client_id, V5, clean=False, expiry_s=600).disconnect()
    watcher.paho.publish(topic, b"next", 1)
    assert watcher.await_messages(1) == [(topic, b"next", 1, False)]


def test_versions_talk_to_each_other(mqtt: Connect, name: Name) -> None:
    topic = name("t")
    clients = [mqtt(name("c"), version) for version in (paho.MQTTv31, V311, V5)]
    for client in clients:
        client.subscribe((topic, 2))
    for number, client in enumerate(clients):
        client.publish(topic, b"%d" % number, 2)
    for client in clients:
        assert [payload for _, payload, _, _ in client.await_messages(3)] == [b"0", b"1", b"2"]
