"""The client stomp.py, unmodified, in all three versions."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import stomp

from tests.conformance.stomp.conftest import StompServer
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.patience import patience

Name = Callable[[str], str]

KINDS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}


def connection_options(version: str) -> dict[str, Any]:
    """Return what all connections need: without a vhost stomp.py names its server's address as one."""
    return {"reconnect_attempts_max": 1, **({"vhost": "/"} if version != "1.0" else {})}


class Heard(stomp.ConnectionListener):  # type: ignore[misc]
    """A listener that keeps what it is told: kind, headers and body."""

    def __init__(self) -> None:
        self.events: queue.Queue[tuple[str, dict[str, str], Any]] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.events.put(("message", frame.headers, frame.body))

    def on_error(self, frame: Any) -> None:
        self.events.put(("error", frame.headers, frame.body))

    def on_receipt(self, frame: Any) -> None:
        self.events.put(("receipt", frame.headers, frame.body))

    def on_disconnected(self) -> None:
        self.events.put(("disconnected", {}, ""))

    def next(self, kind: str) -> tuple[dict[str, str], Any]:
        """Wait for the next event, which has to be of that kind."""
        found, headers, body = self.events.get(timeout=TIMEOUT_S * patience())
        assert found == kind, (found, headers, body)
        return headers, body

    def until(self, kind: str) -> None:
        """Wait for an event of that kind, whatever comes before it."""
        while self.events.get(timeout=TIMEOUT_S * patience())[0] != kind:
            pass


class Client:
    """A connection, and what it hears."""

    def __init__(self, connection: Any, version: str) -> None:
        self.stomp, self.version = connection, version
        self.heard = Heard()
        connection.set_listener("heard", self.heard)
        connection.connect("guest", "guest", wait=True)

    def ack(self, headers: dict[str, str]) -> None:
        """Acknowledge a message, as the version wants it."""
        if self.version == "1.2":
            self.stomp.ack(headers["ack"])
        elif self.version == "1.1":
            self.stomp.ack(headers["message-id"], headers["subscription"])
        else:
            self.stomp.ack(headers["message-id"])


@pytest.fixture(params=KINDS)
def connect(stomp_server: StompServer, request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Connections of one version."""
    opened: list[Client] = []

    def make(**options: Any) -> Client:
        address = (stomp_server.server.host, stomp_server.port)
        connection = KINDS[request.param]([address], **connection_options(request.param), **options)
        opened.append(Client(connection, request.param))
        return opened[-1]

    yield make
    for each in opened:
        with contextlib.suppress(stomp.exception.StompException, OSError):  # the server may have ended it
            each.stomp.disconnect()


def test_messages_are_sent_and_acknowledged(connect: Callable[..., Client], name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.stomp.subscribe(destination, id="1", ack="client", headers={"prefetch-count": "1"})
    for number in range(3):
        client.stomp.send(destination, f"m{number}", headers={"colour": "grün: ja"})
    for number in range(3):
        headers, body = client.heard.next("message")
        assert (headers["colour"], body) == ("grün: ja", f"m{number}")
        client.ack(headers)
    client.stomp.unsubscribe(id="1")
    client.stomp.disconnect(receipt="bye")
    assert {client.heard.events.get(timeout=TIMEOUT_S)[0] for _ in range(2)} == {"receipt", "disconnected"}


def test_receipts(connect: Callable[..., Client], name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.stomp.send(destination, "m", headers={"receipt": "sent", "persistent": "true"})
    assert client.heard.next("receipt")[0]["receipt-id"] == "sent"


def test_transactions(connect: Callable[..., Client], name: Name) -> None:
    client, destination = connect(), f"/queue/{name('q')}"
    client.stomp.subscribe(destination, id="1", ack="auto")
    dropped = client.stomp.begin()
    client.stomp.send(destination, "dropped", transaction=dropped)
    client.stomp.abort(dropped)
    kept = client.stomp.begin()
    client.stomp.send(destination, "kept", transaction=kept)
    client.stomp.commit(kept)
    assert client.heard.next("message")[1] == "kept"


def test_topics_reach_all_subscribers(connect: Callable[..., Client], name: Name) -> None:
    clients, topic = [connect() for _ in range(3)], name("t")
    for number, client in enumerate(clients):
        headers = {"receipt": f"r{number}"}
        client.stomp.subscribe(f"/topic/{topic}.*", id="1", ack="auto", headers=headers)
        client.heard.next("receipt")
    clients[0].stomp.send(f"/topic/{topic}.news", "to all")
    for client in clients:
        assert client.heard.next("message")[1] == "to all"


def test_faults_are_heard(connect: Callable[..., Client]) -> None:
    client = connect()
    client.stomp.send("/nowhere/at/all", "m")
    headers, body = client.heard.next("error")
    assert headers["message"] == "Unknown destination"
    assert "/nowhere/at/all" in body


@pytest.mark.slow
def test_heart_beats_keep_a_connection(stomp_server: StompServer) -> None:
    address = (stomp_server.server.host, stomp_server.port)
    connection = stomp.StompConnection12([address], heartbeats=(1000, 1000), **connection_options("1.2"))
    client = Client(connection, "1.2")
    with pytest.raises(queue.Empty):
        client.heard.events.get(timeout=3.5)
    assert connection.is_connected()
    connection.disconnect()


def test_a_wrong_password_is_refused(stomp_server: StompServer) -> None:
    address = (stomp_server.server.host, stomp_server.port)
    connection = stomp.StompConnection12([address], **connection_options("1.2"))
    with pytest.raises(stomp.exception.ConnectFailedException):
        connection.connect("guest", "wrong", wait=True)
