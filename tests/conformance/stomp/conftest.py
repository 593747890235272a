"""Fixtures of STOMP's tests: a server with the plug-in, and connections to it."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.kit.ports import free_port
from tests.kit.servers import Server, Settings, start_server
from tests.kit.stomp_client import StompClient

PLUGIN = "rabbitmq_stomp"
WEB_PLUGIN = "rabbitmq_web_stomp"

Open = Callable[..., StompClient]
"""Opens a connection that is logged in: `stomp()`, `stomp("1.0")`, `stomp(login="ada")`."""


class StompServer(NamedTuple):
    """A server and the port of its STOMP listener."""

    server: Server
    port: int


class WebServer(NamedTuple):
    """A server and the port of its listener for WebSockets."""

    server: Server
    port: int

    @property
    def url(self) -> str:
        """The address of the WebSocket."""
        return f"ws://127.0.0.1:{self.port}/ws"


def start_stomp(settings: Settings | None = None, plugins: Sequence[str] = (PLUGIN,)) -> StompServer:
    """Start a server whose plug-in listens on a port of its own."""
    port = free_port()
    listener = {"stomp.listeners.tcp.default": f"127.0.0.1:{port}"}
    return StompServer(start_server({**listener, **(settings or {})}, plugins=plugins), port)


@pytest.fixture(scope="session")
def stomp_server() -> Iterator[StompServer]:
    """The server of these tests, with default settings."""
    started = start_stomp()
    yield started
    started.server.stop()


@pytest.fixture(scope="session")
def web_server() -> Iterator[WebServer]:
    """A server with both plug-ins, for clients over WebSocket."""
    port = free_port()
    settings = {"web_stomp.tcp.ip": "127.0.0.1", "web_stomp.tcp.port": str(port)}
    started = start_stomp(settings, (PLUGIN, WEB_PLUGIN))
    yield WebServer(started.server, port)
    started.server.stop()


@pytest.fixture(scope="session")
def server(stomp_server: StompServer) -> Server:
    """The server for AMQP clients of the other fixtures, which is the same."""
    return stomp_server.server


@pytest.fixture
def raw(stomp_server: StompServer) -> Iterator[Open]:
    """Connections that are not logged in."""
    opened: list[StompClient] = []

    def connect(version: str = "1.2") -> StompClient:
        opened.append(StompClient(stomp_server.server.host, stomp_server.port, version))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def stomp(raw: Open) -> Open:
    """Connections that are logged in."""

    def connect(version: str = "1.2", **headers: object) -> StompClient:
        client = raw(version)
        answer = client.connect(**headers)
        assert answer.command == "CONNECTED", answer
        return client

    return connect
