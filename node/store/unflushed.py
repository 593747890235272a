"""Kept messages on their way to disk: the journal wants those that are new, the segments all that are left at a
checkpoint.

    keep ─► entry ─┬─► fresh: the next batch takes them ─► journal
                   └─► unflushed: a checkpoint or paging takes them, oldest first ─► segment

Messages that are forgotten on the way are blanked: their bytes are dropped at once, and they are not written any more.
Source: docs/internals/disk.md, "From a queue to the disk".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from node.amqp.frames import body_size
from node.amqp.reader import MIXED_SIZES
from node.queue.backlog import RUN_MAX
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue, enqueues, expires_at_ms
from node.queue.run import Batch, Envelope, Run
from node.store.segment import spans

_OPERATION_BYTES: Final = 128
"""The bytes that an operation takes beside its contents, about: head, envelope, the record around it."""

_TOMBSTONES_MAX: Final = 1024
"""The number of empty entries at which the list is rebuilt without them: so many that rebuilding is rare."""

_WANTED: Final = 0
_GONE: Final = 1


class Entry:
    """Kept messages that share everything, with consecutive numbers in one segment.

    contents: blank where forgotten; empty when they are in the message store.
    size: as in `Run`, and never mixed for those in the message store.
    bytes: its size when written, about.   live: how many messages are not forgotten.
    is_journaled: a batch has taken it. It can no longer grow, and the journal must be told of forgotten messages.
    """

    __slots__ = (
        "_gone",
        "bytes",
        "contents",
        "envelope",
        "expiry",
        "is_journaled",
        "live",
        "seqs",
        "size",
        "store_id",
    )

    def __init__(
        self, envelope: Envelope, seqs: range, contents: list[bytes], size: int, expiry: float, store_id: int
    ) -> None:
        self.envelope = envelope
        self.seqs = seqs
        self.contents = contents
        self.size = size
        self.expiry = expiry
        self.store_id = store_id
        self.bytes = _OPERATION_BYTES
        self.live = len(seqs)
        self.is_journaled = False
        self._gone: bytearray | None = None  # a mark for each message, once some are forgotten

    def extend(self, count: int, contents: list[bytes], size: int) -> None:
        """Add messages that follow."""
        self.contents += contents
        self.seqs = range(self.seqs.start, self.seqs.stop + count)
        self.live += count
        if self._gone is not None:
            self._gone += bytes(count)
        if self.size != size:
            self.size = MIXED_SIZES

    def forget(self, seqs: range) -> None:
        """Forget some of its messages.   seqs: of any step."""
        count = len(seqs)
        first = self.seqs.start
        at = slice(seqs.start - first, seqs[-1] - first + 1, seqs.step)
        if self._gone is not None:
            assert _GONE not in self._gone[at], "a message is forgotten once"
        self.live -= count
        if not self.live:
            self.contents = []
            self._gone = None
            return
        if self._gone is None:
            self._gone = bytearray(len(self.seqs))
        self._gone[at] = bytes([_GONE]) * count
        if not self.store_id:
            self.contents[at] = [b""] * count

    def alive(self) -> list[range]:
        """Return the numbers that are not forgotten."""
        if not self.live:
            return []
        if self._gone is None:
            return [self.seqs]
        return [self.seqs[low:high] for low, high in spans(self._gone, _WANTED, 0, len(self._gone))]

    def operations(self, epoch_s: float) -> list[Enqueue]:
        """Return the enqueues of its messages, except the forgotten ones.   epoch_s: see `Storage.epoch_s`."""
        first, found = self.seqs.start, []
        for seqs in self.alive():
            if self.store_id:
                count, at_ms = len(seqs), expires_at_ms(self.expiry, epoch_s)
                store_id = self.store_id + seqs.start - first
                found.append(
                    Enqueue(
                        self.envelope, seqs.start, [], count, self.size, self.size * count, at_ms, 0, store_id
                    )
                )
            else:
                contents = self.contents[seqs.start - first : seqs.stop - first]
                found += enqueues(Run(self.envelope, seqs, contents, self.size, self.expiry), epoch_s)
        return found


_TOMBSTONE: Final = Entry(Envelope("", "", channel=0, frame_max_bytes=0), range(0), [], 0, 0.0, 0)
"""The placeholder for a flushed entry, until the list is tidied."""


class Unflushed:
    """The entries of one queue, in order of numbers.

    count: messages that are not in a segment yet.   fresh_bytes: what the next batch will write, about.
    next_seq: above all that were ever kept.
    """

    __slots__ = ("_entries", "_fresh", "_head", "_segment_entries", "count", "fresh_bytes", "next_seq")

    def __init__(self, segment_entries: int) -> None:
        self.count = 0
        self.fresh_bytes = 0
        self.next_seq = 0
        self._segment_entries = segment_entries
        self._entries: list[Entry] = []  # those before _head are flushed
        self._head = 0
        self._fresh: list[Entry] = []  # not journaled; flushed or not

    # --- in ---

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Add new messages, see `QueueStorage.keep`; they join the entry before them if possible.

        Numbers rise, except when a mirror gets messages that it lacked.
        """
        envelope, contents, size, store_id = batch.envelope, batch.contents, batch.size, batch.store_id
        count = len(contents)
        self.next_seq = max(self.next_seq, first_seq + count)
        self.count += count
        if store_id and size == MIXED_SIZES:
            for body_bytes, group in groupby(contents, body_size):
                length = len(list(group))
                self._add(envelope, range(first_seq, first_seq + length), [], body_bytes, expiry, store_id)
                first_seq += length
                store_id += length
        else:
            seqs = range(first_seq, first_seq + count)
            self._add(envelope, seqs, [] if store_id else contents, size, expiry, store_id)

    def _add(
        self, envelope: Envelope, seqs: range, contents: list[bytes], size: int, expiry: float, store_id: int
    ) -> None:
        """Add messages that may reach over the end of a segment.   contents: empty if they are in the message store."""
        room = self._segment_entries - seqs.start % self._segment_entries
        while len(seqs) > room:
            self._add_to_segment(envelope, seqs[:room], contents[:room], size, expiry, store_id)
            seqs, contents = seqs[room:], contents[room:]
            store_id = store_id + room if store_id else 0
            room = self._segment_entries
        self._add_to_segment(envelope, seqs, contents, size, expiry, store_id)

    def _add_to_segment(
        self, envelope: Envelope, seqs: range, contents: list[bytes], size: int, expiry: float, store_id: int
    ) -> None:
        entries = self._entries
        at = len(entries)
        if at > self._head and seqs.start < entries[-1].seqs.start:
            at = bisect_left(entries, seqs.start, lo=self._head, key=_first_seq)
        entry = entries[at - 1] if at > self._head else None
        if (
            entry is not None
            and entry.envelope is envelope
            and entry.seqs.stop == seqs.start
            and entry.expiry == expiry
            and not entry.is_journaled
            and entry.live > 0
            and len(entry.seqs) < RUN_MAX
            and seqs.start % self._segment_entries
            and (
                store_id == entry.store_id + len(entry.seqs) and entry.size == size
                if entry.store_id
                else not store_id
            )
        ):
            entry.extend(len(seqs), contents, size)
            grown = 0
        else:
            entry = Entry(envelope, seqs, contents.copy(), size, expiry, store_id)
            entries.insert(at, entry)
            self._fresh.append(entry)
            grown = _OPERATION_BYTES
        added = sum(map(len, contents))
        entry.bytes += added
        self.fresh_bytes += added + grown

    # --- forgotten on the way ---

    def parts(self, seqs: range) -> Iterator[tuple[range, Entry | None]]:
        """Yield numbers, of any step, by the entry that they are in; None: no unflushed entry has them."""
        while seqs:
            entries = self._entries  # the caller may forget parts meanwhile, which may replace the list
            if self._head == len(entries) or seqs[-1] < entries[self._head].seqs.start:
                yield seqs, None
                return
            index = bisect_right(entries, seqs.start, lo=self._head, key=_first_seq) - 1
            if index >= self._head and seqs.start < entries[index].seqs.stop:
                inside, seqs = _cut(seqs, entries[index].seqs.stop)
                yield inside, entries[index]
            else:
                bound = entries[index + 1].seqs.start if index + 1 < len(entries) else seqs[-1] + 1
                outside, seqs = _cut(seqs, bound)
                yield outside, None

    def forget(self, entry: Entry, seqs: range) -> None:
        """Forget messages of an entry."""
        entry.forget(seqs)
        self.count -= len(seqs)
        if entry.live:
            return
        if not entry.is_journaled:
            self.fresh_bytes -= entry.bytes
        self._tidy()

    def with_contents(self, ids: NumberSet) -> list[range]:
        """Return the numbers of messages whose contents have these ids in the message store."""
        return [
            part
            for entry in self
            if entry.store_id
            for found in ids.intersection(range(entry.store_id, entry.store_id + len(entry.seqs)))
            for part in [entry.seqs[found.start - entry.store_id : found.stop - entry.store_id]]
        ]

    # --- out ---

    def take_fresh(self) -> list[Entry]:
        """Return the entries since the last call that have live messages; they count as journaled now."""
        taken = [entry for entry in self._fresh if entry.live]
        for entry in taken:
            entry.is_journaled = True
        self._fresh = []
        self.fresh_bytes = 0
        return taken

    @property
    def first(self) -> Entry | None:
        """The oldest entry that is not flushed."""
        self._tidy()
        return self._entries[self._head] if self._head < len(self._entries) else None

    def pop(self) -> None:
        """Remove the first entry, which is in a segment now."""
        self.count -= self._entries[self._head].live
        self._entries[self._head] = _TOMBSTONE  # frees its bytes
        self._head += 1
        self._tidy()

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries[self._head :])

    def clear(self) -> None:
        """Drop all entries."""
        self._entries, self._fresh = [], []
        self._head = self.count = self.fresh_bytes = 0

    def _tidy(self) -> None:
        entries = self._entries
        while self._head < len(entries) and not entries[self._head].live:
            self._head += 1
        if self._head == len(entries):
            entries.clear()
            self._head = 0
        elif self._head > _TOMBSTONES_MAX and self._head * 2 > len(entries):
            del entries[: self._head]
            self._head = 0
        if len(entries) - self._head > 2 * self.count + _TOMBSTONES_MAX:
            self._entries = [entry for entry in entries[self._head :] if entry.live]
            self._head = 0


def _first_seq(entry: Entry) -> int:
    return entry.seqs.start


def _cut(seqs: range, bound: int) -> tuple[range, range]:
    """Split numbers, of any step, into those below a bound and the rest."""
    below = max(0, min(len(seqs), -(-(bound - seqs.start) // seqs.step)))
    return seqs[:below], seqs[below:]
