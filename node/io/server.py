"""The sockets of a node: listeners, client sockets, and the turn of the loop that moves messages between them.

The broker's work is done once, at the end of the present turn of the event loop: touched queues deliver, then each
connection with output gets one write. Without such a queue answers that are there leave first.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from node.broker.broker import Broker
from node.client.base_connection import BaseConnection
from node.client.connection import Connection
from node.config.config import Config
from node.config.values import Address
from node.io.client_socket import ClientSocket, MakeConnection
from node.io.proxy_protocol import is_trusted
from node.io.tls import server_context
from node.io.tls_handshake import TlsHandshake

SHUTDOWN_S: Final = 2.0
"""For how many seconds clients may take the last output when the node stops."""

_TIMER_SLACK_S: Final = 0.001
"""The delay that is added to timers: the loop's have whole milliseconds, and one that fires early would fire twice."""


def _nobody() -> None:
    """Do nothing: the broker has ended."""


class Listener(NamedTuple):
    """An address on which clients are accepted."""

    address: Address
    is_tls: bool


class Server:
    """Listens for clients of one broker.

    clock: seconds, monotonic.   on_refused: called with the reason when a socket is refused before AMQP begins.
    on_held: called with the seconds for which each turn and each run of timers held the loop.
    """

    def __init__(
        self,
        broker: Broker,
        config: Config,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_refused: Callable[[str], None] = lambda reason: None,
        on_held: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.broker = broker
        self.config = config
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._on_refused = on_refused
        self._on_held = on_held
        self._client_sockets: dict[ClientSocket, None] = {}
        self._by_connection: dict[BaseConnection, ClientSocket] = {}
        self._servers: list[asyncio.Server] = []
        self._handshakes: set[TlsHandshake] = set()
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self.turn = 0
        """The number of the present turn."""
        self._is_turn_coming = False
        self._resting: list[ClientSocket] = []
        broker.wake = self._wake
        broker.timers.on_earlier = self._set_timer

    # --- listeners ---

    async def listen(self) -> "list[Listener]":
        """Open all listeners. Raises: OSError, ConfigError; then some may be open, see `stop`."""
        for address in self.config.tcp_listeners:
            await self._listen(address, None)
        if self.config.tls_listeners:
            context = server_context(self.config.tls)
            for address in self.config.tls_listeners:
                await self._listen(address, context)
        self._set_timer()
        return self._listeners

    async def _listen(self, address: Address, context: ssl.SSLContext | None) -> None:
        server = await self.open(address, context, Connection)
        self._servers.append(server)
        for sock in server.sockets:
            self._listeners.append(Listener(Address(*sock.getsockname()[:2]), is_tls=context is not None))

    async def open(
        self, address: Address, context: ssl.SSLContext | None, make: MakeConnection
    ) -> asyncio.Server:
        """Open a listener whose clients get connections from `make`.   context: for TLS. Raises: OSError."""
        return await self.loop.create_server(
            (lambda: ClientSocket(self, None, make))
            if context is None
            else (lambda: self._handshake(context, make)),
            address.host or None,  # none: every interface, a socket for IPv4 and one for IPv6
            address.port,
            backlog=self.config.socket.backlog,
        )

    def _handshake(self, context: ssl.SSLContext, make: MakeConnection) -> TlsHandshake:
        network = self.config.network
        handshake = TlsHandshake(
            context,
            network.tls_handshake_timeout_s,
            lambda header: ClientSocket(self, header, make),
            self._on_refused,
            self._handshakes.discard,
            proxy_timeout_s=network.handshake_timeout_s,
            has_proxy=self.has_proxy,
        )
        self._handshakes.add(handshake)
        return handshake

    def suspend(self) -> "list[Listener]":
        """Stop accepting; connections stay. `listen` accepts again. Returns: the listeners that were open."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        closed, self._listeners = self._listeners, []
        return closed

    async def stop(self) -> "list[Listener]":
        """Stop accepting, then close all connections with 320. Returns: the listeners that were open."""
        closed = self.suspend()
        self.broker.close_connections("broker forced connection closure with reason 'shutdown'")
        for handshake in list(self._handshakes):
            handshake.abort()
        for client_socket in list(self._client_sockets):
            if client_socket.connection is not None:
                client_socket.connection.finish()
            else:
                client_socket.abort()
        self._run_turn()
        deadline = self.clock() + SHUTDOWN_S
        while self._client_sockets and self.clock() < deadline:
            await asyncio.sleep(0.01)
        for client_socket in list(self._client_sockets):
            client_socket.abort()
        self._stop_timer()
        return closed

    def end(self) -> None:
        """Cancel all callbacks, after `stop` and once the store is closed.

        A callback that the loop still has, such as a timer, would keep the broker in memory and make it work.
        """
        self.broker.wake = self.broker.timers.on_earlier = _nobody
        self._stop_timer()

    # --- for client sockets ---

    def admit(self, client_socket: ClientSocket) -> bool:
        """Add an accepted socket. Returns: False if the limit of connections is reached."""
        limit = self.broker.settings.connection_max
        has_room = limit is None or len(self._client_sockets) < limit
        self._client_sockets[client_socket] = None
        return has_room

    def has_proxy(self, host: str) -> bool:
        """Return True if a peer at this address must send a PROXY header, which is believed."""
        network = self.config.network
        return network.proxy_protocol and is_trusted(host, network.proxy_protocol_sources)

    def adopt(self, connection: BaseConnection, client_socket: ClientSocket) -> None:
        """Note the connection of a client socket."""
        self._by_connection[connection] = client_socket

    def forget(self, client_socket: ClientSocket, connection: BaseConnection | None) -> None:
        """Remove a client socket that has ended."""
        del self._client_sockets[client_socket]
        if connection is not None:
            del self._by_connection[connection]

    def refuse(self, reason: str) -> None:
        """Report that a socket is refused before AMQP begins."""
        self._on_refused(reason)

    def rest(self, client_socket: ClientSocket) -> None:
        """Let the client socket read again after the present turn."""
        self._resting.append(client_socket)
        self._wake()

    # --- the turn ---

    def _wake(self) -> None:
        if not self._is_turn_coming:
            self._is_turn_coming = True
            self.loop.call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self.turn += 1
        self._is_turn_coming = True  # work that comes up during the turn is part of it, or of the next one
        dirty: deque[BaseConnection] = deque()
        began = self.clock()
        try:
            # Answers and confirms do not wait for mirrors, the disk, and clients in line. They go with deliveries
            # if there are some: where much goes on, a client that hears sooner would send less at a time.
            if not self.broker.has_deliveries or self.broker.turns.has_work:
                dirty.extend(self.broker.take_dirty())
                self._flush(dirty)
            dirty.extend(self.broker.turn(began))
            self._flush(dirty)
        finally:
            # Also after a fault of ours, which the loop reports: one queue or connection must not stop the others.
            for connection in dirty:
                self.broker.has_output(connection)
            resting, self._resting = self._resting, []
            for client_socket in resting:
                client_socket.end_rest()
            self._is_turn_coming = False
            if self.broker.has_work:
                self.broker.wake()
            self._on_held(self.clock() - began)

    def _flush(self, dirty: "deque[BaseConnection]") -> None:
        while dirty:  # what a fault of ours leaves is flushed in the next turn
            self._by_connection[dirty.popleft()].flush()

    def _set_timer(self) -> None:
        """Set a timer of the loop for the broker's next timer."""
        self._stop_timer()
        deadline = self.broker.timers.next_deadline()
        if deadline is not None:
            delay = max(0.0, deadline - self.clock()) + _TIMER_SLACK_S
            self._timer = self.loop.call_later(delay, self._run_timers)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_timers(self) -> None:
        self._timer = None
        now = self.clock()
        # The time of day may have been set meanwhile.
        self.broker.epoch_s = time.time() - now
        self.broker.tick(now)
        self.broker.timers.on_earlier()
        self._on_held(self.clock() - now)
