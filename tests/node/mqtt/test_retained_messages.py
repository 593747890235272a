"""Retained messages: the last one of each topic is for each new subscription."""

import pytest

from node.amqp.methods import QueueBind, QueueDeclare, QueueDeclareOk
from node.mqtt.names import RETAINED_EXCHANGE
from node.mqtt.packets import Subscription
from node.mqtt.properties import PublishProperties
from node.queue.retained_queue import SLACK, RetainedQueue
from tests.kit.world import World
from tests.node.mqtt.mqtt_client import V4, V5, MqttClient, connected


def retain(client: MqttClient, topic: str, payload: bytes, qos: int = 0) -> None:
    """Publish a message that is retained."""
    client.publish(topic, payload, qos=qos, retain=True)
    client.told()


def kept(world: World) -> RetainedQueue:
    """Return the queue with the retained messages."""
    queue = world.queue(f"amq.retained.{RETAINED_EXCHANGE}")
    assert isinstance(queue, RetainedQueue)
    return queue


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V4, V5])
def test_a_new_subscription_gets_the_last_message_of_each_topic(version: int, qos: int) -> None:
    world = World()
    publisher = connected(world, "p", version)  # type: ignore[arg-type]
    for topic, payload in (("a/1", b"old"), ("a/2", b"two"), ("b/1", b"other"), ("a/1", b"one")):
        retain(publisher, topic, payload, qos)
    client = connected(world, "c", version)  # type: ignore[arg-type]
    client.subscribe("a/+", qos=2)
    found = client.published()
    assert sorted((each.topic, each.payloads[0], each.qos, each.retain) for each in found) == [
        ("a/1", b"one", qos, True),
        ("a/2", b"two", qos, True),
    ]
    retain(publisher, "a/1", b"live", qos)
    (live,) = client.published()
    assert (live.payloads[0], live.retain) == (b"live", False)


def test_an_empty_message_ends_what_is_retained() -> None:
    world = World()
    client = connected(world)
    retain(client, "a", b"x")
    retain(client, "b", b"y")
    retain(client, "a", b"")
    client.subscribe("#")
    assert client.bodies() == [b"y"]
    assert kept(world).kept == 1


def test_a_message_that_is_not_retained_changes_nothing() -> None:
    world = World()
    client = connected(world)
    retain(client, "a", b"x")
    client.publish("a", b"live")
    client.subscribe("a")
    assert client.bodies() == [b"x"]


def test_subscribing_again_brings_them_again_and_unsubscribing_does_not() -> None:
    world = World()
    client = connected(world)
    retain(client, "a", b"x")
    for _ in range(2):
        client.subscribe("a")
        assert client.bodies() == [b"x"]
    client.unsubscribe("a")
    assert client.bodies() == []


def test_retain_handling() -> None:
    client = connected(World(), version=V5)
    retain(client, "a", b"x")
    client.subscribe(Subscription("a", retain_handling=2))
    assert client.bodies() == []
    client.subscribe(Subscription("a", retain_handling=1))
    assert client.bodies() == [], "the subscription was there already"
    client.unsubscribe("a")
    client.subscribe(Subscription("a", retain_handling=1))
    assert client.bodies() == [b"x"]


def test_retain_as_published() -> None:
    client = connected(World(), version=V5)
    client.subscribe(Subscription("a", retain_as_published=True), Subscription("b"))
    for topic in ("a", "b"):
        client.publish(topic, b"live", retain=True)
    assert [(each.topic, each.retain) for each in client.published()] == [("a", True), ("b", False)]


def test_retained_messages_are_not_of_shared_subscriptions() -> None:
    client = connected(World(), version=V5)
    retain(client, "a", b"x")
    client.subscribe("$share/g/a")
    assert client.bodies() == []


def test_topics_that_begin_with_a_dollar_do_not_match_a_wildcard() -> None:
    client = connected(World())
    retain(client, "$x/a", b"hidden")
    retain(client, "x/a", b"shown")
    client.subscribe("+/a")
    assert client.bodies() == [b"shown"]
    client.subscribe("$x/#")
    assert client.bodies() == [b"hidden"]


def test_a_message_whose_time_is_over_is_not_given() -> None:
    world = World()
    client = connected(world, version=V5)
    client.publish("a", b"short", retain=True, properties=PublishProperties(message_expiry_s=10))
    client.publish("b", b"long", retain=True, properties=PublishProperties(message_expiry_s=100))
    world.advance(20.0)
    client.subscribe("+")
    (found,) = client.published()
    assert found.payloads == (b"long",)
    assert found.properties.message_expiry_s == 80


def test_many_topics_and_a_log_that_is_cleaned() -> None:
    world = World()
    client = connected(world)
    topics = [f"t/{number}" for number in range(2 * SLACK)]
    for round_ in range(5):
        for topic in topics:
            client.publish(topic, b"%d" % round_, retain=True)
    queue = kept(world)
    assert queue.kept == len(topics)
    assert queue.backlog.count <= 2 * len(topics) + SLACK
    client.subscribe("t/#")
    found = client.published()
    assert sorted(each.topic for each in found) == sorted(topics)
    assert {each.payloads[0] for each in found} == {b"4"}


def test_only_the_protocol_reads_retained_messages() -> None:
    """Topic permissions hold for subscriptions only: a binding of AMQP would go past them."""
    world = World()
    client = connected(world)
    retain(client, "a", b"x")
    other = world.client()
    assert isinstance(other.ask(1, QueueDeclare(queue="q")), QueueDeclareOk)
    answer = other.ask(1, QueueBind(queue="q", exchange=RETAINED_EXCHANGE, routing_key="#"))
    assert answer.reply_code == 403  # type: ignore[union-attr]
