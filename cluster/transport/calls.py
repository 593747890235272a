"""A call is a stream that carries one request of the node that opens it, and one answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError

from cluster.transport.frames import CALL_PAYLOAD_BYTES_MAX
from cluster.transport.interface import CALL_BYTES_MAX
from cluster.transport.link_stream import LinkStream
from cluster.transport.peer_pb2 import Reply, Request
from cluster.transport.stream import StreamEnded, StreamFault

CALLS_MAX: Final = 64
"""The most calls that are being answered at once."""


async def ask(stream: LinkStream, body: bytes) -> Reply:
    """Send the request of a call, and return the answer.   stream: after its handshake.

    Raises: StreamEnded, StreamFault.
    """
    answer = _OnlyMessage(stream)
    stream.send(Request(body=body).SerializeToString())
    try:
        return Reply.FromString(await answer.get())
    except DecodeError as error:
        raise StreamFault("an answer that cannot be read") from error


class Calls:
    """The calls that this node is answering.

    answer: returns the answer to the request of a node.   patience_s: how long the other side may take to send its
    request, and to take the answer.
    """

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]], patience_s: float) -> None:
        self._answer = answer
        self._patience_s = patience_s
        self._streams: dict[LinkStream, None] = {}

    def close(self) -> None:
        """End all calls."""
        for stream in list(self._streams):
            stream.end("this node stops")

    async def serve(self, stream: LinkStream, name: str) -> None:
        """Answer the call of a node.   stream: after its handshake. Raises: StreamEnded, StreamFault."""
        request = _OnlyMessage(stream)
        if len(self._streams) >= CALLS_MAX:
            stream.send(_refused(f"{CALLS_MAX} other calls are being answered"))
            stream.end_after_writing()
            return
        self._streams[stream] = None
        try:
            async with asyncio.timeout(self._patience_s):
                message = await request.get()
            stream.send(await self._answered(stream, name, _body(message)))
            async with asyncio.timeout(self._patience_s):
                await stream.ended()
        except TimeoutError:
            raise StreamEnded("the other side of a call is too slow", is_silence=True) from None
        finally:
            del self._streams[stream]
            stream.end("the call is over")

    async def _answered(self, stream: LinkStream, name: str, body: bytes) -> bytes:
        """Return the encoded answer. The work on it is given up when the other side ends the stream."""
        answering = asyncio.ensure_future(self._answer(name, body))
        try:
            await stream.ended_or(answering)
            answer = answering.result()
        finally:
            answering.cancel()
        if len(answer) > CALL_BYTES_MAX:
            return _refused(f"the answer has {len(answer):,} bytes, more than {CALL_BYTES_MAX:,}")
        return Reply(body=answer).SerializeToString()


class _OnlyMessage:
    """The one message that the other side of a call sends."""

    def __init__(self, stream: LinkStream) -> None:
        self._stream = stream
        self._message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        stream.open(self._take, CALL_PAYLOAD_BYTES_MAX)

    async def get(self) -> bytes:
        """Wait for the message. Raises: StreamEnded, StreamFault."""
        await self._stream.ended_or(self._message)
        return self._message.result()

    def _take(self, messages: list[bytes]) -> None:
        if self._message.done() or len(messages) > 1:
            raise StreamFault("a second message in a call")
        self._message.set_result(messages[0])


def _body(message: bytes) -> bytes:
    try:
        body = Request.FromString(message).body
    except DecodeError as error:
        raise StreamFault("a call that cannot be read") from error
    if len(body) > CALL_BYTES_MAX:
        raise StreamFault(f"a call of {len(body):,} bytes")
    return body


def _refused(text: str) -> bytes:
    return Reply(refusal=text).SerializeToString()
