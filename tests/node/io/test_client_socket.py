"""One socket: TLS and who the peer is, PROXY headers and whom they are believed, and writing to slow clients."""

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, PROTOCOL_HEADER
from node.catalogue.commands import PutUser, SetPermission
from node.config.config import (
    AuthOptions,
    CertificateLogin,
    Config,
    NetworkOptions,
    SocketOptions,
    TlsOptions,
)
from node.config.values import NETWORK
from tests.kit.amqp_client import Connection, ConnectionEnded
from tests.kit.attack import many, method
from tests.kit.authority import Authority, Identity, client_context
from tests.kit.server_thread import LOOPBACK, ServerThread, accepted_socket, config, unsent_bytes

pytestmark = pytest.mark.real

NOISE_S = 8.0
FLOOD_MAX_BYTES = 200_000_000
"""Far more than the limits and all buffers of the kernel hold."""
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\n"
V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(command: int, family: int, body: bytes) -> bytes:
    return V2_SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


V2_IPV4 = v2(
    0x21,
    0x11,
    socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.1") + struct.pack(">HH", 40000, 5672),
)
V2_LOCAL = v2(0x20, 0x00, b"")


# --- plain sockets ---


def test_the_name_is_the_peers_address_and_ours() -> None:
    """amqp-behaviour §1.10: `PEERIP:PORT -> LOCALIP:PORT`."""
    with ServerThread() as server:
        client = Connection(server)
        ours, theirs = server.port, client.socket.getsockname()[1]
        assert server.names() == [f"127.0.0.1:{theirs} -> 127.0.0.1:{ours}"]
        client.close()


def test_socket_options_reach_the_socket() -> None:
    options = SocketOptions(keepalive=True, send_buffer_bytes=16384, receive_buffer_bytes=16384)
    with ServerThread(config(socket=options)) as server:
        client = Connection(server)
        sock = server.call(lambda: accepted_socket(next(iter(server.server._client_sockets))))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        # Linux doubles what it is asked for.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (16384, 32768)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (16384, 32768)
        linger = sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        assert struct.unpack("ii", linger) == (1, 0), "our closing resets (amqp-behaviour §0.3)"
        client.close()


# --- TLS ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory: Path = tmp_path_factory.mktemp("ca")
    return Authority(directory)


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Identity:
    return authority.issue([("O", "Acme"), ("CN", "alice")])


@pytest.fixture(scope="module")
def tls_config(authority: Authority) -> Config:
    """One TLS listener that takes client certificates of the authority; EXTERNAL is on."""
    own = authority.issue([("CN", "localhost")], [x509.DNSName("localhost")])
    return config(
        tcp_listeners=(),
        tls_listeners=(LOOPBACK,),
        tls=TlsOptions(own.certificate_file, own.key_file, ca_file=authority.ca_file, verify_peer=True),
        auth=AuthOptions(mechanisms=("PLAIN", "EXTERNAL"), certificate_login=CertificateLogin("common_name")),
        network=NetworkOptions(tls_handshake_timeout_s=0.5),
    )


class TlsClient(Connection):
    """A client that speaks TLS before it speaks AMQP."""

    def __init__(self, server: ServerThread, context: ssl.SSLContext) -> None:
        super().__init__(server, open=False)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def log_in(self, mechanism: str, response: bytes | None = None) -> None:
        self.start()
        self.send_start_ok(mechanism, response)
        self.tune()
        self.open_vhost()


def allow_alice(server: ServerThread) -> None:
    server.submit(PutUser("alice", "", "", ()), SetPermission("/", "alice", ".*", ".*", ".*"))


def test_plain_over_tls(tls_config: Config, authority: Authority) -> None:
    with ServerThread(tls_config) as server:
        assert [listener.is_tls for listener in server.listeners] == [True]
        client = TlsClient(server, client_context(authority))
        client.log_in("PLAIN")
        channel = client.channel(1)
        queue = channel.declare(exclusive=True)
        body = bytes(range(256)) * 4000
        channel.publish("", queue, body)
        assert channel.wait_get(queue).body == body
        client.close()


def test_external_makes_the_certificates_name_the_user(
    tls_config: Config, authority: Authority, alice: Identity
) -> None:
    """amqp-behaviour §1.3 row `EXTERNAL`."""
    with ServerThread(tls_config) as server:
        allow_alice(server)
        client = TlsClient(server, client_context(authority, alice))
        assert b"EXTERNAL" in client.start().mechanisms.split()
        client.send_start_ok("EXTERNAL", b"")
        client.tune()
        client.open_vhost()
        names = server.call(lambda: [each.user_name for each in server.broker.connections.values()])
        assert names == ["alice"]
        client.close()


@pytest.mark.parametrize("source", ["distinguished_name", "subject_alternative_name"])
def test_external_takes_the_name_that_is_configured(
    tls_config: Config, authority: Authority, source: str
) -> None:
    bob = authority.issue([("O", "Acme"), ("CN", "nobody")], [x509.DNSName("bob.example")])
    user = {"distinguished_name": "CN=nobody,O=Acme", "subject_alternative_name": "bob.example"}[source]
    auth = replace(tls_config.auth, certificate_login=CertificateLogin(source))  # type: ignore[arg-type]
    with ServerThread(replace(tls_config, auth=auth)) as server:
        server.submit(PutUser(user, "", "", ()), SetPermission("/", user, ".*", ".*", ".*"))
        client = TlsClient(server, client_context(authority, bob))
        client.log_in("EXTERNAL", b"")
        client.close()


def test_external_without_a_certificate_or_with_an_unknown_name_is_refused(
    tls_config: Config, authority: Authority
) -> None:
    stranger = authority.issue([("CN", "stranger")])
    with ServerThread(tls_config) as server:
        allow_alice(server)
        for identity in (None, stranger):
            client = TlsClient(server, client_context(authority, identity))
            client.start()
            client.send_start_ok("EXTERNAL", b"")
            client.expect_nothing(0.2)
            client.socket.close()


def test_external_is_not_offered_without_tls(tls_config: Config) -> None:
    with ServerThread(replace(tls_config, tcp_listeners=(LOOPBACK,), tls_listeners=())) as server:
        client = Connection(server, open=False)
        assert client.start().mechanisms == b"PLAIN"
        client.socket.close()


def test_a_certificate_of_another_authority_is_refused(
    tls_config: Config, authority: Authority, tmp_path: Path
) -> None:
    impostor = Authority(tmp_path).issue([("CN", "alice")])
    with ServerThread(tls_config) as server:
        # In TLS 1.3 the client learns of the refusal when it first reads.
        with pytest.raises((ssl.SSLError, ConnectionEnded, ConnectionError)):
            TlsClient(server, client_context(authority, impostor)).start()
        assert server.names() == []


def test_a_mandatory_client_certificate(tls_config: Config, authority: Authority, alice: Identity) -> None:
    """`ssl_options.fail_if_no_peer_cert`: who has none gets no further than the TLS handshake."""
    strict = replace(tls_config, tls=replace(tls_config.tls, require_peer_certificate=True))
    with ServerThread(strict) as server:
        allow_alice(server)
        with pytest.raises((ssl.SSLError, ConnectionEnded, ConnectionError)):
            # In TLS 1.3 the client learns of the refusal when it first reads.
            TlsClient(server, client_context(authority)).start()
        assert server.names() == []
        client = TlsClient(server, client_context(authority, alice))
        client.log_in("EXTERNAL", b"")
        client.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["silence", "half a record"])
def test_a_tls_handshake_has_its_own_time_out(tls_config: Config, sent: bytes) -> None:
    """ssl_handshake_timeout, here 0.5 s."""
    with ServerThread(tls_config) as server:
        begin = time.monotonic()
        client = socket.create_connection((server.host, server.port), NOISE_S)
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1000) == b""
        assert time.monotonic() - begin >= 0.4
        client.close()


def test_amqp_without_tls_at_a_tls_listener_is_refused(tls_config: Config) -> None:
    with ServerThread(tls_config) as server:
        client = socket.create_connection((server.host, server.port), NOISE_S)
        client.sendall(PROTOCOL_HEADER)
        with contextlib.suppress(ConnectionResetError):
            while answer := client.recv(1000):
                assert b"AMQP" not in answer
        client.close()
        assert server.names() == []


# --- PROXY ---


@pytest.fixture
def behind_balancer() -> Iterator[ServerThread]:
    """A server that believes balancers on the loopback."""
    options = NetworkOptions(
        handshake_timeout_s=1.0, proxy_protocol=True, proxy_protocol_sources=(NETWORK.parse("127.0.0.0/8"),)
    )
    with ServerThread(config(network=options)) as server:
        yield server


class BalancedClient(Connection):
    """A client whose balancer sends a header first."""

    def __init__(self, server: ServerThread, header: bytes, *, send: Callable[[bytes], list[bytes]]) -> None:
        super().__init__(server, open=False)
        for piece in send(header + PROTOCOL_HEADER):
            self.send_bytes(piece)
        self.expect(methods.ConnectionStart)


def whole(data: bytes) -> list[bytes]:
    return [data]


def octet_by_octet(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("send", [whole, octet_by_octet])
@pytest.mark.parametrize("header", [V1, V2_IPV4], ids=["v1", "v2"])
def test_a_proxy_header_names_the_connection(
    behind_balancer: ServerThread, header: bytes, send: Callable[[bytes], list[bytes]]
) -> None:
    client = BalancedClient(behind_balancer, header, send=send)
    assert behind_balancer.names() == ["192.0.2.7:40000 -> 198.51.100.1:5672"]
    client.socket.close()


@pytest.mark.parametrize("header", [V1, V2_IPV4], ids=["v1", "v2"])
def test_loopback_users_are_judged_by_the_address_in_the_header(
    behind_balancer: ServerThread, header: bytes
) -> None:
    """guest may log in over the loopback only: the balancer is there, the client isn't (reliability §6)."""
    client = BalancedClient(behind_balancer, header, send=whole)
    client.send_start_ok()
    client.expect_nothing(0.2)
    client.socket.close()


@pytest.mark.parametrize(
    "header",
    [
        V2_LOCAL,
        b"PROXY UNKNOWN\r\n",
        v2(
            0x21,
            0x11,
            socket.inet_aton("127.0.0.1") + socket.inet_aton("127.0.0.1") + struct.pack(">HH", 1, 2),
        ),
    ],
    ids=["v2 LOCAL", "v1 UNKNOWN", "v2 from the loopback"],
)
def test_who_comes_from_the_balancers_own_machine_is_on_the_loopback(
    behind_balancer: ServerThread, header: bytes
) -> None:
    client = BalancedClient(behind_balancer, header, send=whole)
    client.send_start_ok()
    client.tune()
    client.open_vhost()
    client.close()


@pytest.mark.parametrize(
    "sent",
    [
        PROTOCOL_HEADER,
        b"PROXY TCP4 192.0.2.7 nonsense 1 2\r\n" + PROTOCOL_HEADER,
        b"PROXY " + b"x" * 200,
        v2(0x22, 0x11, bytes(12)),
        v2(0x21, 0x11, bytes(3)),
    ],
    ids=["none", "bad address", "too long", "bad command", "too short"],
)
def test_a_balancer_without_a_good_header_is_refused(behind_balancer: ServerThread, sent: bytes) -> None:
    """Nothing is answered that a client could take for AMQP."""
    client = Connection(behind_balancer, open=False)
    client.send_bytes(sent)
    client.expect_end()
    assert behind_balancer.names() == []
    assert len(behind_balancer.refusals) == 1


@pytest.mark.slow
def test_a_balancer_that_says_nothing_is_refused_at_the_handshake_time_out(
    behind_balancer: ServerThread,
) -> None:
    client = Connection(behind_balancer, open=False)
    client.send_bytes(V1[:10])
    client.expect_end(NOISE_S)
    assert behind_balancer.refusals == ["no PROXY header in time"]


@pytest.mark.slow
def test_a_health_check_that_leaves_before_its_header_is_no_error(behind_balancer: ServerThread) -> None:
    """A health check that has left before its header is refused nothing when the time is up."""
    socket.create_connection((behind_balancer.host, behind_balancer.port), NOISE_S).close()
    time.sleep(1.3)
    assert behind_balancer.refusals == []


@pytest.mark.parametrize("header", [V1, V2_IPV4], ids=["v1", "v2"])
def test_a_proxy_header_from_anybody_else_is_no_amqp(header: bytes) -> None:
    """A client could lie about its address: it gets what garbage gets (amqp-behaviour §1.1)."""
    options = NetworkOptions(
        proxy_protocol=True, proxy_protocol_sources=(NETWORK.parse("10.0.0.0/8"), NETWORK.parse("::1/128"))
    )
    with ServerThread(config(network=options)) as server:
        client = Connection(server, open=False)
        client.send_bytes(header)
        with contextlib.suppress(ConnectionError):
            answer = client.socket.recv(100)
            assert answer in (PROTOCOL_HEADER, b"")
        client.socket.close()
        assert not any("192.0.2.7" in name for name in server.names())
        # And without a header it is an ordinary client.
        Connection(server).close()


def test_a_header_is_not_looked_for_when_proxy_protocol_is_off() -> None:
    options = NetworkOptions(proxy_protocol=False, proxy_protocol_sources=(NETWORK.parse("127.0.0.0/8"),))
    with ServerThread(config(network=options)) as server:
        Connection(server).close()


# --- slow clients ---
# They do not read, and that is all. With a receive buffer made small as well, the kernel announces no new window when
# they read again: the server's kernel finds out by probes, each twice as late as the one before.


@pytest.fixture
def narrow() -> Iterator[ServerThread]:
    """A server whose sockets hide little of what is unread."""
    with ServerThread(config(socket=SocketOptions(send_buffer_bytes=65536))) as server:
        yield server


def unsent(server: ServerThread) -> list[int]:
    return server.call(
        lambda: [unsent_bytes(client_socket) for client_socket in server.server._client_sockets]
    )


@pytest.mark.slow
def test_a_slow_consumer_stops_only_its_own_consumers(narrow: ServerThread) -> None:
    """A slow consumer takes what fits its buffers, in order; the rest goes to the consumer beside it."""
    slow, quick, publisher = Connection(narrow), Connection(narrow), Connection(narrow)
    channel = publisher.channel(1)
    queue = channel.declare()
    slow.channel(1).consume(queue, no_ack=True)
    quick_channel = quick.channel(1)
    quick_channel.consume(queue, no_ack=True)
    count, body_bytes = 3000, 4000
    for number in range(count):
        channel.publish("", queue, struct.pack(">I", number) + bytes(body_bytes - 4))
    channel.sync()
    # All that the slow one was not given comes to the quick one: the queue runs empty.
    got: list[int] = []
    while True:
        got.append(struct.unpack_from(">I", quick_channel.deliver().body)[0])
        if narrow.call(lambda: not narrow.broker.vhosts["/"].queues[queue].backlog.count):
            with contextlib.suppress(AssertionError):
                while True:
                    got.append(struct.unpack_from(">I", quick_channel.deliver(0.3).body)[0])
            break
    assert got == sorted(got)
    held = count - len(got)
    assert 0 < held * body_bytes < 8 * 2**20, "what one consumer may have unread"
    slow_channel = slow.channel(2)  # its own answers still come, behind what it has not read
    left = [
        struct.unpack_from(">I", slow.expect_content(methods.BasicDeliver, 1).body)[0] for _ in range(held)
    ]
    assert left == sorted(left)
    assert sorted(got + left) == list(range(count))
    slow_channel.sync()
    for client in (slow, quick, publisher):
        client.close()


@pytest.mark.slow
def test_a_slow_consumer_goes_on_when_it_reads_again(narrow: ServerThread) -> None:
    """Alone on its queue: nothing is lost, nothing out of order, and the queue waits meanwhile."""
    slow = Connection(narrow)
    channel = slow.channel(1)
    queue = channel.declare(exclusive=True)
    publisher = slow.channel(2)
    channel.consume(queue, no_ack=True)
    count = 5000
    for number in range(count):
        publisher.publish("", queue, struct.pack(">I", number) + bytes(3000))
    narrow.wait_until(lambda: narrow.broker.vhosts["/"].queues[queue].backlog.count > 0)
    assert max(unsent(narrow)) < 4 * 2**20
    for number in range(count):
        assert struct.unpack_from(">I", channel.deliver().body)[0] == number
    slow.close()


BUSY_S = 120.0
"""A machine that is busy is waited for so long."""


def flood_until_full(server: ServerThread, client: Connection, asked: bytes) -> int:
    """Send requests again and again until the server has stopped reading and the kernel takes no more. It does not
    matter how long that takes, on a busy machine.   Returns: the bytes sent.
    """
    data = memoryview(asked * 2000)
    sock = client.socket
    sock.setblocking(False)

    def is_output_full() -> bool:
        return any(client_socket._is_output_full for client_socket in server.server._client_sockets)

    def is_full() -> bool:
        return not select.select([], [sock], [], 0)[1]

    sent = 0
    while sent < FLOOD_MAX_BYTES:
        try:
            sent += sock.send(data[sent % len(data) :])
        except BlockingIOError:
            server.wait_until(lambda: is_output_full() or not is_full(), within=BUSY_S)
            if server.call(is_output_full) and is_full():
                break
    return sent


@pytest.mark.slow
def test_a_client_that_never_reads_is_no_longer_read_from(
    narrow: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replies to a client that never reads are bounded; when it reads after all it gets every answer, in order."""
    most = 4 * 2**20
    monkeypatch.setattr("node.io.client_socket.UNREAD_REPLIES_MAX_BYTES", most)
    client = Connection(narrow)
    client.channel(1)
    # A long name: its answers fill the limit with a tenth of the requests that a short one needs.
    asked = method(1, methods.QueueDeclare(queue="asked".ljust(255, "."), exclusive=True))
    client.send_bytes(asked)
    sent = flood_until_full(narrow, client, asked)
    assert sent < FLOOD_MAX_BYTES, "we went on reading"
    assert most < max(unsent(narrow)) < 2 * most
    for _ in range(1 + sent // len(asked)):
        client.expect(methods.QueueDeclareOk, 1)
    client.socket.close()


def test_last_words_reach_a_client_that_still_has_much_to_read(narrow: ServerThread) -> None:
    """An error behind a megabyte of deliveries: the close comes, in its place."""
    client = Connection(narrow)
    channel = client.channel(1)
    queue = channel.declare(exclusive=True)
    for _ in range(100):
        channel.publish("", queue, bytes(10_000))
    client.send_bytes(many(1, [methods.BasicGet(queue=queue, no_ack=True)] * 100))
    client.send_frame(9, 0, b"")
    bodies = 0
    while (frame := client.read_frame()).type != 1 or not frame.payload.startswith(b"\0\x0a\0\x32"):
        bodies += frame.type == FRAME_BODY
    assert bodies == 100
    client.socket.close()
