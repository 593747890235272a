"""One stream between two nodes: a connection on the node's own loop, with frames in both directions.

    dial, accept ─► read, write: the handshake ─► open ─► take(messages), write ─► ended

What a turn of the loop writes goes out together, for uvloop gathers it. Bytes are read into the stream's own buffer.
A stream ends when it is reset, when a frame cannot be read, or when the other side has been silent: after some time it
is pinged, and after some more the stream is given up. The kernel gives it up after the same time without an
acknowledgement of what was sent.

It must never keep what it cannot write: `has_room` says whether the senders may go on, and `on_room` when they may
again.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from cluster.times import user_timeout_s
from cluster.transport.frames import (
    CALL,
    CONTROL,
    DATA,
    PAYLOAD_BYTES_MAX,
    PREFACE_BYTES,
    FrameFault,
    FrameReader,
    FrameType,
    encode,
    preface,
    read_preface,
)
from cluster.transport.handshake import HandshakeFailed, Kind
from cluster.transport.interface import LinkOptions
from cluster.transport.resolver import addresses
from cluster.transport.security import Security, names_in
from cluster.transport.stream import StreamEnded, StreamFault

KINDS: Final = {Kind.CONTROL: CONTROL, Kind.DATA: DATA, Kind.CALL: CALL}
_KINDS: Final = {number: kind for kind, number in KINDS.items()}

WRITE_BYTES_MAX: Final = 1024 * 1024
"""Above so many bytes that the kernel has not taken `has_room` is False, until a quarter is left."""

_PING: Final = encode(FrameType.PING)
_PONG: Final = encode(FrameType.PONG)

_REST_BYTES: Final = 4096
"""What is read of a stream that has ended, and thrown away."""

_STEPS: Final = 4
"""An answer to a ping is looked for so many times: a loop that was held itself has read in between."""

_FLUSH_S: Final = 1.0
"""How long the last words of a stream may take to be sent."""

_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's numbers for a certificate of another host: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH."""

_SILENT: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN})
"""Errors by which a host that cannot be heard differs from a process that has ended."""


class Patience(NamedTuple):
    """The times of a stream: it pings after `keepalive_s` of silence, and ends after `timeout_s` more."""

    keepalive_s: float
    timeout_s: float

    @classmethod
    def of(cls, kind: Kind, options: LinkOptions, *, is_opener: bool) -> "Patience":
        """Return the times of a side of a stream. The opener of a control stream is the one that notices silence."""
        is_first = kind is Kind.CONTROL and is_opener
        return cls(options.keepalive_s if is_first else options.data_keepalive_s, options.ping_timeout_s)


class LinkStream(asyncio.BufferedProtocol):
    """A stream, from its preface on.

    sent_bytes, received_bytes: of payloads.   has_room: False while too much waits to be sent.
    """

    def __init__(self, patience: Patience) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None  # of `read`
        self._take: Callable[[list[bytes]], None] | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._error: Exception | None = None
        self._heard_s = self._loop.time()
        self._unanswered = 0  # steps since the ping
        self._timer: asyncio.TimerHandle | None = None
        self._is_resting = False
        self.has_room = True
        self.on_room = _nothing

    # --- for whoever uses it ---

    @property
    def is_ended(self) -> bool:
        """True if nothing that the stream brings is wanted any more."""
        return self._error is not None

    @property
    def reason(self) -> str:
        """The reason why the stream has ended; empty before."""
        return "" if self._error is None else str(self._error)

    @property
    def certified_names(self) -> frozenset[str] | None:
        """The names in the other side's certificate, which TLS has proved; None without TLS."""
        assert self._transport is not None
        found: Any = self._transport.get_extra_info("ssl_object")
        return None if found is None else names_in(found.getpeercert())

    async def read(self) -> bytes:
        """Return the next message of the handshake. Raises: StreamEnded, StreamFault."""
        assert self._transport is not None
        while True:
            try:
                frame = self._reader.next()  # a reason for the end may have come with it
            except FrameFault as error:
                self.fail(StreamFault(str(error)))
                frame = None
            if frame is not None:
                if frame[0] is not FrameType.HANDSHAKE:
                    raise StreamFault("a frame before the handshake has ended")
                return frame[1]
            self._raise_if_ended()
            self._waiter = self._loop.create_future()
            self._transport.resume_reading()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def write(self, message: bytes) -> None:
        """Send a message of the handshake. Raises: StreamEnded, StreamFault."""
        self._raise_if_ended()
        self._write(encode(FrameType.HANDSHAKE, message))

    def open(self, take: Callable[[list[bytes]], None], payload_max: int = PAYLOAD_BYTES_MAX) -> None:
        """Begin with messages of up to `payload_max` bytes.   take: gets those of each read together, and may raise
        StreamFault.
        """
        assert self._transport is not None
        if self.is_ended:
            return
        self._reader.open(payload_max)
        self._take = take
        self._heard_s = self._loop.time()
        self._timer = self._loop.call_later(self._patience.keepalive_s, self._look)
        self._drain()
        if not self.is_ended and not self._is_resting:
            self._transport.resume_reading()

    def rest(self) -> None:
        """Read nothing until `read_on`. What was read already is still taken."""
        assert self._transport is not None
        self._is_resting = True
        if not self.is_ended:
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read again after `rest`."""
        assert self._transport is not None
        self._is_resting = False
        if not self.is_ended:
            self._heard_s = self._loop.time()  # the other side may have sent something meanwhile
            self._transport.resume_reading()

    def send(self, message: bytes) -> None:
        """Send a message of an open stream. The caller looks at `has_room`; after the end nothing is sent."""
        if not self.is_ended:
            self._write(encode(FrameType.MESSAGE, message))

    async def ended(self) -> None:
        """Wait for the end. Raises: StreamEnded, StreamFault; nothing else ends a stream."""
        await asyncio.shield(self._over)
        self._raise_if_ended()

    async def ended_or(self, awaited: "asyncio.Future[Any]") -> None:
        """Wait until a future is done, or for the end of the stream. Raises in that case: StreamEnded, StreamFault."""
        await asyncio.wait((awaited, self._over), return_when=asyncio.FIRST_COMPLETED)
        if not awaited.done():
            self._raise_if_ended()

    def fail(self, error: Exception) -> None:
        """End the stream at once for this reason, if it has not ended before."""
        self._finish(error)
        if self._transport is not None:
            self._transport.abort()

    def end(self, reason: str) -> None:
        """End the stream at once."""
        self.fail(StreamEnded(reason))

    def end_after_writing(self) -> None:
        """End the stream when all that was written is sent, or has not been for too long."""
        if not self.is_ended and self._transport is not None:
            self._finish(StreamEnded("this side ended it"))
            self._transport.close()
            self._loop.call_later(_FLUSH_S, self._transport.abort)

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection. uvloop begins to read it in any case, once."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES_MAX, WRITE_BYTES_MAX // 4)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for the next bytes."""
        return memoryview(bytearray(_REST_BYTES)) if self.is_ended else self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that were read."""
        if self.is_ended:
            return
        self._heard_s = self._loop.time()
        self._unanswered = 0
        self._reader.received(nbytes)
        if self._take is not None:
            self._drain()
            return
        assert self._transport is not None
        self._transport.pause_reading()  # `read` makes room first
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def eof_received(self) -> bool:
        """End the stream: the other side will send nothing more."""
        self._finish(StreamEnded("it ended the stream"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the stream for what the kernel or TLS says."""
        self._finish(_ended(exc))
        # Circles are looked for seldom: nothing of the user's is held any longer.
        self._take, self.on_room = _ignore, _nothing

    def pause_writing(self) -> None:
        """Note that the kernel takes nothing more for now."""
        self.has_room = False

    def resume_writing(self) -> None:
        """Let the sender go on."""
        self.has_room = True
        if not self.is_ended:
            self.on_room()

    # --- inside ---

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def _drain(self) -> None:
        assert self._take is not None
        messages = []
        try:
            while (frame := self._reader.next()) is not None:
                type_, payload = frame
                if type_ is FrameType.MESSAGE:
                    messages.append(payload)
                elif type_ is FrameType.PING:
                    if self.has_room:  # else the other side is not reading: it gets no more to read
                        self._write(_PONG)
                elif type_ is FrameType.HANDSHAKE:
                    raise FrameFault("a second handshake")
            if messages and not self.is_ended:
                self._take(messages)
        except FrameFault as error:
            self.fail(StreamFault(str(error)))
        except StreamFault as error:
            self.fail(error)

    def _look(self) -> None:
        """Ping a silent side; end the stream when it has not answered."""
        if self.is_ended:
            return
        keepalive_s, timeout_s = self._patience
        quiet_s = self._loop.time() - self._heard_s
        if quiet_s < keepalive_s:
            wait_s = keepalive_s - quiet_s
        elif self._unanswered < _STEPS:
            if not self._unanswered:
                self._write(_PING)
            self._unanswered += 1
            wait_s = timeout_s / _STEPS
        else:
            self.fail(StreamEnded("ping timeout", is_silence=True))
            return
        self._timer = self._loop.call_later(max(0.001, wait_s), self._look)

    def _finish(self, error: Exception) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if not self._over.done():
            self._over.set_result(None)

    def _raise_if_ended(self) -> None:
        error = self._error
        if isinstance(error, StreamEnded):
            # Another exception each time: a traceback that is kept would keep the connection.
            raise StreamEnded(str(error), is_silence=error.is_silence, is_distrust=error.is_distrust)
        if error is not None:
            raise StreamFault(str(error))


def _ignore(_messages: list[bytes]) -> None:
    pass


def _nothing() -> None:
    pass


def _ended(error: BaseException | None) -> StreamEnded:
    """Return what the end of a connection means."""
    if error is None:
        return StreamEnded("it ended the stream")
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAME:
            return StreamEnded("its certificate is for another host", is_distrust=True)
        return StreamEnded(f"its certificate is not valid: {error.verify_message}", is_distrust=True)
    if isinstance(error, ssl.SSLError):
        return StreamEnded(f"TLS: {error.reason or error}", is_distrust=True)
    number = error.errno if isinstance(error, OSError) else None
    is_silence = number in _SILENT or isinstance(error, TimeoutError)
    if isinstance(error, socket.gaierror):
        return StreamEnded(error.strerror or str(error))
    return StreamEnded(os.strerror(number) if number else str(error) or "it broke", is_silence=is_silence)


def _prepare(sock: socket.socket, patience: Patience) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    silence_ms = round(1000 * user_timeout_s(*patience))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms)


async def _read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(sock, size - len(data))
        if not more:
            raise StreamEnded("it ended the stream")
        data += more
    return data


async def _connect(address: str) -> socket.socket:
    """Connect to the first address of a host that takes it. Raises: OSError."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    last: OSError = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    for family, kind, protocol, _, target in await addresses(host.strip("[]"), int(port)):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, target)
        except OSError as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise last


async def dial(address: str, name: str, kind: Kind, security: Security, options: LinkOptions) -> LinkStream:
    """Open a stream to a node.   address: host:port.   name: the node whose certificate is expected; empty: one for the
    host in the address.

    Raises: StreamEnded; HandshakeFailed when the other side speaks another protocol or is another node.
    """
    patience = Patience.of(kind, options, is_opener=True)
    is_encrypted = security.has_certificates
    host = address.rpartition(":")[0].strip("[]")
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(options.connect_s):
            sock = await _connect(address)
        _prepare(sock, patience)
        async with asyncio.timeout(options.handshake_s):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, preface(KINDS[kind], is_encrypted=is_encrypted))
            read_preface(await _read_exactly(sock, PREFACE_BYTES), is_encrypted=is_encrypted)
            stream = LinkStream(patience)  # uvloop's answer with TLS is another protocol
            await loop.create_connection(
                lambda: stream,
                sock=sock,
                ssl=security.client_context(is_host_checked=not name) if is_encrypted else None,
                server_hostname=("" if name else host) if is_encrypted else None,
            )
    except TimeoutError:
        _close(sock)
        raise StreamEnded("connection timed out", is_silence=True) from None
    except FrameFault as error:
        _close(sock)
        raise HandshakeFailed(str(error)) from None
    except OSError as error:
        _close(sock)
        raise _ended(error) from None
    except BaseException:
        _close(sock)
        raise
    names = stream.certified_names
    if names is not None and name and name not in names:
        stream.end("it is another node")
        raise StreamEnded(f"its certificate is not for '{name}'", is_distrust=True)
    return stream


def _close(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


async def accept(sock: socket.socket, security: Security, options: LinkOptions) -> tuple[Kind, LinkStream]:
    """Answer the preface of a stream that another node opens.   sock: closed when this fails.

    Raises: StreamEnded; HandshakeFailed when the other side speaks another protocol, which it is told.
    """
    is_encrypted = security.has_certificates
    loop = asyncio.get_running_loop()
    try:
        data = await _read_exactly(sock, PREFACE_BYTES)
        try:
            number = read_preface(data, is_encrypted=is_encrypted)
        except FrameFault as error:
            await loop.sock_sendall(sock, preface(CONTROL, is_encrypted=is_encrypted))
            raise HandshakeFailed(str(error)) from None
        kind = _KINDS[number]
        patience = Patience.of(kind, options, is_opener=False)
        _prepare(sock, patience)
        await loop.sock_sendall(sock, preface(number, is_encrypted=is_encrypted))
        stream = LinkStream(patience)  # uvloop's answer with TLS is another protocol
        await loop.connect_accepted_socket(
            lambda: stream, sock, ssl=security.server_context if is_encrypted else None
        )
    except OSError as error:
        sock.close()
        raise _ended(error) from None
    except BaseException:
        sock.close()
        raise
    return kind, stream
