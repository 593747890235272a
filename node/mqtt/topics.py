"""Topic names and topic filters: what is allowed, and shared subscriptions.

Source: MQTT 3.1.1 and 5.0, chapter 4.7; MQTT 5.0 §4.8.2.
"""

from typing import NamedTuple

from node.mqtt.constants import SHARE_PREFIX, STRING_MAX_BYTES
from node.mqtt.errors import MqttError
from node.mqtt.reason_codes import ReasonCode


class Shared(NamedTuple):
    """A shared subscription: the name of the group, and the filter of what its members share."""

    share_name: str
    filter: str


def check_topic_name(topic: str) -> None:
    """Raise an error unless the text can be the topic of a message.

    It has at least one character and no wildcard [MQTT-4.7.3-1, MQTT-4.7.1-1, MQTT-3.3.2-2].
    """
    if not topic:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic is empty")
    if "#" in topic or "+" in topic:
        raise MqttError(ReasonCode.TOPIC_NAME_INVALID, "a topic has a wildcard")
    _check_characters(topic, ReasonCode.TOPIC_NAME_INVALID)


def is_topic_name(text: str) -> bool:
    """True if the text can be the topic of a message. One that AMQP's clients chose need not be UTF-8, either."""
    if not text or "#" in text or "+" in text or "\0" in text:
        return False
    try:
        return len(text.encode()) <= STRING_MAX_BYTES
    except UnicodeEncodeError:
        return False


def check_topic_filter(text: str) -> None:
    """Raise an error unless the text can be the filter of a subscription, a shared one included.

    Each wildcard is a level of its own, and `#` is the last one [MQTT-4.7.1-1 to 4.7.1-3].
    """
    shared = shared_subscription(text)
    if shared is not None:
        text = shared.filter
    if not text:
        raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, "a topic filter is empty")
    if ("#" in text and text != "#" and not _ends_well(text)) or not _plus_stand_alone(text):
        raise MqttError(
            ReasonCode.TOPIC_FILTER_INVALID, "a wildcard is not a level of its own, or not the last"
        )
    _check_characters(text, ReasonCode.TOPIC_FILTER_INVALID)


def _ends_well(text: str) -> bool:
    return text.find("#") == len(text) - 1 and text.endswith("/#")


def _plus_stand_alone(text: str) -> bool:
    return "+" not in text or all(level == "+" for level in text.split("/") if "+" in level)


def _check_characters(text: str, code: ReasonCode) -> None:
    if "\0" in text:
        raise MqttError(code, "a topic contains U+0000")
    if not _fits(text):
        raise MqttError(code, "a topic is longer than 65,535 bytes")


def _fits(text: str) -> bool:
    return len(text) <= STRING_MAX_BYTES // 4 or len(text.encode()) <= STRING_MAX_BYTES


def shared_subscription(text: str) -> Shared | None:
    """Return the parts of the filter `$share/NAME/FILTER`; None if the filter is not of a shared subscription.

    Raises: MqttError if the name is empty or has a wildcard, or no filter follows [MQTT-4.8.2-1, MQTT-4.8.2-2].
    """
    if not text.startswith(SHARE_PREFIX):
        return None
    name, slash, inner = text[len(SHARE_PREFIX) :].partition("/")
    if not name or "+" in name or "#" in name:
        raise MqttError(
            ReasonCode.TOPIC_FILTER_INVALID, "the name of a shared subscription is empty or has a wildcard"
        )
    if not slash or not inner:
        raise MqttError(ReasonCode.TOPIC_FILTER_INVALID, "a shared subscription has no filter")
    return Shared(name, inner)
