"""The messages that wait in the queue of a delayed exchange, in the order in which they are due.

    append ─► memory, and `near` ──────────────► head, take          what is due first
    page_out, restore ─► disk, and `far` ─ soon due: scan, load ─► memory, and `near`

A run's `expiry` is the time at which it is due, so each copy on another node and the disk know it. The two indexes by
time are here alone, and are made anew from the messages after a restart or when a mirror takes over: a restart reads
the segments once, and until then nothing is at hand, as anything might be due first.

Memory: a run in memory has some 400 bytes beside its contents. On disk it costs its entry in the index alone, ten
bytes.
Source: docs/delayed.md.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from node.amqp.reader import MIXED_SIZES
from node.queue.due_index import Due, DueIndex
from node.queue.far_index import FarIndex
from node.queue.holdings import Holdings
from node.queue.number_set import NumberSet
from node.queue.paged_backlog import AHEAD_BYTES, KEPT_BYTES, MESSAGE_BYTES, nobody
from node.queue.run import NEVER, Absent, Batch, Run, bytes_of
from node.queue.storage import Page, QueueStorage

TIMER_MAX_S: Final = 3600.0
"""The longest time for which a timer is set, as event loops know no years; then another one is set."""

ROUNDING_S: Final = 0.001
"""A millisecond more than was asked for: copies and the disk know times to the nearest millisecond, and copies the
clock of the master too, so another master might find a message due half a millisecond too early, twice."""

AHEAD_S: Final = 2.0
"""The seconds before it is due at which a message is fetched from disk: a slow disk needs less for a segment."""

_SLACK_S: Final = 0.001
"""A millisecond more, as the sum of a time and `AHEAD_S` is not exact."""

FETCHED_MAX: Final = 8192
"""The most messages that are fetched from disk in one go."""

EARLY_S: Final = 60.0
"""The seconds before it is due from which a message comes from disk with others of its segment: each fetch reads a
whole segment, so it should bring as much as it can. For so long after messages had to leave memory none come early.
"""

EARLY_BYTES: Final = 32 * 1024 * 1024
"""The memory of the queue's messages above which none come early."""

_CHUNK: Final = 4096
"""The numbers of a chunk; no run in memory reaches over its end, so that a run is found by any of its numbers."""


class DelayBacklog:
    """Messages by the time at which they are due. It has the methods of `PagedBacklog`.

    on_loaded: called when messages came from disk, or were found to be gone.
    """

    __slots__ = (
        "_asked",
        "_body_bytes",
        "_count",
        "_disk_bytes",
        "_disk_count",
        "_far",
        "_is_asking",
        "_last",
        "_near",
        "_on_loaded",
        "_pages",
        "_runs",
        "_short_until",
        "_soon",
        "_storage",
        "_unread",
        "_wanted",
    )

    def __init__(self, storage: QueueStorage, on_loaded: Callable[[], None]) -> None:
        self._storage = storage
        self._on_loaded = on_loaded
        self._runs: dict[int, dict[int, Run]] = {}  # by chunk and first number
        self._last: Run | None = None  # the one that was placed last, while it is here: equals of it join it
        self._near = DueIndex()  # of runs in memory, and of some that have left it
        self._far = FarIndex(storage.segment_entries)  # of messages that are on disk only
        self._pages: dict[int, Page] = {}  # by segment: those of `_far`, `_wanted` and `_unread`
        self._unread: deque[Page] = deque()  # restored, with messages whose times are not known yet
        self._wanted: list[Due] = []  # taken from `_far` and on their way
        self._count = self._body_bytes = 0  # in memory
        self._disk_count = self._disk_bytes = 0
        self._soon = self._short_until = -NEVER
        self._asked = 0  # rises when a pending answer of the disk no longer counts
        self._is_asking = False

    # --- figures ---

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        return self._count + self._disk_count

    @property
    def body_bytes(self) -> int:
        """The number of bytes of all bodies."""
        return self._body_bytes + self._disk_bytes

    @property
    def memory_bytes(self) -> int:
        """The bytes that the messages in memory cost, about."""
        return self._body_bytes + self._count * MESSAGE_BYTES

    @property
    def mean_bytes(self) -> int:
        """The mean size in bytes of the bodies in memory, of which there must be some."""
        return self._body_bytes // self._count

    @property
    def is_paged(self) -> bool:
        """True if there may be messages outside memory."""
        return bool(self._pages)

    @property
    def is_short(self) -> bool:
        """False: what is fetched depends on the time, see `fetch`."""
        return False

    def refill(self) -> None:
        """Do nothing: see `is_short`."""

    def lengths(self) -> dict[str, int]:
        """Return the number of messages in memory and on disk, by the sub-queue of `PagedBacklog` that is alike."""
        return {"q1": 0, "q2": 0, "delta": self._disk_count, "q3": 0, "q4": self._count}

    # --- in ---

    @property
    def tail(self) -> "DelayBacklog":
        """The backlog itself: each message has a place of its own."""
        return self

    def append(self, batch: Batch, first_seq: int, expiry: float = NEVER, is_indexed: bool = False) -> None:
        """Add new messages that are due at the same time; see `Run`."""
        last, count = self._last, len(batch.contents)
        if (
            last is not None
            and last.seqs.stop == first_seq
            and last.expiry == expiry
            and last.envelope is batch.envelope
            and last.is_indexed is is_indexed
            and last.store_id == batch.store_id == 0
            and first_seq % _CHUNK + count <= _CHUNK
            and first_seq % _CHUNK
        ):
            last.contents += batch.contents
            last.seqs = range(last.seqs.start, first_seq + count)
            if last.size != batch.size:
                last.size = MIXED_SIZES
            self._count += count
            self._body_bytes += bytes_of(batch.contents, batch.size)
            return
        seqs = range(first_seq, first_seq + count)
        contents = batch.contents.copy()
        self.add(Run(batch.envelope, seqs, contents, batch.size, expiry, 0, batch.store_id, is_indexed))

    def add(self, run: Run) -> None:
        """Add a run."""
        self._count += len(run)
        self._body_bytes += run.body_bytes
        for piece in run.pieces():
            self._place(piece)

    put_back = add

    def _place(self, run: Run) -> None:
        for piece in _cut(run, _CHUNK):
            first = piece.seqs.start
            self._runs.setdefault(first // _CHUNK, {})[first] = self._last = piece
            self._near.push(piece.expiry, first, len(piece))

    # --- out ---

    @property
    def at_hand(self) -> int:
        """The number of messages that can be taken now, which share a run; 0 while an earlier one is on disk."""
        run = self._head()
        return 0 if run is None else len(run)

    @property
    def head_expiry(self) -> float:
        """The time at which the first message is due; `NEVER` if there is none, or it is still on disk."""
        run = self._head()
        return NEVER if run is None else run.expiry

    @property
    def look_again_at(self) -> float:
        """The time at which something is due, or is to be fetched; `NEVER` while an answer of the disk is awaited."""
        if self._is_asking:
            return self.head_expiry
        if self._unread:
            return -NEVER
        far = self._far.head
        return min(self.head_expiry, NEVER if far is None else far.at - AHEAD_S)

    def take(self, limit: int) -> Run:
        """Remove and return up to `limit` (at least 1) of the messages that are due first; fewer where they don't
        share a run.
        """
        run = self._head()
        assert run is not None, "nothing is at hand"
        self._near.pop()
        self._remove(run)
        if len(run) > limit:
            self._place(run[limit:])
            run = run[:limit]
        self._count -= len(run)
        self._body_bytes -= run.body_bytes
        return run

    def take_runs(self, limit: int) -> list[Run]:
        """Remove and return the messages that `take` does."""
        return [self.take(limit)]

    def _head(self) -> Run | None:
        """Return the run that is due first, unless it is on disk."""
        while (due := self._near.head) is not None:
            run = self._runs.get(due.first_seq // _CHUNK, {}).get(due.first_seq)
            if run is not None:
                return None if self._unread or self._is_before(due) else run
            self._near.pop()  # it was paged out
        return None

    def _is_before(self, due: Due) -> bool:
        """True if a message on disk is to go out before this one."""
        far = self._far.head
        return (far is not None and far < due) or (bool(self._wanted) and self._wanted[0] < due)

    def _remove(self, run: Run) -> None:
        if run is self._last:
            self._last = None
        first = run.seqs.start
        chunk = self._runs[first // _CHUNK]
        del chunk[first]
        if not chunk:
            del self._runs[first // _CHUNK]

    def withdraw(self, seq: int, done: Callable[[Run | Absent | None], None]) -> bool:
        """Remove a single message; `done` is called with it, now or when its segment was read, or with None: it does
        not wait here. The caller has the storage forget it.

        Returns: False if that cannot be told now, as the disk is asked for something else; `done` is not called then.
        """
        run = self._cut_out(seq)
        segment = seq // self._storage.segment_entries
        page = self._pages.get(segment)
        if run is not None or page is None or seq not in page.numbers:
            done(run)
            return True
        if self._is_asking or self._unread:
            return False
        if not self._far.discard(seq):
            done(None)
            return True
        asked = self._ask()

        def scanned(found: list[Absent]) -> None:
            if asked == self._asked:
                self._shrink(segment, 1, sum(absent.body_bytes for absent in found))
                self._answered()
                done(found[0] if found else None)

        self._storage.scan(segment, seq, seq, scanned)
        return True

    def _cut_out(self, seq: int) -> Run | None:
        """Remove and return a message that is in memory."""
        for first, run in self._runs.get(seq // _CHUNK, {}).items():
            if not first <= seq < run.seqs.stop:
                continue
            self._remove(run)
            at = seq - first
            for part in (run[:at], run[at + 1 :]):
                if len(part):
                    self._place(part)
            run = run[at : at + 1]
            self._count -= 1
            self._body_bytes -= run.body_bytes
            return run
        return None

    def clear(self, on_gone: Callable[[range], None] | None = None) -> int:
        """Drop all messages and have the storage forget them; return how many there were.   on_gone: as in
        `PagedBacklog`; later for messages whose numbers only the disk knows.
        """
        count = self.count
        on_gone = on_gone or _ignore
        for run in self._in_order(0):
            if run.is_indexed:
                self._storage.forget(run.seqs, run.store_id)
            on_gone(run.seqs)
        far, self._far = self._far, FarIndex(self._storage.segment_entries)
        unread = {page.segment: page.numbers for page in self._unread}
        wanted = self._wanted.copy()
        pages = deque(self._pages[segment] for segment in sorted(self._pages))

        def forget_next() -> None:
            if pages:
                page = pages.popleft()
                dues = chain(far.of(page.segment), (due for due in wanted if due.first_seq in page.numbers))
                numbers = NumberSet(range(due.first_seq, due.first_seq + due.size) for due in dues)
                if page.segment in unread:
                    numbers.add(unread[page.segment])
                self._forget_page(page, numbers, on_gone, forget_next)

        forget_next()
        self.abandon()
        return count

    def _forget_page(
        self, page: Page, numbers: NumberSet, on_gone: Callable[[range], None], done: Callable[[], None]
    ) -> None:
        """Have the storage forget those messages of a page that have these numbers: others may be on their way out."""

        def forget(found: list[Absent]) -> None:
            for absent in found:
                for seqs in numbers.intersection(absent.seqs):
                    skipped = seqs.start - absent.seqs.start
                    self._storage.forget(seqs, absent.store_id + skipped if absent.store_id else 0)
                    on_gone(seqs)
            done()

        self._storage.scan(page.segment, page.first_seq, page.last_seq, forget)

    def abandon(self) -> None:
        """Let go of all messages without telling the storage, which knows what became of them."""
        self._runs.clear()
        self._last = None
        self._near.clear()
        self._far.clear()
        self._pages.clear()
        self._unread.clear()
        self._wanted.clear()
        self._count = self._body_bytes = self._disk_count = self._disk_bytes = 0
        self._is_asking = False
        self._asked += 1  # answers to come are to something that is gone

    def close(self) -> None:
        """Let go of all messages, and of the queue, which is gone."""
        self.abandon()
        self._on_loaded = nobody

    # --- a queue that moves to another node, or comes from there ---

    @property
    def levels(self) -> "Sequence[DelayBacklog]":
        """The backlogs of each priority; here there is only this one."""
        return (self,)

    def delivered_before(self) -> Iterable[Run]:
        """Return nothing: no client has ever had these messages."""
        return ()

    def redelivered_below(self, number: int) -> None:
        """Do nothing: a message that was due before may go out again, as a new one."""

    def in_memory(self, first: int) -> Iterator[Run]:
        """Return the runs with number `first` or a higher one, in order. Nothing may change until the last is taken."""
        return (run for run in self._in_order(first // _CHUNK) if run.seqs[-1] >= first)

    def _in_order(self, chunk: int) -> Iterator[Run]:
        for number in sorted(self._runs):
            if number >= chunk:
                runs = self._runs[number]
                yield from (runs[first] for first in sorted(runs))

    def on_disk(self, first: int) -> Iterator[Absent | Page]:
        """Yield the pages with number `first` or a higher one, in order; some of their numbers may be in memory."""
        for segment in sorted(self._pages):
            if self._pages[segment].last_seq >= first:
                yield self._pages[segment]

    def ready_ranges(self) -> list[range]:
        """Return the numbers of all messages, in no order, and some that are no messages of this queue (any more)."""
        return [run.seqs for run in self._in_order(0)] + [page.numbers for page in self._pages.values()]

    def hand_over(self) -> Holdings:
        """Let go of all messages, which the storage still has, and return what they were."""
        had = Holdings(list(self._in_order(0)), [], [self._pages[segment] for segment in sorted(self._pages)])
        self.abandon()
        return had

    # --- from disk ---

    def restore(self, pages: Iterable[Page]) -> None:
        """Begin with the messages that a recovery found."""
        assert not self._pages, "it is empty"
        for page in pages:
            self._add_page(page)
        self._unread.extend(self._pages.values())

    def _add_page(self, page: Page) -> None:
        known = self._pages.get(page.segment)
        self._pages[page.segment] = page if known is None else known.joined(page)
        self._disk_count += page.count
        self._disk_bytes += page.body_bytes

    def fetch(self, now: float) -> None:
        """Have the disk read what is due soon; `on_loaded` is called when that is here."""
        self._soon = until = now + AHEAD_S + _SLACK_S
        if self._is_asking:
            return
        if self._unread:
            self._read()
            return
        head = self._far.head
        if head is not None and head.at <= until:
            self._want(head.first_seq // self._storage.segment_entries, until)
            self._locate()

    def _want(self, segment: int, until: float) -> None:
        """Take messages of a segment from the index that are due until some time, as many as may be fetched in one go.

        As its file is read anyway, those that are due a while later come too, if they are few and memory has room.
        """
        each = MESSAGE_BYTES + self._disk_bytes // max(self._disk_count, 1)
        limit = max(1, min(FETCHED_MAX, AHEAD_BYTES // each))
        self._wanted = self._far.take(segment, until, limit)
        limit -= sum(due.size for due in self._wanted)
        if limit > 0 and until > self._short_until and self.memory_bytes < EARLY_BYTES:
            self._wanted += self._far.take(segment, until + EARLY_S, limit)

    def _read(self) -> None:
        """Read one segment, to learn when its messages are due."""
        page = self._unread[0]  # not that of `_pages`, which may have newer messages by now
        asked = self._ask()

        def scanned(found: list[Absent]) -> None:
            if asked != self._asked or self._waits([page.numbers]):
                return
            self._far.extend(
                page.segment, ((absent.expiry, absent.seqs.start, len(absent)) for absent in found)
            )
            count, body_bytes = sum(map(len, found)), sum(absent.body_bytes for absent in found)
            self._shrink(page.segment, page.count - count, page.body_bytes - body_bytes)
            self._unread.popleft()
            self._answered()

        self._storage.scan(page.segment, page.first_seq, page.last_seq, scanned)

    def _locate(self) -> None:
        """Find where the contents of wanted messages stand, which are in one segment."""
        asked = self._ask()
        segment = self._wanted[0].first_seq // self._storage.segment_entries
        numbers = NumberSet(range(due.first_seq, due.first_seq + due.size) for due in self._wanted)

        def scanned(found: list[Absent]) -> None:
            if asked == self._asked and not self._waits(numbers):
                self._load(segment, numbers, [part for absent in found for part in _within(absent, numbers)])

        first = numbers.first
        assert first is not None, "some are wanted"
        self._storage.scan(segment, first, numbers.stop - 1, scanned)

    def _load(self, segment: int, numbers: NumberSet, absents: list[Absent]) -> None:
        asked = self._asked

        def loaded(runs: list[Run | None]) -> None:
            if asked != self._asked or (None in runs and self._waits(absent.seqs for absent in absents)):
                return
            body_bytes = 0
            for absent, run in zip(absents, runs, strict=True):
                if run is None:
                    self._storage.forget(absent.seqs, absent.store_id)
                    continue
                for seqs in numbers.intersection(run.seqs):
                    piece = run[seqs.start - run.seqs.start : seqs.stop - run.seqs.start]
                    body_bytes += piece.body_bytes
                    self.add(piece)
            self._wanted = []
            # Messages that the disk has lost no longer count either.
            self._shrink(segment, len(numbers), body_bytes)
            self._answered()

        if absents:
            self._storage.load(absents, loaded)
        else:
            loaded([])

    def _shrink(self, segment: int, count: int, body_bytes: int) -> None:
        """Count fewer messages of a segment as on disk only."""
        page = self._pages[segment]
        left = page.count - count
        assert left >= 0, segment
        body_bytes = min(body_bytes, page.body_bytes) if left else page.body_bytes
        self._disk_count -= count
        self._disk_bytes -= body_bytes
        if left:
            self._pages[segment] = replace(page, count=left, body_bytes=page.body_bytes - body_bytes)
        else:
            del self._pages[segment]

    def _ask(self) -> int:
        self._asked += 1
        self._is_asking = True
        return self._asked

    def _answered(self) -> None:
        self._is_asking = False
        if self._unread:
            self._read()
        elif self._wanted:
            self._locate()
        self._on_loaded()

    def _waits(self, seqs: Iterable[range]) -> bool:
        """True if some of these are unreadable and it is not decided yet what becomes of them; see `PagedBacklog`."""
        unreadable = self._storage.unreadable
        return unreadable is not None and any(map(unreadable.intersection, seqs))

    def go_on(self, lost: NumberSet) -> None:
        """Ask the disk again, if an answer was under way: unreadable messages were given up.   lost: their numbers.

        Those that are not wanted yet count until they are.
        """
        if self._is_asking:
            self._asked += 1  # the pending answer is to an earlier state
            self._answered()

    # --- to disk ---

    def set_lazy(self, is_lazy: bool) -> None:
        """Do nothing: messages leave memory when it is short."""

    def page_new(self) -> bool:
        """Return that nothing had to leave memory; see `set_lazy`."""
        return False

    def page_out(self, limit_bytes: int, keep_bytes: int = KEPT_BYTES) -> int:
        """Take messages out of memory that are not due soon; return how many bytes of memory that was.

        limit_bytes: stop when that much is out.
        """
        leaving: list[Run] = []
        freed = 0
        for run in self._in_order(0):
            if freed >= limit_bytes:
                break
            if run.expiry > self._soon:
                leaving.append(run)
                freed += run.body_bytes + len(run) * MESSAGE_BYTES
        if not leaving:
            return 0
        self._short_until = self._soon + EARLY_S
        self._storage.page_out(leaving)
        dues: dict[int, list[tuple[float, int, int]]] = {}
        for run in leaving:
            self._remove(run)
            self._count -= len(run)
            self._body_bytes -= run.body_bytes
            for part in _cut(run, self._storage.segment_entries):
                first, last = part.seqs.start, part.seqs[-1]
                segment = first // self._storage.segment_entries
                self._add_page(Page(segment, 0, first, last, len(part), part.body_bytes))
                dues.setdefault(segment, []).append((part.expiry, first, len(part)))
        for segment, entries in dues.items():
            self._far.extend(segment, entries)
        return freed


def _ignore(seqs: range) -> None:
    """Tell nobody of these numbers."""


def _cut(run: Run, size: int) -> Iterator[Run]:
    """Yield a run of consecutive numbers in parts, none of which reaches over a multiple of `size`."""
    while run.seqs.start // size != run.seqs[-1] // size:
        fitting = size - run.seqs.start % size
        yield run[:fitting]
        run = run[fitting:]
    yield run


def _within(absent: Absent, numbers: NumberSet) -> list[Absent]:
    """Return the parts of an entry that have these numbers; all of it where its sizes stand in its contents."""
    found = numbers.intersection(absent.seqs)
    if not found or found == [absent.seqs] or absent.size == MIXED_SIZES:
        return [absent] if found else []
    first = absent.seqs.start
    return [absent[seqs.start - first : seqs.stop - first] for seqs in found]
