"""Listeners, the limit of connections, and the end: on real sockets of the loopback."""

import contextlib
import socket
import time
import weakref
from collections.abc import Collection, Iterator

import pytest

from node.amqp import methods
from node.amqp.constants import PROTOCOL_HEADER
from node.amqp.field_table import long
from node.amqp.properties import Properties
from node.client.base_connection import BaseConnection
from node.config.config import AmqpOptions, NetworkOptions
from node.config.values import NETWORK, Address
from node.io.client_socket import ClientSocket
from tests.kit.amqp_client import Connection, ConnectionEnded
from tests.kit.attack import many
from tests.kit.memory import assert_gone, no_search_for_cycles
from tests.kit.ports import free_port
from tests.kit.server_thread import LOOPBACK, Place, ServerThread, config

pytestmark = pytest.mark.real

SHUTDOWN_TEXT = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"

NOISE_S = 8.0
"""A busy machine may add this much to a time that is bounded."""


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as started:
        yield started


# --- listeners ---


def test_each_listener_serves() -> None:
    with ServerThread(config(tcp_listeners=(LOOPBACK, LOOPBACK))) as server:
        assert len(server.listeners) == 2
        assert not any(listener.is_tls for listener in server.listeners)
        ports = {listener.address.port for listener in server.listeners}
        assert len(ports) == 2
        assert 0 not in ports
        for listener in server.listeners:
            Connection(Place(*listener.address)).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_no_host_means_ipv4_and_ipv6_with_addresses_of_their_own() -> None:
    """A client of 127.0.0.1 is not shown as ::ffff:127.0.0.1."""
    port = free_port()
    with ServerThread(config(tcp_listeners=(Address("", port),))) as server:
        assert {listener.address for listener in server.listeners} == {
            Address("0.0.0.0", port),
            Address("::", port),
        }
        for host, shown in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
            client = Connection(Place(host, port))
            client_port = client.socket.getsockname()[1]
            assert server.names() == [f"{shown}:{client_port} -> {shown}:{port}"]
            client.close()
            server.wait_until(lambda: not server.broker.connections)


def test_a_port_in_use_is_an_error_and_leaves_no_listener_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = free_port()
        listeners = (Address("127.0.0.1", first), Address("127.0.0.1", taken.getsockname()[1]))
        with pytest.raises(OSError, match="in use"), ServerThread(config(tcp_listeners=listeners)):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first), 5.0)


# --- connection_max ---


def test_connection_max_turns_the_next_one_away_until_somebody_leaves() -> None:
    options = config(amqp=AmqpOptions(connection_max=2))
    with ServerThread(options) as server:
        first, second = Connection(server), Connection(server)
        with pytest.raises((ConnectionEnded, ConnectionError)):
            Connection(server)
        second.channel(1).sync()
        first.close()
        server.wait_until(lambda: len(server.broker.connections) == 1)
        Connection(server).close()
        second.close()


# --- who comes before AMQP begins ---


class TransportOfNobody:
    """The transport of a socket whose peer had reset it before it was accepted: it has no peer name."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.is_aborted = False

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self._socket if name == "socket" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing will be written."""

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


def test_a_peer_that_was_gone_before_we_accepted_it_is_dropped(server: ServerThread) -> None:
    """A peer that was gone before it was accepted is dropped, or its file descriptor would stay open for ever."""
    client_socket = ClientSocket(server.server)
    with socket.socket() as sock:
        transport = TransportOfNobody(sock)
        server.call(lambda: client_socket.connection_made(transport))  # type: ignore[arg-type]
        assert transport.is_aborted
        server.call(lambda: client_socket.connection_lost(None))
    assert server.names() == []


# --- the end ---


def test_stop_says_320_to_clients_and_closes_their_sockets(server: ServerThread) -> None:
    """amqp-behaviour §1.8 row `node stop`."""
    clients = [Connection(server) for _ in range(3)]
    assert server.stop() < 2.0 + NOISE_S
    for client in clients:
        client.expect_connection_close(320, SHUTDOWN_TEXT, None, answer=False)
        client.expect_end()


def test_stop_closes_the_listeners_first(server: ServerThread) -> None:
    """When a client hears 320 nobody else can connect any more."""
    client = Connection(server)
    server.call(lambda: server.broker.wake())
    server.stop()
    client.expect_connection_close(320, SHUTDOWN_TEXT, None, answer=False)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port), 5.0)


def test_stop_requeues_and_deletes_as_any_end_does(server: ServerThread) -> None:
    """Messages that a client held are back in their queue, and exclusive queues are gone, before the node is."""
    client = Connection(server)
    channel = client.channel(1)
    channel.declare("kept", durable=True)
    channel.declare("mine", exclusive=True)
    channel.publish("", "kept", b"held")
    assert channel.wait_get("kept", no_ack=False).body == b"held"
    server.stop()
    queues = server.broker.vhosts["/"].queues
    assert list(queues) == ["kept"]
    assert queues["kept"].backlog.count == 1


@pytest.mark.slow
def test_stop_is_bounded_however_little_a_client_reads(server: ServerThread) -> None:
    """SHUTDOWN_S, 2 s, for all together; then their sockets are reset."""
    clients = []
    for _ in range(3):
        client = Connection(server)
        channel = client.channel(1)
        channel.declare("large")
        channel.publish("", "large", bytes(1_000_000))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        cycle = (
            methods.BasicGet(queue="large"),
            methods.BasicNack(delivery_tag=0, multiple=True, requeue=True),
        )
        for _ in range(20):
            for sent in cycle:
                client.send(sent, 1)
        clients.append(client)
    server.wait_until(
        lambda: any(not connection.is_writable for connection in server.broker.connections.values())
    )
    assert server.stop() < 2.0 + NOISE_S
    assert server.names() == []
    for client in clients:
        with contextlib.suppress(ConnectionEnded, ConnectionError):
            while client.socket.recv(1 << 20):
                pass
        client.socket.close()


def test_stop_ends_those_who_are_still_shaking_hands(server: ServerThread) -> None:
    """A connection that is still shaking hands ends without connection.close (amqp-behaviour §1.8)."""
    silent = socket.create_connection((server.host, server.port), 10.0)
    half = socket.create_connection((server.host, server.port), 10.0)
    half.sendall(PROTOCOL_HEADER[:4])
    started = Connection(server, open=False)
    started.start()
    server.wait_until(lambda: len(server.broker.connections) == 3)
    assert server.stop() < 2.0 + NOISE_S
    started.expect_end()
    for each in (silent, half):
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(1000) == b""
        each.close()


def test_stop_ends_those_whose_balancer_has_said_nothing() -> None:
    options = config(
        network=NetworkOptions(proxy_protocol=True, proxy_protocol_sources=(NETWORK.parse("127.0.0.0/8"),))
    )
    with ServerThread(options) as server:
        balancer = socket.create_connection((server.host, server.port), 5.0)
        time.sleep(0.1)
        assert server.stop() < 2.0 + NOISE_S
        with contextlib.suppress(ConnectionResetError):
            assert balancer.recv(1000) == b""
        balancer.close()


# --- the turn ---


def test_timers_go_off_by_themselves(server: ServerThread) -> None:
    """A queue that expires unused is deleted without any client's doing (amqp-behaviour §5.3)."""
    client = Connection(server)
    channel = client.channel(1)
    channel.declare("short-lived", arguments={"x-expires": long(50)})
    server.wait_until(lambda: "short-lived" not in server.broker.vhosts["/"].queues)
    client.close()


def test_a_timer_set_by_a_client_shortens_the_wait(server: ServerThread) -> None:
    """A message that expires in 50 ms, while the broker's next own deadline is far away."""
    client = Connection(server)
    channel = client.channel(1)
    queue = channel.declare(exclusive=True)
    channel.publish("", queue, b"", Properties(expiration="50"))
    channel.sync()
    server.wait_until(lambda: not server.broker.vhosts["/"].queues[queue].backlog.count)
    client.close()


def test_it_is_told_for_how_long_turns_and_timers_held_the_loop(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them, to its end."""

    def hold(now: float) -> None:
        time.sleep(0.02)

    server.call(lambda: server.broker.timers.at(server.broker.now, hold))
    server.wait_until(lambda: max(server.held, default=0.0) >= 0.02)
    server.held.clear()

    def long_turn(now: float) -> tuple[()]:
        time.sleep(0.03)
        return ()

    with monkeypatch.context() as patched:
        patched.setattr(server.broker, "turn", long_turn)
        server.call(server.broker.wake)
        server.wait_until(lambda: max(server.held, default=0.0) >= 0.03)


def test_answers_leave_before_the_work_of_a_turn(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confirm that the disk or a mirror allows waits for nothing that the same turn does for others."""
    client = Connection(server)
    channel = client.channel(1)
    waiting: list[int] = []
    turn = server.broker.turn

    def watched(now: float) -> Collection[BaseConnection]:
        waiting.append(len(server.broker._dirty))
        return turn(now)

    monkeypatch.setattr(server.broker, "turn", watched)
    channel.declare("q")
    server.wait_until(lambda: bool(waiting))
    assert not any(waiting)
    client.close()


@pytest.mark.slow
def test_a_clients_storm_is_cut_into_turns(server: ServerThread) -> None:
    """20,000 declares at once: another client's answer comes while they are still being worked on."""
    busy, other = Connection(server), Connection(server)
    channel = other.channel(1)
    busy.channel(1)
    storm = many(1, (methods.QueueDeclare(queue=f"storm-{n}", nowait=True) for n in range(20_000)))
    busy.socket.sendall(storm)
    channel.sync()
    queues = server.broker.vhosts["/"].queues
    assert len(queues) < 20_000, "the storm was over first"
    server.wait_until(lambda: len(queues) == 20_000, within=120.0)
    busy.close()
    other.close()


def test_the_loop_keeps_no_server_that_has_ended() -> None:
    """A timer that the store began when the server had stopped had the broker go on for ever, beside its successor."""
    with ServerThread() as server:
        server.stop()
        ran: list[float] = []

        def begin_timer() -> None:
            server.broker.timers.at(0.0, ran.append)
            server.broker.wake()

        server.call(begin_timer)
        server.call(lambda: None)
        assert server.server._timer is None
        assert not ran


def test_nothing_is_left_of_a_client_socket_that_has_ended() -> None:
    with ServerThread() as server, no_search_for_cycles():
        client = Connection(server)

        def parts() -> list["weakref.ref[object]"]:
            (client_socket,) = server.server._client_sockets
            return [weakref.ref(client_socket), weakref.ref(client_socket.connection)]

        refs = server.call(parts)
        client.close()
        server.wait_until(lambda: not server.server._client_sockets)
        server.call(lambda: assert_gone(*refs))
