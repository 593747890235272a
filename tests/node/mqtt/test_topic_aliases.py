"""Topic aliases: MQTT 5.0 §3.3.2.3.4, by numbered statement."""

import pytest

from node.mqtt.errors import MqttError
from node.mqtt.packets import Publishes
from node.mqtt.properties import PublishProperties
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.topic_aliases import InboundAliases, OutboundAliases


def aliased(alias: int, topic: str = "") -> Publishes:
    properties = PublishProperties(topic_alias=alias, content_type="t")
    return Publishes(topic, (b"x",), properties=properties)


PLAIN = PublishProperties(content_type="t")


def test_an_alias_stands_for_the_topic_that_came_with_it() -> None:
    aliases = InboundAliases(2)
    assert aliases.resolve(aliased(1, "a")) == Publishes("a", (b"x",), properties=PLAIN)
    assert aliases.resolve(aliased(2, "b")).topic == "b"
    assert aliases.resolve(aliased(1)) == Publishes("a", (b"x",), properties=PLAIN)


def test_an_alias_can_be_set_again() -> None:
    aliases = InboundAliases(1)
    aliases.resolve(aliased(1, "a"))
    aliases.resolve(aliased(1, "b"))
    assert aliases.resolve(aliased(1)).topic == "b"


def test_publishes_without_alias_are_left_alone() -> None:
    publishes = Publishes("a", (b"x",))
    assert InboundAliases().resolve(publishes) is publishes


@pytest.mark.parametrize(("maximum", "alias"), [(0, 1), (5, 6), (65_534, 65_535)])
def test_an_alias_is_at_most_the_maximum(maximum: int, alias: int) -> None:
    """A higher one is refused, and the maximum itself is taken [MQTT-3.3.2-9, MQTT-3.3.2-12]."""
    aliases = InboundAliases(maximum)
    with pytest.raises(MqttError) as caught:
        aliases.resolve(aliased(alias, "a"))
    assert caught.value.code is ReasonCode.TOPIC_ALIAS_INVALID
    if maximum:
        assert aliases.resolve(aliased(maximum, "a")).topic == "a"


def test_an_alias_that_was_not_set_is_a_protocol_error() -> None:
    """A connection begins without any, whatever another one had [MQTT-3.3.2-7]."""
    with pytest.raises(MqttError) as caught:
        InboundAliases(5).resolve(aliased(1))
    assert caught.value.code is ReasonCode.PROTOCOL_ERROR


def test_topics_get_aliases_until_the_maximum() -> None:
    """No alias is above the peer's maximum [MQTT-3.1.2-29, MQTT-3.3.2-11]."""
    aliases = OutboundAliases(2)
    assert aliases.assign("a") == ("a", 1)
    assert aliases.assign("a") == ("", 1)
    assert aliases.assign("b") == ("b", 2)
    assert aliases.assign("c") == ("c", None)
    assert aliases.assign("b") == ("", 2)


def test_there_are_no_aliases_if_the_peer_takes_none() -> None:
    """A maximum of 0, or none at all, means none [MQTT-3.1.2-30]."""
    assert OutboundAliases().assign("a") == ("a", None)
