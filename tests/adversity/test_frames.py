"""Frame bombs: what a client announces costs it nothing, so it must cost us nothing.

The limits: docs/limits.md, "Frames and contents".
"""

import contextlib
import socket
import struct
from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from tests.adversity.siege import Siege
from tests.kit.amqp_client import Connection, ConnectionEnded, content_header, frame
from tests.kit.attack import announce, flood, method, publish, settled
from tests.kit.node_process import NodeProcess
from tests.kit.server_process import MIB

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]
FOUR_GIB = 0xFFFFFFFF
HEARTBEAT = frame(8, 0, b"")


def frame_head(kind: int, channel: int, size: int) -> bytes:
    return struct.pack(">BHI", kind, channel, size)


def test_a_frame_of_4_gib_is_refused_before_a_byte_of_it_is_kept(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §1.7 row `payload length > frame_max`, by many, each of which sends what it announced."""
    with siege(peak_mib=8):
        attackers = [Connection(node) for _ in range(20)]
        for attacker in attackers:
            attacker.send_bytes(frame_head(FRAME_METHOD, 0, FOUR_GIB))
        for attacker in attackers:
            attacker.expect_connection_close(
                501,
                "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4294967295,131064}",
                None,
                answer=False,
            )
            flood(attacker.socket, bytes(MIB), seconds=0.2)
            attacker.socket.close()


def test_before_login_a_connection_costs_no_more_than_64_kib(node: NodeProcess, siege: Begin) -> None:
    """initial_frame_max is 4096: 200 clients that hold all of it but the last octet cost 64 KiB each at most."""
    with siege(peak_mib=200 * 64 // 1024):
        attackers = [Connection(node, open=False) for _ in range(200)]
        for attacker in attackers:
            attacker.start()
            attacker.send_bytes(frame_head(FRAME_METHOD, 0, 4088) + bytes(4088))
        for attacker in attackers:
            attacker.socket.close()


def test_frames_without_their_end_cost_what_frame_max_allows(node: NodeProcess, siege: Begin) -> None:
    """50 frames of 128 KiB that never end: their bytes, and as much again while they are joined."""
    with siege(peak_mib=2 * 50 * 128 // 1024 + 4):
        attackers = [Connection(node) for _ in range(50)]
        for attacker in attackers:
            attacker.send_bytes(frame_head(FRAME_METHOD, 0, 131064))
        for _ in range(130):
            for attacker in attackers:
                attacker.send_bytes(bytes(1000))
        for attacker in attackers:
            attacker.socket.close()


@pytest.mark.parametrize(
    ("opening", "endless"),
    [
        (b"", HEARTBEAT),
        (announce(1, 10), frame(FRAME_BODY, 1, b"")),
        (announce(1, 1 << 62), frame(FRAME_BODY, 1, b"x")),
        (b"", publish(1)),
        (b"", method(1, methods.ChannelFlow(active=True)) + method(1, methods.BasicQos())),
    ],
    ids=["heartbeats", "empty bodies", "a body of 2^62 octets", "empty publishes", "methods"],
)
def test_endless_tiny_frames_cost_nothing_but_their_own_time(
    node: NodeProcess, siege: Begin, opening: bytes, endless: bytes
) -> None:
    """None of them is kept; what is read at once, and unread replies, are bounded."""
    with siege(peak_mib=48):
        attacker = Connection(node)
        attacker.channel(1)
        attacker.send_bytes(opening)
        flood(attacker.socket, endless * (100_000 // len(endless)), seconds=1.5)
        attacker.socket.close()


def test_a_body_octet_by_octet_arrives_whole(node: NodeProcess, siege: Begin) -> None:
    """A segment for each octet, frames and all: slow is no error."""
    with siege(peak_mib=8):
        attacker = Connection(node)
        channel = attacker.channel(1)
        queue = channel.declare(exclusive=True)
        body = bytes(range(256)) * 64
        data = publish(1, body, routing_key=queue)
        for at in range(len(data)):
            attacker.send_bytes(data[at : at + 1])
        assert channel.wait_get(queue).body == body
        attacker.close()


def test_a_body_in_frames_of_one_octet_is_counted_with_what_they_cost(
    start_node: Callable[..., NodeProcess],
) -> None:
    """Unfinished contents: at most 2 × max_message_size, at least 16 MiB, an object's overhead counted for each frame;
    then 506, and a client that ignores it can add nothing more."""
    node = start_node({"max_message_size": str(16 * MIB)})
    with Siege(node, peak_mib=2 * 16 + 16):
        attacker = Connection(node)
        attacker.channel(1)
        attacker.send_bytes(announce(1, 16 * MIB))
        flood(attacker.socket, frame(FRAME_BODY, 1, b"x") * 20_000, seconds=4, most=9 * 2 * MIB)
        attacker.expect_connection_close(
            506,
            "RESOURCE_ERROR - unfinished messages of this connection exceed 33554432 bytes",
            None,
            answer=False,
        )
        flood(attacker.socket, frame(FRAME_BODY, 1, b"x" * 1000) * 100, seconds=1)
        attacker.socket.close()


def test_bodies_announced_on_all_channels_and_never_sent(node: NodeProcess, siege: Begin) -> None:
    """2,047 × 128 MiB announced: 8 KiB a channel with its unfinished content."""
    with siege(peak_mib=2047 * 8 // 1024):
        attacker = Connection(node)
        attacker.send_bytes(b"".join(method(number, methods.ChannelOpen()) for number in range(1, 2048)))
        for number in range(1, 2048):
            attacker.expect(methods.ChannelOpenOk, number)
        attacker.send_bytes(b"".join(announce(number, 128 * MIB) for number in range(1, 2048)))
        attacker.send_bytes(HEARTBEAT)
        attacker.expect_nothing(0.5)
        attacker.socket.close()


def test_bodies_sent_a_little_on_all_channels_are_bounded_together(
    start_node: Callable[..., NodeProcess],
) -> None:
    """As above, with bodies half sent: one bound for the connection, then 506, whatever the client goes on sending."""
    node = start_node({"max_message_size": str(16 * MIB)})
    with Siege(node, peak_mib=2 * 16 + 24):
        attacker = Connection(node)
        channels = range(1, 1001)
        attacker.send_bytes(b"".join(method(number, methods.ChannelOpen()) for number in channels))
        attacker.send_bytes(b"".join(announce(number, 16 * MIB) for number in channels))
        piece = bytes(100_000)
        bodies = b"".join(frame(FRAME_BODY, number, piece) for number in channels[:100])
        with contextlib.suppress(ConnectionEnded):
            for _ in range(20):
                attacker.send_bytes(bodies)
        attacker.socket.close()


def test_a_body_of_2_to_the_63_leaves_the_other_channels_alone(node: NodeProcess, siege: Begin) -> None:
    """A body beyond max_message_size is counted, not kept."""
    with siege(peak_mib=8):
        attacker = Connection(node)
        attacker.channel(1)
        other = attacker.channel(2)
        attacker.send_bytes(announce(1, (1 << 63) - 1))
        for _ in range(200):
            attacker.send_bytes(frame(FRAME_BODY, 1, bytes(131064)) * 2)
            settled(attacker, 2)
        other.close()
        attacker.socket.close()


def test_garbage_instead_of_a_protocol_header(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §1.1: answered with our header and reset; 300 of them, with a body of garbage behind."""
    openings = (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"AMQPAMQP")
    with siege(peak_mib=8):
        for number in range(300):
            attacker = socket.create_connection((node.host, node.port), 10.0)
            answer = b""
            with contextlib.suppress(ConnectionError):
                attacker.sendall(openings[number % 3] + b"A" * 20_000)
                while data := attacker.recv(4096):
                    answer += data
            attacker.close()
            assert answer in (b"", PROTOCOL_HEADER), (
                "the reset may overtake our header, nothing else may come"
            )


def test_a_header_frame_that_announces_properties_it_has_not(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §1.7 row `garbage property list`: 541, connection by connection."""
    with siege(peak_mib=8):
        for flags in (b"\xff\xff", b"\x20\x00\xff\xff\xff\xff", b"\x80\x00\xff"):
            attacker = Connection(node)
            attacker.channel(1)
            head = method(1, methods.BasicPublish(routing_key="nowhere"))
            attacker.send_bytes(head + frame(FRAME_HEADER, 1, content_header(0, flags)))
            attacker.expect_connection_close(541, "INTERNAL_ERROR", None)
