"""Serve the streams that other nodes open: the handshake, then the stream or the call.

Before the handshake has ended nothing else of a stream is read, only so many are in it at once, and it has a time
limit.
"""

import asyncio
import os
from collections.abc import Set
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from cluster.transport.handshake import NONCE_BYTES, Answerer, HandshakeFailed, Kind, refusal
from cluster.transport.handshakes import Handshakes
from cluster.transport.interface import CALL_BYTES_MAX, Hello
from cluster.transport.peer_link import ServedStream
from cluster.transport.peer_pb2 import Reply, Request
from cluster.transport.security import certified_names
from cluster.transport.stream import StreamFault
from cluster.transport.wire import IncomingStream, StreamEnded, first_of

if TYPE_CHECKING:
    from cluster.transport.transport import Transport

CALLS_MAX: Final = 64
"""The most calls that are being answered at once."""

_TOLD_MAX: Final = 256
_TOLD_S: Final = 600.0
"""In so many seconds at most `_TOLD_MAX` different refusals are logged, each once: strangers may make up any number."""


class Service:
    """Answers the streams of other nodes."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self._handshakes = Handshakes()
        self._calls: set[ServedStream] = set()
        self._told: set[str] = set()
        self._told_since_s = 0.0

    def handlers(self) -> dict[str, Any]:
        """Return gRPC's handlers by kind of stream."""
        return {Kind.CONTROL: self._control, Kind.DATA: self._data, Kind.CALL: self._call}

    def close(self) -> None:
        """End the calls that are being answered."""
        for served in self._calls:
            served.end("this node stops")

    async def _control(self, _requests: Any, context: Any) -> None:
        await self._serve(Kind.CONTROL, IncomingStream(context))

    async def _data(self, _requests: Any, context: Any) -> None:
        await self._serve(Kind.DATA, IncomingStream(context))

    async def _call(self, _requests: Any, context: Any) -> None:
        await self._serve(Kind.CALL, IncomingStream(context))

    async def _serve(self, kind: Kind, stream: IncomingStream) -> None:
        hello: Hello | None = None
        try:
            hello = await self._greet(kind, stream)
            if hello is None or self._transport.is_closing:
                return
            served = ServedStream(stream, hello)
            if kind is Kind.CALL:
                await self._answer(served)
            else:
                await self._transport.peer(hello.name).serve(kind, served)
        except StreamEnded:
            # The node that opened the stream notices too, and logs it.
            pass
        except StreamFault as error:
            self._tell(stream, hello.name if hello else "", f"it breaks the protocol: {error}")
        finally:
            if hello is not None:
                self._transport.drop_if_idle(hello.name)

    # --- handshake ---

    async def _greet(self, kind: Kind, stream: IncomingStream) -> Hello | None:
        """Return the node that opened the stream; None when it is refused. Raises: StreamEnded."""
        if self._transport.is_closing:
            return None
        patience, now = asyncio.timeout(self._transport.options.handshake_s), asyncio.get_running_loop().time
        number = 0
        try:
            async with patience:
                number = self._handshakes.begin(_host(stream), lambda: patience.reschedule(now()))
                hello = await self._handshake(kind, stream)
                if hello is not None:
                    self._handshakes.has_proved(_host(stream))
                return hello
        except TimeoutError:
            self._tell(stream, "", "its handshake took too long")
            return None
        finally:
            self._handshakes.leave(number)

    async def _handshake(self, kind: Kind, stream: IncomingStream) -> Hello | None:
        security = self._transport.security
        names: Set[str] | None = None
        if security.has_certificates:
            names = certified_names(stream.certificate)
        answerer = Answerer(self._transport.identity, kind, names, security.secret, os.urandom(NONCE_BYTES))
        name = ""
        try:
            await stream.write(answerer.receive_greeting(await stream.read()))
            hello = answerer.receive_proof(await stream.read())
            name = hello.name
            why_not = self._transport.listener.admit(hello)
            if why_not is not None:
                raise HandshakeFailed(why_not)
            await stream.write(answerer.proof())
            answerer.receive_accepted(await stream.read())
        except HandshakeFailed as error:
            if not error.is_theirs:
                self._tell(stream, name, str(error))
                await stream.write(refusal(str(error)))
            return None
        return hello

    def _tell(self, stream: IncomingStream, name: str, reason: str) -> None:
        """Log a refusal once.   name: empty as long as the claim is not proved."""
        host = _host(stream)
        who = f"node '{name}' at {host}" if name else f"a link from {host}"
        line = f"refused {who}: {reason}"
        now = asyncio.get_running_loop().time()
        if now - self._told_since_s > _TOLD_S:
            self._told.clear()
            self._told_since_s = now
        if line not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(line)
            self._transport.log(line)

    # --- calls ---

    async def _answer(self, served: ServedStream) -> None:
        stream, name = served.stream, served.hello.name
        if len(self._calls) >= CALLS_MAX:
            await stream.write(_refused(f"{CALLS_MAX} other calls are being answered"))
            return
        self._calls.add(served)
        try:
            async with asyncio.timeout(self._transport.options.handshake_s):
                request = Request.FromString(await stream.read())
            if len(request.body) > CALL_BYTES_MAX:
                raise StreamFault(f"a call of {len(request.body):,} bytes")
            await first_of(self._call_listener(stream, name, request.body), served.ended())
        except DecodeError as error:
            raise StreamFault("a call that cannot be read") from error
        except TimeoutError:
            raise StreamEnded("no request came", is_silence=True) from None
        finally:
            self._calls.discard(served)

    async def _call_listener(self, stream: IncomingStream, name: str, body: bytes) -> None:
        answer = await self._transport.listener.call(name, body)
        if len(answer) > CALL_BYTES_MAX:
            await stream.write(
                _refused(f"the answer has {len(answer):,} bytes, more than {CALL_BYTES_MAX:,}")
            )
            return
        await stream.write(Reply(body=answer).SerializeToString())


def _host(stream: IncomingStream) -> str:
    """Return the host that a stream comes from."""
    return stream.source.rpartition(":")[0]


def _refused(text: str) -> bytes:
    return Reply(refusal=text).SerializeToString()
