"""Topic names, topic filters and shared subscriptions: MQTT 3.1.1 and 5.0 §4.7, by numbered statement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mqtt.errors import MqttError
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.topics import (
    Shared,
    check_topic_filter,
    check_topic_name,
    is_topic_name,
    shared_subscription,
)
from tests.kit.mqtt_topics import matches

LONGEST = "é" * 32_767 + "x"
"""The UTF-8 of this topic has 65,535 bytes."""


def is_filter(text: str) -> bool:
    try:
        check_topic_filter(text)
    except MqttError as error:
        return error.code is not ReasonCode.TOPIC_FILTER_INVALID
    return True


@pytest.mark.parametrize("topic", ["a", "/", "//", "a/b", "/a", "a/", " ", "$SYS/x", "a b/Ä", LONGEST])
def test_topic_names(topic: str) -> None:
    check_topic_name(topic)
    assert is_topic_name(topic)


@pytest.mark.parametrize("topic", ["", "#", "+", "a/#", "a/+/b", "a+", "#a", "a\0", LONGEST + "x"])
def test_texts_that_are_no_topic_names(topic: str) -> None:
    """A name has a character, no wildcard, no U+0000 and at most 65,535 bytes.

    [MQTT-4.7.0-1, MQTT-4.7.3-1, MQTT-4.7.3-2, MQTT-4.7.3-3, MQTT-3.3.2-2] (3.1.1: [MQTT-4.7.1-1]).
    """
    with pytest.raises(MqttError) as caught:
        check_topic_name(topic)
    assert caught.value.code is ReasonCode.TOPIC_NAME_INVALID
    assert not is_topic_name(topic)


def test_a_routing_key_that_is_not_utf_8_is_no_topic_name() -> None:
    """AMQP's clients may use any bytes as a routing key; such a key is a text with surrogates."""
    assert not is_topic_name(b"a\xff".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    "text",
    [
        "#",
        "+",
        "a/#",
        "/#",
        "+/+",
        "/+",
        "a/+/b",
        "+/a/#",
        "a",
        "/",
        "$SYS/#",
        "sport/tennis/player1/#",
        LONGEST,
    ],
)
def test_topic_filters(text: str) -> None:
    """`#` is alone or the last level, and `+` a level of its own [MQTT-4.7.1-1, MQTT-4.7.1-2]."""
    assert is_filter(text)


@pytest.mark.parametrize("text", ["", "a#", "a/#/b", "#/", "##", "a/b#", "#a", "a/#b"])
def test_the_multi_level_wildcard_is_the_last_level(text: str) -> None:
    """`#` stands on its own or behind a separator, and is the last character [MQTT-4.7.1-1] (3.1.1: [MQTT-4.7.1-2])."""
    assert not is_filter(text)


@pytest.mark.parametrize("text", ["a+", "+a", "a/b+/c", "++", "a/++"])
def test_the_single_level_wildcard_is_a_level(text: str) -> None:
    """`+` takes a whole level [MQTT-4.7.1-2] (3.1.1: [MQTT-4.7.1-3])."""
    assert not is_filter(text)


@pytest.mark.parametrize("text", ["a\0", "#\0", LONGEST + "x", "$share/g/" + LONGEST + "x"])
def test_filters_have_the_limits_of_names(text: str) -> None:
    """A filter has no U+0000 and at most 65,535 bytes [MQTT-4.7.3-2, MQTT-4.7.3-3]."""
    assert not is_filter(text)


def test_shared_subscriptions() -> None:
    """`$share/NAME/FILTER`; the filter may have separators [MQTT-4.8.2-1]."""
    assert shared_subscription("$share/g/a/+/#") == Shared("g", "a/+/#")
    assert shared_subscription("$share/g//a") == Shared("g", "/a")
    assert shared_subscription("a/$share/g") is None
    assert shared_subscription("$shared/g/a") is None
    assert shared_subscription("$SHARE/g/a") is None


@pytest.mark.parametrize(
    "text",
    ["$share/", "$share//", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/#/a", "$share/g+/a"],
)
def test_malformed_shared_subscriptions(text: str) -> None:
    """The name has a character and no wildcard, and a filter follows [MQTT-4.8.2-1, MQTT-4.8.2-2]."""
    assert not is_filter(text)
    with pytest.raises(MqttError):
        shared_subscription(text)


def test_the_filter_of_a_shared_subscription_is_checked() -> None:
    assert not is_filter("$share/g/a#")
    assert is_filter("$share/g/#")


MATCHES = {
    "sport/tennis/player1/#": [
        "sport/tennis/player1",
        "sport/tennis/player1/ranking",
        "sport/tennis/player1/a/b",
    ],
    "sport/#": ["sport", "sport/", "sport/a/b"],
    "#": ["a", "/", "a/b", "/a"],
    "+": ["a"],
    "sport/tennis/+": ["sport/tennis/player1", "sport/tennis/"],
    "sport/+": ["sport/"],
    "+/+": ["/finance", "a/b"],
    "/+": ["/finance"],
    "+/tennis/#": ["a/tennis", "a/tennis/b"],
    "$SYS/#": ["$SYS", "$SYS/a"],
    "$SYS/monitor/+": ["$SYS/monitor/Clients"],
    "a b": ["a b"],
    "a/+/#": ["a/b", "a/b/c", "a/"],
}
"""The standard's examples, and some more."""

NO_MATCHES = {
    "sport/tennis/+": ["sport/tennis/player1/ranking", "sport/tennis"],
    "sport/+": ["sport"],
    "+": ["/finance", "a/b"],
    "a": ["A", "a/", "/a", "aa"],
    "a/+/#": ["a"],
    "ACCOUNTS": ["Accounts"],
    "é": ["e\u0301"],
    "*": ["a"],
    "a.b": ["a/b"],
}


@pytest.mark.parametrize(("text", "topic"), [(each, topic) for each in MATCHES for topic in MATCHES[each]])
def test_matching_topics(text: str, topic: str) -> None:
    assert matches(text, topic)


@pytest.mark.parametrize(
    ("text", "topic"), [(each, topic) for each in NO_MATCHES for topic in NO_MATCHES[each]]
)
def test_topics_that_do_not_match(text: str, topic: str) -> None:
    """Characters are compared as they are, without any normalisation [MQTT-4.7.3-4]."""
    assert not matches(text, topic)


@pytest.mark.parametrize(
    ("text", "topic"), [("#", "$SYS/a"), ("+/monitor", "$SYS/monitor"), ("+", "$SYS"), ("#", "$")]
)
def test_wildcards_in_front_do_not_match_the_servers_topics(text: str, topic: str) -> None:
    """Topics that begin with `$` match no filter that begins with a wildcard [MQTT-4.7.2-1]."""
    assert not matches(text, topic)


level = st.text("ab$", max_size=2)
topics = st.lists(level, min_size=1, max_size=5).map("/".join).filter(bool)
filters = st.lists(st.sampled_from(["+"]) | level, min_size=1, max_size=5).map("/".join).filter(bool)


def walks(wanted: list[str], levels: list[str]) -> bool:
    """Match level by level, as the standard tells it."""
    if wanted == ["#"]:
        return True
    if not wanted or not levels:
        return wanted == levels
    return wanted[0] in ("+", levels[0]) and walks(wanted[1:], levels[1:])


@given(filters, st.booleans(), topics)
def test_matching_is_what_the_standard_tells(text: str, is_open: bool, topic: str) -> None:
    text += "/#" if is_open else ""
    is_hidden = topic.startswith("$") and text[0] in "+#"
    assert matches(text, topic) == (walks(text.split("/"), topic.split("/")) and not is_hidden)
