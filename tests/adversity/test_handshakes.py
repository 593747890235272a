"""Clients that take their time, vanish, or come in crowds (docs/limits.md, "Connections and channels")."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable

import pytest

from node.amqp import methods
from node.amqp.constants import PROTOCOL_HEADER
from tests.adversity.siege import Siege
from tests.kit.amqp_client import Channel, Connection, ConnectionEnded
from tests.kit.attack import method
from tests.kit.node_process import NodeProcess
from tests.kit.patience import patience

pytestmark = pytest.mark.slow

Begin = Callable[..., Siege]
RESET = struct.pack("ii", 1, 0)


def dial(node: NodeProcess, source: str = "") -> socket.socket:
    """source: the address that it comes from."""
    return socket.create_connection((node.host, node.port), 10.0, (source, 0) if source else None)


def ended(sockets: list[socket.socket], within: float) -> int:
    """Return how many of the sockets the node ended in time, whatever it said before."""
    poll = select.poll()
    waiting = {each.fileno(): each for each in sockets}
    for number in waiting:
        poll.register(number, select.POLLIN)
    deadline = time.monotonic() + within
    while waiting and time.monotonic() < deadline:
        for number, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            data = b""
            with contextlib.suppress(ConnectionError):
                data = waiting[number].recv(65536)
            if not data:
                poll.unregister(number)
                del waiting[number]
    return len(sockets) - len(waiting)


def connect_soon(node: NodeProcess) -> None:
    """A well-behaved client gets in as soon as the node has seen the others go."""
    deadline = time.monotonic() + 10.0 * patience()
    while True:
        try:
            Connection(node).close()
            return
        except (ConnectionEnded, ConnectionError):
            assert time.monotonic() < deadline, "nobody gets in any more"
            time.sleep(0.05)


def test_500_slow_handshakes_end_at_the_time_out(start_node: Callable[..., NodeProcess]) -> None:
    """amqp-behaviour §1.1: handshake_timeout (here 2 s) from accept on, for clients that send nothing, half a header,
    a header and no more, or an octet now and then. They cost 16 KiB each, and others don't notice."""
    node = start_node({"handshake_timeout": "2000"})
    with Siege(node, peak_mib=500 * 16 // 1024 + 1) as siege:
        attackers = []
        for number in range(500):
            attackers.append(dial(node))
            attackers[-1].sendall(PROTOCOL_HEADER[: (0, 4, 7, 8)[number % 4]])
        begin = time.monotonic()
        while time.monotonic() < begin + 1.0:
            for attacker in attackers[1::4]:
                with contextlib.suppress(ConnectionError):
                    attacker.sendall(PROTOCOL_HEADER[4:5])
            time.sleep(0.5)
        assert len(siege.bystander.round_trips_s) > 20
        assert ended(attackers, within=10.0) == 500
        for attacker in attackers:
            attacker.close()


def test_peers_that_vanish_are_missed_by_their_heartbeats(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §1.6: no octet for two intervals of 1 s ends the connection; what it held is for others.

    A host that loses its power sends neither FIN nor RST; one that is silent looks the same to us.
    """
    with siege(peak_mib=8):
        owner = Connection(node)
        channel = owner.channel(1)
        queue = channel.declare()
        attackers = [Connection(node, heartbeat=1) for _ in range(50)]
        for number, attacker in enumerate(attackers):
            channel.publish("", queue, str(number).encode())
            content = attacker.channel(1).wait_get(queue, no_ack=False)
            assert content.body == str(number).encode()
        assert ended([attacker.socket for attacker in attackers], within=10.0) == 50
        deadline = time.monotonic() + 5.0
        while channel.call(methods.QueueDeclare, queue=queue, passive=True).message_count < 50:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [int(channel.wait_get(queue).body) for _ in range(50)] == list(range(50))
        channel.call(methods.QueueDelete, queue=queue)
        for attacker in attackers:
            attacker.socket.close()
        owner.close()


def test_65535_channels_end_at_channel_max(node: NodeProcess, siege: Begin) -> None:
    """amqp-behaviour §2.1: the 2,048th channel is one too many; 8 KiB each."""
    with siege(peak_mib=2047 * 8 // 1024 + 1):
        attacker = Connection(node)
        opens = b"".join(method(number, methods.ChannelOpen()) for number in range(1, 65536))
        with contextlib.suppress(ConnectionEnded):
            attacker.send_bytes(opens)
        for number in range(1, 2048):
            attacker.expect(methods.ChannelOpenOk, number)
        attacker.expect_connection_close(
            530,
            "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)",
            None,
        )


def test_channels_opened_and_closed_without_end(node: NodeProcess, siege: Begin) -> None:
    """Nothing of a channel stays when it is closed: 40,000 of them, with a consumer each for good measure."""
    with siege(peak_mib=16):
        attacker = Connection(node)
        attacker.channel(1).declare("churned", exclusive=True)
        cycle = b"".join(
            method(2, sent)
            for sent in (
                methods.ChannelOpen(),
                methods.BasicConsume(queue="churned", nowait=True),
                methods.ChannelClose(reply_code=200),
            )
        )
        for _ in range(40):
            attacker.send_bytes(cycle * 1000)
            for _ in range(1000):
                attacker.expect(methods.ChannelOpenOk, 2)
                attacker.expect(methods.ChannelCloseOk, 2)
        attacker.close()


def test_2000_connections_that_come_and_go(node: NodeProcess, siege: Begin) -> None:
    """At all stages of a connection's life, by FIN or by reset; among them 500 with a queue and a consumer."""
    with siege(peak_mib=24):
        for number in range(1500):
            attacker = dial(node)
            attacker.sendall((b"", PROTOCOL_HEADER, PROTOCOL_HEADER[:3])[number % 3])
            if number % 2:
                attacker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            attacker.close()
        for _ in range(500):
            connection = Connection(node)
            channel: Channel = connection.channel(1)
            channel.consume(channel.declare(exclusive=True))
            connection.socket.close()


def test_more_sockets_than_files_are_allowed(start_node: Callable[..., NodeProcess]) -> None:
    """New clients wait while all file descriptors are taken, those that are in notice nothing, and then it goes on."""
    node = start_node(file_limit=64)
    with Siege(node, peak_mib=8):
        attackers = [dial(node) for _ in range(150)]
        assert ended(attackers, within=1.0) >= 150 - 64
        assert node.open_files() <= 64
        for attacker in attackers:
            attacker.close()
        connect_soon(node)


def test_crowds_beyond_connection_max_are_turned_away(start_node: Callable[..., NodeProcess]) -> None:
    """connection_max: those above it are reset before they cost anything; a place that is left is free again."""
    node = start_node({"connection_max": "20"})
    with Siege(node, peak_mib=8):
        attackers = [dial(node) for _ in range(300)]
        assert ended(attackers[19:], within=5.0) == 281, "the bystander has one of the twenty"
        assert ended(attackers[:19], within=0.1) == 0
        for attacker in attackers:
            attacker.close()
        connect_soon(node)
