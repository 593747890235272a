"""Clients that are not logged in yet guess passwords or say things before AMQP begins (docs/limits.md, "Handshake")."""

import contextlib
import time
from collections.abc import Callable

import pytest

from node.amqp.field_table import boolean, table
from tests.adversity.siege import Siege
from tests.adversity.test_handshakes import dial, ended
from tests.kit.amqp_client import Connection, ConnectionEnded
from tests.kit.node_process import NodeProcess

pytestmark = pytest.mark.slow

PAUSE_S = 3.0
"""node/client/settings.py: auth_failure_delay_s."""

GUESSES = 300


def test_300_wrong_passwords_at_once(node: NodeProcess, siege: Callable[..., Siege]) -> None:
    """Each is one try, and its connection rests for 3 s: nothing more is read of it. Who is right is let in at once."""
    with siege(peak_mib=GUESSES * 64 // 1024 + 1):
        attackers = []
        began = time.monotonic()
        for number in range(GUESSES):
            attackers.append(Connection(node, "guest", f"guess {number}", open=False))
            attackers[-1].start()
            attackers[-1].send_start_ok()
        Connection(node).close()
        with contextlib.suppress(ConnectionEnded):
            # Another try on a connection that was refused is not looked at.
            attackers[-1].password = "guest"
            attackers[-1].send_start_ok()
        assert ended([each.socket for each in attackers], within=30.0) == GUESSES
        assert time.monotonic() - began >= PAUSE_S
        for each in attackers:
            each.socket.close()
    assert node.has_logged("user 'guest' - invalid credentials", GUESSES)


def test_a_client_that_asks_to_be_told_is_told_once(node: NodeProcess) -> None:
    """authentication_failure_close: 403 comes at once, and nothing is read after it."""
    properties = {"capabilities": table({"authentication_failure_close": boolean(True)})}
    client = Connection(node, "guest", "wrong", client_properties=properties, open=False)
    client.start()
    client.send_start_ok()
    client.expect_connection_close(
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
        None,
        answer=False,
    )
    client.password = "guest"
    with contextlib.suppress(ConnectionEnded):
        client.send_start_ok()
        client.expect_nothing(0.3)
    client.socket.close()


def test_300_proxy_headers_that_never_end(start_node: Callable[..., NodeProcess]) -> None:
    """From a source that is believed. Each may hold 4 KiB, until handshake_timeout, here 1 s."""
    settings = {
        "proxy_protocol": "true",
        "proxy_protocol_sources.1": "127.0.0.2/32",
        "handshake_timeout": "1000",
    }
    node = start_node(settings)
    starts = (
        b"",
        b"PROXY TCP4 192.0.2.7 ",
        b"\r\n\r\n\0\r\nQUIT\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x0f\xff" + bytes(4000),
    )
    with Siege(node, peak_mib=300 * 16 // 1024 + 1):
        attackers = []
        for number in range(300):
            attackers.append(dial(node, source="127.0.0.2"))
            attackers[-1].sendall(starts[number % len(starts)])
        assert ended(attackers, within=15.0) == 300
        for attacker in attackers:
            attacker.close()


@pytest.mark.parametrize("is_listed", [True, False])
def test_whose_header_is_believed(start_node: Callable[..., NodeProcess], is_listed: bool) -> None:
    """reliability §6 "Default user": of those that are not listed a header is no AMQP, and their own address counts."""
    settings = {"proxy_protocol": "true", "proxy_protocol_sources.1": "127.0.0.2/32"}
    node = start_node(settings)
    attacker = dial(node, source="127.0.0.2" if is_listed else "127.0.0.3")
    attacker.sendall(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\nAMQP\0\0\x09\x01")
    answer = b""
    with contextlib.suppress(ConnectionError):
        answer = attacker.recv(8)
    attacker.close()
    if is_listed:
        assert answer.startswith(b"\1\0\0"), "connection.start"
        assert node.has_logged("accepting AMQP connection")
        assert "(192.0.2.7:40000 -> " in node.log_text()
    else:
        assert answer in (b"", b"AMQP\0\0\x09\x01")
        assert node.has_logged("bad protocol header")
        assert "192.0.2.7" not in node.log_text()
