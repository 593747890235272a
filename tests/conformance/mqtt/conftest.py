"""Fixtures of MQTT's tests: a server with the plug-in, and clients that end with the test."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.conformance.conftest import Bystander
from tests.conformance.mqtt.paho_client import PahoClient
from tests.kit.ports import free_ports
from tests.kit.servers import Server, Settings, start_server


class MqttServer(NamedTuple):
    """A server with the plug-ins for MQTT.   mqtt_port, web_port: where their clients are accepted."""

    server: Server
    mqtt_port: int
    web_port: int


def start_mqtt(settings: Settings | None = None) -> MqttServer:
    """Start what FLUFFLE_TEST_AGAINST names, with the plug-ins for MQTT."""
    port, web_port = free_ports(2)
    given = {
        "mqtt.listeners.tcp.1": f"127.0.0.1:{port}",
        "web_mqtt.tcp.ip": "127.0.0.1",
        "web_mqtt.tcp.port": str(web_port),
        **(settings or {}),
    }
    return MqttServer(start_server(given, plugins=("rabbitmq_mqtt", "rabbitmq_web_mqtt")), port, web_port)


@pytest.fixture(scope="session")
def mqtt_server() -> Iterator[MqttServer]:
    """The server of all of MQTT's tests."""
    started = start_mqtt()
    yield started
    started.server.stop()


@pytest.fixture(scope="session")
def server(mqtt_server: MqttServer) -> Server:
    """Give the same server, as AMQP's clients see it."""
    return mqtt_server.server


@pytest.fixture(scope="session")
def bystander(server: Server) -> Iterator[Bystander]:
    made = Bystander(server)
    yield made
    made.leave()


@pytest.fixture
def mqtt(mqtt_server: MqttServer) -> Iterator[Callable[..., PahoClient]]:
    """Connect clients with `PahoClient`'s arguments; they end with the test."""
    made: list[PahoClient] = []

    def connect(
        client_id: str, *arguments: object, port: int = mqtt_server.mqtt_port, **options: object
    ) -> PahoClient:
        made.append(PahoClient(port, client_id, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield connect
    for each in made:
        each.cut()
