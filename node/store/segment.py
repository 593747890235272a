"""A segment of a queue's index: the messages of 16384 consecutive numbers, in one file.

    queues/<uid>/<number>.idx = header, then records       see node.store.records
    record                    = operation                  see node.queue.operations

In memory a segment has one octet for each number between the lowest and the highest that it ever held: whether
that message is in the file and alive. So the numbers in a file are known without reading it; `find` finds the place,
the properties and the sizes of messages, on the disk's thread.
Source: docs/storage.md, "queues/UID/N.idx".
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from node.amqp.frames import body_size
from node.amqp.reader import MIXED_SIZES
from node.queue.operations import (
    CorruptRecord,
    Delivered,
    Enqueue,
    decode,
    decode_head,
    expiry_of,
)
from node.queue.run import Absent, Place
from node.store.records import (
    HEADER_BYTES,
    RECORD_HEAD_BYTES,
    SEGMENT_HEADER,
    payload_at,
    read_records,
)

_ABSENT: Final = 0
_LIVE: Final = 1
_GONE: Final = 2
"""The mark of a message that was forgotten, which the file doesn't say yet."""

_LIVE_IS_GONE: Final = bytes.maketrans(bytes([_LIVE]), bytes([_GONE]))
_LIVE_IS_ABSENT: Final = bytes.maketrans(bytes([_LIVE]), bytes([_ABSENT]))
_GONE_IS_ABSENT: Final = bytes.maketrans(bytes([_GONE]), bytes([_ABSENT]))

_OTHER: Final = {
    mark: re.compile(b"[^" + re.escape(bytes([mark])) + b"]") for mark in (_ABSENT, _LIVE, _GONE)
}


def spans(marks: bytes | bytearray, mark: int, start: int, stop: int) -> list[tuple[int, int]]:
    """Return where in marks[start:stop] a mark stands: first index and the one behind the last, for each stretch."""
    found, other = [], _OTHER[mark]
    while (at := marks.find(mark, start, stop)) >= 0:
        end = other.search(marks, at, stop)
        start = stop if end is None else end.start()
        found.append((at, start))
    return found


def by_segment(seqs: range, entries: int) -> list[tuple[int, range]]:
    """Return numbers, of any step, by segment: its number and those in it.   entries: how many share a segment."""
    parts = []
    while seqs:
        number = seqs.start // entries
        inside = -(-((number + 1) * entries - seqs.start) // seqs.step)
        parts.append((number, seqs[:inside]))
        seqs = seqs[inside:]
    return parts


def singles(seqs: range) -> Iterable[range]:
    """Return numbers of any step as ranges of step 1."""
    return [seqs] if seqs.step == 1 else [range(seq, seq + 1) for seq in seqs]


class Segment:
    """The state of one segment that is known without reading its file.

    number: of the segment.   notes_gone: whether forgotten messages must be noted in the file.
    live: how many of its messages are not forgotten.   changes: goes up when some are forgotten.
    size_bytes: of the file with all that was ever handed over for it; 0: there is none.
    has_stored: whether some contents may be in the message store.   is_dirty: written to since the last sync.
    synced_bytes: of the file as it was handed over for the last sync.
    is_damaged: something in the file could not be read.
    """

    __slots__ = (
        "_low",
        "_marks",
        "changes",
        "has_stored",
        "is_damaged",
        "is_dirty",
        "live",
        "notes_gone",
        "number",
        "size_bytes",
        "synced_bytes",
    )

    def __init__(
        self, number: int, *, notes_gone: bool, size_bytes: int = 0, has_stored: bool = False
    ) -> None:
        self.number = number
        self.notes_gone = notes_gone
        self.live = 0
        self.changes = 0
        self.size_bytes = self.synced_bytes = size_bytes
        self.has_stored = has_stored
        self.is_dirty = False
        self.is_damaged = False
        self._low = 0  # the number that the first mark is of
        self._marks = bytearray()

    def add(self, seqs: range) -> None:
        """Count messages as alive in the file.   seqs: of step 1."""
        if not self._marks:
            self._low = seqs.start
        if seqs.start < self._low:
            self._marks[:0] = bytes(self._low - seqs.start)
            self._low = seqs.start
        missing = seqs.stop - self._low - len(self._marks)
        if missing > 0:
            self._marks += bytes(missing)
        at = slice(seqs.start - self._low, seqs.stop - self._low)
        count = len(seqs)
        assert self._marks.count(_ABSENT, at.start, at.stop) == count, "nothing is written twice"
        self._marks[at] = bytes([_LIVE]) * count
        self.live += count

    def forget(self, seqs: range) -> list[range]:
        """Count messages as forgotten.   seqs: of any step.   Returns: those that were alive."""
        seqs = self._within(seqs)
        if not seqs:
            return []
        at = slice(seqs.start - self._low, seqs[-1] - self._low + 1, seqs.step)
        marks = self._marks[at]
        count = marks.count(_LIVE)
        self._marks[at] = marks.translate(_LIVE_IS_GONE if self.notes_gone else _LIVE_IS_ABSENT)
        self.live -= count
        self.changes += 1
        if count == len(seqs):
            return [seqs]
        return [seqs[low:high] for low, high in spans(marks, _LIVE, 0, len(marks))]

    def lose(self, seqs: Iterable[range]) -> int:
        """Count messages as absent from the file after all; return how many of them counted as alive."""
        lost = 0
        for part in map(self._within, seqs):
            at = slice(part.start - self._low, part.stop - self._low)
            lost += self._marks.count(_LIVE, at.start, at.stop)
            self._marks[at] = self._marks[at].translate(_LIVE_IS_ABSENT)
        self.live -= lost
        return lost

    def wanted(self, first_seq: int, last_seq: int) -> "Wanted":
        """Return the messages that are alive from first to last."""
        seqs = self._within(range(first_seq, last_seq + 1))
        marks = self._marks[seqs.start - self._low : seqs.stop - self._low]
        return Wanted(seqs.start, bytes(marks.translate(_GONE_IS_ABSENT)))

    def still_alive(self, absents: Iterable[Absent]) -> list[Absent] | None:
        """Return the parts of absent runs that were not forgotten since they were found.

        None where only reading again can tell, because the sizes of some bodies stand in the file.
        """
        alive: list[Absent] = []
        for absent in absents:
            seqs = self._within(absent.seqs)
            low, high = seqs.start - self._low, seqs.stop - self._low
            found = spans(self._marks, _LIVE, low, high)
            if found == [(absent.seqs.start - self._low, absent.seqs.stop - self._low)]:
                alive.append(absent)
            elif found and absent.size == MIXED_SIZES:
                return None
            else:
                skipped = absent.seqs.start - self._low
                alive += [absent[low - skipped : high - skipped] for low, high in found]
        return alive

    def take_gone(self) -> tuple[range, ...]:
        """Return the messages forgotten since the last call; the caller notes them in the file."""
        found = spans(self._marks, _GONE, 0, len(self._marks))
        self._marks = self._marks.translate(_GONE_IS_ABSENT)
        return tuple(range(start + self._low, stop + self._low) for start, stop in found)

    def _within(self, seqs: range) -> range:
        """Return the part of a range for which marks are kept."""
        low, high = self._low, self._low + len(self._marks)
        if seqs and seqs.start < low:
            seqs = seqs[-(-(low - seqs.start) // seqs.step) :]
        if seqs and seqs[-1] >= high:
            seqs = seqs[: max(0, -(-(high - seqs.start) // seqs.step))]
        return seqs or range(low, low)


# --- on the disk's thread: pure functions of a file's bytes ---


@dataclass(frozen=True, slots=True)
class Wanted:
    """Messages to be found: those whose mark is 1.   marks: one for each number from first_seq on."""

    first_seq: int
    marks: bytes

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.marks.count(_LIVE)

    def joined(self, other: "Wanted") -> "Wanted":
        """Return the messages of both, which are in the same segment."""
        first = min(self.first_seq, other.first_seq)
        length = max(each.first_seq + len(each.marks) for each in (self, other)) - first
        bits = 0
        for each in (self, other):
            bits |= int.from_bytes(bytes(each.first_seq - first) + each.marks, "little")
        return Wanted(first, bits.to_bytes(length, "little"))

    @property
    def ranges(self) -> list[range]:
        """The numbers of the messages."""
        first = self.first_seq
        return [
            range(first + low, first + high) for low, high in spans(self.marks, _LIVE, 0, len(self.marks))
        ]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a file could not be read.   offset: in bytes."""

    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search in a segment's file.

    absents: in order of numbers.   lost: numbers that should be there and are not.
    """

    absents: list[Absent]
    lost: list[range]
    damages: list[Damage]


@dataclass(frozen=True, slots=True)
class _Head:
    """An Enqueue without its contents, and the offset and length of its record."""

    offset: int
    length: int
    entry: Enqueue


def find(data: bytes, number: int, wanted: Wanted, delivered: tuple[Delivered, ...], epoch_s: float) -> Found:
    """Find messages in a segment's file.

    delivered: counts that are known beyond the file.   epoch_s: as `Storage.epoch_s`.
    """
    heads, counts, damages = _read(data, wanted, delivered)
    marks = bytearray(wanted.marks)
    absents: list[Absent] = []
    for head in heads:
        low = head.entry.first_seq - wanted.first_seq
        start, stop = max(low, 0), min(low + head.entry.count, len(marks))
        parts = [
            part
            for span in spans(marks, _LIVE, start, stop)
            for part in _by_deliveries(span, wanted, head, counts)
        ]
        if not parts:
            continue
        try:
            cut = _Cut(data, number, head, epoch_s)
            absents += [
                cut.absent(first - low, behind - low, deliveries) for first, behind, deliveries in parts
            ]
        except CorruptRecord as error:
            damages.append(Damage(head.offset, str(error)))
            continue
        # A number that should stand here once and stands here twice is found once.
        marks[start:stop] = bytes(stop - start)
    return Found(absents, Wanted(wanted.first_seq, bytes(marks)).ranges, damages)


def find_stored(data: bytes, wanted: Wanted) -> list[tuple[int, int]]:
    """Return first id and count of the contents that messages in a segment's file have in the message store."""
    heads, _, _ = _read(data, wanted, ())
    marks = bytearray(wanted.marks)
    found = []
    for entry in (head.entry for head in heads if head.entry.store_id):
        low = entry.first_seq - wanted.first_seq
        start, stop = max(low, 0), min(low + entry.count, len(marks))
        found += [
            (entry.store_id + first - low, behind - first)
            for first, behind in spans(marks, _LIVE, start, stop)
        ]
        marks[start:stop] = bytes(stop - start)
    return found


def contents_of(data: bytes, parts: tuple[tuple[int, int, int], ...]) -> list[list[bytes] | None]:
    """Return contents from one record; None for a part where the record does not hold what it should.

    parts: of each the number of the first message, how many messages of the record come before it, and how
        many are wanted.
    """
    payload = payload_at(data)
    if payload is None:
        return [None] * len(parts)
    try:
        entry = decode(payload)
    except CorruptRecord:
        return [None] * len(parts)
    if not isinstance(entry, Enqueue):
        return [None] * len(parts)
    return [
        entry.contents[skipped : skipped + count]
        if entry.first_seq + skipped == seq and skipped + count <= len(entry.contents)
        else None
        for seq, skipped, count in parts
    ]


def _read(
    data: bytes, wanted: Wanted, delivered: tuple[Delivered, ...]
) -> tuple[list[_Head], dict[int, int], list[Damage]]:
    """Return the records that may hold wanted messages, by number, and how often single messages came back."""
    window = range(wanted.first_seq, wanted.first_seq + len(wanted.marks))
    heads: list[_Head] = []
    counts: dict[int, int] = {}
    damages: list[Damage] = []
    if data[:HEADER_BYTES] != SEGMENT_HEADER:
        damages.append(Damage(0, "it does not begin as a segment does"))
    records = read_records(data)
    for offset, payload in records:
        try:
            operation = decode_head(payload)
        except CorruptRecord as error:
            damages.append(Damage(offset, str(error)))
            continue
        if isinstance(operation, Enqueue):
            if operation.first_seq < window.stop and operation.first_seq + operation.count > window.start:
                heads.append(_Head(offset, RECORD_HEAD_BYTES + len(payload), operation))
        elif isinstance(operation, Delivered):
            _count(operation, window, counts)
    for operation in delivered:
        _count(operation, window, counts)
    end = records.end
    assert end is not None, "the iteration is over"
    damages += [Damage(offset, f"{length} bytes are damaged") for offset, length in end.bad]
    if end.offset < len(data):
        damages.append(Damage(end.offset, f"the last {len(data) - end.offset} bytes are damaged"))
    heads.sort(key=lambda head: head.entry.first_seq)
    return heads, counts, damages


def _count(operation: Delivered, window: range, counts: dict[int, int]) -> None:
    for seqs in operation.ranges:
        counted = range(max(seqs.start, window.start), min(seqs.stop, window.stop))
        counts.update(dict.fromkeys(counted, operation.count))


def _by_deliveries(
    span: tuple[int, int], wanted: Wanted, head: _Head, counts: dict[int, int]
) -> list[tuple[int, int, int]]:
    """Cut a span of marks where messages came back more or less often than their neighbours."""
    first, behind = span
    usual = head.entry.deliveries
    if not counts:
        return [(first, behind, usual)]
    parts: list[tuple[int, int, int]] = []
    for at in range(first, behind):
        deliveries = counts.get(wanted.first_seq + at, usual)
        if parts and parts[-1][2] == deliveries:
            parts[-1] = (parts[-1][0], at + 1, deliveries)
        else:
            parts.append((at, at + 1, deliveries))
    return parts


class _Cut:
    """Makes absent runs of the messages of one record."""

    __slots__ = ("_data", "_expiry", "_head", "_number", "_sizes")

    def __init__(self, data: bytes, number: int, head: _Head, epoch_s: float) -> None:
        self._data = data
        self._number = number
        self._head = head
        self._expiry = expiry_of(head.entry.expires_at_ms, epoch_s)
        self._sizes: list[int] | None = None

    def absent(self, first: int, behind: int, deliveries: int) -> Absent:
        """Return the absent run from an index in the record up to another. Raises CorruptRecord."""
        head, entry = self._head, self._head.entry
        count = behind - first
        if count == entry.count:
            body_bytes = entry.body_bytes
        elif entry.size != MIXED_SIZES:
            body_bytes = entry.size * count
        else:
            body_bytes = sum(self._body_sizes()[first:behind])
        return Absent(
            entry.envelope,
            range(entry.first_seq + first, entry.first_seq + behind),
            entry.size,
            body_bytes,
            self._expiry,
            deliveries,
            entry.store_id + first if entry.store_id else 0,
            None if entry.store_id else Place(self._number, head.offset, head.length, first),
        )

    def _body_sizes(self) -> list[int]:
        if self._sizes is None:
            payload = payload_at(self._data, self._head.offset)
            assert payload is not None, "it was read before"
            entry = decode(payload)
            assert isinstance(entry, Enqueue)
            self._sizes = list(map(body_size, entry.contents))
        return self._sizes
