"""Hostile STOMP clients: what they send costs what docs/limits.md says, and others are served meanwhile."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.adversity.siege import Siege
from tests.kit.attack import flood
from tests.kit.node_process import NodeProcess, enabled_plugins
from tests.kit.ports import HOST, free_port
from tests.kit.server_process import MIB
from tests.kit.stomp_client import StompClient

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]


class StompNode(NodeProcess):
    """A node with the plug-in.   stomp: its port."""

    def __init__(self, directory: Path) -> None:
        self.stomp = free_port()
        super().__init__(directory, environment=enabled_plugins(directory, "rabbitmq_stomp"))
        self.start({"stomp.listeners.tcp.default": f"{HOST}:{self.stomp}"})

    def client(self) -> StompClient:
        """Return a connection that is not logged in."""
        return StompClient(HOST, self.stomp)

    def logged_in(self) -> StompClient:
        """Return one that is."""
        client = self.client()
        assert client.connect().command == "CONNECTED"
        return client


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StompNode]:
    """A node that must still be there at the end, without a traceback in its log."""
    started = StompNode(tmp_path)
    yield started
    code = started.stop()
    log = started.log_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
    assert code == 0, log[-4000:]


def test_before_login_a_connection_costs_little(node: StompNode, siege: Begin) -> None:
    """200 clients hold a head of 16 KiB that never ends: it is held twice while a piece comes."""
    with siege(peak_mib=200 * 64 // 1024):
        attackers = [node.client() for _ in range(200)]
        for attacker in attackers:
            attacker.send_raw(b"CONNECT\nlogin:" + b"a" * 16_000)
        for attacker in attackers:
            attacker.close()


@pytest.mark.parametrize(
    "endless",
    [
        b"CONNECT\nlogin:" + bytes(1),
        b"\n",
        b"\0",
        b"SEND\ndestination:/queue/a\n\nx\0",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_floods_before_login_are_ended(node: StompNode, siege: Begin, endless: bytes) -> None:
    with siege(peak_mib=8):
        attackers = [node.client() for _ in range(10)]
        for attacker in attackers:
            flood(attacker.socket, endless * (MIB // len(endless)), seconds=0.3)
            attacker.close()


def test_a_body_that_is_announced_costs_nothing(node: StompNode, siege: Begin) -> None:
    with siege(peak_mib=8):
        attackers = [node.logged_in() for _ in range(20)]
        for attacker in attackers:
            attacker.send_raw(b"SEND\ndestination:/queue/a\ncontent-length:99999999999\n\n")
            assert attacker.frame().told[0] == "Bad frame"
            attacker.close()


def test_heads_that_never_end_are_refused(node: StompNode, siege: Begin) -> None:
    """20 clients send a head of 120 KiB in small pieces: held twice while a piece comes."""
    with siege(peak_mib=20):
        attackers = [node.logged_in() for _ in range(20)]
        for attacker in attackers:
            attacker.send_raw(b"SEND\n")
            for _ in range(123):
                attacker.send_raw(b"a:" + b"b" * 1000)
            assert attacker.frame().told[0] == "Bad frame"
            attacker.close()


@pytest.mark.parametrize(
    "frame",
    [
        b"SEND\ndestination:/topic/a\n\n\0",
        b"SEND\ndestination:/topic/a\nreceipt:a\n\n\0",
        b"BEGIN\ntransaction:t\n\n\0ABORT\ntransaction:t\n\n\0",
        b"\n",
    ],
)
def test_floods_of_small_frames_leave_others_their_turns(node: StompNode, siege: Begin, frame: bytes) -> None:
    """Five clients send 5 MiB of frames, a part of each after the other, so that frames of several wait."""
    with siege(peak_mib=64):
        attackers = [node.logged_in() for _ in range(5)]
        piece = frame * (MIB // 4 // len(frame))
        for _ in range(4):
            for attacker in attackers:
                flood(attacker.socket, piece, seconds=0.05, most=len(piece))
        for attacker in attackers:
            attacker.close()


def test_floods_of_subscriptions_are_read_as_they_are_carried_out(node: StompNode, siege: Begin) -> None:
    """Bytes that the node has not read stay in the buffers of the system, so the end is noticed after them."""
    frame = b"SUBSCRIBE\ndestination:/topic/a\nid:1\n\n\0UNSUBSCRIBE\nid:1\n\n\0"
    with siege(peak_mib=16):
        attackers = [node.logged_in() for _ in range(5)]
        for attacker in attackers:
            attacker.send_raw(frame * 500)
        for attacker in attackers:
            attacker.done("BEGIN", transaction="the end")
            attacker.close()


def test_a_client_that_never_reads_stops_being_read(node: StompNode, siege: Begin) -> None:
    """Receipts pile up to 16 MiB, then the client's requests are not read."""
    with siege(peak_mib=48):
        attacker = node.logged_in()
        attacker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        receipt = b"r" * 1000
        flood(attacker.socket, (b"SEND\ndestination:/topic/a\nreceipt:%b\n\n\0" % receipt) * 1000, seconds=3)
        attacker.close()


def test_transactions_are_bounded(node: StompNode, siege: Begin) -> None:
    with siege(peak_mib=160):
        attacker = node.logged_in()
        attacker.done("BEGIN", transaction="t")
        frame = (
            b"SEND\ndestination:/topic/a\ntransaction:t\ncontent-length:1000000\n\n"
            + bytes(1_000_000)
            + b"\0"
        )
        with contextlib.suppress(OSError):
            for _ in range(200):
                attacker.send_raw(frame)
        attacker.close()


def test_subscription_storms_are_bounded(node: StompNode, siege: Begin) -> None:
    """A thousand subscriptions, each with a queue of its own, come and go with their connection."""
    with siege(peak_mib=64):
        attacker = node.logged_in()
        for number in range(1000):
            attacker.send("SUBSCRIBE", destination=f"/topic/a.{number}", id=number)
        assert attacker.nothing_more()
        attacker.close()
