"""Topics and routing keys: what RabbitMQ 3.10.8's rabbit_mqtt_util makes of them."""

import pytest

from node.mqtt.routing_keys import routing_key, topic_of

PAIRS = {
    "a": "a",
    "a/b": "a.b",
    "/a": ".a",
    "a/": "a.",
    "a//b": "a..b",
    "+": "*",
    "a/+/b": "a.*.b",
    "#": "#",
    "a/#": "a.#",
    "Gerät/é": "Gerät.é",
    "": "",
    "a/" * 200: "a." * 200,
}


@pytest.mark.parametrize(("topic", "key"), PAIRS.items())
def test_both_ways(topic: str, key: str) -> None:
    assert routing_key(topic) == key
    assert topic_of(key) == topic


def test_nothing_is_escaped() -> None:
    """AMQP's own characters in a topic stay, and come back as MQTT's."""
    assert routing_key("a.b/*") == "a.b.*"
    assert topic_of("a.b.*") == "a/b/+"


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("spBv1.0/g/NBIRTH/n", "spBv1___0.g.NBIRTH.n"),
        ("spAv12.34/g", "spAv12___34.g"),
    ],
)
def test_the_version_of_a_sparkplug_topic_is_kept(topic: str, key: str) -> None:
    """The version is one level with a dot, which is a separator in AMQP; `mqtt.sparkplug` turns this on."""
    assert routing_key(topic, is_sparkplug=True) == key
    assert topic_of(key, is_sparkplug=True) == topic
    assert routing_key(topic) == key.replace("___", ".")
    assert topic_of(key) == key.replace(".", "/")


@pytest.mark.parametrize("topic", ["a/spBv1.0/g", "spBv1.0", "spCv1.0/g", "spBvx.0/g", "a.b/c"])
def test_other_topics_are_translated_as_ever(topic: str) -> None:
    assert routing_key(topic, is_sparkplug=True) == routing_key(topic)


@pytest.mark.parametrize("key", ["a.spBv1___0.g", "spBv1___0", "spCv1___0.g", "a___b.c"])
def test_other_keys_are_translated_as_ever(key: str) -> None:
    assert topic_of(key, is_sparkplug=True) == topic_of(key)
