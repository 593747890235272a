"""The port that other nodes connect to."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_BACKLOG: Final = 128
_ACCEPTED_MAX: Final = 64
"""The most connections that are accepted in one turn of the loop."""

_RESPITE_S: Final = 0.2
"""How long nothing is accepted when the process has no descriptor left."""

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

    def listen(self, host: str, port: int) -> int:
        """Accept connections.   host: an address; "::" is every interface.   Returns: the port. Raises: OSError."""
        assert self._socket is None
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


def _source(address: Any) -> str:
    host, port = str(address[0]), int(address[1])
    host = host.removeprefix(_MAPPED)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
