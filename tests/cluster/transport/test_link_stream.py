"""One stream of a link, without a connection: what it reads, writes and takes for its end."""

import asyncio
import errno
import time

import pytest

from cluster.transport.frames import FrameType, encode
from cluster.transport.handshake import Kind
from cluster.transport.interface import LinkOptions
from cluster.transport.link_stream import Patience
from cluster.transport.stream import StreamEnded, StreamFault
from tests.cluster.transport.links import run, until
from tests.cluster.transport.streams import feed, made

PING, PONG = encode(FrameType.PING), encode(FrameType.PONG)


def test_the_messages_of_one_read_are_handed_over_together() -> None:
    async def story() -> None:
        stream, _ = made()
        came: list[list[bytes]] = []
        stream.open(came.append)
        feed(stream, encode(FrameType.MESSAGE, b"a") + encode(FrameType.MESSAGE, b"b") + PONG)
        feed(stream, encode(FrameType.MESSAGE, b"c")[:-1])
        assert came == [[b"a", b"b"]]
        feed(stream, b"c")
        assert came[1:] == [[b"c"]]

    run(story())


def test_a_handshake_reads_no_further_than_it_asks() -> None:
    """A handshake leaves what follows its last message to the opened stream."""

    async def story() -> None:
        stream, connection = made()
        feed(stream, encode(FrameType.HANDSHAKE, b"1") + encode(FrameType.HANDSHAKE, b"2") + PING)
        assert not connection.reads
        assert await stream.read() == b"1"
        assert await stream.read() == b"2"
        stream.open(lambda _: None)
        assert connection.reads
        assert connection.written == PONG

    run(story())


def test_a_reason_that_comes_with_the_end_is_read() -> None:
    async def story() -> None:
        stream, _ = made()
        feed(stream, encode(FrameType.HANDSHAKE, b"no"))
        stream.eof_received()
        assert await stream.read() == b"no"
        with pytest.raises(StreamEnded, match="it ended the stream"):
            await stream.read()

    run(story())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff" * 9, "a frame of 4,294,967,295 bytes"),
        (encode(FrameType.HANDSHAKE, b"x"), "a second handshake"),
        (encode(FrameType.MESSAGE, b"broken"), "a message that is broken"),
    ],
)
def test_a_fault_ends_the_stream(data: bytes, text: str) -> None:
    """Nothing that comes after it is looked at."""

    def take(_messages: list[bytes]) -> None:
        raise StreamFault("a message that is broken")

    async def story() -> None:
        stream, connection = made()
        stream.open(take)
        feed(stream, data)
        with pytest.raises(StreamFault, match=text):
            await stream.ended()
        assert connection.end == "abort"
        feed(stream, data * 1000)
        assert text in stream.reason

    run(story())


def test_who_does_not_read_gets_no_answers() -> None:
    """A peer that does not read gets no answers, or pings would fill the memory."""

    async def story() -> None:
        stream, connection = made()
        stream.open(lambda _: None)
        told: list[bool] = []
        stream.on_room = lambda: told.append(stream.has_room)
        stream.pause_writing()
        feed(stream, PING * 1000)
        assert (connection.written, stream.has_room) == (b"", False)
        stream.resume_writing()
        feed(stream, PING)
        assert (connection.written, told) == (PONG, [True])

    run(story())


def test_silence() -> None:
    """A ping, then the end; whatever comes in between is an answer."""

    async def story() -> None:
        stream, connection = made(Patience(0.01, 0.2))
        stream.open(lambda _: None)
        await until(lambda: connection.written == PING)
        feed(stream, PONG)
        await until(lambda: connection.written == 2 * PING)
        assert not stream.is_ended
        with pytest.raises(StreamEnded, match="ping timeout") as ended:
            await stream.ended()
        assert ended.value.is_silence

    run(story())


@pytest.mark.real
def test_a_loop_that_was_held_takes_nobody_for_silent() -> None:
    """A loop that was held looks for an answer again and again, and reads what has come in between."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        stream, _ = made(Patience(0.01, 0.02))
        stream.open(lambda _: None)
        for _ in range(5):
            time.sleep(0.05)
            await asyncio.sleep(0)
            loop.call_soon(feed, stream, PONG)
            await asyncio.sleep(0)
            assert not stream.is_ended

    run(story())


@pytest.mark.parametrize(
    ("error", "text", "is_silence"),
    [
        (None, "it ended the stream", False),
        (ConnectionResetError(errno.ECONNRESET, "x"), "Connection reset by peer", False),
        (OSError(errno.ETIMEDOUT, "x"), "Connection timed out", True),
        (OSError(errno.EHOSTUNREACH, "x"), "No route to host", True),
        (BrokenPipeError(errno.EPIPE, "x"), "Broken pipe", False),
    ],
)
def test_what_the_end_of_a_connection_means(error: OSError | None, text: str, is_silence: bool) -> None:
    """ring §4: a reset is one half of the proof that a process has ended, silence proves nothing."""

    async def story() -> None:
        stream, _ = made()
        stream.open(lambda _: None)
        stream.connection_lost(error)
        with pytest.raises(StreamEnded) as ended:
            await stream.ended()
        assert (str(ended.value), ended.value.is_silence) == (text, is_silence)

    run(story())


def test_the_first_reason_counts() -> None:
    async def story() -> None:
        stream, connection = made()
        stream.open(lambda _: None)
        stream.end("the link was given up")
        stream.fail(StreamFault("later"))
        stream.connection_lost(None)
        stream.send(b"late")
        assert (stream.reason, connection.written, connection.end) == ("the link was given up", b"", "abort")

    run(story())


def test_who_pings_first() -> None:
    """The opener of the control stream notices silence soonest."""
    options = LinkOptions(keepalive_s=1, data_keepalive_s=2, ping_timeout_s=3)
    for kind, is_opener, keepalive_s in (
        (Kind.CONTROL, True, 1),
        (Kind.CONTROL, False, 2),
        (Kind.DATA, True, 2),
        (Kind.DATA, False, 2),
    ):
        assert Patience.of(kind, options, is_opener=is_opener) == (keepalive_s, 3)
