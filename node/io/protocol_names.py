"""Operators have several names for each protocol of a node's `listeners`. Source: management §1.11, §3.2."""

from typing import Final

_OTHER_NAMES: Final = {
    "amqp": (
        "amqp091",
        "amqp0.9.1",
        "amqp0-9-1",
        "amqp0_9_1",
        "amqp10",
        "amqp1.0",
        "amqp1-0",
        "amqp1_0",
    ),
    "amqp/ssl": ("amqps",),
    "mqtt": (
        "mqtt3.1",
        "mqtt3.1.1",
        "mqtt31",
        "mqtt311",
        "mqtt3_1",
        "mqtt3_1_1",
    ),
    "mqtt/ssl": (
        "mqtts",
        "mqtt+tls",
        "mqtt+ssl",
    ),
    "stomp": (
        "stomp1.0",
        "stomp1.1",
        "stomp1.2",
        "stomp10",
        "stomp11",
        "stomp12",
        "stomp1_0",
        "stomp1_1",
        "stomp1_2",
    ),
    "stomp/ssl": (
        "stomps",
        "stomp+tls",
        "stomp+ssl",
    ),
    "http": ("management",),
    "http/prometheus": ("prometheus",),
    "http/web-mqtt": (
        "web-mqtt",
        "web_mqtt",
        "webmqtt",
    ),
    "https/web-mqtt": (
        "web-mqtts",
        "web_mqtts",
    ),
    "http/web-stomp": (
        "web-stomp",
        "web_stomp",
        "webstomp",
    ),
    "https/web-stomp": (
        "web-stomps",
        "web_stomps",
    ),
    "clustering": (
        "cli",
        "distribution",
    ),
}
_NAMES: Final = {other: name for name, others in _OTHER_NAMES.items() for other in others}


def protocol_named(given: str) -> str:
    """Return the protocol with this name or alias, in any case; an unknown name in lower case."""
    name = given.lower()
    return _NAMES.get(name, name)
