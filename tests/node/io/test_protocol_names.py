"""Protocols have RabbitMQ's names (management §1.11, §3.2)."""

import pytest

from node.io.protocol_names import protocol_named


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("amqp091", "amqp"),
        ("AMQP", "amqp"),
        ("amqps", "amqp/ssl"),
        ("amqp/ssl", "amqp/ssl"),
        ("mqtt3.1.1", "mqtt"),
        ("stomp+tls", "stomp/ssl"),
        ("management", "http"),
        ("https", "https"),
        ("webmqtt", "http/web-mqtt"),
        ("web_stomps", "https/web-stomp"),
        ("distribution", "clustering"),
        ("gopher", "gopher"),
    ],
)
def test_names(given: str, expected: str) -> None:
    assert protocol_named(given) == expected
