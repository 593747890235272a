"""Clients that never finish a TLS handshake, or begin thousands of them (docs/limits.md, "Sockets, before AMQP")."""

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from node.amqp.constants import PROTOCOL_HEADER
from tests.adversity.siege import Siege
from tests.adversity.test_handshakes import ended
from tests.kit.authority import Authority, client_context
from tests.kit.node_process import NodeProcess
from tests.kit.ports import free_port

pytestmark = pytest.mark.slow

RECORD_HEAD = b"\x16\x03\x01\x40\x00"
"""The head of a record of 16 KiB: the largest that there is."""

OPENINGS = (b"", b"\x16", RECORD_HEAD, RECORD_HEAD + b"\x01\x00\x3f\xfc\x03\x03" + bytes(8000))
"""Silence, half a head, a head, and half a ClientHello of 16 KiB."""


class Encrypted(NamedTuple):
    """A node with a TLS listener beside the plain one, where the bystander is."""

    node: NodeProcess
    port: int
    context: ssl.SSLContext

    def dial(self) -> socket.socket:
        return socket.create_connection((self.node.host, self.port), 10.0)


@pytest.fixture
def encrypted(start_node: Callable[..., NodeProcess], tmp_path: Path) -> Encrypted:
    authority = Authority(tmp_path)
    server = authority.issue([("CN", "localhost")], [x509.DNSName("localhost")])
    port = free_port()
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_handshake_timeout": "1000",
        "ssl_options.certfile": server.certificate_file,
        "ssl_options.keyfile": server.key_file,
    }
    return Encrypted(start_node(settings), port, client_context(authority))


def test_500_tls_handshakes_that_stop_end_at_the_time_out(encrypted: Encrypted) -> None:
    """ssl_handshake_timeout, here 1 s, counts from the accept. OpenSSL's state is some 40 KiB for each of them."""
    with Siege(encrypted.node, peak_mib=500 * 64 // 1024, kept_mib=32):
        attackers = []
        for number in range(500):
            attackers.append(encrypted.dial())
            attackers[-1].sendall(OPENINGS[number % len(OPENINGS)])
        assert ended(attackers, within=15.0) == 500
        for attacker in attackers:
            attacker.close()


def test_what_is_no_tls_ends_the_connection_that_sent_it(encrypted: Encrypted) -> None:
    """AMQP, HTTP, alerts, records that are too long: 300 of them; none of our frames is the answer."""
    garbage = (
        PROTOCOL_HEADER,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\xff\xff" * 5000,
    )
    with Siege(encrypted.node, peak_mib=24):
        for number in range(300):
            attacker, answer = encrypted.dial(), b""
            with contextlib.suppress(ConnectionError):
                attacker.sendall(garbage[number % len(garbage)])
                while data := attacker.recv(4096):
                    answer += data
            attacker.close()
            assert b"AMQP" not in answer
            assert b"RabbitMQ" not in answer


def test_100_tls_handshakes_whose_client_leaves(encrypted: Encrypted) -> None:
    """The costliest thing that a stranger can ask for, a signature: after it the client is gone. Others are served."""
    with Siege(encrypted.node, peak_mib=24):
        for _ in range(100):
            with encrypted.dial() as plain:
                encrypted.context.wrap_socket(plain, server_hostname="localhost").close()
