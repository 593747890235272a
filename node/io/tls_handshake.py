"""The TLS handshake of one client: it ends with a `ClientSocket`, or with a log line that says why it failed.

A balancer that passes TLS on puts its PROXY header before it, and so does one that speaks TLS itself: the header is
read first, and not a byte more, as what follows is for OpenSSL.

The loop's own TLS listeners are not used, as they report neither the peer nor the cause of a failed handshake.
"""

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from node.io.proxy_protocol import (
    HEADER_BYTES_MAX,
    Endpoint,
    ProxyHeader,
    ProxyHeaderParser,
    ProxyProtocolError,
)

Failed = Callable[[str], None]
"""Gets a line about a failed handshake: the peer, this side, and the reason."""

_ALERT: Final = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")
_HINTS: Final = {
    "unknown ca": "the client does not trust the certificate of this node",
    "bad certificate": "the client does not accept the certificate of this node",
    "certificate expired": "the client does not accept the certificate of this node",
    "wrong version number": "the client does not speak TLS, or a version that is not allowed here",
    "http request": "the client speaks HTTP without TLS",
    "peer did not return a certificate": "fail_if_no_peer_cert asks for one",
    "no shared cipher": "ssl_options.ciphers and versions allow none that the client has",
    "unsupported protocol": "ssl_options.versions does not allow the version that the client has",
}


def explained(error: BaseException) -> str:
    """Return why a handshake failed, for the log: OpenSSL's reason, or the client's alert, and its meaning."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        alert = _ALERT.fullmatch(error.reason)
        what = (alert[1] if alert else error.reason).replace("_", " ").lower()
        hint = f" ({_HINTS[what]})" if what in _HINTS else ""
        return f"{'the client sent the alert ' if alert else ''}'{what}'{hint}"
    if isinstance(error, ConnectionAbortedError):
        return "not done in time"
    if isinstance(error, ConnectionResetError) or not str(error):
        return "the client closed the connection"
    return str(error)


class TlsHandshake(asyncio.Protocol):
    """The handshake on a socket that was accepted. `Server` keeps it until the handshake is over.

    make: makes the protocol that takes over, given the PROXY header; None: none was expected.
    ended: called once, when the handshake is over, however it went.
    proxy_timeout_s: for the header, None: for ever.   has_proxy: whether a peer at this address has to send one.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        timeout_s: float | None,
        make: Callable[[ProxyHeader | None], asyncio.Protocol],
        failed: Failed,
        ended: "Callable[[TlsHandshake], None]",
        *,
        proxy_timeout_s: float | None = None,
        has_proxy: Callable[[str], bool] = lambda host: False,
    ) -> None:
        self._proxy_timeout_s = proxy_timeout_s
        self._has_proxy = has_proxy
        self._context = context
        self._timeout_s = timeout_s
        self._make = make
        self._failed = failed
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake on a duplicate of the socket's descriptor."""
        raw = cast(asyncio.Transport, transport)
        peer, local = raw.get_extra_info("peername"), raw.get_extra_info("sockname")
        sock: socket.socket | None = None
        if peer is not None and local is not None:  # else it has been reset already
            # The loop reads what a listener accepts before a handshake could begin on it. So the handshake is on a
            # second descriptor, and the first one goes before anything was read.
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=os.dup(raw.get_extra_info("socket").fileno()))
        raw.abort()
        if sock is None:
            self._ended(self)
            return
        places = Endpoint(*peer[:2]), Endpoint(*local[:2])
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(sock, *places))

    def abort(self) -> None:
        """Cancel the handshake."""
        if self._task is not None:
            self._task.cancel()

    async def _shake_hands(self, sock: socket.socket, peer: Endpoint, local: Endpoint) -> None:
        sock.setblocking(False)
        try:
            header = await self._read_header(sock) if self._has_proxy(peer.host) else None
            if header is not None:
                peer, local = header.source or peer, header.destination or local
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(header), sock, ssl=self._context, ssl_handshake_timeout=self._timeout_s
            )
        except ProxyProtocolError as error:
            sock.close()
            if str(error):
                self._failed(str(error))
        except OSError as error:  # ssl.SSLError and time-outs are some
            sock.close()
            places = f"{peer.host}:{peer.port} -> {local.host}:{local.port}"
            self._failed(f"TLS handshake {places} failed: {explained(error)}")
        except asyncio.CancelledError:
            sock.close()
            raise
        finally:
            self._ended(self)

    async def _read_header(self, sock: socket.socket) -> ProxyHeader:
        """Read the PROXY header. Raises: ProxyProtocolError, also when it does not come in time."""
        parser = ProxyHeaderParser()
        try:
            async with asyncio.timeout(self._proxy_timeout_s):
                while True:
                    seen = await _peek(sock)
                    if not seen:
                        raise ProxyProtocolError("")  # a health check: nothing to log
                    header = parser.feed(seen)
                    sock.recv(len(seen) - len(parser.rest))
                    if header is not None:
                        return header
        except TimeoutError:
            raise ProxyProtocolError("no PROXY header in time") from None
        except OSError as error:
            raise ProxyProtocolError(f"no PROXY header: {error}") from None


async def _peek(sock: socket.socket) -> bytes:
    """Wait for data and return them without consuming them; nothing at the end. Raises: OSError."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)
    return sock.recv(HEADER_BYTES_MAX, socket.MSG_PEEK)
