"""The socket of a client: passes bytes between asyncio and the client's connection.

There is no rule of the protocol here. Output is written once in each turn of the loop.
"""

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

from node.broker.broker import Broker
from node.client.connection import Connection
from node.client.endpoint import ClientEndpoint
from node.io.proxy_protocol import Endpoint, ProxyHeader, ProxyHeaderParser, ProxyProtocolError
from node.io.tls import NoCertificateUser, certificate_user, tls_facts

if TYPE_CHECKING:
    from node.io.server import Server

WRITE_BUFFER_MAX_BYTES: Final = 1024 * 1024
"""Unsent bytes above which consumers of this connection get no more deliveries."""

UNREAD_REPLIES_MAX_BYTES: Final = 16 * 1024 * 1024
"""Unsent bytes above which the client's requests are not read: it sends them and never reads the answers."""

READ_MAX_BYTES: Final = 1024 * 1024
"""The most bytes that are read from one socket in a turn: the loop would read on, and other clients would wait."""

LAST_WORDS_S: Final = 1.0
"""The time that a socket that we close gets to accept the unsent bytes."""


class MakeConnection(Protocol):
    """A function that makes the connection of a client."""

    def __call__(
        self, broker: Broker, peer: ClientEndpoint, /, *, now: float, on_change: Callable[[], None]
    ) -> Connection:
        """Return a new connection."""


class ClientSocket(asyncio.Protocol):
    """The socket's side of one connection. The server makes it when a socket is accepted, and calls `flush`.

    header: the PROXY header that was read before TLS began; None if none was.
    make: makes the connection: AMQP's, or one of a plug-in's protocol.
    """

    def __init__(
        self, server: "Server", header: ProxyHeader | None = None, make: MakeConnection = Connection
    ) -> None:
        self._header = header
        self._make = make
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._proxy: ProxyHeaderParser | None = None
        self._proxy_timer: asyncio.TimerHandle | None = None
        self._peer = self._local = Endpoint("", 0)
        self._is_output_full = False
        self._is_resting = False
        self._is_reading = True
        self._turn = 0  # in which _read_bytes were read
        self._read_bytes = 0
        self.connection: Connection | None = None
        """The AMQP connection; None until a required PROXY header has given the client's address."""

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up a socket that was accepted, and begin AMQP unless a PROXY header must come first."""
        # uvloop's transports don't derive from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        admitted = self._server.admit(self)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        # A peer that has reset already has no address left.
        if not admitted or peer is None or local is None or not self._set_socket_options():
            transport.abort()
            return
        self._peer, self._local = Endpoint(*peer[:2]), Endpoint(*local[:2])
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX_BYTES)
        if self._header is None and self._server.has_proxy(self._peer.host):
            self._proxy = ProxyHeaderParser()
            timeout_s = self._server.config.network.handshake_timeout_s
            if timeout_s is not None:
                self._proxy_timer = self._server.loop.call_later(
                    timeout_s, self._refuse, "no PROXY header in time"
                )
        else:
            self._begin(self._header or ProxyHeader())

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the PROXY parser, then to the connection."""
        if self._proxy is not None:
            try:
                header = self._proxy.feed(data)
            except ProxyProtocolError as error:
                self._refuse(str(error))
                return
            if header is None:
                return
            data = self._proxy.rest
            self._proxy = None
            self._begin(header)
        assert self.connection is not None
        if data:
            self.connection.receive_data(data, self._server.clock())
            self._count_read(len(data))
            self.follow_reading()

    def _count_read(self, size: int) -> None:
        """Pause reading until the next turn once enough was read in this one."""
        if self._turn != self._server.turn:
            self._turn = self._server.turn
            self._read_bytes = 0
        self._read_bytes += size
        if self._read_bytes >= READ_MAX_BYTES and not self._is_resting:
            self._is_resting = True
            self._server.rest(self)

    def pause_writing(self) -> None:
        """Stop deliveries, as the client reads too slowly."""
        if self.connection is not None:
            self.connection.is_writable = False

    def resume_writing(self) -> None:
        """Continue deliveries, as the client has read enough."""
        self._is_output_full = False
        if self.connection is not None:
            self.connection.is_writable = True
            self.connection.is_socket_flooded = False
            self.connection.flushed()
        self.follow_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server and the connection that the socket is closed."""
        connection, self.connection = self.connection, None
        self._server.forget(self, connection)
        self._stop_proxy_timer()
        if connection is not None:
            connection.lost(self._server.clock())

    # --- for the server ---

    def abort(self) -> None:
        """Reset the socket, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Write the connection's output, and close the socket if that was the last."""
        connection, transport = self.connection, self._transport
        if connection is None or transport is None or transport.is_closing():
            return
        parts = connection.take_output()
        if len(parts) == 1:
            transport.write(parts[0])
        elif parts:
            transport.writelines(parts)
        if connection.is_finished:
            transport.close()
            self._server.loop.call_later(LAST_WORDS_S, transport.abort)
            return
        if connection.is_writable:
            connection.flushed()
        elif transport.get_write_buffer_size() > UNREAD_REPLIES_MAX_BYTES:
            self._is_output_full = connection.is_socket_flooded = True
        self.follow_reading()

    def end_rest(self) -> None:
        """Continue reading in a new turn."""
        self._is_resting = False
        self.follow_reading()

    def follow_reading(self) -> None:
        """Pause or resume reading, as the connection and the limits here want it."""
        wanted = (
            self.connection is not None
            and self.connection.is_reading
            and not self._is_output_full
            and not self._is_resting
        )
        transport = self._transport
        if wanted == self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # --- the start ---

    def _begin(self, header: ProxyHeader) -> None:
        assert self._transport is not None
        self._stop_proxy_timer()
        source, destination = header.source or self._peer, header.destination or self._local
        user, problem = self._certificate_user()
        tls = self._transport.get_extra_info("ssl_object")
        peer = ClientEndpoint(
            address=f"{source.host}:{source.port}",
            local=f"{destination.host}:{destination.port}",
            is_loopback=_is_loopback(source.host),
            is_tls=tls is not None,
            certificate_user=user,
            certificate_problem=problem,
            tls=None if tls is None else tls_facts(tls),
        )
        self.connection = self._make(
            self._server.broker, peer, now=self._server.clock(), on_change=self.follow_reading
        )
        self._server.adopt(self.connection, self)

    def _refuse(self, reason: str) -> None:
        """Close a socket before AMQP has begun."""
        self._server.refuse(reason)
        self.abort()

    def _stop_proxy_timer(self) -> None:
        if self._proxy_timer is not None:
            self._proxy_timer.cancel()
            self._proxy_timer = None

    def _certificate_user(self) -> tuple[str | None, str]:
        """Return the user that the client's certificate names, or None and why there is none."""
        assert self._transport is not None
        tls = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return None, "not a TLS connection"
        config = self._server.config
        try:
            login = config.auth.certificate_login
            return certificate_user(tls.getpeercert(), login, verify_peer=config.tls.verify_peer), ""
        except NoCertificateUser as error:
            return None, str(error)

    def _set_socket_options(self) -> bool:
        """Set the configured options; return False if the socket is dead already."""
        assert self._transport is not None
        options, sock = self._server.config.socket, self._transport.get_extra_info("socket")
        wanted: list[tuple[int, int, int | bytes]] = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, options.nodelay),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, options.keepalive),
        ]
        if options.linger:
            linger = struct.pack("ii", 1, options.linger_timeout_s)
            wanted.append((socket.SOL_SOCKET, socket.SO_LINGER, linger))
        if options.send_buffer_bytes is not None:
            wanted.append((socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes))
        if options.receive_buffer_bytes is not None:
            wanted.append((socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes))
        try:
            for level, name, value in wanted:
                sock.setsockopt(level, name, value)
        except OSError:
            return False
        return True


def _is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback
