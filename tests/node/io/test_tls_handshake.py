"""Each TLS handshake that fails has a line that says who came and why it failed; one that succeeds loses nothing."""

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.amqp.constants import PROTOCOL_HEADER
from node.config.config import NetworkOptions, TlsOptions
from node.config.values import NETWORK
from tests.kit.authority import Authority, client_context
from tests.kit.server_thread import LOOPBACK, ServerThread, config
from tests.node.io.test_client_socket import V1, V2_IPV4

pytestmark = pytest.mark.real

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("handshake"))


@pytest.fixture
def server(authority: Authority) -> Iterator[ServerThread]:
    own = authority.issue([("CN", "localhost")])
    tls = TlsOptions(
        own.certificate_file,
        own.key_file,
        ca_file=authority.ca_file,
        verify_peer=True,
        require_peer_certificate=True,
    )
    network = NetworkOptions(tls_handshake_timeout_s=1.0)
    options = config(tcp_listeners=(), tls_listeners=(LOOPBACK,), tls=tls, network=network)
    with ServerThread(options) as started:
        yield started


def refusal(server: ServerThread, sock: socket.socket) -> str:
    """The one line about this socket, without the part that says whose it was, which is checked."""
    host, port = sock.getsockname()
    server.wait_until(lambda: bool(server.refusals))
    [line] = server.refusals
    who = f"TLS handshake {host}:{port} -> {server.host}:{server.port} failed: "
    assert line.startswith(who)
    return line.removeprefix(who)


def unverified(authority: Authority) -> ssl.SSLContext:
    context = client_context(authority)
    context.check_hostname = False
    return context


@contextlib.contextmanager
def wrapped(server: ServerThread, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection((server.host, server.port), TIMEOUT_S)
    with context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False) as sock:
        yield sock


def test_a_client_that_does_not_trust_the_certificate(server: ServerThread) -> None:
    with wrapped(server, ssl.create_default_context()) as sock:
        with pytest.raises(ssl.SSLCertVerificationError):
            sock.do_handshake()
        assert refusal(server, sock) == (
            "the client sent the alert 'unknown ca' (the client does not trust the certificate of this node)"
        )


def test_a_client_without_a_certificate(server: ServerThread, authority: Authority) -> None:
    with wrapped(server, unverified(authority)) as sock:
        with contextlib.suppress(OSError):
            sock.do_handshake()
            sock.recv(1)  # with TLS 1.3 a client is done before the server has looked at its certificate
        assert refusal(server, sock) == (
            "'peer did not return a certificate' (fail_if_no_peer_cert asks for one)"
        )


def test_a_client_whose_certificate_nobody_vouches_for(
    server: ServerThread, authority: Authority, tmp_path: Path
) -> None:
    context = unverified(authority)
    mallory = Authority(tmp_path).issue([("CN", "mallory")])
    context.load_cert_chain(mallory.certificate_file, mallory.key_file)
    with wrapped(server, context) as sock:
        with contextlib.suppress(OSError):
            sock.do_handshake()
            sock.recv(1)
        assert re.fullmatch(
            r"the client's certificate is not accepted: .*certificate.*", refusal(server, sock)
        )


def test_a_client_that_speaks_amqp_without_tls(server: ServerThread) -> None:
    with socket.create_connection((server.host, server.port), TIMEOUT_S) as sock:
        sock.sendall(PROTOCOL_HEADER)
        assert refusal(server, sock) == (
            "'wrong version number' (the client does not speak TLS, or a version that is not allowed here)"
        )


def test_a_client_that_goes_away(server: ServerThread) -> None:
    with socket.create_connection((server.host, server.port), TIMEOUT_S) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert refusal(server, sock) == "the client closed the connection"


def test_a_client_that_says_nothing(server: ServerThread) -> None:
    with socket.create_connection((server.host, server.port), TIMEOUT_S) as sock:
        assert refusal(server, sock) == "not done in time"


def test_what_comes_right_behind_the_handshake_is_not_lost(
    server: ServerThread, authority: Authority
) -> None:
    """A client's last handshake message and its first bytes are often in one segment."""
    alice = authority.issue([("CN", "alice")])
    context = client_context(authority, alice)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    with socket.create_connection((server.host, server.port), TIMEOUT_S) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        tls.write(PROTOCOL_HEADER)
        sock.sendall(outgoing.read())
        found = b""
        while not found:
            incoming.write(sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                found = tls.read(65536)
        assert found[:4] == b"\x01\x00\x00\x00"
        server.wait_until(lambda: len(server.broker.connections) == 1)
    assert server.refusals == []


def test_a_server_that_stops_does_not_wait_for_handshakes(server: ServerThread) -> None:
    with socket.create_connection((server.host, server.port), TIMEOUT_S) as sock:
        server.wait_until(lambda: bool(server.server._handshakes))
        assert server.stop() < 1.0
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""


# --- behind a balancer ---


@pytest.fixture
def behind_balancer(authority: Authority) -> Iterator[ServerThread]:
    """A server for TLS that believes balancers on the loopback."""
    own = authority.issue([("CN", "localhost")])
    network = NetworkOptions(
        handshake_timeout_s=1.0, proxy_protocol=True, proxy_protocol_sources=(NETWORK.parse("127.0.0.0/8"),)
    )
    options = config(
        tcp_listeners=(),
        tls_listeners=(LOOPBACK,),
        tls=TlsOptions(own.certificate_file, own.key_file),
        network=network,
    )
    with ServerThread(options) as started:
        yield started


@pytest.mark.parametrize("header", [V1, V2_IPV4], ids=["v1", "v2"])
@pytest.mark.parametrize("at_once", [1, 1000], ids=["octet by octet", "whole"])
def test_a_proxy_header_comes_before_tls(
    behind_balancer: ServerThread, authority: Authority, header: bytes, at_once: int
) -> None:
    """As HAProxy's `send-proxy` with TLS passed through, and with `send-proxy ssl`."""
    plain = socket.create_connection((behind_balancer.host, behind_balancer.port), TIMEOUT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(header), at_once):
        plain.sendall(header[at : at + at_once])
    with unverified(authority).wrap_socket(plain) as sock:
        sock.sendall(PROTOCOL_HEADER)
        assert sock.recv(1) == b"\x01"
        assert behind_balancer.names() == ["192.0.2.7:40000 -> 198.51.100.1:5672"]
        assert behind_balancer.refusals == []


def test_header_and_client_hello_may_come_together(
    behind_balancer: ServerThread, authority: Authority
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = unverified(authority).wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection((behind_balancer.host, behind_balancer.port), TIMEOUT_S) as plain:
        plain.sendall(V1 + outgoing.read())
        assert plain.recv(1) == b"\x16", "a ServerHello"


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        (b"\x16\x03\x01", "no PROXY header"),
        (b"PROXY TCP4 192.0.2.7 nonsense 1 2\r\n", None),
        (V1[:10], "no PROXY header in time"),
    ],
    ids=["TLS at once", "bad", "half"],
)
def test_a_balancer_without_a_good_header_is_refused(
    behind_balancer: ServerThread, sent: bytes, refusal: str | None
) -> None:
    with socket.create_connection((behind_balancer.host, behind_balancer.port), TIMEOUT_S) as plain:
        plain.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(1) == b""
        behind_balancer.wait_until(lambda: bool(behind_balancer.refusals))
        [said] = behind_balancer.refusals
        assert refusal in (None, said)


def test_a_health_check_that_leaves_before_its_header_is_no_error(
    behind_balancer: ServerThread, authority: Authority
) -> None:
    socket.create_connection((behind_balancer.host, behind_balancer.port), TIMEOUT_S).close()
    with socket.create_connection((behind_balancer.host, behind_balancer.port), TIMEOUT_S) as plain:
        plain.sendall(V1)
        with unverified(authority).wrap_socket(plain) as sock:
            sock.sendall(PROTOCOL_HEADER)
            assert sock.recv(1) == b"\x01"
    assert behind_balancer.refusals == []
