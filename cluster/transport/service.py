"""Serve what other nodes open: the handshake, then the stream of a link, or the call.

Before the handshake has ended nothing else of a stream is read, only so many are in it at once, and it has a time
limit.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Final, cast

from cluster.transport import former_protocol
from cluster.transport.calls import Calls
from cluster.transport.frames import FIRST_BYTE
from cluster.transport.handshake import HandshakeFailed, Kind
from cluster.transport.handshakes import Handshakes
from cluster.transport.interface import Hello
from cluster.transport.introductions import answer, new_answerer
from cluster.transport.link_stream import LinkStream, accept
from cluster.transport.port import Caller, PeerPort, first_byte, host_of
from cluster.transport.stream import StreamEnded, StreamFault

if TYPE_CHECKING:
    from cluster.transport.transport import Transport

_REST_BYTES: Final = 4096
"""The bytes that are read at once of a connection that was refused, and thrown away."""

_TOLD_MAX: Final = 256
_TOLD_S: Final = 600.0
"""In so many seconds at most `_TOLD_MAX` different refusals are logged, each once: strangers may make up any number."""


class Service:
    """Answers the streams and calls of other nodes.   port: where they come from."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self.port = PeerPort(self._accepted)
        self._handshakes = Handshakes()
        self._calls = Calls(transport.listener.call, transport.options.handshake_s)
        self._greetings: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._told_since_s = 0.0

    def close(self) -> None:
        """End the calls that are being answered, and accept nothing more."""
        self.port.close()
        for task in self._greetings:
            task.cancel()
        self._calls.close()

    # --- connections ---

    def _accepted(self, caller: Caller) -> None:
        task = self._transport.spawn(self._serve(caller))
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _serve(self, caller: Caller) -> None:
        """Serve a connection until it ends."""
        hello: Hello | None = None
        try:
            found = await self._greeted(caller)
            if found is None:
                return
            kind, stream, hello = found
            self._greetings.discard(cast("asyncio.Task[None]", asyncio.current_task()))
            if self._transport.is_closing:
                stream.end("this node stops")
                return
            if kind is Kind.CALL:
                await self._calls.serve(stream, hello.name)
            else:
                await self._transport.peer(hello.name).serve(kind, stream, hello)
        except StreamEnded:
            # The node that opened the stream notices too, and logs it.
            pass
        except StreamFault as error:
            self._tell(caller.source, hello.name if hello else "", f"it breaks the protocol: {error}")
        finally:
            if hello is not None:
                self._transport.drop_if_idle(hello.name)

    async def _greeted(self, caller: Caller) -> tuple[Kind, LinkStream, Hello] | None:
        """Return a stream after its handshake; None when it is none, or refused.

        Raises: StreamEnded, StreamFault.
        """
        patience, now = asyncio.timeout(self._transport.options.handshake_s), asyncio.get_running_loop().time
        number = self._handshakes.begin(host_of(caller.source), lambda: patience.reschedule(now()))
        stream: LinkStream | None = None
        try:
            async with patience:
                byte = await _sorted(caller)
                if byte != FIRST_BYTE:
                    await self._turn_away(caller, byte)
                    return None
                kind, stream = await accept(caller.sock, self._transport.security, self._transport.options)
                hello = await self._handshake(kind, stream, caller.source)
                if hello is None:
                    stream.end_after_writing()
                    return None
                self._handshakes.has_proved(host_of(caller.source))
                return kind, stream, hello
        except TimeoutError:
            _end(stream, "its handshake took too long")
            self._tell(caller.source, "", "its handshake took too long")
            return None
        except HandshakeFailed as error:  # before the handshake, by the preface
            self._tell(caller.source, "", str(error))
            return None
        except OSError:
            return None
        except BaseException:
            _end(stream, "its handshake failed")
            raise
        finally:
            self._handshakes.leave(number)

    # --- handshake ---

    async def _handshake(self, kind: Kind, stream: LinkStream, source: str) -> Hello | None:
        """Return the node that opened the stream; None when it is refused. Raises: StreamEnded, StreamFault."""
        secret = self._transport.security.secret
        answerer = new_answerer(self._transport.identity, kind, secret, stream.certified_names)
        try:
            return await answer(stream, answerer, self._transport.listener.admit)
        except HandshakeFailed as error:
            if not error.is_theirs:
                self._tell(source, error.name, str(error))
            return None

    def _tell(self, source: str, name: str, reason: str) -> None:
        """Log a refusal once.   name: empty as long as the claim is not proved."""
        host = host_of(source)
        who = f"node '{name}' at {host}" if name else f"a link from {host}"
        line = f"refused {who}: {reason}"
        now = asyncio.get_running_loop().time()
        if now - self._told_since_s > _TOLD_S:
            self._told.clear()
            self._told_since_s = now
        if line not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(line)
            self._transport.log(line)

    async def _turn_away(self, caller: Caller, byte: bytes) -> None:
        """End a connection that begins with another byte than those of nodes. One of protocol 1 reads why.

        Raises: OSError.
        """
        loop = asyncio.get_running_loop()
        with caller.sock as sock:
            if byte in (former_protocol.HTTP2_FIRST_BYTE, former_protocol.TLS_FIRST_BYTE):
                self._tell(caller.source, "", f"{former_protocol.REASON}; or it is no node")
            if byte == former_protocol.HTTP2_FIRST_BYTE:
                await loop.sock_sendall(sock, former_protocol.farewell())
                sock.shutdown(socket.SHUT_WR)
                while await loop.sock_recv(sock, _REST_BYTES):
                    pass  # a socket that is closed before all was read resets, and the farewell may be lost


async def _sorted(caller: Caller) -> bytes:
    """Return the first byte of a connection. Raises: OSError; its socket is closed when anything is raised."""
    try:
        return await first_byte(caller.sock)
    except BaseException:
        caller.sock.close()
        raise


def _end(stream: LinkStream | None, reason: str) -> None:
    if stream is not None:
        stream.end(reason)
