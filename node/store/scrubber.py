"""The scrubber reads slowly all that the store has on disk, so that damage is found before the bytes are needed.

    round: segments of each queue ─► files of both message stores ─► complete journal files ─► a rest ─► next round

One read at a time goes to the disk, while it has nothing else to do, and no more bytes in a second than an operator
allows. Bytes come from the medium, not from the system's cache. Damage is handled as if a consumer had come
across it: the queues with the messages are told (`node.store.damage`). Files that are removed, merged or written
meanwhile are no finding: files only grow, and results about a file that is no more are dropped.
Source: reliability §5.2; docs/storage.md, "What the running node looks for".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from node.queue.counters import ScrubCounters
from node.queue.number_set import NumberSet
from node.queue.run import Absent
from node.scheduling.timers import Timers
from node.store.damage import UNREADABLE, tell_unreadable
from node.store.disk import Read
from node.store.journal import Journal, file_path
from node.store.message_store import MessageStore
from node.store.queue_index import NO_LIMIT, QueueIndex
from node.store.records import BEGINNING, JOURNAL_HEADER, SEGMENT_HEADER, Course, follow
from node.store.rereading import read
from node.store.store_file import StoreFile

if TYPE_CHECKING:
    from node.store.index_host import IndexHost

CHUNK_BYTES: Final = 256 * 1024
"""The bytes of one read, unless a single content is larger: a batch that comes just then waits a few milliseconds."""

JOB_COST_BYTES: Final = 64 * 1024
"""The least bytes that a read counts as, so that many small files don't take all of a slow disk's time."""

REST_S: Final = 60.0
"""The seconds between the end of a round and the next one."""

BUSY_S: Final = 0.05
"""The seconds before the scrubber looks again whether the disk is idle."""

BUSY_MAX_S: Final = 60.0
"""The seconds after which a chunk is read though the disk is busy, so that rounds end on nodes that always are."""

SKIPPED_MAX: Final = 1000
"""The limit of queues without files that are passed over in one turn: less than a millisecond."""


_Job: TypeAlias = Callable[[Callable[[], None]], int]
"""Begins a read and returns its size in bytes; calls back when the read has its answer, whatever that is."""


class Scrubber:
    """The scrubber of one store.

    rate: bytes in a second.   is_idle: whether the disk has nothing else to do.
    is_over: whether the store takes no more work.   epoch_s: as `Storage.epoch_s`.
    indexes: returns those of all queues.   stores: the message stores.
    """

    def __init__(
        self,
        host: "IndexHost",
        timers: Timers,
        rate: int,
        *,
        is_idle: Callable[[], bool],
        is_over: Callable[[], bool],
        indexes: Callable[[], Iterable[QueueIndex]],
        stores: Sequence[MessageStore],
        journal: Journal,
    ) -> None:
        self.figures = ScrubCounters()
        self._host = host
        self._timers = timers
        self._rate = rate
        self._is_idle = is_idle
        self._is_over = is_over
        self._indexes = indexes
        self._stores = stores
        self._journal = journal
        self._jobs: Iterator[_Job | None] = iter(())
        self._due = 0.0
        self._waiting_since: float | None = None
        self._known = NumberSet()
        """The damaged contents found in the message stores; each is reported once."""

    def begin(self) -> None:
        """Begin the first round after a rest, if there is a rate."""
        if self._rate:
            self._timers.at(0.0, self._begin_round)

    def _begin_round(self, now: float) -> None:
        self._jobs = self._round()
        self._timers.at(now + REST_S, self._go_on)

    def _go_on(self, now: float) -> None:
        """Submit the next read, when it is time for one."""
        if self._is_over():
            return
        since = self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if not self._is_idle() and now < since + BUSY_MAX_S:
            self._timers.at(now + BUSY_S, self._go_on)
            return
        self._waiting_since = None
        try:
            job = next(self._jobs)
        except StopIteration:
            self._end_round(now)
            return
        if job is None:
            self._timers.at(now, self._go_on)  # in the next turn
            return
        size = job(self._answered)
        self.figures.checked_bytes += size
        self._due = now + max(size, JOB_COST_BYTES) / self._rate

    def _answered(self) -> None:
        self._timers.at(self._due, self._go_on)

    def _end_round(self, now: float) -> None:
        self.figures.rounds += 1
        self.figures.last_round_s = now + self._host.epoch_s()
        self._begin_round(now)

    def _reading(self, step: Read, is_there: Callable[[], bool], take: Callable[[Any], None]) -> _Job:
        """Return a job that reads a file, which may be gone by then.

        take: gets the result, None: the disk refuses it.
        """

        def begin(on_end: Callable[[], None]) -> int:
            def answered(result: Any) -> None:
                if is_there() and not self._is_over():
                    take(result)
                on_end()

            read(
                self._host,
                lambda: [step] if is_there() else [],
                lambda results: answered(results[0] if results else None),
                lambda _error: answered(None),
            )
            return step.size

        return begin

    # --- a round ---

    def _round(self) -> Iterator[_Job | None]:
        """Yield the jobs of a round, each planned when its turn comes; sometimes None, to let a turn end."""
        indexes = iter(list(self._indexes()))
        while part := list(islice(indexes, SKIPPED_MAX)):
            for index in part:
                for number in sorted(index.segments):
                    yield from self._check_segment(index, number)
            yield None
        for store in self._stores:
            for file in sorted(store.files, key=_path):
                yield from self._check_contents(store, file)
        for number in list(self._journal.older):
            yield from self._check_journal(number)

    def _check_segment(self, index: QueueIndex, number: int) -> Iterator[_Job]:
        segment = index.segments.get(number)

        def is_there() -> bool:
            return segment is not None and index.segments.get(number) is segment

        def found() -> None:
            # The index finds out whether messages are lost, and reports them.
            self.figures.findings += 1
            index.scan(number, 0, NO_LIMIT, _nobody)

        # What is known to be damaged stays so until the next start sets it aside.
        if segment is not None and segment.live and not segment.is_damaged:
            index.hand_over()
            path, size = index.path(number), segment.size_bytes
            yield from self._check_records(path, size, SEGMENT_HEADER, is_there, found)

    def _check_journal(self, number: int) -> Iterator[_Job]:
        path = file_path(number)

        def found() -> None:
            self.figures.findings += 1
            self._host.report(path, 0, "the journal file is damaged, as long as its checkpoint is under way")

        def is_there() -> bool:
            return number in self._journal.older

        yield from self._check_records(path, self._journal.sizes[number], JOURNAL_HEADER, is_there, found)

    def _check_records(
        self,
        path: str,
        size: int,
        header: bytes,
        is_there: Callable[[], bool],
        found: Callable[[], None],
    ) -> Iterator[_Job]:
        """Check that a file is nothing but good records up to a size.   found: called if it isn't."""
        course: Course | None = BEGINNING
        at = 0

        def take(result: Course | None) -> None:
            nonlocal course
            course = result
            if is_there() and (course is None or (at == size and not course.is_between)):
                course = None
                found()

        while course is not None and at < size and is_there():
            start, at = at, min(size, at + CHUNK_BYTES)
            then = partial(_followed, course=course, header=header if not start else b"", size=at - start)
            step = Read(path, start, at - start, then, is_fresh=True)
            yield self._reading(step, is_there, take)

    def _check_contents(self, store: MessageStore, file: StoreFile) -> Iterator[_Job]:
        bad = NumberSet()

        def take(numbers: range, result: list[int] | None) -> None:
            for store_id in numbers if result is None else result:
                if store.refers_to(file, store_id):
                    bad.add(range(store_id, store_id + 1))

        next_id = 0
        while file in store.files:
            found = file.check(next_id, CHUNK_BYTES)
            if found is None:
                break
            numbers, step = found
            next_id = numbers.stop
            yield self._reading(step, lambda: file in store.files, partial(take, numbers))
        file.is_damaged = bool(bad)
        if bad:
            store.leave(file.path)
        fresh = bad.minus(self._known)
        if fresh:
            self.figures.findings += 1
            for numbers in fresh:
                self._known.add(numbers)
            yield from self._find_users(file.path, fresh)

    def _find_users(self, path: str, ids: NumberSet) -> Iterator[_Job]:
        """Tell the queues whose messages refer to damaged contents."""
        for index in list(self._indexes()):
            numbers = index.unflushed.with_contents(ids)
            if numbers:
                tell_unreadable(index, numbers, path, 0, UNREADABLE)
            for number, segment in sorted(index.segments.items()):
                if segment.has_stored and segment.live:
                    yield _looking(index, number, path, ids)


def _looking(index: QueueIndex, number: int, path: str, ids: NumberSet) -> _Job:
    """Return a job that finds the messages of a segment with these contents; the segment may be gone by then."""

    def begin(on_end: Callable[[], None]) -> int:
        def scanned(absents: list[Absent]) -> None:
            numbers = [
                range(
                    found.start - absent.store_id + absent.seqs.start,
                    found.stop - absent.store_id + absent.seqs.start,
                )
                for absent in absents
                if absent.store_id
                for found in ids.intersection(range(absent.store_id, absent.store_id + len(absent)))
            ]
            tell_unreadable(index, numbers, path, 0, UNREADABLE)
            on_end()

        segment = index.segments.get(number)
        size = 0 if segment is None else segment.size_bytes
        index.scan(number, 0, NO_LIMIT, scanned)
        return size

    return begin


def _followed(data: bytes, course: Course, header: bytes, size: int) -> Course | None:
    """Return the place up to which the records of a file are good, on the disk's thread; None if they are not.

    header: of the file, if it is to begin here.   size: the bytes that were asked for.
    """
    if len(data) < size or not data.startswith(header):
        return None
    return follow(course, data[len(header) :])


def _nobody(_found: list[Absent]) -> None:
    """Ignore the messages of a scan: the index reports those that cannot be read."""


def _path(file: StoreFile) -> str:
    return file.path
