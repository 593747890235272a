"""MQTT over WebSocket with paho, against Fluffle's plug-in and RabbitMQ 3.10.8's."""

from collections.abc import Callable

import pytest
import websocket

from tests.conformance.mqtt.conftest import MqttServer
from tests.conformance.mqtt.paho_client import V5, V311, Connect
from tests.kit.server_cluster import is_rabbitmq

Name = Callable[[str], str]

VERSIONS = [V311] if is_rabbitmq() else [V311, V5]


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_over_a_websocket(mqtt: Connect, mqtt_server: MqttServer, name: Name, version: int) -> None:
    """Clients over WebSocket and over TCP talk to each other; a lost one's will is published."""
    topic = name("t")
    web = mqtt(
        name("w"),
        version,
        port=mqtt_server.web_port,
        transport="websockets",
        will=(topic, b"gone", 1, False),
    )
    plain = mqtt(name("c"), version)
    for client in (web, plain):
        client.subscribe((topic, 1))
    web.publish(topic, b"w" * 100_000)
    plain.publish(topic, b"c")
    for client in (web, plain):
        assert client.await_messages(2) == [(topic, b"w" * 100_000, 1, False), (topic, b"c", 1, False)]
    web.cut()
    assert plain.await_messages(1) == [(topic, b"gone", 1, False)]


def test_the_sub_protocol_is_chosen(mqtt_server: MqttServer) -> None:
    """The node selects `mqtt` [MQTT-6.0.0-4]."""
    client = websocket.create_connection(f"ws://127.0.0.1:{mqtt_server.web_port}/ws", subprotocols=["mqtt"])
    assert client.getsubprotocol() == "mqtt"
    client.close()
