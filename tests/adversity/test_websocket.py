"""Hostile clients over WebSocket: compressed messages that become large (docs/limits.md, "STOMP")."""

import socket
import zlib
from collections.abc import Callable, Iterator

import pytest

from tests.adversity.siege import Siege
from tests.kit.client_steps import TIMEOUT_S
from tests.kit.node_process import NodeProcess
from tests.kit.patience import patience
from tests.kit.ports import HOST, free_port
from tests.kit.server_process import MIB
from tests.kit.websocket_frames import BINARY, PING, client_frame, request

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]

CONNECT = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0"
PONG_HEAD = bytes((0x8A, 4))


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def node(start_node: Callable[..., NodeProcess], port: int) -> NodeProcess:
    """A node with the plug-in for STOMP over WebSocket."""
    return start_node({"web_stomp.tcp.listener": f"{HOST}:{port}"}, plugins=("rabbitmq_web_stomp",))


class Attacker:
    """A WebSocket whose messages are compressed."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=TIMEOUT_S * patience())
        self.socket.sendall(request(Sec_WebSocket_Extensions="permessage-deflate"))
        assert b"permessage-deflate" in self._read_until(b"\r\n\r\n")

    def log_in(self) -> None:
        """Log in to STOMP."""
        self.socket.sendall(client_frame(BINARY, CONNECT))
        self._read_until(b"\0\n")

    def send(self, message: bytes) -> None:
        """Send a message that is compressed already."""
        self.socket.sendall(client_frame(BINARY, message, is_deflated=True))

    def ping(self, number: int) -> None:
        """Ask for an answer that comes after all that was sent before, and wait for it."""
        self.socket.sendall(client_frame(PING, b"%04d" % number))
        self._read_until(PONG_HEAD + b"%04d" % number)

    def _read_until(self, end: bytes) -> bytes:
        data = b""
        while end not in data:
            received = self.socket.recv(65536)
            assert received, data
            data += received
        return data


@pytest.fixture
def attackers(node: NodeProcess, port: int) -> Iterator[Callable[[], Attacker]]:
    """Make attackers, whose sockets are closed at the end."""
    opened: list[Attacker] = []

    def make() -> Attacker:
        opened.append(Attacker(port))
        return opened[-1]

    yield make
    for each in opened:
        each.socket.close()


def bomb(block: bytes, count: int, head: bytes = b"") -> bytes:
    """Return a message that inflates to a head and a block so many times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    parts = [packer.compress(head), *(packer.compress(block) for _ in range(count))]
    return b"".join((*parts, packer.flush(zlib.Z_SYNC_FLUSH))).removesuffix(b"\0\0\xff\xff")


FRAME = b"SEND\ndestination:/topic/a\n\n\0"


@pytest.mark.parametrize(
    ("block", "mib"), [(b"\n" * MIB, 64), (FRAME * (MIB // 4 // len(FRAME)), 1)], ids=["blank", "frames"]
)
def test_a_message_that_becomes_large_costs_a_part_of_it(
    node: NodeProcess, siege: Begin, attackers: Callable[[], Attacker], block: bytes, mib: int
) -> None:
    """Five clients send messages that inflate to more than a node should hold: 320 MiB, or 175,000 frames."""
    message = bomb(block, mib if len(block) == MIB else 4 * mib)
    assert len(message) < 200_000
    with siege(peak_mib=32):
        opened = [attackers() for _ in range(5)]
        for attacker in opened:
            attacker.log_in()
        for attacker in opened:
            attacker.send(message)
        for number, attacker in enumerate(opened):
            attacker.ping(number)
            attacker.socket.close()


def test_a_head_that_becomes_large_is_refused(
    node: NodeProcess, siege: Begin, attackers: Callable[[], Attacker]
) -> None:
    """Before the login, too."""
    message = bomb(b"b" * MIB, 64, b"CONNECT\na:")
    with siege(peak_mib=16):
        opened = [attackers() for _ in range(5)]
        for attacker in opened[:2]:
            attacker.log_in()
        for attacker in opened:
            attacker.send(message)
            assert b"ERROR\nmessage:Bad frame\n" in attacker._read_until(b"\0\n")
            attacker.socket.close()


def test_a_body_that_becomes_large_is_bounded(
    node: NodeProcess, siege: Begin, attackers: Callable[[], Attacker]
) -> None:
    """A body that does not end is dropped at `max_message_size`, 128 MiB, as one that comes as it is."""
    message = bomb(b"b" * MIB, 160, b"SEND\ndestination:/topic/a\n\n")
    with siege(peak_mib=160):
        attacker = attackers()
        attacker.log_in()
        attacker.send(message)
        assert b"ERROR\nmessage:Bad frame\n" in attacker._read_until(b"\0\n")
        attacker.socket.close()
