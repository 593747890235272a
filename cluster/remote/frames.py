"""Runs as bytes between two nodes: cut, encoded, and checked when they are received.

A run travels as the Enqueue that journal and segments hold it in (`node.queue.operations`), so envelope and contents
have one encoding. Received bytes are checked as far down as the frames inside the contents, which are not looked at
again before they are on a client's wire.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from cluster.errors import Malformed
from node.amqp.constants import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_OVERHEAD_BYTES
from node.amqp.frames import FRAME_HEADER_STRUCT, body_size
from node.amqp.reader import MIXED_SIZES
from node.queue.operations import CorruptRecord, Enqueue, decode, encode
from node.queue.run import NEVER, Envelope, Run, bytes_of

FRAME_MAX_BYTES: Final = 1024 * 1024
"""The most contents in one frame between nodes; only a single larger message makes a larger frame."""

RULED_MAX_BYTES: Final = 16 * 1024
"""The most contents in one frame for a queue that looks at each of its messages.

The other node works off a frame in one go. There a small message can cost it 50 us, so a frame of small ones holds its
loop for some 20 ms at most. Other queues take a run as one: small frames would cost them a quarter of their rate.
"""

_HEADER_MIN_BYTES: Final = 14
"""The least payload of a content header: class, weight, body size, flags."""

_BODY_SIZE_AT: Final = range(11, 19)
"""The place of the body size in a content."""


def cut(contents: list[bytes], limit: int = FRAME_MAX_BYTES) -> list[list[bytes]]:
    """Group contents, in order, in lists that fit a frame each.   limit: its most bytes of contents."""
    if len(contents) == 1 or sum(map(len, contents)) <= limit:
        return [contents]
    ends = list(accumulate(map(len, contents)))
    pieces, start, base = [], 0, 0
    for index, end in enumerate(ends):
        if end - base > limit and index > start:
            pieces.append(contents[start:index])
            start, base = index, ends[index - 1]
    pieces.append(contents[start:])
    return pieces


def encode_run(
    envelope: Envelope, first: int, contents: list[bytes], size: int, deliveries: int = 0
) -> bytes:
    """Encode contents under an envelope.   first: the number of the first.   size: as in `Run`."""
    count = len(contents)
    body_bytes = bytes_of(contents, size)
    if count == 1:
        size = body_bytes
    return b"".join(encode(Enqueue(envelope, first, contents, count, size, body_bytes, 0, deliveries)))


def decode_run(raw: bytes) -> Enqueue:
    """Decode a run of `encode_run`. Raises Malformed."""
    try:
        entry = decode(raw)
    except CorruptRecord as error:
        raise Malformed(f"a run is damaged: {error}") from error
    if not isinstance(entry, Enqueue) or not entry.contents or entry.deliveries < 0:
        raise Malformed("no run where one should be")
    _check_contents(raw, entry.contents, entry.size)
    return entry


def delivered_run(entry: Enqueue) -> Run:
    """Return a delivery as the run that a channel takes; its numbers are tags between the two nodes."""
    return Run(entry.envelope, entry.seqs, entry.contents, entry.size, NEVER, entry.deliveries)


def ranges(bounds: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each range. Raises Malformed."""
    if len(bounds) % 2:
        raise Malformed("a range without an end")
    numbers = iter(bounds)
    for first, last in zip(numbers, numbers, strict=True):
        if first > last:
            raise Malformed("a range that ends before it begins")
        yield first, last


def _check_contents(raw: bytes, contents: list[bytes], size: int) -> None:
    """Raise Malformed unless each content is a header frame and the body frames that it asks for.

    Contents of equal length, with which `raw` ends, are mostly framed alike: then the first is looked at, and the
    bytes of its frames are compared with those of all others, a column at a time.
    """
    first = contents[0]
    frames = _frames(first, size)
    count = len(contents)
    if count == 1:
        return
    stride = len(first)
    start = len(raw) - count * stride
    if start > 0 and all(len(content) == stride for content in contents):
        for at in _rigid(frames):
            column = raw[start + at :: stride]
            if column.count(column[:1]) != count:
                break
        else:
            return
    for content in contents:
        _frames(content, size)


def _frames(content: bytes, size: int) -> list[tuple[int, int]]:
    """Return where the frames of a content begin, and where their last bytes are.

    size: of the body, or `MIXED_SIZES`.   Raises: Malformed.
    """
    frames: list[tuple[int, int]] = []
    at, kind, body_bytes, whole = 0, FRAME_HEADER, 0, len(content)
    while at < whole:
        if content[at] != kind or at + FRAME_OVERHEAD_BYTES > whole:
            raise Malformed("a content is no content")
        payload_bytes = FRAME_HEADER_STRUCT.unpack_from(content, at)[2]
        end = at + FRAME_OVERHEAD_BYTES - 1 + payload_bytes
        if end >= whole or content[end] != FRAME_END:
            raise Malformed("a content is no content")
        frames.append((at, end))
        if kind == FRAME_BODY:
            body_bytes += payload_bytes
        elif payload_bytes < _HEADER_MIN_BYTES:
            raise Malformed("a content has no header")
        kind = FRAME_BODY
        at = end + 1
    if not frames or body_bytes != body_size(content) or size not in (body_bytes, MIXED_SIZES):
        raise Malformed("a content is not as long as it says")
    return frames


def _rigid(frames: list[tuple[int, int]]) -> list[int]:
    """Return the places of the bytes that make these frames.

    They are all of the headers but the channel, the size of the body in the first frame's, and the ends.
    """
    return [*_BODY_SIZE_AT, *(spot for at, end in frames for spot in (at, *range(at + 3, at + 7), end))]
