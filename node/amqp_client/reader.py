"""This module cuts what a broker sends into methods, and into runs of deliveries and of confirms.

    feed(bytes) ─► fast path: whole deliveries and single confirms in the buffer ─► sink.on_deliveries, sink.on_acks
                └► frame by frame: everything else ─► sink.on_method, sink.on_content

A message is kept as the slice of bytes in which it came, frame headers included, and its properties are not decoded.
`node.amqp.reader` does the same for what clients send.
Source: AMQP 0-9-1 §2.3.5, §4.2.
"""

from struct import Struct
from typing import Final, Protocol

from node.amqp.ack_runs import ACK_PAYLOAD_BYTES, BASIC_ACK, AckRuns, AckSink
from node.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
    ReplyCode,
)
from node.amqp.errors import ProtocolError
from node.amqp.frames import FRAME_HEADER_STRUCT

_FRAME: Final = FRAME_HEADER_STRUCT
_CONTENT_HEADER: Final = Struct(">BHIIQ")
"""A header frame up to the body size; class id and weight read as one number."""
_SIZE: Final = Struct(">Q")
_SIZE_AT: Final = 4
_TAG: Final = Struct(">Q")
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_CONTENT_METHODS: Final = (_DELIVER, b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x47")
"""`basic.deliver`, `basic.return` and `basic.get-ok`."""
_BASIC_CLASS: Final = 60 << 16
_HEADER_MIN_BYTES: Final = 14
"""A header frame's payload: class, weight, body size, flags."""
_CTAG_AT: Final = 11
"""The consumer tag in the frame of `basic.deliver`: after the frame header and the two ids."""


class DeliverySink(AckSink, Protocol):
    """The receiver of the reader's results, in the order of the bytes. Its methods raise ProtocolError only."""

    def on_method(self, channel: int, payload: bytes) -> None:
        """Take a method without content."""

    def on_content(self, channel: int, payload: bytes, content: bytes) -> None:
        """Take a method with its content."""

    def on_deliveries(self, channel: int, payload: bytes, contents: list[bytes]) -> None:
        """Take messages of one consumer, exchange and routing key, with tags from that of the first on.

        payload: the method of the first.
        """

    def on_heartbeat(self) -> None:
        """Note a heartbeat."""


class _Assembly:
    """A content that arrives in pieces on one channel."""

    __slots__ = ("frames", "left", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.left = -1  # the header is still to come
        self.frames: list[bytes] = []


class ServerReader(AckRuns):
    """Cuts a broker's bytes into frames and contents.

    frame_max_bytes: what the broker may send in one frame; changes with tune-ok. 0: no limit.
    content_max_bytes: a larger body is a fault, so that the memory of a client has a bound.
    """

    def __init__(self, sink: DeliverySink, *, frame_max_bytes: int, content_max_bytes: int) -> None:
        self._sink: DeliverySink = sink
        self.frame_max_bytes = frame_max_bytes
        self._content_max_bytes = content_max_bytes
        self._pieces: list[
            bytes
        ] = []  # of an unfinished frame, so that many small reads of a big one stay linear
        self._buffered = 0
        self._wanted = 0
        self._assemblies: dict[int, _Assembly] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes.   Raises: ProtocolError; the stream can't be read on after that."""
        if self._pieces:
            self._pieces.append(data)
            self._buffered += len(data)
            if self._buffered < self._wanted:
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        self._walk(data)

    def forget(self, channel: int) -> None:
        """Drop the unfinished content of a channel that has closed."""
        self._assemblies.pop(channel, None)

    def _walk(self, data: bytes) -> None:
        pos, end = 0, len(data)
        wanted = FRAME_OVERHEAD_BYTES - 1
        while end - pos >= FRAME_OVERHEAD_BYTES - 1:
            kind, channel, size = _FRAME.unpack_from(data, pos)
            if kind == FRAME_METHOD and channel not in self._assemblies:
                if data.startswith(_DELIVER, pos + 7):
                    after = self._deliveries(data, pos, end, channel, size)
                elif size == ACK_PAYLOAD_BYTES and data.startswith(BASIC_ACK, pos + 7):
                    after = self._acks(data, pos, end, channel)
                else:
                    after = pos
                if after != pos:
                    pos = after
                    continue
            if self.frame_max_bytes and size > self.frame_max_bytes:
                raise ProtocolError(ReplyCode.FRAME_ERROR, f"a frame of {size} bytes is too large")
            after = pos + size + FRAME_OVERHEAD_BYTES
            if after > end:
                wanted = after - pos
                break
            if data[after - 1] != FRAME_END:
                raise ProtocolError(ReplyCode.FRAME_ERROR, "a frame does not end as frames do")
            self._frame(kind, channel, data, pos, after)
            pos = after
        if pos < end:
            self._pieces.append(data[pos:] if pos else data)
            self._buffered = end - pos
            self._wanted = wanted

    # --- the fast path: what is not flawless goes frame by frame ---

    def _deliveries(self, data: bytes, pos: int, end: int, channel: int, size: int) -> int:
        """Hand on the run of whole deliveries at `pos`; the position behind it, or `pos` if the first isn't whole."""
        unpack_frame, unpack_header, unpack_tag, starts = (
            _FRAME.unpack_from,
            _CONTENT_HEADER.unpack_from,
            _TAG.unpack_from,
            data.startswith,
        )
        frame_max = self.frame_max_bytes or end
        contents: list[bytes] = []
        payload = prefix = middle = b""
        tag = 0
        while end - pos >= size + FRAME_OVERHEAD_BYTES + 7 + _HEADER_MIN_BYTES + 1:
            header_at = pos + size + FRAME_OVERHEAD_BYTES
            header_kind, header_channel, header_size, class_weight, body_size = unpack_header(data, header_at)
            content_end = body_at = header_at + header_size + FRAME_OVERHEAD_BYTES
            if body_size:
                if end - body_at < 7:
                    break
                body_kind, body_channel, frame_size = unpack_frame(data, body_at)
                content_end = body_at + body_size + FRAME_OVERHEAD_BYTES
                if frame_size != body_size or body_kind != FRAME_BODY or body_channel != channel:
                    break
            if (
                content_end > end
                or header_kind != FRAME_HEADER
                or header_channel != channel
                or class_weight != _BASIC_CLASS
                or header_size < _HEADER_MIN_BYTES
                or size > frame_max
                or body_size > frame_max
                or data[header_at - 1] != FRAME_END
                or data[body_at - 1] != FRAME_END
                or data[content_end - 1] != FRAME_END
            ):
                break
            tag_at = pos + _CTAG_AT + 1 + data[pos + _CTAG_AT]
            if not contents:
                payload = data[pos + 7 : header_at - 1]
                prefix, middle = data[pos:tag_at], data[tag_at + 8 : header_at]
                (tag,) = unpack_tag(data, tag_at)
            contents.append(data[header_at:content_end])
            # Messages that are alike but for body and tag need no second look.
            repeated = data[tag_at + 8 : body_at + 7] if body_size else data[tag_at + 8 : body_at]
            tag_offset, content_offset, stride = tag_at - pos, header_at - pos, content_end - pos
            pos = content_end
            tag += 1
            while (
                end - pos >= stride
                and starts(prefix, pos)
                and starts(repeated, pos + tag_offset + 8)
                and data[pos + stride - 1] == FRAME_END
                and unpack_tag(data, pos + tag_offset)[0] == tag
            ):
                contents.append(data[pos + content_offset : pos + stride])
                pos += stride
                tag += 1
            if (
                end - pos < size + FRAME_OVERHEAD_BYTES
                or not starts(prefix, pos)
                or not starts(middle, pos + tag_offset + 8)
                or unpack_tag(data, pos + tag_offset)[0] != tag
            ):
                break
        if contents:
            self._sink.on_deliveries(channel, payload, contents)
        return pos

    # --- frame by frame ---

    def _frame(self, kind: int, channel: int, data: bytes, pos: int, after: int) -> None:
        assembly = self._assemblies.get(channel)
        if kind == FRAME_METHOD:
            payload = data[pos + 7 : after - 1]
            if assembly is not None:
                # The broker gives up a content only where it closes the channel.
                self.forget(channel)
            if payload.startswith(_CONTENT_METHODS):
                self._assemblies[channel] = _Assembly(payload)
            else:
                self._sink.on_method(channel, payload)
        elif kind == FRAME_HEARTBEAT:
            self._sink.on_heartbeat()
        elif assembly is None or kind != (FRAME_HEADER if assembly.left < 0 else FRAME_BODY):
            raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, f"a frame of type {kind} was not expected")
        else:
            self._content_frame(assembly, channel, kind, data[pos:after])

    def _content_frame(self, assembly: _Assembly, channel: int, kind: int, whole: bytes) -> None:
        if kind == FRAME_HEADER:
            if len(whole) < _HEADER_MIN_BYTES + FRAME_OVERHEAD_BYTES:
                raise ProtocolError(ReplyCode.FRAME_ERROR, "a content header is cut short")
            (assembly.left,) = _SIZE.unpack_from(whole, 7 + _SIZE_AT)
            if assembly.left > self._content_max_bytes:
                raise ProtocolError(
                    ReplyCode.PRECONDITION_FAILED,
                    f"message size {assembly.left} is larger than configured max size {self._content_max_bytes}",
                )
        else:
            assembly.left -= len(whole) - FRAME_OVERHEAD_BYTES
            if assembly.left < 0:
                raise ProtocolError(ReplyCode.UNEXPECTED_FRAME, "a body is longer than its header says")
        assembly.frames.append(whole)
        if assembly.left == 0:
            self.forget(channel)
            content = b"".join(assembly.frames)
            if assembly.payload.startswith(_DELIVER):
                self._sink.on_deliveries(channel, assembly.payload, [content])
            else:
                self._sink.on_content(channel, assembly.payload, content)
