"""Messages of a copy that are on disk only: known by number, with counts and sizes for each segment.

A promotion makes pages of them, whose counts must be exact. Mostly the counts are known. Where messages were removed
from a segment only its file can tell, and it is read before.

Source: docs/internals/disk.md, "Paging".
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from node.amqp.reader import MIXED_SIZES
from node.queue.number_set import NumberSet
from node.queue.run import Absent, Run
from node.queue.storage import NO_STORE_ID, Page, QueueStorage


@dataclass(slots=True)
class _Tally:
    """The counts of one priority. first, last: as in `Page`."""

    first: int
    last: int
    count: int
    body_bytes: int


@dataclass(slots=True)
class _Segment:
    """The counts of one segment.

    count: of all its messages.   tallies: by priority.   size: of all bodies if they are equal and known, else None.
    is_exact: whether the tallies are exact.
    knows_ids: whether `ids` has all contents that are in the message store: first number, number behind, first id;
    by number.
    """

    count: int = 0
    size: int | None = None
    is_exact: bool = True
    knows_ids: bool = True
    tallies: dict[int, _Tally] = field(default_factory=dict)
    ids: list[tuple[int, int, int]] = field(default_factory=list)

    def count_in(self, priority: int, numbers: range, body_bytes: int, size: int, *, count: int) -> None:
        """Add messages."""
        self.size = size if not self.count or self.size == size else None
        if self.size == MIXED_SIZES:
            self.size = None
        self.count += count
        tally = self.tallies.get(priority)
        if tally is None:
            self.tallies[priority] = _Tally(numbers.start, numbers.stop - 1, count, body_bytes)
            return
        tally.first = min(tally.first, numbers.start)
        tally.last = max(tally.last, numbers.stop - 1)
        tally.count += count
        tally.body_bytes += body_bytes

    def know_ids(self, numbers: range, store_id: int) -> None:
        """Note that the contents of these are in the message store, from this id on."""
        if self.ids and self.ids[-1][1] == numbers.start:
            start, stop, first_id = self.ids[-1]
            if first_id + stop - start == store_id:
                self.ids[-1] = start, numbers.stop, first_id
                return
        insort(self.ids, (numbers.start, numbers.stop, store_id))

    def count_out(self, count: int) -> None:
        """Remove so many messages."""
        self.count -= count
        if self.size is None or len(self.tallies) > 1:
            self.is_exact = False
        for tally in self.tallies.values():  # one, if it matters
            tally.count -= count
            tally.body_bytes -= count * (self.size or 0)


class PagedMessages:
    """The messages of a copy that are on disk only, all in segments and indexed.

    count: messages.   stop: above the highest number that ever was here.
    """

    __slots__ = ("_segments", "_storage", "count", "stop")

    def __init__(self, storage: QueueStorage) -> None:
        self.count = 0
        self.stop = 0
        self._storage = storage
        self._segments: dict[int, _Segment] = {}

    # --- in ---

    def take_in(self, runs: list[Run]) -> None:
        """Take runs from memory, and page them out in the storage."""
        self._storage.page_out(runs)
        for run in runs:
            if run.is_indexed and run.deliveries > 1:
                self._storage.delivered(run.seqs, run.deliveries)
            priority = run.envelope.priority
            for number, part in self._by_segment(run.seqs):
                at = part.start - run.seqs.start
                piece = run if len(part) == len(run.contents) else run[at : at + len(part)]
                segment = self._segment(number)
                segment.count_in(priority, part, piece.body_bytes, run.size, count=len(part))
                if piece.store_id:
                    segment.know_ids(part, piece.store_id)

    def take_absent(self, absent: Absent) -> None:
        """Take messages that are on disk only already, and have been paged out."""
        for number, part in self._by_segment(absent.seqs):
            at = part.start - absent.seqs.start
            piece = absent if len(part) == len(absent) else absent[at : at + len(part)]
            segment = self._segment(number)
            segment.count_in(absent.envelope.priority, part, piece.body_bytes, absent.size, count=len(part))
            if piece.store_id:
                segment.know_ids(part, piece.store_id)

    def take_page(self, page: Page) -> None:
        """Take a page of messages that are on disk only already."""
        segment = self._segment(page.segment)
        segment.knows_ids = False
        numbers = range(page.first_seq, page.last_seq + 1)
        segment.count_in(page.priority, numbers, page.body_bytes, MIXED_SIZES, count=page.count)
        self.stop = max(self.stop, numbers.stop)
        self.count += page.count

    def recount(self, numbers: NumberSet) -> None:
        """Count exactly these messages: pages may have named more or fewer."""
        entries = self._storage.segment_entries
        counts: dict[int, int] = {}
        for seqs in numbers.intersection(range(self.stop)):
            for number, part in _cut(seqs, entries):
                counts[number] = counts.get(number, 0) + len(part)
        for number in self._segments.keys() - counts.keys():
            del self._segments[number]
        for number, count in counts.items():
            segment = self._segments.setdefault(number, _Segment(knows_ids=False))
            if segment.count != count:
                segment.count = count
                segment.is_exact = False
        self.count = sum(counts.values())

    def _segment(self, number: int) -> _Segment:
        return self._segments.setdefault(number, _Segment())

    def _by_segment(self, seqs: range) -> Iterator[tuple[int, range]]:
        self.count += len(seqs)
        self.stop = max(self.stop, seqs.stop)
        return _cut(seqs, self._storage.segment_entries)

    # --- out ---

    def forget(self, seqs: range) -> None:
        """Forget these messages, all of which are here and were settled."""
        self.count -= len(seqs)
        for number, part in _cut(seqs, self._storage.segment_entries):
            segment = self._segments[number]
            if not segment.knows_ids:
                self._storage.clear(part.start, part.stop - 1)
            elif segment.ids:
                for piece, store_id in _with_ids(part, segment.ids):
                    self._storage.forget(piece, store_id)
            else:
                self._storage.forget(part, NO_STORE_ID)
            if segment.count == len(part):
                del self._segments[number]
            else:
                segment.count_out(len(part))

    def clear(self) -> None:
        """Forget all messages; the storage knows what became of them."""
        self._segments.clear()
        self.count = 0

    # --- what there is ---

    def pages(self) -> list[Page]:
        """Return all pages, in order. `settle` has been called before, and nothing was removed since."""
        return [
            Page(number, priority, tally.first, tally.last, tally.count, tally.body_bytes)
            for number, segment in sorted(self._segments.items())
            for priority, tally in sorted(segment.tallies.items())
        ]

    def settle(self, on_done: Callable[[NumberSet], None]) -> None:
        """Read the segments whose counts are not exact.

        on_done: called with the numbers of the segments that were read and of which nothing was found there; at once
        if there is nothing to be read.
        """
        unknown = [number for number, segment in sorted(self._segments.items()) if not segment.is_exact]
        self._read_next(unknown, NumberSet(), NumberSet(), on_done)

    def _read_next(
        self, unknown: list[int], looked: NumberSet, found: NumberSet, on_done: Callable[[NumberSet], None]
    ) -> None:
        """Read the last of these segments, and so on to the first.   looked, found: numbers are added to them."""
        if not unknown:
            on_done(looked.minus(found))
            return
        number = unknown.pop()
        entries = self._storage.segment_entries
        first = number * entries
        stop = min(first + entries, self.stop)
        looked.add(range(first, stop))

        def scanned(absents: list[Absent]) -> None:
            segment = self._segments.pop(number, None)
            if segment is None:
                return  # all messages of the segment were forgotten meanwhile
            self.count -= segment.count
            for absent in absents:
                found.add(absent.seqs)
                self.take_absent(absent)
            for numbers in self._unreadable(range(first, stop)):
                found.add(numbers)
                self._segment(number).count_in(0, numbers, 0, MIXED_SIZES, count=len(numbers))
                self.count += len(numbers)
            self._read_next(unknown, looked, found, on_done)

        self._storage.scan(number, first, stop - 1, scanned)

    def _unreadable(self, numbers: range) -> list[range]:
        """Return those numbers that are here and can't be read: the caller of `settle` decides what becomes of them."""
        unreadable = self._storage.unreadable
        return unreadable.intersection(numbers) if unreadable is not None else []


def _cut(seqs: range, entries: int) -> Iterator[tuple[int, range]]:
    """Yield consecutive numbers by segment.   entries: how many numbers share one."""
    start = seqs.start
    while start < seqs.stop:
        number = start // entries
        stop = min(seqs.stop, (number + 1) * entries)
        yield number, range(start, stop)
        start = stop


def _with_ids(seqs: range, ids: list[tuple[int, int, int]]) -> Iterator[tuple[range, int]]:
    """Yield consecutive numbers, cut by where their contents are.   ids: see `_Segment`."""
    at = max(0, bisect_right(ids, seqs.start, key=_first) - 1)
    start = seqs.start
    while start < seqs.stop:
        while at < len(ids) and ids[at][1] <= start:
            at += 1
        first, behind, store_id = ids[at] if at < len(ids) else (seqs.stop, seqs.stop, NO_STORE_ID)
        if start < first:
            stop = min(first, seqs.stop)
            yield range(start, stop), NO_STORE_ID
        else:
            stop = min(behind, seqs.stop)
            yield range(start, stop), store_id + start - first
        start = stop


def _first(entry: tuple[int, int, int]) -> int:
    return entry[0]
