"""Frames in: walks what a socket read brought and hands it on in runs.

The reader knows the grammar of frames and of contents and nothing of exchanges or queues. It builds no object
per frame: a `basic.publish` with its content becomes one slice of bytes, consecutive publishes with the same
method frame become one call, and so do consecutive acknowledgements. How the bytes were cut into reads never
shows: whole or byte by byte, the calls are the same once their runs are joined (tests/fuzz).

    feed(bytes) ─► fast path: whole publish / ack in the buffer ─► sink.on_publish, sink.on_series, sink.on_acks
                └► frame by frame: everything else, and all errors ─► sink.on_method, sink.on_heartbeat

The fast path takes only what is flawless; whatever it doesn't like goes frame by frame, where each fault has
its error. Publishes whose method frames differ, all of which the sink knows, are a *series* if they have the same
header frame: a publisher that changes the routing key with each message.
Source: AMQP 0-9-1 §2.3.5, §4.2; amqp-behaviour §1.7.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from node.amqp.ack_runs import ACK_PAYLOAD_BYTES, BASIC_ACK, AckRuns, AckSink
from node.amqp.constants import (
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
    ReplyCode,
)
from node.amqp.erlang import octets, tagged_tuple
from node.amqp.errors import ProtocolError
from node.amqp.frames import FRAME_HEADER_STRUCT, frame
from node.amqp.properties import Traits, read_traits

PUBLISH_METHOD_ID: Final = 40

_NO_LIMIT: Final = 1 << 62

MIXED_SIZES: Final = -1
"""In place of a body size: the bodies of a run differ in size."""

_FRAME: Final = FRAME_HEADER_STRUCT
_CONTENT_HEADER: Final = Struct(">BHIIQ")
"""A header frame up to the body size; class id and weight read as one number."""
_CLASS_WEIGHT_SIZE: Final = Struct(">HHQ")
_FRAME_SIZE: Final = Struct(">I")
_FRAME_SIZE_AT: Final = 3
_BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28"
_BASIC_CLASS_NO_WEIGHT: Final = CLASS_BASIC << 16
_TRAITS_AT: Final = 19
"""The offset of the property flags in a content: after frame header, class, weight and body size."""
_HEADER_FIXED_BYTES: Final = 12
"""Class, weight and body size: what a header frame must have to be one."""
_FLAGS_BYTES: Final = 2

SERIES_MAX: Final = 256
"""The most messages of a series, some 0.5 ms: between two of them the clock is not looked at."""

_SHORT_RUN: Final = 4
"""The most messages of a run that a series may follow: longer runs cost less than a series."""

_OBJECT_BYTES: Final = 48
"""The cost of a kept frame beside its bytes: bodies may come in frames of one octet."""

_ASSEMBLED_MIN_BYTES: Final = 16 * 1024 * 1024
"""The least limit, however small the largest message is: headers need room, too."""


class Sink(AckSink, Protocol):
    """The receiver of the reader's results, in the order of the bytes. Its methods may not raise."""

    def on_fault(self, error: ProtocolError) -> None:
        """Take the error of a complete frame that may not come here. Reading can go on."""

    def on_method(self, channel: int, payload: bytes) -> None:
        """Take a method frame that carries no content."""

    def on_content_method(self, channel: int, payload: bytes) -> bool:
        """Take a `basic.publish` frame whose content is still to come. False: drop the content."""

    def ignores(self, channel: int) -> bool:
        """True if we are closing the channel, so that stray content on it is no fault."""

    def on_publish(
        self, channel: int, method_frame: bytes, traits: Traits, contents: list[bytes], size: int
    ) -> None:
        """Take a run of publishes that share method frame and traits.

        contents: as in `node.amqp.frames`.   size: of each body in bytes, or `MIXED_SIZES`.
        """

    def known_addresses(self, channel: int, traits: Traits, content_bytes: int) -> Mapping[bytes, Any]:
        """Return what stands for the method frames that a series of such messages may have.

        These were given to `on_publish` before, on this channel.   content_bytes: of each content with its frames.
        """

    def on_series(
        self, channel: int, traits: Traits, addresses: list[Any], contents: list[bytes], size: int
    ) -> None:
        """Take publishes that share traits and size.   addresses: of `known_addresses`, one for each content."""

    def on_content_frame(self) -> None:
        """Note a content header or body frame, even if it was dropped as the sink `ignores` it. Called only while
        `watches_contents` is set.
        """

    def on_heartbeat(self) -> None:
        """Note a heartbeat frame."""


class _Assembly:
    """A content that arrives in pieces on one channel."""

    __slots__ = ("frames", "kept", "left", "method_frame", "size", "traits")

    def __init__(self, method_frame: bytes) -> None:
        self.method_frame = method_frame
        self.traits: Traits | None = None  # None: the content header is still to come
        self.size = 0
        self.left = 0
        self.frames: list[bytes] = []
        self.kept = 0


class _Awaited(NamedTuple):
    """A publish whose last bytes are missing; it is flawless as far as it goes.

    wanted: its bytes.   content_at: how many of them are the method frame.   size: of the body in bytes.
    """

    wanted: int
    content_at: int
    channel: int
    traits: Traits
    size: int


class FrameReader(AckRuns):
    """Cuts a byte stream into frames and contents for a `Sink`.

    frame_max_bytes: what the peer may send in one frame; 0 for no limit. Changes with tune-ok.
    content_max_bytes: a body beyond this is counted but no longer kept; the sink refuses the message by its
        size.
    """

    def __init__(self, sink: Sink, *, frame_max_bytes: int, content_max_bytes: int) -> None:
        self._sink: Sink = sink
        self.frame_max_bytes = frame_max_bytes
        self.content_max_bytes = content_max_bytes
        self.assembled_max_bytes = max(2 * content_max_bytes, _ASSEMBLED_MIN_BYTES)
        """All unfinished contents of the connection together: room for one of full size beside small ones."""
        self.paused = False
        """Set by the sink: stop after the present frame and keep the rest until `resume`."""
        self.watches_contents = False
        """True if the sink is to be told of each single content frame; see `watch_contents`."""
        self._pieces: list[
            bytes
        ] = []  # of an unfinished frame, so that many small reads of a big one stay linear
        self._buffered = 0
        self._wanted = 0  # bytes in the buffer before another look at it pays
        self._awaited: _Awaited | None = None
        self._assemblies: dict[int, _Assembly] = {}
        self._assembled_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that the reader has: unread ones, and those of unfinished contents."""
        return self._buffered + self._assembled_bytes

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises: ProtocolError where frames can no longer be told apart. The stream can't be read on after
            that.
        """
        pos = 0
        while self._pieces and not self.paused:
            # Complete the frame that was cut off, and only that: what follows it needn't be copied.
            missing = self._wanted - self._buffered
            if len(data) - pos < missing:
                break
            last = data[pos : pos + missing]
            pos += missing
            if self._awaited is not None and last[-1] == FRAME_END:
                self._complete(self._awaited, last)
            else:
                self._pieces.append(last)
                self._walk(self._take_pieces(), 0)
        if self._pieces or self.paused:
            self._pieces.append(data[pos:])
            self._buffered += len(data) - pos
        else:
            self._walk(data, pos)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the stream that were not taken yet."""
        return self._buffered

    @property
    def is_free(self) -> bool:
        """True if a run of publishes or settlements would be taken at once: nothing is kept, paused or watched."""
        return not (self.paused or self._pieces or self.watches_contents)

    def put_back(self, data: bytes) -> None:
        """Keep whole frames that were taken before, as the first to be taken after `paused`."""
        assert self.paused
        self._pieces.insert(0, data)
        self._buffered += len(data)

    def resume(self) -> None:
        """Continue after `paused`, with the bytes that were kept."""
        self.paused = False
        self._walk(self._take_pieces(), 0)

    def watch_contents(self) -> None:
        """Take publishes frame by frame from now on, and tell the sink of each content frame, until the sink
        sets `watches_contents` to False. Frames of an unfinished publish that came before don't count.
        """
        if self._pieces and not self.paused:
            self._walk(self._take_pieces(), 0, takes_runs=False)
        self.watches_contents = True

    def _take_pieces(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        self._awaited = None
        return data

    def _complete(self, awaited: _Awaited, last: bytes) -> None:
        """Hand on the awaited publish, whose last bytes have come. Its content is copied once."""
        first = self._pieces[0]
        content = b"".join((memoryview(first)[awaited.content_at :], *self._pieces[1:], last))
        self._pieces.clear()
        self._buffered = 0
        self._awaited = None
        method_frame = first[: awaited.content_at]
        self._sink.on_publish(awaited.channel, method_frame, awaited.traits, [content], awaited.size)

    def forget(self, channel: int) -> None:
        """Drop the unfinished content of a channel that closed."""
        assembly = self._assemblies.pop(channel, None)
        if assembly is not None:
            self._assembled_bytes -= assembly.kept

    def close(self) -> None:
        """Drop all kept bytes, and the sink: the stream has ended, and `feed` is not called any more."""
        self.forget_contents()
        self._take_pieces()
        del self._sink

    def forget_contents(self) -> None:
        """Drop all unfinished contents."""
        self._assemblies.clear()
        self._assembled_bytes = 0

    def _keep(self, data: bytes, pos: int, wanted: int) -> None:
        self._pieces = [data[pos:]]
        self._buffered = len(data) - pos
        self._wanted = wanted

    def _walk(self, data: bytes, pos: int, *, takes_runs: bool = True) -> None:
        end = len(data)
        takes_runs = takes_runs and not self.watches_contents
        while end - pos >= FRAME_OVERHEAD_BYTES - 1:
            if self.paused:
                break
            kind, channel, size = _FRAME.unpack_from(data, pos)
            if kind == FRAME_METHOD and channel not in self._assemblies:
                after = pos
                if data.startswith(_BASIC_PUBLISH, pos + 7):
                    if takes_runs:
                        after = self._publishes(data, pos, end)
                        if self._awaited is not None:
                            self._keep(data, after, self._awaited.wanted)
                            return
                elif size == ACK_PAYLOAD_BYTES and data.startswith(BASIC_ACK, pos + 7):
                    after = self._acks(data, pos, end, channel)
                if after != pos:
                    pos = after
                    continue
            if self.frame_max_bytes and size > self.frame_max_bytes:
                limit = self.frame_max_bytes - FRAME_OVERHEAD_BYTES
                raise _unreadable(octets(kind, b""), "frame_too_large", size, limit)
            after = pos + size + FRAME_OVERHEAD_BYTES
            if after > end:
                self._keep(data, pos, after - pos)
                return
            if data[after - 1] != FRAME_END:
                text = octets(kind, data[pos + 7 : after - 1])
                raise _unreadable(text, "invalid_frame_end_marker", data[after - 1])
            try:
                self._frame(kind, channel, data, pos, after)
            except ProtocolError as fault:
                self._sink.on_fault(fault)
            pos = after
        if pos < end:
            self._keep(data, pos, FRAME_OVERHEAD_BYTES - 1)

    # --- the fast path ---

    def _publishes(self, data: bytes, pos: int, end: int) -> int:
        """Hand on the run of whole publishes at `pos`; the position behind it, or `pos` if the first isn't flawless."""
        # Frames in the 8 bytes beyond it that `_walk` allows are cut there.
        frame_max = (self.frame_max_bytes or _NO_LIMIT) - FRAME_OVERHEAD_BYTES
        self._awaited = None
        run_channel = run_size = 0
        run_method = b""
        run_traits: Traits | None = None
        contents: list[bytes] = []
        unpack_frame, unpack_header, starts = _FRAME.unpack_from, _CONTENT_HEADER.unpack_from, data.startswith
        while starts(_BASIC_PUBLISH, pos + 7):
            kind, channel, size = unpack_frame(data, pos)
            header_at = pos + size + 8
            if end - header_at < _TRAITS_AT + 3:
                break
            header_kind, header_channel, header_size, class_weight, body_size = unpack_header(data, header_at)
            content_end = body_at = header_at + header_size + 8
            if body_size:
                if end - body_at < 8:
                    break
                body_kind, body_channel, frame_size = unpack_frame(data, body_at)
                content_end = body_at + body_size + 8
                if frame_size != body_size or body_kind != FRAME_BODY or body_channel != channel:
                    break
            if (
                body_at > end
                or kind != FRAME_METHOD
                or header_kind != FRAME_HEADER
                or header_channel != channel
                or class_weight != _BASIC_CLASS_NO_WEIGHT
                or header_size < _HEADER_FIXED_BYTES + _FLAGS_BYTES
                or size > frame_max
                or header_size > frame_max
                or body_size > frame_max
                or body_size > self.content_max_bytes
                or data[header_at - 1] != FRAME_END
                or data[body_at - 1] != FRAME_END
            ):
                break
            try:
                traits = read_traits(data, header_at + _TRAITS_AT, body_at - 1)
            except ProtocolError:
                break  # frame by frame, so that faults before it in the stream are found first
            if content_end > end:
                # Taken up again when it is whole, so that a big body is not copied once more.
                self._awaited = _Awaited(content_end - pos, header_at - pos, channel, traits, body_size)
                break
            if data[content_end - 1] != FRAME_END:
                break
            if (traits is not run_traits and traits != run_traits) or not starts(run_method, pos):
                if run_traits is not None:
                    self._sink.on_publish(run_channel, run_method, run_traits, contents, run_size)
                    if self.paused or channel in self._assemblies:
                        return pos
                    if (
                        len(contents) <= _SHORT_RUN
                        and traits is run_traits
                        and body_size == run_size
                        and channel == run_channel
                        and (known := self._sink.known_addresses(channel, traits, content_end - header_at))
                    ):
                        begin = data[header_at : body_at + 7] if body_size else data[header_at:body_at]
                        after, addresses, contents = _series(data, pos, known, begin, content_end - header_at)
                        if after != pos:
                            pos = after
                            self._sink.on_series(channel, traits, addresses, contents, body_size)
                            if self.paused:
                                return pos
                            run_traits, run_method = None, b""
                            continue
                run_channel, run_method, run_traits, run_size = (
                    channel,
                    data[pos:header_at],
                    traits,
                    body_size,
                )
                contents = []
            elif body_size != run_size:
                run_size = MIXED_SIZES
            contents.append(data[header_at:content_end])
            # A publisher that repeats itself: the same bytes up to the body need no second look.
            repeated = data[pos : body_at + 7] if body_size else data[pos:body_at]
            content_at, stride = header_at - pos, content_end - pos
            pos = content_end
            while starts(repeated, pos) and end - pos >= stride and data[pos + stride - 1] == FRAME_END:
                contents.append(data[pos + content_at : pos + stride])
                pos += stride
        if run_traits is not None:
            self._sink.on_publish(run_channel, run_method, run_traits, contents, run_size)
        return pos

    # --- frame by frame ---

    def _frame(self, kind: int, channel: int, data: bytes, pos: int, after: int) -> None:
        if kind == FRAME_METHOD:
            self._method(channel, data, pos, after)
            return
        payload = data[pos + 7 : after - 1]
        if kind == FRAME_BODY or (kind == FRAME_HEADER and len(payload) >= _HEADER_FIXED_BYTES):
            self._content_frame(kind, channel, payload)
            if self.watches_contents:
                self._sink.on_content_frame()
            return
        if kind != FRAME_HEARTBEAT or payload:
            raise ProtocolError(ReplyCode.FRAME_ERROR, f"{octets(kind, payload)}: unknown_frame")
        if channel:
            raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, octets(kind, payload))
        self._sink.on_heartbeat()

    def _method(self, channel: int, data: bytes, pos: int, after: int) -> None:
        payload = data[pos + 7 : after - 1]
        if len(payload) < 4:
            raise ProtocolError(ReplyCode.FRAME_ERROR, f"{octets(FRAME_METHOD, payload)}: unknown_frame")
        assembly = self._assemblies.get(channel)
        if assembly is not None:
            raise _unexpected("content header for class 60" if assembly.traits is None else "content body")
        if payload.startswith(_BASIC_PUBLISH):
            if self._sink.on_content_method(channel, payload):
                self._assemblies[channel] = _Assembly(data[pos:after])
        else:
            self._sink.on_method(channel, payload)

    def _content_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if channel == 0:
            raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, octets(kind, payload))
        assembly = self._assemblies.get(channel)
        if assembly is None:
            if self._sink.ignores(channel):
                return
            raise ProtocolError(
                ReplyCode.UNEXPECTED_FRAME, "expected method frame, got non method frame instead"
            )
        if assembly.traits is None:
            self._content_header(assembly, kind, channel, payload)
        elif kind != FRAME_BODY:
            raise _unexpected("content body")
        elif payload:
            assembly.left -= len(payload)
            if assembly.size <= self.content_max_bytes and assembly.left >= 0:
                self._hold_body(assembly, channel, payload)
        if assembly.left == 0 and assembly.traits is not None:
            self.forget(channel)
            content = b"".join(assembly.frames)
            self._sink.on_publish(channel, assembly.method_frame, assembly.traits, [content], assembly.size)

    def _content_header(self, assembly: _Assembly, kind: int, channel: int, payload: bytes) -> None:
        if kind != FRAME_HEADER:
            raise _unexpected("content header for class 60")
        class_id, weight, size = _CLASS_WEIGHT_SIZE.unpack_from(payload)
        if class_id != CLASS_BASIC:
            raise _unexpected("content header for class 60", f"one for class {class_id}")
        if weight:
            raise _unexpected("content header for class 60")
        assembly.traits = read_traits(payload, _HEADER_FIXED_BYTES, len(payload))
        assembly.size = assembly.left = size
        self._hold(assembly, frame(FRAME_HEADER, channel, payload))

    def _hold_body(self, assembly: _Assembly, channel: int, payload: bytes) -> None:
        """Keep a body frame, cut where it makes use of the 8 bytes that `_walk` allows beyond frame_max."""
        limit = self.frame_max_bytes - FRAME_OVERHEAD_BYTES if self.frame_max_bytes else len(payload)
        self._hold(assembly, frame(FRAME_BODY, channel, payload[:limit]))
        if len(payload) > limit:
            self._hold(assembly, frame(FRAME_BODY, channel, payload[limit:]))

    def _hold(self, assembly: _Assembly, whole: bytes) -> None:
        assembly.frames.append(whole)
        cost = len(whole) + _OBJECT_BYTES
        assembly.kept += cost
        self._assembled_bytes += cost
        if self._assembled_bytes > self.assembled_max_bytes:
            raise ProtocolError(
                ReplyCode.RESOURCE_ERROR,
                f"unfinished messages of this connection exceed {self.assembled_max_bytes} bytes",
            )


def _series(
    data: bytes, pos: int, known: Mapping[bytes, Any], begin: bytes, content_bytes: int
) -> tuple[int, list[Any], list[bytes]]:
    """Return the position behind the series at `pos`, what stands for its method frames, and its contents.

    begin: all of each content up to its body.   content_bytes: of each content.
    """
    addresses: list[Any] = []
    contents: list[bytes] = []
    end = len(data)
    frame_size, starts, find = _FRAME_SIZE.unpack_from, data.startswith, known.get
    while end - pos > content_bytes and len(contents) < SERIES_MAX:
        (size,) = frame_size(data, pos + _FRAME_SIZE_AT)
        header_at = pos + size + FRAME_OVERHEAD_BYTES
        content_end = header_at + content_bytes
        if content_end > end or data[content_end - 1] != FRAME_END or not starts(begin, header_at):
            break
        address = find(data[pos:header_at])
        if address is None:
            break
        addresses.append(address)
        contents.append(data[header_at:content_end])
        pos = content_end
    return pos, addresses, contents


def _unreadable(frame_text: str, problem: str, *numbers: int) -> ProtocolError:
    """The error after which frames can no longer be told apart."""
    start = f"{frame_text}: "
    return ProtocolError(ReplyCode.FRAME_ERROR, start + tagged_tuple(problem, *numbers, after=start))


def _unexpected(expected: str, got: str | None = None) -> ProtocolError:
    """The error for a frame that can't stand where it stands within a publish."""
    got = got or f"non {expected.removesuffix(' for class 60')} frame"
    return ProtocolError(
        ReplyCode.UNEXPECTED_FRAME, f"expected {expected}, got {got} instead", CLASS_BASIC, PUBLISH_METHOD_ID
    )
