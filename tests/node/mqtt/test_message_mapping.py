"""Messages keep what they have on their way between MQTT and AMQP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.properties import Properties, content_header
from node.mqtt.constants import Version
from node.mqtt.encoder import encode_publishes
from node.mqtt.message_mapping import (
    EXPIRY_MAX_S,
    Facts,
    amqp_properties,
    facts_of,
    header_bytes,
    is_expired,
    mqtt_properties,
    plain_properties,
)
from node.mqtt.properties import NO_PUBLISH, PublishProperties
from node.plugins import Delivery, Field, longstr

NOW_MS = 1_700_000_000_000


def delivered(properties: Properties) -> Delivery:
    """Return a delivery with these properties."""
    return Delivery("c", 1, "amq.topic", "a", False, properties, b"")


def there_and_back(given: PublishProperties, later_s: int = 0) -> PublishProperties:
    """Return the properties of a message that AMQP has carried."""
    carried = amqp_properties(given, qos=1, wall_ms=NOW_MS)
    return mqtt_properties(delivered(carried), NOW_MS + later_s * 1000)


@pytest.mark.parametrize(
    "given",
    [
        NO_PUBLISH,
        PublishProperties(payload_format_indicator=0),
        PublishProperties(payload_format_indicator=1),
        PublishProperties(response_topic="a/b.c"),
        PublishProperties(correlation_data=b"text"),
        PublishProperties(correlation_data=b""),
        PublishProperties(correlation_data=b"\x00\xff"),
        PublishProperties(correlation_data=b"x" * 300),
        PublishProperties(content_type="text/plain"),
        PublishProperties(content_type="x" * 300),
        PublishProperties(user_properties=(("a", "1"), ("b", ""))),
        PublishProperties(user_properties=(("b", "2"), ("a", "1"))),
        PublishProperties(user_properties=(("a", "1"), ("a", "1"), ("a", "2"))),
        PublishProperties(user_properties=(("", "1"), ("x" * 300, "2"), ("x-own", "3"), ("CC", "4"))),
        PublishProperties(message_expiry_s=0),
        PublishProperties(message_expiry_s=EXPIRY_MAX_S),
    ],
)
def test_properties_come_back(given: PublishProperties) -> None:
    """User properties keep their order, too [MQTT-3.3.2-18]."""
    assert there_and_back(given) == given


def test_the_time_that_a_message_has_waited_is_taken_off() -> None:
    """The interval that is left goes to the client [MQTT-3.3.2-6]."""
    assert there_and_back(PublishProperties(message_expiry_s=100), 30).message_expiry_s == 70
    assert there_and_back(PublishProperties(message_expiry_s=100), 200).message_expiry_s == 0
    carried = amqp_properties(PublishProperties(message_expiry_s=100), qos=1, wall_ms=NOW_MS)
    assert not is_expired(carried, NOW_MS + 99_000)
    assert is_expired(carried, NOW_MS + 101_000)
    assert not is_expired(Properties(), NOW_MS)


def test_no_message_is_over_before_its_time() -> None:
    """The time of publishing is a whole second, so an interval of a second may end in the next millisecond."""
    late_in_a_second = NOW_MS + 999
    carried = amqp_properties(PublishProperties(message_expiry_s=1), qos=1, wall_ms=late_in_a_second)
    assert not is_expired(carried, late_in_a_second + 2)
    assert not is_expired(carried, late_in_a_second + 999)
    assert is_expired(carried, late_in_a_second + 2000)


def test_an_interval_above_amqps_limit_is_none() -> None:
    assert there_and_back(PublishProperties(message_expiry_s=EXPIRY_MAX_S + 1)).message_expiry_s is None


def test_what_rabbitmqs_plugin_sets() -> None:
    for qos in (0, 1, 2):
        plain = plain_properties(qos)
        assert plain == amqp_properties(NO_PUBLISH, qos=qos, wall_ms=0)
        assert plain.headers == {"x-mqtt-publish-qos": Field("b", qos), "x-mqtt-dup": Field("t", False)}
        assert plain.delivery_mode == (2 if qos else 1)


def test_facts_of_a_message() -> None:
    full = amqp_properties(NO_PUBLISH, qos=2, wall_ms=0, dup=True, retain=True, client="me")
    assert facts_of(full.headers) == Facts(2, True, True, b"me")
    assert facts_of(plain_properties(0).headers) == Facts(0, False, False, None)


@pytest.mark.parametrize(
    "headers",
    [None, {}, {"x-mqtt-publish-qos": longstr("x")}, {"x-mqtt-publish-qos": Field("b", 3)}],
)
def test_messages_of_amqps_clients_count_as_qos_1(headers: dict[str, Field] | None) -> None:
    assert facts_of(headers) == Facts(1, False, False, None)


def test_headers_of_amqps_clients_become_user_properties_if_they_are_texts() -> None:
    headers = {
        "text": longstr("value"),
        "number": Field("I", 1),
        "bytes": longstr(b"\xff"),
        "zero": longstr(b"\0"),
        "x-death": longstr("no"),
        "": longstr("empty"),
    }
    found = mqtt_properties(delivered(Properties(headers=headers, content_type="a\0b")), NOW_MS)
    assert found == PublishProperties(user_properties=(("text", "value"), ("", "empty")))


def test_an_expiration_without_a_time_of_publishing_is_given_as_it_is() -> None:
    assert mqtt_properties(delivered(Properties(expiration="5000")), NOW_MS).message_expiry_s == 5


@pytest.mark.parametrize(
    ("expiration", "timestamp", "shown_s"),
    [("500", None, 1), ("60000", 1_600_000_000, 60), ("60000", 0, 60), ("0", None, 0)],
)
def test_a_message_of_amqps_clients_is_given_as_long_as_the_broker_has_it(
    expiration: str, timestamp: int | None, shown_s: int
) -> None:
    """An expiration may be less than a second, and a timestamp is what the publisher means by it."""
    properties = Properties(expiration=expiration, timestamp=timestamp)
    assert not is_expired(properties, NOW_MS)
    assert mqtt_properties(delivered(properties), NOW_MS).message_expiry_s == shown_s


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b"])
def test_a_response_topic_that_no_client_of_mqtt_may_get_is_left_out(topic: str) -> None:
    """A response topic has no wildcard [MQTT-3.3.2-14]; AMQP's clients may write anything into the header."""
    headers = {"x-reply-to-topic": longstr(topic)}
    assert mqtt_properties(delivered(Properties(headers=headers)), NOW_MS).response_topic is None


USER_PROPERTIES = st.lists(st.tuples(st.text(max_size=20), st.text(max_size=50)), max_size=20).map(tuple)


@given(USER_PROPERTIES, st.none() | st.text(max_size=300), st.none() | st.binary(max_size=300))
def test_the_size_of_properties_in_amqp_is_not_above_what_is_said(
    user_properties: tuple[tuple[str, str], ...], content_type: str | None, correlation: bytes | None
) -> None:
    published = PublishProperties(
        user_properties=user_properties,
        content_type=content_type,
        correlation_data=correlation,
        message_expiry_s=9,
    )
    mapped = amqp_properties(published, qos=2, wall_ms=NOW_MS, dup=True, retain=True, client="c" * 50)
    assert len(content_header(1 << 40, mapped)) <= header_bytes(mapped)


def test_correlation_data_that_are_too_long_for_mqtt_are_left_out() -> None:
    headers = {"x-correlation-id": Field("x", bytes(65_536))}
    found = mqtt_properties(delivered(Properties(headers=headers)), NOW_MS)
    assert encode_publishes(Version.MQTT_5, "a", [b"m"], properties=found)
    assert found.correlation_data is None
