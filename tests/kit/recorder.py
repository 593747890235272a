"""A sink that records the calls of the reader, run by run or message by message."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from node.amqp.errors import ProtocolError
from node.amqp.frames import body_size, content_frames, frame, method_frame
from node.amqp.methods import BasicAck, BasicPublish
from node.amqp.properties import Properties, Traits, content_header
from node.amqp.reader import MIXED_SIZES, FrameReader

UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Publish:
    """A publish.   content: as received.   size: of its body."""

    channel: int
    method_frame: bytes
    traits: Traits
    content: bytes
    size: int


@dataclass(frozen=True)
class Ack:
    """An acknowledgement of one delivery tag."""

    channel: int
    tag: int


@dataclass(frozen=True)
class OtherMethod:
    """A method without content."""

    channel: int
    payload: bytes


@dataclass(frozen=True)
class Fault:
    """A fault that the reader reported.   is_fatal: it raised, and cannot continue with the stream."""

    code: int
    explanation: str
    ids: tuple[int, int]
    is_fatal: bool


@dataclass(frozen=True)
class Heartbeat:
    """A heartbeat."""


@dataclass(frozen=True)
class ContentFrame:
    """A content frame was taken while the reader watches for them."""


Event = Publish | Ack | OtherMethod | Fault | Heartbeat | ContentFrame


class Recorder:
    """A `Sink` that records all calls.

    events: what came, message by message.   runs: the lengths of the runs of publishes and of acks.
    asked: the channels on which the reader asked for leave to collect a content.
    closed: channels that are being closed: what comes on them is dropped.
    pauses: stop the reader at every method without content and at every run of publishes.
    """

    def __init__(
        self,
        *,
        closed: Iterable[int] = (),
        pauses: bool = False,
        frame_max: int = 4096,
        content_max: int = UNLIMITED,
    ) -> None:
        self.events: list[Event] = []
        self.runs: list[int] = []
        self.asked: list[int] = []
        self.known: dict[tuple[int, Traits], dict[bytes, bytes]] = {}
        """The method frames that may be in a series, by channel and traits."""
        self.series: list[int] = []
        """The lengths of the series."""
        self.closed = frozenset(closed)
        self.pauses = pauses
        self.reader = FrameReader(self, frame_max_bytes=frame_max, content_max_bytes=content_max)
        self.is_dead = False

    def feed(self, *pieces: bytes) -> None:
        """Give the reader bytes, until a fault ends the stream."""
        for piece in pieces:
            self._guarded(partial(self.reader.feed, piece))
            while self.reader.paused and not self.is_dead:
                self._guarded(self.reader.resume)

    def _guarded(self, call: Callable[[], None]) -> None:
        if self.is_dead:
            return
        try:
            call()
        except ProtocolError as error:
            self.is_dead = True
            self.events.append(_fault(error, is_fatal=True))

    def on_fault(self, error: ProtocolError) -> None:
        self.events.append(_fault(error, is_fatal=False))

    def on_method(self, channel: int, payload: bytes) -> None:
        self.events.append(OtherMethod(channel, payload))
        self.reader.paused = self.reader.paused or self.pauses

    def on_content_method(self, channel: int, payload: bytes) -> bool:
        self.asked.append(channel)
        return channel not in self.closed

    def ignores(self, channel: int) -> bool:
        return channel in self.closed

    def on_publish(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        assert contents, "an empty run"
        assert channel == int.from_bytes(method_frame[1:3])
        self.runs.append(len(contents))
        self.reader.paused = self.reader.paused or self.pauses
        if channel in self.closed:
            return
        self.known.setdefault((channel, traits), {})[method_frame] = method_frame
        for content in contents:
            own_size = body_size(content)
            assert size in (MIXED_SIZES, own_size), "the run's size isn't that of each"
            self.events.append(Publish(channel, method_frame, traits, content, own_size))

    def known_addresses(self, channel: int, traits: Traits, content_bytes: int) -> Mapping[bytes, bytes]:
        return self.known.get((channel, traits), {})

    def on_series(
        self, channel: int, traits: Traits, addresses: list[bytes], contents: list[bytes], size: int
    ) -> None:
        self.series.append(len(contents))
        self.reader.paused = self.reader.paused or self.pauses
        for address, content in zip(addresses, contents, strict=True):
            assert body_size(content) == size
            assert channel == int.from_bytes(content[1:3]) == int.from_bytes(address[1:3])
            self.events.append(Publish(channel, address, traits, content, size))

    def on_acks(self, channel: int, first: int, last: int) -> None:
        assert first <= last
        self.runs.append(last - first + 1)
        self.events += [Ack(channel, tag) for tag in range(first, last + 1)]

    def on_content_frame(self) -> None:
        self.events.append(ContentFrame())
        self.reader.paused = self.reader.paused or self.pauses

    def on_heartbeat(self) -> None:
        self.events.append(Heartbeat())


def _fault(error: ProtocolError, *, is_fatal: bool) -> Fault:
    return Fault(error.code, error.explanation, (error.class_id, error.method_id), is_fatal)


def publish(
    channel: int = 1,
    key: str = "q",
    body: bytes = b"body",
    properties: Properties | None = None,
    frame_max: int = 4096,
    exchange: str = "",
) -> bytes:
    """Return the frames of a whole publish."""
    header = content_header(len(body), properties or Properties())
    method = method_frame(channel, BasicPublish(exchange=exchange, routing_key=key))
    return method + content_frames(channel, header, body, frame_max)


def ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return the frame of an acknowledgement."""
    return method_frame(channel, BasicAck(tag, multiple))


def is_published(event: Event) -> bool:
    """Return whether a record is a publish."""
    return isinstance(event, Publish)


__all__ = [
    "Ack",
    "ContentFrame",
    "Event",
    "Fault",
    "Heartbeat",
    "OtherMethod",
    "Publish",
    "Recorder",
    "ack",
    "frame",
    "is_published",
    "publish",
]
