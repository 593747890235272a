"""Serve what other nodes open: the handshake, then the stream of a link, or the call.

Before the handshake has ended nothing else of a stream is read, only so many are in it at once, and it has a time
limit.
"""

import asyncio
from collections.abc import Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.message import DecodeError

from cluster.transport.frames import VERSION as PROTOCOL
from cluster.transport.handshake import HandshakeFailed, Kind, refusal
from cluster.transport.handshakes import Handshakes
from cluster.transport.interface import CALL_BYTES_MAX, Hello
from cluster.transport.introductions import Messages, answer, new_answerer
from cluster.transport.link_stream import LinkStream, accept
from cluster.transport.peer_pb2 import Reply, Request
from cluster.transport.port import Caller, PeerPort, first_byte, host_of, is_grpc, is_link
from cluster.transport.security import certified_names
from cluster.transport.stream import StreamEnded, StreamFault
from cluster.transport.wire import IncomingStream, first_of
from node.version import VERSION

if TYPE_CHECKING:
    from cluster.transport.transport import Transport

CALLS_MAX: Final = 64
"""The most calls that are being answered at once."""

_TOLD_MAX: Final = 256
_TOLD_S: Final = 600.0
"""In so many seconds at most `_TOLD_MAX` different refusals are logged, each once: strangers may make up any number."""


class Service:
    """Answers the streams and calls of other nodes.   port: where they come from."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self.port = PeerPort(self._accepted)
        self._handshakes = Handshakes()
        self._calls: dict[asyncio.Event, None] = {}  # set: the call ends
        self._greetings: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._told_since_s = 0.0

    def handlers(self) -> dict[str, Any]:
        """Return gRPC's handlers by kind of stream."""
        return {
            Kind.CALL: self._call,
            Kind.CONTROL: partial(self._refuse, Kind.CONTROL),
            Kind.DATA: partial(self._refuse, Kind.DATA),
        }

    def close(self) -> None:
        """End the calls that are being answered, and accept nothing more."""
        self.port.close()
        for task in self._greetings:
            task.cancel()
        for end in self._calls:
            end.set()

    # --- connections ---

    def _accepted(self, caller: Caller) -> None:
        task = self._transport.spawn(self._serve(caller))
        self._greetings.add(task)
        task.add_done_callback(self._greetings.discard)

    async def _serve(self, caller: Caller) -> None:
        """Serve a connection until it ends; a passed one is only begun."""
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
        """Return the stream of a link after its handshake; None when it is none, or refused.

        Raises: StreamEnded, StreamFault.
        """
        patience, now = asyncio.timeout(self._transport.options.handshake_s), asyncio.get_running_loop().time
        number = self._handshakes.begin(host_of(caller.source), lambda: patience.reschedule(now()))
        stream: LinkStream | None = None
        try:
            async with patience:
                byte = await _sorted(caller)
                if is_grpc(byte):
                    await self.port.pass_on(caller)
                    return None
                if not is_link(byte):
                    caller.sock.close()
                    return None
                kind, stream = await accept(caller.sock, self._transport.security, self._transport.options)
                hello = await self._handshake(kind, stream, caller.source, stream.certified_names)
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

    async def _handshake(
        self, kind: Kind, stream: Messages, source: str, names: Set[str] | None
    ) -> Hello | None:
        """Return the node that opened the stream; None when it is refused. Raises: StreamEnded, StreamFault."""
        answerer = new_answerer(self._transport.identity, kind, self._transport.security.secret, names)
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

    # --- calls, and what nodes of protocol 1 open ---

    async def _refuse(self, kind: Kind, _requests: Any, context: Any) -> None:
        """Tell a node whose links are streams of gRPC why there is none."""
        stream = IncomingStream(context)
        text = f"its links are of protocol 1, those of version {VERSION} are of protocol {PROTOCOL}"
        try:
            async with asyncio.timeout(self._transport.options.handshake_s):
                await stream.read()
                await stream.write(refusal(f"the nodes speak different protocols: {text}"))
        except (StreamEnded, TimeoutError):
            return
        self._tell(self.port.source_of(stream.source), "", text)

    async def _call(self, _requests: Any, context: Any) -> None:
        """Run the handshake of a call, and answer it."""
        stream = IncomingStream(context)
        source = self.port.source_of(stream.source)
        try:
            hello = await self._greet_caller(stream, source)
            if hello is not None and not self._transport.is_closing:
                await self._answer(stream, hello, source)
        except StreamEnded:
            pass
        except StreamFault as error:
            self._tell(source, "", f"it breaks the protocol: {error}")

    async def _greet_caller(self, stream: IncomingStream, source: str) -> Hello | None:
        if self._transport.is_closing:
            return None
        patience, now = asyncio.timeout(self._transport.options.handshake_s), asyncio.get_running_loop().time
        number = 0
        names: Set[str] | None = None
        if self._transport.security.has_certificates:
            names = certified_names(stream.certificate)
        try:
            async with patience:
                number = self._handshakes.begin(host_of(source), lambda: patience.reschedule(now()))
                hello = await self._handshake(Kind.CALL, stream, source, names)
                if hello is not None:
                    self._handshakes.has_proved(host_of(source))
                return hello
        except TimeoutError:
            self._tell(source, "", "its handshake took too long")
            return None
        finally:
            self._handshakes.leave(number)

    async def _answer(self, stream: IncomingStream, hello: Hello, source: str) -> None:
        if len(self._calls) >= CALLS_MAX:
            await stream.write(_refused(f"{CALLS_MAX} other calls are being answered"))
            return
        end = asyncio.Event()
        self._calls[end] = None
        try:
            async with asyncio.timeout(self._transport.options.handshake_s):
                request = Request.FromString(await stream.read())
            if len(request.body) > CALL_BYTES_MAX:
                raise StreamFault(f"a call of {len(request.body):,} bytes")
            await first_of(self._call_listener(stream, hello.name, request.body), _wait(end))
        except DecodeError:
            self._tell(source, hello.name, "it breaks the protocol: a call that cannot be read")
        except TimeoutError:
            raise StreamEnded("no request came", is_silence=True) from None
        finally:
            del self._calls[end]

    async def _call_listener(self, stream: IncomingStream, name: str, body: bytes) -> None:
        answer = await self._transport.listener.call(name, body)
        if len(answer) > CALL_BYTES_MAX:
            await stream.write(
                _refused(f"the answer has {len(answer):,} bytes, more than {CALL_BYTES_MAX:,}")
            )
            return
        await stream.write(Reply(body=answer).SerializeToString())


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


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _refused(text: str) -> bytes:
    return Reply(refusal=text).SerializeToString()
