"""Fixtures of the shovels' tests: a server with the plug-in, another broker, and shovels that end with their test."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from node.amqp import methods as m
from tests.kit.amqp_client import Channel, Connection
from tests.kit.http_api import HttpApi, quote
from tests.kit.managed_fluffle import ManagedFluffle
from tests.kit.patience import LIMIT_S, patience, wait_until
from tests.kit.rabbit_server import RABBITMQ_SERVER, RabbitServer
from tests.kit.servers import Server, start_server

PLUGINS = ("rabbitmq_shovel", "rabbitmq_shovel_management")
Row = dict[str, Any]


class Shovels:
    """The shovels of one server, by its HTTP API."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.api = HttpApi(server)
        self._names: list[str] = []

    def set(self, name: str, **keys: Any) -> None:
        """Set a shovel."""
        answer = self.put(name, **keys)
        assert answer.status in (201, 204), answer.text

    def set_within(self, name: str, source: str, destination: str, **keys: Any) -> None:
        """Set a shovel from a queue of the server to another one of it."""
        self.set(
            name, src_uri="amqp://", src_queue=source, dest_uri="amqp://", dest_queue=destination, **keys
        )

    def put(self, name: str, **keys: Any) -> Any:
        """Return the answer to a shovel with these keys; with None a key is left out."""
        value = {key.replace("_", "-"): found for key, found in keys.items() if found is not None}
        self._names.append(name)
        return self.api.put(f"/parameters/shovel/%2F/{quote(name)}", {"value": value})

    def rows(self) -> list[Row]:
        """Return the states of all shovels."""
        return list(self.api.get("/shovels").json)

    def row(self, name: str) -> Row | None:
        """Return the state of one shovel."""
        return next((row for row in self.rows() if row["name"] == name), None)

    def await_state(self, name: str, state: str) -> Row:
        """Wait until a shovel is in a state, and return it."""
        return wait_until(
            lambda: (row := self.row(name)) is not None and row["state"] == state and row,
            lambda: f"shovel {name} is {state}: {self.row(name)}",
        )

    def close(self) -> None:
        """Delete all shovels of the test."""
        for name in self._names:
            self.api.delete(f"/parameters/shovel/%2F/{quote(name)}")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server whose shovels are tested."""
    started = start_server(with_management=True, plugins=PLUGINS)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def other() -> Iterator[Server]:
    """A broker of the other make: RabbitMQ beside Fluffle, and Fluffle beside RabbitMQ. It has the plug-in, too."""
    started: Server
    if os.environ.get("FLUFFLE_TEST_AGAINST") == "rabbitmq":
        started = ManagedFluffle({}, PLUGINS)
    elif shutil.which(RABBITMQ_SERVER) is None and not os.path.exists(RABBITMQ_SERVER):
        pytest.skip("RabbitMQ is not installed")
    else:
        started = RabbitServer({}, with_management=True, plugins=PLUGINS)
    yield started
    started.stop()


@pytest.fixture
def shovels(server: Server) -> Iterator[Shovels]:
    """The shovels of the server."""
    found = Shovels(server)
    yield found
    found.close()


@pytest.fixture
def queue(name: Callable[[str], str]) -> Iterator[Callable[..., Channel]]:
    """Make a channel of a server with a queue in which these messages wait: `queue(server, "q", b"1", b"2")`."""
    connections: list[Connection] = []

    def make(at: Server, queue: str, *bodies: bytes) -> Channel:
        connections.append(Connection(at))
        channel = connections[-1].channel()
        channel.call(m.QueueDeclare, queue=queue, durable=True)
        channel.call(m.ConfirmSelect)
        for body in bodies:
            connections[-1].publish(1, "", queue, body)
            channel.expect(m.BasicAck)
        return channel

    yield make
    for each in connections:
        each.abandon()


def drain(channel: Channel, queue: str, count: int) -> list[bytes]:
    """Return so many messages of a queue, in their order, as they come; the queue must be there."""
    return [channel.wait_get(queue, within=LIMIT_S * patience()).body for _ in range(count)]
