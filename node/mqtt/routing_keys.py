"""The translation between MQTT's topics and AMQP's routing keys, as RabbitMQ's plug-in does it.

    MQTT   a/+/#   ◄─►   a.*.#   AMQP

Nothing is escaped, so `a/b` and `a.b` are one routing key, which comes back as `a/b`; a level `*` comes back as `+`,
which is no topic of a message (`topics.is_topic_name`). A Sparkplug topic's version may be kept apart: with
`is_sparkplug`, `spBv1.0/…` is `spBv1___0.…`.
Source: RabbitMQ 3.10.8, rabbit_mqtt_util:to_amqp, to_mqtt, get_topic_translation_funs.
"""

import re
from functools import lru_cache
from typing import Final

CACHED_KEY_MAX_BYTES: Final = 256
"""Longer keys are translated each time, so that the caches have a bound in bytes, too."""

CACHED_KEYS: Final = 4096

_TO_AMQP: Final = str.maketrans("/+", ".*")
_TO_MQTT: Final = str.maketrans(".*", "/+")

_SPARKPLUG_TOPIC: Final = re.compile(r"sp[AB]v[0-9]+\.[0-9]+/")
_SPARKPLUG_KEY: Final = re.compile(r"sp[AB]v[0-9]+___[0-9]+\.")
_SPARKPLUG_DOT: Final = "___"


@lru_cache(CACHED_KEYS)
def _short_key(topic: str) -> str:
    return topic.translate(_TO_AMQP)


@lru_cache(CACHED_KEYS)
def _short_topic(key: str) -> str:
    return key.translate(_TO_MQTT)


def routing_key(topic: str, *, is_sparkplug: bool = False) -> str:
    """Return the routing key of a topic, or the binding key of a filter.

    It has as many bytes as the topic, and AMQP allows 255: longer ones are for the caller to refuse. Only with
    `is_sparkplug` it may have two more.
    """
    if is_sparkplug and _SPARKPLUG_TOPIC.match(topic):
        topic = topic.replace(".", _SPARKPLUG_DOT, 1)
    return _short_key(topic) if len(topic) <= CACHED_KEY_MAX_BYTES else topic.translate(_TO_AMQP)


def topic_of(key: str, *, is_sparkplug: bool = False) -> str:
    """Return the topic of a routing key. It need not be one that a message may have, as AMQP's clients choose keys."""
    topic = _short_topic(key) if len(key) <= CACHED_KEY_MAX_BYTES else key.translate(_TO_MQTT)
    if is_sparkplug and _SPARKPLUG_KEY.match(key):
        topic = topic.replace(_SPARKPLUG_DOT, ".", 1)
    return topic
