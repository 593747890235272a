"""Operations on the messages of a queue, as values and as bytes: enqueue, remove, delivered.

One encoding serves journal and segments. An operation is about a run, so its cost is per run and not per message.

    operation = kind:octet rest
    enqueue   = 1 deliveries:long first_seq:longlong count:long size:longlong body_bytes:longlong
                expires_at_ms:longlong store_id:longlong content_bytes:long envelope_bytes:long
                envelope [lengths] contents
    remove    = 2 ranges
    delivered = 3 count:long ranges
    ranges    = width:octet first:longlong (length:width gap:width)* length:width
    envelope  = flags:octet priority:octet channel:short frame_max_bytes:long expiration_ms:longlong
                exchange:shortstr routing_key:shortstr cc_count:short bcc_count:short longstr*

content_bytes: of each content, when all are equally long; `_MIXED_LENGTHS`: an array of longs says it for each;
0: the contents are in the message store.
Source: docs/internals/disk.md, "Operations".
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from struct import Struct, pack, unpack_from
from typing import Final, TypeAlias

from node.amqp.reader import MIXED_SIZES
from node.queue.run import NEVER, Envelope, Run, bytes_of

RECORD_MAX_BYTES: Final = 1024 * 1024
"""The bytes that the contents embedded in one operation may take, lengths included.

Only a single larger message takes more. So much is read to get at one message.
"""

SEQ_MAX: Final = (1 << 63) - 1
"""The limit below which numbers of messages, sizes and times stay: enough for a million messages a second for ever."""

_ENQUEUE: Final = 1
_REMOVE: Final = 2
_DELIVERED: Final = 3

_ENQUEUE_HEAD: Final = Struct(">BIQIqQQQII")
_RANGES_HEAD: Final = Struct(">BQ")
_COUNT: Final = Struct(">I")
_MIXED_LENGTHS: Final = 0xFFFFFFFF
_LENGTH_BYTES: Final = 4

_ENVELOPE_HEAD: Final = Struct(">BBHIQ")
_KEY_COUNTS: Final = Struct(">HH")
_PERSISTENT: Final = 1
_EXPIRES: Final = 2
_WAITS: Final = 4

_WIDTHS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""The widths of a number in `ranges`, in octets, with their letters for `struct`."""

_SHARED_ENVELOPES_MAX: Final = 1024
"""The number of envelopes that are kept to be found again: the routes of a few busy channels."""

_SHARED_ENVELOPE_MAX_BYTES: Final = 1024
"""The bytes above which an envelope is not kept; such have many keys in CC and BCC. All that are kept take 1 MiB."""


class CorruptRecord(Exception):
    """Bytes that should be an operation are none; the message says why."""


@dataclass(slots=True)
class Enqueue:
    """Messages with consecutive numbers that came into the queue.

    first_seq, count: their numbers in the queue.
    contents: theirs in order; empty when they are in the message store, and after `decode_head`.
    size: of each body in bytes, or `MIXED_SIZES`; never mixed when they are in the message store.
    body_bytes: of all bodies.
    expires_at_ms: since 1970; 0: never.
    deliveries: as in `Run`.
    store_id: the id of the first content in the message store, the others follow it; 0: the contents are embedded.
    """

    envelope: Envelope
    first_seq: int
    contents: list[bytes]
    count: int
    size: int
    body_bytes: int
    expires_at_ms: int = 0
    deliveries: int = 0
    store_id: int = 0

    @property
    def seqs(self) -> range:
        """The numbers of the messages."""
        return range(self.first_seq, self.first_seq + self.count)

    def __getitem__(self, part: slice) -> "Enqueue":
        """Return some consecutive messages, at least one. Without their contents only where the size is not mixed."""
        start, stop, step = part.indices(self.count)
        assert step == 1, "consecutive"
        assert start < stop, "at least one"
        contents = self.contents[start:stop]
        assert contents or self.size != MIXED_SIZES, "the size of some bodies stands in their contents"
        return Enqueue(
            self.envelope,
            self.first_seq + start,
            contents,
            stop - start,
            self.size,
            self.size * (stop - start) if self.size != MIXED_SIZES else bytes_of(contents, self.size),
            self.expires_at_ms,
            self.deliveries,
            self.store_id + start if self.store_id else 0,
        )


@dataclass(frozen=True, slots=True)
class Remove:
    """Messages that are no longer in the queue. ranges: of step 1."""

    ranges: tuple[range, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """Messages that have come back from clients `count` times. ranges: of step 1."""

    ranges: tuple[range, ...]
    count: int


Operation: TypeAlias = Enqueue | Remove | Delivered


# --- from runs ---


def enqueues(run: Run, epoch_s: float) -> list[Enqueue]:
    """Return the operations that bring a run's messages into a queue.

    They are cut so that embedded contents don't exceed `RECORD_MAX_BYTES`, that numbers are consecutive, and that
    contents in the message store have one size.   epoch_s: as `Storage.epoch_s`.
    """
    if run.seqs.step != 1 and len(run) > 1:
        return [entry for single in run.singles() for entry in enqueues(single, epoch_s)]
    if run.store_id and run.size == MIXED_SIZES:
        pieces = run.singles()
    elif run.store_id:
        pieces = [run]
    else:
        pieces = _cut(run)
    return [_enqueue(piece, epoch_s) for piece in pieces]


def _enqueue(run: Run, epoch_s: float) -> Enqueue:
    body_bytes = run.body_bytes
    return Enqueue(
        run.envelope,
        run.seqs.start,
        [] if run.store_id else run.contents.copy(),
        len(run),
        body_bytes if len(run) == 1 else run.size,
        body_bytes,
        expires_at_ms(run.expiry, epoch_s),
        run.deliveries,
        run.store_id,
    )


def _cut(run: Run) -> list[Run]:
    """Return runs whose contents fit an operation."""
    lengths = set(map(len, run.contents))
    if len(lengths) == 1:
        most = max(1, RECORD_MAX_BYTES // lengths.pop())
        return [run] if len(run) <= most else [run[at : at + most] for at in range(0, len(run), most)]
    # Where each message ends when all are written one behind the other, from 0 on.
    ends = list(accumulate((len(content) + _LENGTH_BYTES for content in run.contents), initial=0))
    pieces, at = [], 0
    while at < len(run):
        stop = max(at + 1, bisect_right(ends, ends[at] + RECORD_MAX_BYTES) - 1)
        pieces.append(run[at:stop])
        at = stop
    return pieces


def expires_at_ms(expiry: float, epoch_s: float) -> int:
    """Return an expiry on the broker's clock as milliseconds since 1970; 0 for `NEVER`."""
    if expiry == NEVER:
        return 0
    return max(1, min(SEQ_MAX, round((expiry + epoch_s) * 1000)))


def expiry_of(at_ms: int, epoch_s: float) -> float:
    """Return milliseconds since 1970 as an expiry on the broker's clock; `NEVER` for 0."""
    return at_ms / 1000 - epoch_s if at_ms else NEVER


# --- to bytes ---


def encode(operation: Operation) -> list[bytes]:
    """Return an operation as parts to be joined; the contents are parts as they are."""
    if isinstance(operation, Enqueue):
        return _encode_enqueue(operation)
    if isinstance(operation, Remove):
        return [bytes([_REMOVE]), _encode_ranges(operation.ranges)]
    return [bytes([_DELIVERED]), _COUNT.pack(operation.count), _encode_ranges(operation.ranges)]


def _encode_enqueue(entry: Enqueue) -> list[bytes]:
    contents, count = entry.contents, entry.count
    parts: list[bytes] = []
    if entry.store_id:
        assert not contents, "contents are in one place"
        assert entry.size != MIXED_SIZES, "what is in the message store has one size"
        content_bytes = 0
    else:
        assert len(contents) == count, "embedded contents are there"
        lengths = set(map(len, contents))
        if len(lengths) == 1:
            content_bytes = lengths.pop()
            assert content_bytes, "a content has a header frame at least"
        else:
            content_bytes = _MIXED_LENGTHS
            parts.append(pack(f">{count}I", *map(len, contents)))
    envelope = _envelope_bytes(entry.envelope)
    head = _ENQUEUE_HEAD.pack(
        _ENQUEUE,
        entry.deliveries,
        entry.first_seq,
        count,
        entry.size,
        entry.body_bytes,
        entry.expires_at_ms,
        entry.store_id,
        content_bytes,
        len(envelope),
    )
    return [head, envelope, *parts, *contents]


def _encode_ranges(ranges: Iterable[range]) -> bytes:
    bounds = [bound for part in joined(ranges) for bound in (part.start, part.stop)]
    assert bounds, "an operation concerns a message at least"
    steps = list(map(sub, bounds[1:], bounds))
    largest = max(steps)
    width = next(width for width in _WIDTHS if largest < 1 << (width * 8))
    return _RANGES_HEAD.pack(width, bounds[0]) + pack(f">{len(steps)}{_WIDTHS[width]}", *steps)


def joined(ranges: Iterable[range]) -> list[range]:
    """Return the same numbers in the fewest ranges: rising, none empty, none touching the next. All are of step 1."""
    result: list[range] = []
    for part in sorted((part for part in ranges if part), key=_start):
        assert part.step == 1, "of step 1"
        if result and part.start <= result[-1].stop:
            if part.stop > result[-1].stop:
                result[-1] = range(result[-1].start, part.stop)
        else:
            result.append(part)
    return result


def _start(part: range) -> int:
    return part.start


def _envelope_bytes(envelope: Envelope) -> bytes:
    if envelope.cc or envelope.bcc:
        return _encode_envelope(envelope)
    return _known_envelope_bytes(envelope)


def _encode_envelope(envelope: Envelope) -> bytes:
    flags = _PERSISTENT if envelope.persistent else 0
    if envelope.expiration_ms is not None:
        flags |= _EXPIRES
    if envelope.waits:
        flags |= _WAITS
    parts = [
        _ENVELOPE_HEAD.pack(
            flags,
            envelope.priority,
            envelope.channel,
            envelope.frame_max_bytes,
            envelope.expiration_ms or 0,
        ),
        envelope.address,
        _KEY_COUNTS.pack(len(envelope.cc), len(envelope.bcc)),
    ]
    for key in (*envelope.cc, *envelope.bcc):
        raw = key.encode("utf-8", "surrogateescape")
        parts += (_COUNT.pack(len(raw)), raw)
    return b"".join(parts)


_known_envelope_bytes = lru_cache(_SHARED_ENVELOPES_MAX)(_encode_envelope)
"""The cache of encoded envelopes, by identity: envelopes are never changed."""


# --- from bytes ---


def decode(payload: bytes) -> Operation:
    """Return the operation that these bytes are. Equal envelopes are mostly one object. Raises CorruptRecord."""
    return _decode(payload, with_contents=True)


def decode_head(payload: bytes) -> Operation:
    """Return the operation that these bytes are, an Enqueue without its contents. Raises CorruptRecord.

    The cost does not depend on how many contents there are.
    """
    return _decode(payload, with_contents=False)


def _decode(payload: bytes, with_contents: bool) -> Operation:
    kind = payload[0] if payload else 0
    if kind == _ENQUEUE:
        return _decode_enqueue(payload, with_contents)
    if kind == _REMOVE:
        return Remove(_decode_ranges(payload, 1))
    if kind == _DELIVERED:
        _need(payload, 1 + _COUNT.size)
        return Delivered(_decode_ranges(payload, 1 + _COUNT.size), _COUNT.unpack_from(payload, 1)[0])
    raise CorruptRecord(f"no operation is of kind {kind}")


def _decode_enqueue(payload: bytes, with_contents: bool) -> Enqueue:
    _need(payload, _ENQUEUE_HEAD.size)
    (
        _,
        deliveries,
        first_seq,
        count,
        size,
        body_bytes,
        at_ms,
        store_id,
        content_bytes,
        envelope_bytes,
    ) = _ENQUEUE_HEAD.unpack_from(payload)
    at = _ENQUEUE_HEAD.size + envelope_bytes
    _need(payload, at)
    if (
        not count
        or size < MIXED_SIZES
        or max(first_seq + count, store_id + count, at_ms, body_bytes) > SEQ_MAX
    ):
        raise CorruptRecord("numbers out of range")
    if size != MIXED_SIZES and body_bytes != size * count:
        raise CorruptRecord("sizes that contradict each other")
    if bool(store_id) == bool(content_bytes) or (store_id and size == MIXED_SIZES):
        raise CorruptRecord("contents that are nowhere, or in two places")
    envelope = _decode_envelope(payload[_ENQUEUE_HEAD.size : at])
    contents = _decode_contents(payload, at, count, content_bytes, with_contents)
    return Enqueue(envelope, first_seq, contents, count, size, body_bytes, at_ms, deliveries, store_id)


def _decode_contents(
    payload: bytes, at: int, count: int, content_bytes: int, with_contents: bool
) -> list[bytes]:
    """Return the contents, which take all from `at` on; none where `with_contents` is False."""
    if content_bytes == _MIXED_LENGTHS:
        start = at + count * _LENGTH_BYTES
        _need(payload, start)
        if not with_contents:
            return []
        bounds = list(accumulate(unpack_from(f">{count}I", payload, at), initial=start))
        _need_exactly(payload, bounds[-1])
        return [payload[low:high] for low, high in pairwise(bounds)]
    _need_exactly(payload, at + count * content_bytes)
    if not with_contents or not content_bytes:
        return []
    return [payload[low : low + content_bytes] for low in range(at, len(payload), content_bytes)]


def _decode_ranges(payload: bytes, at: int) -> tuple[range, ...]:
    _need(payload, at + _RANGES_HEAD.size)
    width, first = _RANGES_HEAD.unpack_from(payload, at)
    at += _RANGES_HEAD.size
    letter = _WIDTHS.get(width)
    if letter is None or (len(payload) - at) % width:
        raise CorruptRecord("ranges of no known width")
    steps = unpack_from(f">{(len(payload) - at) // width}{letter}", payload, at)
    if len(steps) % 2 == 0 or 0 in steps:
        raise CorruptRecord("ranges that are no ranges")
    bounds = list(accumulate(steps, initial=first))
    if bounds[-1] > SEQ_MAX:
        raise CorruptRecord("numbers out of range")
    return tuple(map(range, bounds[::2], bounds[1::2]))


def _decode_envelope(raw: bytes) -> Envelope:
    return _known_envelope(raw) if len(raw) <= _SHARED_ENVELOPE_MAX_BYTES else _parse_envelope(raw)


def _parse_envelope(raw: bytes) -> Envelope:
    _need(raw, _ENVELOPE_HEAD.size)
    flags, priority, channel, frame_max_bytes, expiration_ms = _ENVELOPE_HEAD.unpack_from(raw)
    at = _ENVELOPE_HEAD.size
    address = []
    for _ in range(2):
        _need(raw, at + 1)
        stop = at + 1 + raw[at]
        _need(raw, stop)
        address.append(_text(raw[at + 1 : stop]))
        at = stop
    _need(raw, at + _KEY_COUNTS.size)
    cc_count, bcc_count = _KEY_COUNTS.unpack_from(raw, at)
    at += _KEY_COUNTS.size
    keys = []
    for _ in range(cc_count + bcc_count):
        _need(raw, at + _COUNT.size)
        stop = at + _COUNT.size + _COUNT.unpack_from(raw, at)[0]
        _need(raw, stop)
        keys.append(_text(raw[at + _COUNT.size : stop]))
        at = stop
    _need_exactly(raw, at)
    if flags & ~(_PERSISTENT | _EXPIRES | _WAITS):
        raise CorruptRecord("an envelope with unknown flags")
    envelope = Envelope(
        address[0],
        address[1],
        channel=channel,
        frame_max_bytes=frame_max_bytes,
        persistent=bool(flags & _PERSISTENT),
        priority=priority,
        expiration_ms=expiration_ms if flags & _EXPIRES else None,
        cc=tuple(keys[:cc_count]),
        bcc=tuple(keys[cc_count:]),
    )
    envelope.waits = bool(flags & _WAITS)
    return envelope


_known_envelope = lru_cache(_SHARED_ENVELOPES_MAX)(_parse_envelope)
"""The cache of decoded envelopes: runs with equal ones share one, so a backlog sees that they belong together."""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _need(data: bytes, size: int) -> None:
    if len(data) < size:
        raise CorruptRecord("it ends too early")


def _need_exactly(data: bytes, size: int) -> None:
    if len(data) != size:
        raise CorruptRecord("it has another length than it says")
