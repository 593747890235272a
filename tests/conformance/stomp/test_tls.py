"""STOMP over TLS: the node's certificate, and a client's certificate that names its user."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.stomp.conftest import start_stomp
from tests.kit import certificates
from tests.kit.ports import free_port
from tests.kit.servers import Server
from tests.kit.stomp_client import StompClient

NAMES = ("localhost", "ada")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of the server and of a client."""
    directory = tmp_path_factory.mktemp("certs")
    certificates.make(directory, *NAMES)
    return directory


@pytest.fixture(scope="module")
def tls_server(files: Path) -> Iterator[tuple[Server, int]]:
    """A server with a TLS listener, and its port."""
    port = free_port()
    settings = {
        "stomp.listeners.ssl.default": f"127.0.0.1:{port}",
        "stomp.ssl_cert_login": "true",
        "ssl_cert_login_from": "common_name",
        "ssl_options.cacertfile": str(files / "ca.pem"),
        "ssl_options.certfile": str(files / "localhost.pem"),
        "ssl_options.keyfile": str(files / "localhost.key"),
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "false",
    }
    started = start_stomp(settings)
    started.server.admin.add_user("ada", "secret")
    started.server.admin.set_permissions("ada", "/", ".*", ".*", ".*")
    yield started.server, port
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


def test_a_client_over_tls(tls_server: tuple[Server, int], files: Path) -> None:
    client = wrapped(tls_server[1], files, None)
    assert client.connect().command == "CONNECTED"
    client.done("SUBSCRIBE", destination="/queue/stomp-tls", id="1")
    client.send("SEND", b"x" * 100_000, destination="/queue/stomp-tls")
    assert client.messages(1) == [b"x" * 100_000]
    client.close()


def test_a_certificate_names_the_user(tls_server: tuple[Server, int], files: Path) -> None:
    client = wrapped(tls_server[1], files, "ada")
    client.send("CONNECT", accept_version="1.2", host="/")
    assert client.frame().command == "CONNECTED"
    message, detail = client.ask("SEND", b"m", destination="/topic/a", user_id="guest").told
    assert message == "precondition_failed"
    assert detail.endswith("user_id property set to 'guest' but authenticated user was 'ada'")
    client.close()


def test_a_login_counts_before_a_certificate(tls_server: tuple[Server, int], files: Path) -> None:
    client = wrapped(tls_server[1], files, "ada")
    assert client.connect().command == "CONNECTED"
    client.done("SEND", b"m", destination="/topic/a", user_id="guest")
    client.close()
