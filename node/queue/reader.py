"""Reading messages of a live queue by number, wherever they are, without changing it: for the queue's mirrors.

    wanted ─► in memory ─► out with clients ─► on disk: scan of a segment ─► load ─► found, in order

A message that leaves the queue meanwhile may be found or not. One that stays, but changes place just then, may be
missed, as where its run came to memory during the load and a client settled another message of it: the caller asks
again.
Source: reliability §4.5; docs/internals/mirrors.md, "Joining, handing over, giving up".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from typing import Final, Protocol, TypeVar

from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.queue.operations import SEQ_MAX
from node.queue.run import Absent, Run, bytes_of
from node.queue.storage import Page, QueueStorage

UNSETTLED_EVERY_S: Final = 0.1
"""The age in seconds at which the list of clients' messages is made anew: all channels are asked for it."""

UNSETTLED_RUN_S: Final = 0.00005
"""The seconds that are added to this for each run in the list, ten times what it takes to make."""

RUNS_MAX: Final = 512
"""The limit of runs that a read gives: some milliseconds, also where each message is a run of its own."""

SCANNED_MAX: Final = 4
"""The number of segments whose scans are kept, a few megabytes at most each: one for each mirror being synchronised."""

FRAMING_BYTES: Final = 128
"""The bytes that a message on disk is assumed to have beside its body: frames and properties."""

STORED_MIN_BYTES: Final = 4096
"""The least bytes that a content in the message store is assumed to have: `embed_max_bytes`, by default.

Where the body is smaller, the properties are large.
"""


class Level(Protocol):
    """The messages of one priority, as `PagedBacklog` has them."""

    def in_memory(self, first: int) -> Iterator[Run]:
        """Return the runs that have number `first` or a higher one, in order."""

    def on_disk(self, first: int) -> Iterator[Absent | Page]:
        """Return what is on disk with number `first` or a higher one, in order."""


class Levels(Protocol):
    """The ready messages of all priorities."""

    @property
    def levels(self) -> Sequence[Level]:
        """The messages of each priority."""


class Source(Protocol):
    """The queue that is read: a `Queue`."""

    @property
    def backlog(self) -> Levels:
        """The ready messages."""

    @property
    def storage(self) -> QueueStorage:
        """The disk side."""

    @property
    def settings(self) -> QueueSettings:
        """The settings of the queue, of which only `max_priority` matters here."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a read.

    runs: by rising number, each of consecutive ones; the reader's own.
    upto: all wanted numbers below this were looked for; those that aren't among the runs aren't there, or changed
        place just then.
    """

    runs: list[Run]
    upto: int


class QueueReader:
    """Reads from one queue.

    unsettled: returns the runs that left the backlog and are not settled; of any step, and the contents of settled
        messages in them may be None.
    """

    def __init__(self, queue: Source, unsettled: Callable[[], Iterable[Run]]) -> None:
        self._queue = queue
        self._unsettled = unsettled
        self._away: _Away | None = None
        self._scanned: dict[int, list[Absent]] = {}  # by segment, what was asked for last at the end

    def read(
        self, wanted: Sequence[range], max_bytes: int, now: float, done: Callable[[Found], None]
    ) -> None:
        """Find messages; `done` is called now, or later when they come from disk.

        wanted: at least a number; rising, of step 1, apart from each other. All that they name may be in memory twice
            for a while, so they are to be bounded.
        max_bytes: of contents; the first one comes in any case.
        """
        _Read(self, self._queue, list(wanted), max_bytes, now, done).find()

    def rest(self) -> None:
        """Drop what is remembered between reads: nothing is wanted for now."""
        self._away = None
        self._scanned.clear()

    def away(self, now: float) -> "_Away":
        """Return the runs that clients have, or had a moment ago."""
        if self._away is None or now >= self._away.until:
            self._away = _Away(self._unsettled(), now)
        return self._away

    def scanned(self, segment: int) -> list[Absent] | None:
        """Return what was found in a segment, if that is still known."""
        found = self._scanned.pop(segment, None)
        if found is not None:
            self._scanned[segment] = found
        return found

    def keep_scan(self, segment: int, found: list[Absent]) -> None:
        """Remember what was found in a segment, in place of the segment asked for least lately."""
        self._scanned.pop(segment, None)
        while len(self._scanned) >= SCANNED_MAX:
            del self._scanned[next(iter(self._scanned))]
        self._scanned[segment] = found


class _Read:
    """One read under way.

    wanted: the numbers to be found; fewer once it is known that one read can't find all.
    """

    def __init__(
        self,
        reader: QueueReader,
        queue: Source,
        wanted: list[range],
        max_bytes: int,
        now: float,
        done: Callable[[Found], None],
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._wanted = wanted
        self._max_bytes = max_bytes
        self._now = now
        self._done = done
        self._scans: set[int] = set()  # segments

    def find(self) -> None:
        """Look everywhere; again after a scan, as the queue may be another then."""
        first = self._wanted[0].start
        runs = [
            run
            for level in self._queue.backlog.levels
            for run in islice(_parts(level.in_memory(first), self._wanted), RUNS_MAX)
        ]
        if len(runs) >= RUNS_MAX:
            runs = sorted(runs, key=_first)[:RUNS_MAX]
            self._wanted = _below(self._wanted, runs[-1].seqs.stop)
        rest = _without(self._wanted, runs)
        absents: list[Absent] = []
        if rest:
            absents, page = self._on_disk(rest)
            rest = _without(_below(rest, self._wanted[-1].stop), absents)
            if rest:
                away = self._reader.away(self._now)
                self._wanted = _below(self._wanted, away.end_of_read(rest[0].start))
                rest = _below(rest, self._wanted[-1].stop)
                runs += away.parts(rest)
                rest = _without(rest, runs)
            if page is not None and page.segment not in self._scans and _has(rest, page):
                self._scan(page.segment)
                return
            # Numbers that this read leaves to the next one are wanted no longer.
            runs = list(_parts(sorted(runs, key=_first), self._wanted))
            absents = list(_absents(sorted(absents, key=_first), self._wanted))
        self._load(runs, absents)

    # --- on disk ---

    def _on_disk(self, rest: list[range]) -> tuple[list[Absent], Page | None]:
        """Return what stands on disk, as far as it is known; and the page of one segment where more of it may stand.

        Numbers behind that segment are no longer wanted: a read scans one, unless more is paged out meanwhile.
        """
        found: list[Absent] = []
        pages: list[Page] = []
        stop = rest[-1].stop
        for level in self._queue.backlog.levels:
            entries = [*takewhile(lambda entry: _first(entry) < stop, level.on_disk(rest[0].start))]
            found += _absents((entry for entry in entries if isinstance(entry, Absent)), rest)
            pages += [entry for entry in entries if isinstance(entry, Page) and _has(rest, entry)]
        if not pages:
            return found, None
        segment = min(page.segment for page in pages)
        end = (segment + 1) * self._queue.storage.segment_entries
        self._wanted = _below(self._wanted, end)
        pages = [page for page in pages if page.segment == segment]
        known = self._reader.scanned(segment) or []
        for page in pages:
            inside = _between(rest, page.first_seq, page.last_seq + 1)
            found += _absents(self._own(known, page), inside)
        first, last = min(page.first_seq for page in pages), max(page.last_seq for page in pages)
        return found, Page(segment, 0, first, last, 0, 0)

    def _own(self, found: list[Absent], page: Page) -> list[Absent]:
        """Return the entries with the page's priority.

        Segments are append-only, so each entry of the page is still in its file.
        """
        top = self._queue.settings.max_priority
        if top is None:
            return found
        level = min(page.priority, top)
        return [absent for absent in found if min(absent.envelope.priority, top) == level]

    def _scan(self, segment: int) -> None:
        self._scans.add(segment)
        entries = self._queue.storage.segment_entries

        def scanned(found: list[Absent]) -> None:
            self._reader.keep_scan(segment, found)
            self.find()

        self._queue.storage.scan(segment, segment * entries, (segment + 1) * entries - 1, scanned)

    def _load(self, runs: list[Run], absents: list[Absent]) -> None:
        """Load the contents that are on disk, no more than fit, and finish."""
        stop = self._wanted[-1].stop
        chosen, upto = _chosen([*runs, *absents], self._max_bytes, stop)
        here = [part for part in chosen if isinstance(part, Run)]
        there = [part for part in chosen if isinstance(part, Absent)]
        if not there:
            self._done(Found(here, upto))
            return

        def loaded(found: list[Run | None]) -> None:
            # The sizes are known now.
            loaded_runs = (run for run in found if run is not None)
            chosen, end = _chosen([*here, *loaded_runs], self._max_bytes, upto)
            self._done(Found([run for run in chosen if isinstance(run, Run)], end))

        self._queue.storage.load(there, loaded)


class _Away:
    """Runs that left the backlog, to be found by number.   until: the time at which the list is too old to be used."""

    def __init__(self, runs: Iterable[Run], now: float) -> None:
        self._runs = sorted((run for run in runs if run.contents), key=_first)
        self.until = now + UNSETTLED_EVERY_S + len(self._runs) * UNSETTLED_RUN_S
        self._starts = list(map(_first, self._runs))
        # The highest number so far: before the first run where it reaches a number, no run has it.
        self._highest = list(accumulate((run.seqs[-1] for run in self._runs), max))

    def end_of_read(self, first: int) -> int:
        """Return an end for a read from `first` on, above which it should not look here, to find not too many runs."""
        index = bisect_left(self._highest, first) + RUNS_MAX
        if index >= len(self._starts):
            return SEQ_MAX
        return max(self._starts[index], first + RUNS_MAX)

    def parts(self, wanted: Sequence[range]) -> list[Run]:
        """Return the parts of the runs that have these numbers."""
        low = bisect_left(self._highest, wanted[0].start)
        high = bisect_left(self._starts, wanted[-1].stop)
        found: list[Run] = []
        for run in self._runs[low:high]:
            at = bisect_right(wanted, run.seqs[0], key=_stop)
            while at < len(wanted) and wanted[at].start <= run.seqs[-1]:
                found += _open(run, wanted[at])
                at += 1
        return found


def _open(run: Run, part: range) -> Iterator[Run]:
    """Yield the messages of a run with these numbers that have contents, in runs of consecutive ones."""
    start, step = run.seqs.start, run.seqs.step
    low = max(0, -((start - part.start) // step))
    high = min(len(run), -((start - part.stop) // step))
    contents = run.contents[low:high]
    if step == 1 and None not in contents:
        if contents:
            yield _piece(run, low, high)
        return
    at = low
    while at < high:
        if run.contents[at] is None:
            at += 1
            continue
        end = at + 1
        while step == 1 and end < high and run.contents[end] is not None:
            end += 1
        yield _piece(run, at, end)
        at = end


def _piece(run: Run, start: int, stop: int) -> Run:
    piece = run[start:stop]
    if len(piece) == 1:
        # Of step 1, where its end is what comes after it.
        piece.seqs = range(piece.seqs.start, piece.seqs.start + 1)
        piece.size = bytes_of(piece.contents, piece.size)
    return piece


# --- parts and numbers ------------------------------------------------------------------------------------


_Part = TypeVar("_Part", Run, Absent)


def _first(part: Run | Absent | Page) -> int:
    return part.first_seq if isinstance(part, Page) else part.seqs.start


def _stop(part: range) -> int:
    return part.stop


def _overlaps(parts: Iterable[_Part], wanted: Sequence[range]) -> Iterator[tuple[_Part, int, int]]:
    """Yield where parts have wanted numbers: the part, the first and the one behind the last index.

    parts: rising, of consecutive numbers.   wanted: rising.
    """
    at = 0
    for part in parts:
        start = part.seqs.start
        stop = start + len(part)
        while at < len(wanted) and wanted[at].stop <= start:
            at += 1
        if at == len(wanted):
            return
        index = at
        while index < len(wanted) and wanted[index].start < stop:
            low, high = max(start, wanted[index].start), min(stop, wanted[index].stop)
            yield part, low - start, high - start
            index += 1


def _parts(runs: Iterable[Run], wanted: Sequence[range]) -> Iterator[Run]:
    return (_piece(run, low, high) for run, low, high in _overlaps(runs, wanted))


def _absents(absents: Iterable[Absent], wanted: Sequence[range]) -> Iterator[Absent]:
    return (_absent_piece(absent, low, high) for absent, low, high in _overlaps(absents, wanted))


def _absent_piece(absent: Absent, start: int, stop: int) -> Absent:
    """Return some messages of an absent run; where bodies are of several sizes their bytes are an estimate."""
    if absent.size != MIXED_SIZES or stop - start == len(absent):
        return absent[start:stop] if stop - start < len(absent) else absent
    assert absent.place is not None, "what stands in the message store has one size"
    return Absent(
        absent.envelope,
        absent.seqs[start:stop],
        MIXED_SIZES,
        absent.body_bytes * (stop - start) // len(absent),
        absent.expiry,
        absent.deliveries,
        0,
        absent.place._replace(skipped=absent.place.skipped + start),
    )


def _without(wanted: Sequence[range], parts: Sequence[Run | Absent]) -> list[range]:
    """Return the wanted numbers that no part has."""
    if not parts:
        return list(wanted)
    left: list[range] = []
    taken = sorted((part.seqs.start, part.seqs.start + len(part)) for part in parts)
    index = 0
    for each in wanted:
        at = each.start
        while index < len(taken) and taken[index][0] < each.stop:
            low, high = taken[index]
            if low > at:
                left.append(range(at, low))
            at = max(at, high)
            if high > each.stop:
                break
            index += 1
        if at < each.stop:
            left.append(range(at, each.stop))
    return left


def _below(wanted: Sequence[range], end: int) -> list[range]:
    return [part if part.stop <= end else range(part.start, end) for part in wanted if part.start < end]


def _between(wanted: Sequence[range], start: int, end: int) -> list[range]:
    parts = [range(max(part.start, start), min(part.stop, end)) for part in wanted]
    return [part for part in parts if part]


def _has(wanted: Sequence[range], page: Page) -> bool:
    """True if some of these numbers are among those of the page."""
    at = bisect_right(wanted, page.first_seq, key=_stop)
    return at < len(wanted) and wanted[at].start <= page.last_seq


# --- bytes ------------------------------------------------------------------------------------------------


def _chosen(parts: Iterable[Run | Absent], max_bytes: int, upto: int) -> tuple[list[Run | Absent], int]:
    """Return the first parts, by number, that fit; and the number below which nothing is left out, at most `upto`."""
    chosen: list[Run | Absent] = []
    room = max_bytes
    for part in sorted(parts, key=_first):
        if len(chosen) == RUNS_MAX:
            return chosen, part.seqs.start
        fitting, used = _fitting(part, room) if isinstance(part, Run) else _absent_fitting(part, room)
        if not chosen:
            fitting = max(fitting, 1)
        room -= used
        if fitting >= len(part):
            chosen.append(part)
        else:
            if fitting:
                chosen.append(part[:fitting] if isinstance(part, Run) else _absent_piece(part, 0, fitting))
            return chosen, part.seqs.start + fitting
    return chosen, upto


def _fitting(run: Run, room: int) -> tuple[int, int]:
    """Return how many messages of a run fit, and how many bytes all of them take."""
    whole = sum(map(len, run.contents))
    if whole <= room:
        return len(run), whole
    return bisect_right(list(accumulate(map(len, run.contents))), room), whole


def _absent_fitting(absent: Absent, room: int) -> tuple[int, int]:
    """Return how many messages of an absent run fit, and how many bytes all of them take, about."""
    count = len(absent)
    each = absent.body_bytes // count + FRAMING_BYTES
    if absent.place is None:
        each = max(each, STORED_MIN_BYTES)
    return min(count, max(0, room) // each), count * each
