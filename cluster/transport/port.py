"""The port that other nodes connect to, for streams of links and for gRPC alike.

    accepted ─► first byte ─┬─ of a link's preface ─► the caller: from there on the socket is a stream on this loop
                            └─ of HTTP/2 or TLS ────► bytes are passed to gRPC, which listens on the loopback

gRPC has to own the socket that it listens at, and cannot be given a connection. So its bytes pass through here, which
costs calls some 50 µs; the streams of links, which carry everything else, pass through nothing.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cluster.transport.frames import FIRST_BYTE, GRPC_FIRST_BYTES

PASSED_MAX: Final = 256
"""The most connections that are passed to gRPC at once; for one more, the one that was quiet for longest ends."""

_BACKLOG: Final = 128
_ACCEPTED_MAX: Final = 64
"""The most connections that are accepted in one turn of the loop."""

_RESPITE_S: Final = 0.2
"""How long nothing is accepted when the process has no descriptor left."""

_BUFFER_BYTES: Final = 256 * 1024
"""Above so many bytes that one side of a passed connection has not taken the other one is not read."""

_FLUSH_S: Final = 1.0
"""How long the last bytes of a passed connection may take to be written."""

_HOST: Final = "127.0.0.1"
_MAPPED: Final = "::ffff:"
_EVERYWHERE: Final = "::"
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors of a machine without IPv6, where a name may still stand for its addresses."""


class Caller(NamedTuple):
    """A connection that was accepted.   source: host and port of the other side, for the log."""

    sock: socket.socket
    source: str


def host_of(source: str) -> str:
    """Return the host of a source, with brackets around an IPv6 address."""
    return source.rpartition(":")[0]


class PeerPort:
    """The listening socket.   accepted: called for each connection, whose socket it then owns."""

    def __init__(self, accepted: Callable[[Caller], None]) -> None:
        self._accepted = accepted
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._passages: dict[_Passage, None] = {}  # the one that was quiet for longest first
        self._sources: dict[int, str] = {}
        self.grpc_port = 0
        """The port at which gRPC listens on the loopback."""

    def listen(self, host: str, port: int) -> int:
        """Accept connections.   host: an address; "::" is every interface.   Returns: the port. Raises: OSError."""
        try:
            self._socket = _listening(host, port)
        except OSError as error:
            if host != _EVERYWHERE or error.errno not in _NO_IPV6:
                raise
            self._socket = _listening("0.0.0.0", port)
        self._watch()
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Accept nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def end_passages(self) -> None:
        """End the connections that are passed to gRPC."""
        for passage in list(self._passages):
            passage.end()

    def source_of(self, grpc_source: str) -> str:
        """Return the source of a connection, for what gRPC takes for it."""
        host, _, port = grpc_source.rpartition(":")
        return self._sources.get(int(port), grpc_source) if host == _HOST else grpc_source

    async def pass_on(self, caller: Caller) -> None:
        """Pass a connection to gRPC, which closes it. Raises: OSError, which closes it too."""
        loop = asyncio.get_running_loop()
        passage = _Passage(self._heard, self._ended)
        try:
            await loop.create_connection(lambda: passage.inner, _HOST, self.grpc_port)
        except BaseException:
            caller.sock.close()
            raise
        passage.port = passage.inner.port
        self._sources[passage.port] = caller.source
        if len(self._passages) >= PASSED_MAX:
            next(iter(self._passages)).end()
        self._passages[passage] = None
        try:
            await loop.connect_accepted_socket(lambda: passage.outer, caller.sock)
        except BaseException:
            caller.sock.close()
            passage.end()
            raise
        passage.begin()

    def _watch(self) -> None:
        assert self._socket is not None
        self._timer = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTED_MAX):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket)
                self._timer = loop.call_later(_RESPITE_S, self._watch)
                return
            sock.setblocking(False)
            self._accepted(Caller(sock, _source(address)))

    def _heard(self, passage: "_Passage") -> None:
        if passage in self._passages:
            del self._passages[passage]
            self._passages[passage] = None

    def _ended(self, passage: "_Passage") -> None:
        self._passages.pop(passage, None)
        self._sources.pop(passage.port, None)


async def first_byte(sock: socket.socket) -> bytes:
    """Wait for the first byte of a connection, and leave it there; empty when the other side sends nothing.

    Raises: OSError.
    """
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, _set, readable)
    try:
        await readable
    finally:
        loop.remove_reader(sock)
    return sock.recv(1, socket.MSG_PEEK)


def _set(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)


def is_link(byte: bytes) -> bool:
    """True if a connection that begins with this byte is a stream of a link."""
    return byte == FIRST_BYTE


def is_grpc(byte: bytes) -> bool:
    """True if a connection that begins with this byte is meant for gRPC."""
    return byte in GRPC_FIRST_BYTES


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises: OSError."""
    is_six = ":" in host
    listening = socket.socket(socket.AF_INET6 if is_six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_six:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != _EVERYWHERE))
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


class _Passage:
    """Two connections, whose bytes go from one to the other."""

    def __init__(self, heard: Callable[["_Passage"], None], ended: Callable[["_Passage"], None]) -> None:
        self.outer = _End(lambda: heard(self), self.end)
        self.inner = _End(lambda: None, self.end)  # gRPC may ping: that keeps no stranger
        self.outer.other, self.inner.other = self.inner, self.outer
        self.port = 0
        self._tell_end = ended

    def begin(self) -> None:
        """Let bytes through, when both connections are there."""
        for end in (self.outer, self.inner):
            end.begin()

    def end(self) -> None:
        """End both connections when their last bytes are written; a side that takes none for too long is cut off."""
        for end in (self.outer, self.inner):
            end.close()
        self._tell_end(self)


class _End(asyncio.Protocol):
    """One connection of a passage."""

    def __init__(self, heard: Callable[[], None], ended: Callable[[], None]) -> None:
        self._heard = heard
        self._ended = ended
        self.other: _End = self
        self.transport: Any = None
        self.port = 0
        self._held = b""  # what came before the other connection was there: one read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection. uvloop begins to read it in any case."""
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]
        self.transport.set_write_buffer_limits(_BUFFER_BYTES)

    def begin(self) -> None:
        """Pass on what has come before the other connection was there, and read on."""
        if self._held:
            self.other.transport.write(self._held)
            self._held = b""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._heard()
        if self.other.transport is None:
            self.transport.pause_reading()
            self._held += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the other connection as well."""
        self._ended()

    def pause_writing(self) -> None:
        """Stop reading at the other side: this one takes nothing more for now."""
        if not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read at the other side again."""
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def close(self) -> None:
        """Close the connection when its bytes are written, or soon."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            asyncio.get_running_loop().call_later(_FLUSH_S, self.transport.abort)


def _source(address: Any) -> str:
    host, port = str(address[0]), int(address[1])
    host = host.removeprefix(_MAPPED)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
