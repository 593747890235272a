"""STOMP over TLS, on TCP and on WebSocket: the node's certificate, and a client's certificate that names its user.

The clients are raw frames, stomp.py in all versions, and websocket-client.
"""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import stomp
import websocket

from tests.conformance.stomp.conftest import PLUGIN, WEB_PLUGIN, start_stomp
from tests.conformance.stomp.test_client_stomp_py import KINDS, Heard, connection_options
from tests.kit import certificates
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.ports import free_port
from tests.kit.server_cluster import is_rabbitmq
from tests.kit.servers import Server
from tests.kit.stomp_client import StompClient

NAMES = ("localhost", "ada")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of the server and of a client."""
    directory = tmp_path_factory.mktemp("certs")
    certificates.make(directory, *NAMES)
    return directory


class TlsServer(NamedTuple):
    """A server, and the ports of its listeners with TLS."""

    server: Server
    port: int
    web_port: int


@pytest.fixture(scope="module")
def tls_server(files: Path) -> Iterator[TlsServer]:
    """A server with listeners with TLS, to which the certificate of ada is a login."""
    port, web_port = free_port(), free_port()
    certificate = {
        "cacertfile": str(files / "ca.pem"),
        "certfile": str(files / "localhost.pem"),
        "keyfile": str(files / "localhost.key"),
    }
    settings = {
        "stomp.listeners.ssl.default": f"127.0.0.1:{port}",
        "stomp.ssl_cert_login": "true",
        "web_stomp.tcp.ip": "127.0.0.1",
        "web_stomp.tcp.port": str(free_port()),
        "web_stomp.ssl.ip": "127.0.0.1",
        "web_stomp.ssl.port": str(web_port),
        "ssl_cert_login_from": "common_name",
        **{f"ssl_options.{key}": file for key, file in certificate.items()},
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "false",
    }
    if is_rabbitmq():  # whose plug-in has a certificate of its own, and asks clients for none
        settings |= {f"web_stomp.ssl.{key}": file for key, file in certificate.items()}
    started = start_stomp(settings, (PLUGIN, WEB_PLUGIN))
    started.server.admin.add_user("ada", "secret")
    started.server.admin.set_permissions("ada", "/", ".*", ".*", ".*")
    yield TlsServer(started.server, port, web_port)
    started.server.stop()


def wrapped(port: int, files: Path, name: str | None) -> StompClient:
    """Return a connection over TLS, with the certificate of that name."""
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    context.check_hostname = False
    if name is not None:
        context.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    client = StompClient("127.0.0.1", port)
    client.socket = context.wrap_socket(client.socket)
    return client


def test_a_client_over_tls(tls_server: TlsServer, files: Path) -> None:
    client = wrapped(tls_server.port, files, None)
    assert client.connect().command == "CONNECTED"
    client.done("SUBSCRIBE", destination="/queue/stomp-tls", id="1")
    client.send("SEND", b"x" * 100_000, destination="/queue/stomp-tls")
    assert client.messages(1) == [b"x" * 100_000]
    client.close()


def test_a_certificate_names_the_user(tls_server: TlsServer, files: Path) -> None:
    client = wrapped(tls_server.port, files, "ada")
    client.send("CONNECT", accept_version="1.2", host="/")
    assert client.frame().command == "CONNECTED"
    message, detail = client.ask("SEND", b"m", destination="/topic/a", user_id="guest").told
    assert message == "precondition_failed"
    assert detail.endswith("user_id property set to 'guest' but authenticated user was 'ada'")
    client.close()


def test_a_login_counts_before_a_certificate(tls_server: TlsServer, files: Path) -> None:
    client = wrapped(tls_server.port, files, "ada")
    assert client.connect().command == "CONNECTED"
    client.done("SEND", b"m", destination="/topic/a", user_id="guest")
    client.close()


# --- stomp.py ---


Secured = Callable[[str, str | None], tuple[Any, Heard]]
"""Make a connection of stomp.py: `secured("1.2", "ada")` has the certificate of ada."""


@pytest.fixture
def secured(tls_server: TlsServer, files: Path) -> Iterator[Secured]:
    """Connections of stomp.py over TLS, with a version and a certificate, and what each hears; they end with the test.

    Over TLS stomp.py does not see that a server has ended a connection: its thread then reads the end of the file again
    and again, without a pause, until it is told to stop.
    """
    made: list[tuple[Any, Heard]] = []
    address = ("localhost", tls_server.port)

    def make(version: str, name: str | None) -> tuple[Any, Heard]:
        connection = KINDS[version]([address], **connection_options(version))
        own = (
            {}
            if name is None
            else {"cert_file": str(files / f"{name}.pem"), "key_file": str(files / f"{name}.key")}
        )
        connection.set_ssl([address], ca_certs=str(files / "ca.pem"), **own)
        heard = Heard()
        connection.set_listener("heard", heard)
        made.append((connection, heard))
        return connection, heard

    yield make
    for connection, heard in made:
        connection.transport.running = False
        heard.until("disconnected")


@pytest.mark.parametrize("version", KINDS)
def test_stomp_py_with_a_password(secured: Secured, version: str, name: Callable[[str], str]) -> None:
    connection, heard = secured(version, None)
    connection.connect("guest", "guest", wait=True)
    destination = f"/queue/{name('q')}"
    connection.subscribe(destination, id="1", ack="auto")
    connection.send(destination, "m" * 100_000, headers={"receipt": "r"})
    found = [heard.events.get(timeout=TIMEOUT_S) for _ in range(2)]
    assert {kind for kind, _, _ in found} == {"message", "receipt"}
    assert {len(body) for kind, _, body in found if kind == "message"} == {100_000}
    connection.disconnect()


@pytest.mark.parametrize("version", KINDS)
def test_stomp_py_with_a_certificate(secured: Secured, version: str, name: Callable[[str], str]) -> None:
    """A client that names no user is the one of its certificate: the node tells of another one in `user-id`."""
    connection, heard = secured(version, "ada")
    connection.connect(wait=True)
    destination = f"/queue/{name('q')}"
    connection.subscribe(destination, id="1", ack="auto")
    connection.send(destination, "mine", headers={"user-id": "ada"})
    headers, body = heard.next("message")
    assert (headers["user-id"], body) == ("ada", "mine")
    connection.send(destination, "of another one", headers={"user-id": "guest"})
    _, body = heard.next("error")
    assert "authenticated user was 'ada'" in body


def test_stomp_py_refuses_a_server_that_it_cannot_check(tls_server: TlsServer, files: Path) -> None:
    address = ("localhost", tls_server.port)
    connection = stomp.StompConnection12([address], **connection_options("1.2"))
    connection.set_ssl([address])
    with pytest.raises(stomp.exception.ConnectFailedException):
        connection.connect("guest", "guest", wait=True)


# --- WebSocket ---


def opened(tls_server: TlsServer, files: Path, name: str | None) -> Any:
    """Return a WebSocket over TLS, with the certificate of that name."""
    own = (
        {}
        if name is None
        else {"certfile": str(files / f"{name}.pem"), "keyfile": str(files / f"{name}.key")}
    )
    return websocket.create_connection(
        f"wss://localhost:{tls_server.web_port}/ws",
        subprotocols=["v12.stomp"],
        timeout=TIMEOUT_S,
        sslopt={"ca_certs": str(files / "ca.pem"), **own},
    )


def test_a_websocket_over_tls(tls_server: TlsServer, files: Path) -> None:
    client = opened(tls_server, files, None)
    client.send("CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
    assert client.recv().startswith("CONNECTED\n")
    client.send("SUBSCRIBE\ndestination:/queue/web-tls\nid:1\n\n\0SEND\ndestination:/queue/web-tls\n\nm\0")
    assert client.recv().rstrip("\n").endswith("\n\nm\0")
    client.close()


def test_a_certificate_names_the_user_of_a_websocket(tls_server: TlsServer, files: Path) -> None:
    """RabbitMQ 3.10.8's plug-in has no key to have clients asked for their certificates."""
    if is_rabbitmq():
        pytest.skip("its listener asks for no certificate")
    client = opened(tls_server, files, "ada")
    client.send("CONNECT\naccept-version:1.2\nhost:/\n\n\0SEND\ndestination:/topic/a\nuser-id:guest\n\nm\0")
    assert client.recv().startswith("CONNECTED\n")
    assert "authenticated user was 'ada'" in client.recv()
    client.close()
