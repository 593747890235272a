"""The socket of a connection to another broker: passes bytes between asyncio and a `ClientConnection`.

    link = AmqpClient(uri, settings, loop=loop, on_events=self._events)
    link.start()                       Opened or Closed follows, within the time that the URI states
    link.core.call(1, QueueDeclare(…))    the output is written at the end of the turn

There is no rule of the protocol here. The events of one read come as one list.
"""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Closed, Event, Opened
from node.amqp_client.phase import Phase
from node.amqp_client.settings import ClientSettings
from node.amqp_client.uri import AmqpUri, TlsOptions

WRITE_BUFFER_MAX_BYTES: Final = 1024 * 1024
"""Unsent bytes above which `is_writable` is False: the owner then publishes nothing more."""

LOCAL_CONNECTION: Final = "local_connection"
"""The extra information of a transport to the node itself: the name of its connection, as lists of connections show it.
"""

CLOSE_MAX_S: Final = 5.0
"""The time that the broker has to answer `connection.close`, and the socket to take the unsent bytes."""

Events = Callable[[list[Event]], None]
Dial = Callable[["AmqpClient"], None]
"""Connects a client to the node itself, for a URI without a host: calls `connection_made`, at once or later."""


def _nobody() -> None:
    """Tell nobody that the socket takes bytes again."""


class AmqpClient(asyncio.Protocol):
    """One attempt to connect, and the connection. After `Closed` it is of no more use: another attempt is a new one.

    on_events: called with what happened, in order; never from within a call of the owner's.
    on_writable: called when the socket takes bytes again after `is_writable` was False.
    dial: for a URI without a host.
    """

    def __init__(
        self,
        uri: AmqpUri,
        settings: ClientSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        on_events: Events,
        on_writable: Callable[[], None] = _nobody,
        dial: Dial | None = None,
    ) -> None:
        self.uri = uri
        self.core = ClientConnection(settings, on_output=self._output_waits)
        self.is_writable = True
        self._loop = loop
        self._on_events = on_events
        self._on_writable = on_writable
        self._dial = dial
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._is_flush_due = False
        self._is_over = False

    # --- for the owner ---

    def start(self) -> None:
        """Begin to connect. What goes wrong is a `Closed` event."""
        self._limit = self._loop.call_later(self.uri.connection_timeout_s, self._give_up, "timeout")
        if self.uri.host is not None:
            self._task = self._loop.create_task(self._connect(self.uri.host))
        elif self._dial is not None:
            self._dial(self)
        else:
            self._loop.call_soon(self._give_up, "a URI without a host needs a node")

    def join(self, transport: asyncio.Transport, handshake: bytes) -> None:
        """Go on as a client whose login is done: what connects to the node itself needs none.

        handshake: the broker's half, which the core is to see.
        """
        if self._is_over:
            transport.abort()
            return
        self._transport = transport
        self.core.receive_data(handshake, self._loop.time())
        self.core.take_output()
        self._look()

    def refused(self, code: int, text: str) -> None:
        """End as a client whose login was refused, in a dial of the node itself."""
        self.core.refuse(code, text)
        self._look()

    def pause_reading(self) -> None:
        """Read nothing more: the broker's deliveries wait in the system's buffers."""
        if not self.core.is_reading_held:
            self.core.is_reading_held = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self.core.is_reading_held:
            self.core.is_reading_held = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def close(self) -> None:
        """Close by the protocol; `Closed` follows within `CLOSE_MAX_S`. In the handshake the socket is just closed."""
        if self._is_over:
            return
        self.core.close()
        self.resume_reading()
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self._loop.call_later(CLOSE_MAX_S, self._give_up, "timeout")
        self._loop.call_soon(self._look)

    def abort(self) -> None:
        """Drop the connection at once. No event follows."""
        self._is_over = True
        self._stop()
        if self._transport is not None:
            self._transport.abort()

    @property
    def name(self) -> str:
        """The name of the connection here, if it is one to the node itself; empty for one to another broker."""
        return "" if self._transport is None else self._transport.get_extra_info(LOCAL_CONNECTION, "")

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        # uvloop's transports don't derive from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        if self._is_over:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                self._give_up(_reason(error))
                return
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the core, and tell the owner what they brought."""
        self.core.receive_data(data, self._loop.time())
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner that the socket has ended."""
        self._transport = None
        if isinstance(exc, OSError):
            reason = _reason(exc)
        else:
            reason = "socket_closed_unexpectedly"
        self._give_up(reason)

    def pause_writing(self) -> None:
        """Note that the broker reads too slowly."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Tell the owner that it can go on."""
        self.is_writable = True
        if not self._is_over:
            self._on_writable()

    # --- the rest ---

    async def _connect(self, host: str) -> None:
        name: str | None = None
        try:
            context = None if self.uri.tls is None else client_context(self.uri.tls)
            if self.uri.tls is not None:
                name = host if self.uri.tls.server_name is None else self.uri.tls.server_name
            await self._loop.create_connection(
                lambda: self, host, self.uri.port, ssl=context, server_hostname=name
            )
        except OSError as error:  # ssl.SSLError is one
            self._give_up(_reason(error))
        except ValueError as error:  # a host name that cannot be encoded, or a server name that is none
            self._give_up(f"nxdomain: {error}")

    def _output_waits(self) -> None:
        if not self._is_flush_due and not self._is_over:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_turn)

    def _flush_turn(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        """Write the output, and close the socket if that was the last."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        parts = self.core.take_output()
        if len(parts) == 1:
            transport.write(parts[0])
        elif parts:
            transport.writelines(parts)
        if self.core.is_finished:
            transport.close()

    def _look(self) -> None:
        """Tell the owner what happened, and keep the timer of heartbeats."""
        taken = self.core.take_events()
        if self._is_over:
            return
        if taken:
            for event in taken:
                if isinstance(event, Opened) and self._limit is not None:
                    self._limit.cancel()
                elif isinstance(event, Closed):
                    self._is_over = True
            self._on_events(taken)
        if self._is_over:
            self._stop()
            self._end_socket()
        else:
            self._keep_timer()

    def _keep_timer(self) -> None:
        deadline = self.core.next_deadline
        if deadline is not None and self._timer is None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.core.tick(self._loop.time())
        self._look()

    def _give_up(self, reason: str) -> None:
        """End it for a reason that the core has not seen."""
        if self._is_over:
            return
        if self._transport is None and self.core.phase is Phase.STARTING:
            self.core.phase = Phase.CONNECTING
        self.core.lost(reason)
        self._look()

    def _end_socket(self) -> None:
        """Write the last words, close the socket, and drop it if it does not take them in time."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(CLOSE_MAX_S, self._transport.abort)

    def _stop(self) -> None:
        for timer in (self._timer, self._limit):
            if timer is not None:
                timer.cancel()
        self._timer = self._limit = None
        if self._task is not None and not self._task.done():
            self._task.cancel()


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context of a URI's parameters.   Raises: OSError if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.verify_peer and options.server_name != ""
    context.verify_mode = ssl.CERT_REQUIRED if options.verify_peer else ssl.CERT_NONE
    if options.cacertfile is not None:
        context.load_verify_locations(options.cacertfile)
    elif options.verify_peer:
        context.load_default_certs()
    if options.certfile is not None:
        context.load_cert_chain(options.certfile, options.keyfile, lambda: options.key_password or "")
    return context


def _reason(error: OSError) -> str:
    """Return the reason in the words of Erlang: the name of the error in lower case."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls_alert: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls_alert: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return "nxdomain"
    if isinstance(error, TimeoutError):
        return "timeout"
    return errno.errorcode.get(error.errno or _first_number(str(error)), str(error)).lower()


def _first_number(text: str) -> int:
    """Return the number of the first error in a text for several, as a host with several addresses gives; 0: none."""
    found = re.search(r"\[Errno ([0-9]+)\]", text)
    return 0 if found is None else int(found[1])
