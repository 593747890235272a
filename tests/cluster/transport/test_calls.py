"""A call carries one request and one answer, and what has ended holds nothing."""

import asyncio
import contextlib
import gc
import weakref

import pytest

from cluster.transport import calls
from cluster.transport.calls import Calls, ask
from cluster.transport.frames import FrameType, encode
from cluster.transport.link_stream import LinkStream
from cluster.transport.peer_pb2 import Reply, Request
from cluster.transport.stream import StreamEnded, StreamFault
from tests.cluster.transport.links import run, until
from tests.cluster.transport.streams import Connection, feed, made


def message(content: bytes) -> bytes:
    return encode(FrameType.MESSAGE, content)


def request(body: bytes) -> bytes:
    return message(Request(body=body).SerializeToString())


def reply(body: bytes) -> bytes:
    return message(Reply(body=body).SerializeToString())


class Listener:
    """Answers requests when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.given_up = 0
        self.may_answer = asyncio.Event()

    async def call(self, name: str, body: bytes) -> bytes:
        self.asked.append((name, body))
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return b"about " + body


def served(
    listener: Listener, patience_s: float = 20.0
) -> tuple[Calls, LinkStream, Connection, asyncio.Task[None]]:
    stream, connection = made()
    answered = Calls(listener.call, patience_s)
    return answered, stream, connection, asyncio.ensure_future(answered.serve(stream, "n2"))


def test_a_request_and_its_answer() -> None:
    async def story() -> None:
        listener = Listener()
        _, stream, connection, serving = served(listener)
        feed(stream, b"")
        await asyncio.sleep(0)
        feed(stream, request(b"x"))
        await until(lambda: listener.asked)
        assert listener.asked == [("n2", b"x")]
        assert connection.written == b""
        listener.may_answer.set()
        await until(lambda: connection.written)
        assert connection.written == reply(b"about x")
        stream.eof_received()
        with pytest.raises(StreamEnded):
            await serving
        assert connection.end == "abort"

    run(story())


def test_an_answer_that_comes_with_the_end() -> None:
    """The other side may end the stream as soon as it has written its answer."""

    async def story() -> None:
        stream, connection = made()
        asking = asyncio.ensure_future(ask(stream, b"x"))
        await until(lambda: connection.written)
        assert connection.written == request(b"x")
        feed(stream, reply(b"y"))
        stream.eof_received()
        assert (await asking).body == b"y"

    run(story())


@pytest.mark.parametrize("said", [b"\xff\xff", b""])
def test_an_answer_that_cannot_be_read(said: bytes) -> None:
    async def story() -> None:
        stream, connection = made()
        asking = asyncio.ensure_future(ask(stream, b"x"))
        await until(lambda: connection.written)
        if said:
            feed(stream, message(said))
            with pytest.raises(StreamFault, match="cannot be read"):
                await asking
        else:
            feed(stream, reply(b"one") + reply(b"two"))
            with pytest.raises(StreamFault, match="a second message"):
                await asking

    run(story())


def test_who_asks_no_longer_gets_no_answer() -> None:
    """The work for a caller that went away is given up."""

    async def story() -> None:
        listener = Listener()
        _, stream, connection, serving = served(listener)
        await asyncio.sleep(0)
        feed(stream, request(b"x"))
        await until(lambda: listener.asked)
        stream.eof_received()
        with pytest.raises(StreamEnded):
            await serving
        await until(lambda: listener.given_up)
        assert connection.written == b""

    run(story())


def test_who_sends_no_request_has_to_go() -> None:
    async def story() -> None:
        listener = Listener()
        _, _, connection, serving = served(listener, patience_s=0.01)
        with pytest.raises(StreamEnded, match="too slow"):
            await serving
        assert (listener.asked, connection.end) == ([], "abort")

    run(story())


def test_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused with the reason; when one has ended there is room."""
    monkeypatch.setattr(calls, "CALLS_MAX", 1)

    async def story() -> None:
        listener = Listener()
        answered, stream, _, serving = served(listener)
        await asyncio.sleep(0)
        feed(stream, request(b"x"))
        await until(lambda: listener.asked)
        second, connection = made()
        await answered.serve(second, "n3")
        assert b"1 other calls are being answered" in connection.written
        assert connection.end == "close"
        stream.end("enough")
        with pytest.raises(StreamEnded):
            await serving
        third, _ = made()
        serving = asyncio.ensure_future(answered.serve(third, "n3"))
        await asyncio.sleep(0)
        feed(third, request(b"y"))
        await until(lambda: len(listener.asked) == 2)
        answered.close()
        with pytest.raises(StreamEnded, match="this node stops"):
            await serving

    run(story())


def test_a_call_that_ended_holds_no_connection() -> None:
    """Old circles are looked for too seldom (`node.app`): whatever is left of a call must go with it."""

    async def story() -> "weakref.ref[LinkStream]":
        stream, connection = made()
        asking = asyncio.ensure_future(ask(stream, b"x"))
        await until(lambda: connection.written)
        stream.end("enough")
        with contextlib.suppress(StreamEnded):
            await asking
        del asking  # its error holds this frame
        stream.connection_lost(None)
        return weakref.ref(stream)

    gc.disable()
    try:
        assert asyncio.run(story())() is None
    finally:
        gc.enable()
