"""The ready messages of a queue, in five sub-queues between memory and disk.

    newest ─► q1 ─► q2 ─► delta ─► q3 ─► q4 ─► oldest, next to go out
              runs  absent  pages  absent  runs

A message is *alpha* in q1 and q4 (all of it in memory), *beta* or *gamma* in q2 and q3 (its contents on disk
only), *delta* between them (known by number only, a `Page` for each segment). As long as memory suffices there
is q4 and nothing else. Paging takes from q1 first, then from the tail of q4; large persistent contents stand in
the message store already, so those messages pass through q2 and cost no writing. Near the head, pages are
scanned and contents loaded before consumers need them.

Messages that have ever been taken stay in memory when they come back: every number on disk is above all that were
taken, so a segment never holds both ready messages and a client's, within one priority.
Source: amqp-behaviour §7.3; docs/internals/disk.md, "Paging".
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from node.amqp.reader import MIXED_SIZES
from node.queue.backlog import Backlog
from node.queue.holdings import Holdings
from node.queue.number_set import NumberSet
from node.queue.pages import pages_of
from node.queue.run import Absent, Run
from node.queue.storage import Page, QueueStorage
from node.queue.waiting import WaitingOwner, without_known

AHEAD_BYTES: Final = 2 * 1024 * 1024
"""The bytes of bodies read ahead of consumers: some milliseconds of the fastest of them; a read takes less than one."""

MESSAGE_BYTES: Final = 100
"""The bytes that a message in memory costs beside its body, about: frames, Python's object, its place in lists."""

ABSENT_MAX: Final = 1024
"""The entries of q2 above which they become delta: a few hundred kilobytes."""

KEPT_BYTES: Final = 256 * 1024
"""The bytes of bodies that paging leaves in q4, so that a new consumer is served at once."""

_NO_RUNS: Final = Backlog()
_NO_ENTRIES: Final[deque[Absent]] = deque()
_NO_PAGES: Final[deque[Page]] = deque()
"""Empty sub-queues that all queues share that have never paged. Nothing is ever put into them."""


class PagedBacklog:
    """The ready messages of one priority.

    storage: of the queue.   priority: the one whose messages these are, after capping; None: of all.
    cap: gives an envelope's priority in this queue.
    on_loaded: called when messages came from disk, or were found to be gone.
    owner: of those that wait to be ready again; None: there are none.
    """

    __slots__ = (
        "_asked",
        "_cap",
        "_delta",
        "_disk_bytes",
        "_disk_count",
        "_is_asking",
        "_is_lazy",
        "_on_loaded",
        "_owner",
        "_q1",
        "_q2",
        "_q3",
        "_q4",
        "_redelivered_below",
        "_storage",
        "_taken_to",
        "is_paged",
        "priority",
        "tail",
    )

    def __init__(
        self,
        storage: QueueStorage,
        on_loaded: Callable[[], None],
        priority: int | None = None,
        cap: Callable[[int], int] = lambda priority: priority,
        owner: WaitingOwner | None = None,
    ) -> None:
        self._storage = storage
        self._on_loaded = on_loaded
        self.priority = priority
        self._cap = cap
        self._owner = owner
        self._q1 = _NO_RUNS
        self._q2 = _NO_ENTRIES
        self._delta = _NO_PAGES
        self._q3 = _NO_ENTRIES
        self._q4 = Backlog()
        self._disk_count = self._disk_bytes = 0  # of q2, delta and q3
        self._is_lazy = False
        self._find_tail()
        self._taken_to = 0  # the highest number that ever left
        self._redelivered_below = 0
        self._asked = 0  # rises when a pending answer of the disk no longer counts
        self._is_asking = False

    def _begin_paging(self) -> None:
        """Give the backlog sub-queues of its own: most queues never need them, and a few hundred bytes each add up."""
        if self._delta is _NO_PAGES:
            self._q1, self._q2, self._delta, self._q3 = Backlog(), deque(), deque(), deque()

    def set_lazy(self, is_lazy: bool) -> None:
        """Set whether new messages are to leave memory at once, with `page_new`, as in a lazy queue."""
        self._is_lazy = is_lazy
        self._begin_paging()
        if is_lazy and not self._is_asking:
            self._page_q4(self.memory_bytes, 0)
        self._find_tail()

    def _find_tail(self) -> None:
        is_paged = self._is_lazy or bool(self._q1.count or self._disk_count)
        self.is_paged = is_paged
        """True if there may be messages outside q4."""
        self.tail = self._q1 if is_paged else self._q4
        """The sub-queue to whose end a queue appends new messages, without another call for each run."""

    # --- figures ---

    @property
    def count(self) -> int:
        """The number of ready messages."""
        return self._q1.count + self._disk_count + self._q4.count

    @property
    def at_hand(self) -> int:
        """The number of messages that can be taken now."""
        return self._q4.count

    @property
    def mean_bytes(self) -> int:
        """The mean size in bytes of the bodies at hand, of which there must be some."""
        return self._q4.body_bytes // self._q4.count

    @property
    def body_bytes(self) -> int:
        """The number of bytes of all bodies."""
        return self._q1.body_bytes + self._disk_bytes + self._q4.body_bytes

    @property
    def memory_bytes(self) -> int:
        """The bytes that the messages in memory cost, about."""
        return _memory_bytes(self._q1) + _memory_bytes(self._q4)

    def lengths(self) -> dict[str, int]:
        """Return the number of messages of each sub-queue, by its name."""
        return {
            "q1": self._q1.count,
            "q2": sum(map(len, self._q2)),
            "delta": sum(page.count for page in self._delta),
            "q3": sum(map(len, self._q3)),
            "q4": self._q4.count,
        }

    # --- in and out ---

    def take(self, limit: int) -> Run:
        """Remove and return up to `limit` (at least 1) messages at hand; fewer where they don't share a run."""
        run = self._q4.take(limit)
        last = run.seqs[-1]
        if last > self._taken_to:
            self._taken_to = last
        return run

    def take_runs(self, limit: int) -> list[Run]:
        """Remove and return runs at hand, as `Backlog.take_runs`."""
        runs = self._q4.take_runs(limit)
        self._taken_to = max(self._taken_to, runs[-1].seqs[-1])
        return runs

    def take_number(self, number: int, limit: int = 1) -> Run | None:
        """Remove and return messages at hand from this number on, as `Backlog.take_number`."""
        run = self._q4.take_number(number, limit)
        self._taken_to = self._taken_to if run is None else max(self._taken_to, run.seqs[-1])
        return run

    @property
    def near(self) -> Backlog:
        """The messages at hand, q4. The object stays the same."""
        return self._q4

    def put_back(self, run: Run) -> None:
        """Return messages to their place among the others."""
        self._q4.put_back(run)

    @property
    def head_expiry(self) -> float:
        """The time at which the message at the head expires; `NEVER` if there is none, or it is still on disk."""
        return self._q4.head_expiry

    def clear(self, on_gone: Callable[[range], None] | None = None) -> int:
        """Drop all messages and have the storage forget them; return how many there were.

        on_gone: called with their numbers, and some that are no messages of this queue (any more); later for messages
            whose priority only the disk knows.
        """
        count = self.count
        for run in chain(self._q1, self._q4):
            if run.is_indexed:
                self._storage.forget(run.seqs, run.store_id)
        for absent in chain(self._q2, self._q3):
            self._storage.forget(absent.seqs, absent.store_id)
        for page in self._delta:
            self._forget_page(page, on_gone)
        if on_gone is not None:
            for seqs in self.ready_ranges():
                on_gone(seqs)
        self.abandon()
        return count

    def _forget_page(self, page: Page, on_gone: Callable[[range], None] | None) -> None:
        if self.priority is None:
            self._storage.clear(page.first_seq, page.last_seq)
            return

        def forget(found: list[Absent]) -> None:
            for absent in self._own(found):
                self._storage.forget(absent.seqs, absent.store_id)
                if on_gone is not None:
                    on_gone(absent.seqs)

        # Other priorities have messages between these.
        self._storage.scan(page.segment, page.first_seq, page.last_seq, forget)

    def abandon(self) -> None:
        """Let go of all messages without telling the storage, which knows what became of them."""
        for part in (self._q1, self._q2, self._delta, self._q3, self._q4):
            part.clear()
        self._disk_count = self._disk_bytes = 0
        self._find_tail()
        self._is_asking = False
        self._asked += 1  # answers to come are to something that is gone

    def close(self) -> None:
        """Let go of all messages, and of the queue, which is gone, so that no cycle keeps it in memory."""
        self.abandon()
        self._on_loaded, self._owner = nobody, None

    def delivered_before(self) -> Iterable[Run]:
        """Return the runs in memory that came back from a client."""
        return [run for run in chain(self._q4, self._q1) if run.deliveries]

    # --- a queue that moves to another node, or comes from there ---

    @property
    def levels(self) -> "Sequence[PagedBacklog]":
        """The backlogs of each priority; here there is only this one."""
        return (self,)

    def add(self, run: Run) -> None:
        """Add a run whose numbers are above all others."""
        if run.envelope.waits and self._owner is not None:
            self._owner.take_waiting(run)
            return
        (self._q1 if self.is_paged else self._q4).add(run)

    def redelivered_below(self, number: int) -> None:
        """Count all messages with lower numbers as delivered before, also those that are on disk."""
        self._redelivered_below = number

    def in_memory(self, first: int) -> Iterator[Run]:
        """Return the runs with number `first` or a higher one, in order. Nothing may change until the last is taken."""
        return chain(self._q4.runs_from(first), self._q1.runs_from(first))

    def on_disk(self, first: int) -> Iterator[Absent | Page]:
        """Yield the entries on disk with number `first` or a higher one, in order. Nothing may change meanwhile."""
        for absent in self._q3:
            if absent.seqs.stop > first:
                yield absent
        for page in self._delta:
            if page.last_seq >= first:
                yield page
        for absent in self._q2:
            if absent.seqs.stop > first:
                yield absent

    def ready_ranges(self) -> list[range]:
        """Return the numbers of all messages, in no order, and some that are no messages of this queue (any more).

        With priorities, messages whose priority only the disk knows are left out.
        """
        entries: Iterable[Run | Absent] = chain(self._q4, self._q1, self._q3, self._q2)
        found = [entry.seqs for entry in entries]
        if self.priority is None:
            found += [page.numbers for page in self._delta]
        return found

    def hand_over(self) -> Holdings:
        """Let go of all messages, which the storage still has, and return what they were."""
        had = Holdings([*self._q4, *self._q1], [*self._q3, *self._q2], list(self._delta))
        self.abandon()
        return had

    # --- from disk ---

    def restore(self, pages: Iterable[Page]) -> None:
        """Begin with the messages that a recovery found, in order."""
        self._begin_paging()
        for page in pages:
            self._extend_delta(page)
            self._disk_count += page.count
            self._disk_bytes += page.body_bytes
        self._find_tail()

    @property
    def is_short(self) -> bool:
        """True if `refill` has something to do: there is little in q4, more elsewhere, and nothing on its way."""
        has_more = self._q1.count > 0 or self._disk_count > 0
        return has_more and not self._is_asking and _memory_bytes(self._q4) < AHEAD_BYTES

    def refill(self) -> None:
        """Fetch messages if there is little at hand; `on_loaded` is called when they come from disk."""
        if not self.is_short:
            return
        if not self._q3 and not self._delta:
            self._q3, self._q2 = self._q2, self._q3
        if self._q3:
            self._load()
        elif self._delta:
            self._scan(self._delta[0])
        else:
            self._take_over_q1()

    def _take_over_q1(self) -> None:
        """Move q1 behind q4, as nothing is on disk. Of a lazy queue only so much is moved as consumers need."""
        while self._q1.count and not (self._is_lazy and _memory_bytes(self._q4) >= AHEAD_BYTES):
            self._q4.add(self._q1.take(self._q1.count))
        self._find_tail()

    def _load(self) -> None:
        """Fetch contents of the first messages of q3."""
        wanted: list[Absent] = []
        room = AHEAD_BYTES
        while self._q3 and room > 0:
            absent = self._q3.popleft()
            if absent.size != MIXED_SIZES:
                fitting = max(room // (absent.size + MESSAGE_BYTES), 1)
                if fitting < len(absent):
                    self._q3.appendleft(absent[fitting:])
                    absent = absent[:fitting]
            room -= absent.body_bytes + len(absent) * MESSAGE_BYTES
            wanted.append(absent)
        # They stay in q3 until they are here, so that they are counted, and forgotten with the others.
        self._q3.extendleft(reversed(wanted))
        asked = self._ask()

        def loaded(runs: list[Run | None]) -> None:
            if asked != self._asked or (None in runs and self._waits(absent.seqs for absent in wanted)):
                return
            for absent, run in zip(wanted, runs, strict=True):
                first = self._q3.popleft()
                assert first is absent, "q3 changed under a load"
                self._disk_count -= len(absent)
                self._disk_bytes -= absent.body_bytes
                if run is None:
                    self._storage.forget(absent.seqs, absent.store_id)
                else:
                    self._add_loaded(run)
            self._answered()

        self._storage.load(wanted, loaded)

    def _add_loaded(self, run: Run) -> None:
        if run.envelope.waits and self._owner is not None:
            self._owner.take_waiting(run)
            return
        below = self._redelivered_below - run.seqs.start
        if below > 0 and not run.deliveries:
            if below < len(run):
                before, run = run[:below], run[below:]
                before.deliveries = 1
                self._q4.add(before)
            else:
                run.deliveries = 1
        self._q4.add(run)

    def _scan(self, page: Page) -> None:
        """Read the first page of delta and make it the entries of q3."""
        asked = self._ask()

        def scanned(found: list[Absent]) -> None:
            if asked != self._asked or self._waits([page.numbers]):
                return
            own = self._own(found)
            self._q3.extend(own)
            # Messages that the disk has lost no longer count.
            self._disk_count += sum(map(len, own)) - page.count
            self._disk_bytes += sum(absent.body_bytes for absent in own) - page.body_bytes
            first = self._delta.popleft()
            if first.last_seq > page.last_seq:  # more of the segment was paged out meanwhile
                rest = replace(
                    first,
                    first_seq=page.last_seq + 1,
                    count=first.count - page.count,
                    body_bytes=first.body_bytes - page.body_bytes,
                )
                self._delta.appendleft(rest)
            self._answered()

        self._storage.scan(page.segment, page.first_seq, page.last_seq, scanned)

    def _own(self, found: list[Absent]) -> list[Absent]:
        if self.priority is not None:
            found = [absent for absent in found if self._cap(absent.envelope.priority) == self.priority]
        if any(absent.envelope.waits for absent in found):
            found = without_known(found, self._owner)
        return found

    def _waits(self, seqs: Iterable[range]) -> bool:
        """True if some of these are unreadable and it is not decided yet what becomes of them.

        `go_on` follows, or the queue moves to a node that can read them.
        """
        unreadable = self._storage.unreadable
        return unreadable is not None and any(map(unreadable.intersection, seqs))

    def go_on(self, lost: NumberSet) -> None:
        """Do not count given-up unreadable messages any more, and fetch the rest if a fetch was under way.
        lost: their numbers, not to be changed. Those in delta count until the disk has answered.
        """
        for part in (self._q3, self._q2):
            entries = list(part)
            part.clear()
            for absent in entries:
                part.extend(self._without(absent, lost))
        self._ask_again()
        self._recount(lost, 0)

    def _ask_again(self) -> None:
        if self._is_asking:
            self._asked += 1  # the pending answer is to an earlier state
            self._answered()

    def _recount(self, lost: NumberSet, first: int) -> None:
        """Correct the pages of delta that had lost messages from number `first` on, one after the other.

        Only the disk knows what is left: how large it is, and with priorities, which priority it has.
        """
        pages = (page for page in self._delta if page.last_seq >= first)
        page = next((page for page in pages if lost.intersection(page.numbers)), None)
        if page is None:
            return

        def scanned(found: list[Absent]) -> None:
            at = next((at for at, each in enumerate(self._delta) if each is page), None)
            if at is None:  # it has grown, or gone
                self._recount(lost, first)
                return
            if not self._waits([page.numbers]):
                self._correct(at, self._own(found))
            self._recount(lost, page.last_seq + 1)

        self._storage.scan(page.segment, page.first_seq, page.last_seq, scanned)

    def _correct(self, at: int, own: list[Absent]) -> None:
        """Correct count and bytes of a page of delta.   own: the messages that the disk has found for it."""
        page = self._delta[at]
        count, body_bytes = sum(map(len, own)), sum(absent.body_bytes for absent in own)
        if count == page.count:
            return
        self._disk_count += count - page.count
        self._disk_bytes += body_bytes - page.body_bytes
        if count:
            self._delta[at] = replace(page, count=count, body_bytes=body_bytes)
        else:
            del self._delta[at]
        self._ask_again()

    def _without(self, absent: Absent, lost: NumberSet) -> list[Absent]:
        gone = lost.intersection(absent.seqs)
        if not gone:
            return [absent]
        first = absent.seqs.start
        left: list[Absent] = []
        if absent.size != MIXED_SIZES:  # else all of it stands in one record
            kept = NumberSet([absent.seqs]).minus(NumberSet(gone))
            left = [absent[seqs.start - first : seqs.stop - first] for seqs in kept]
        self._disk_count -= len(absent) - sum(map(len, left))
        self._disk_bytes -= absent.body_bytes - sum(each.body_bytes for each in left)
        return left

    def _ask(self) -> int:
        self._asked += 1
        self._is_asking = True
        return self._asked

    def _answered(self) -> None:
        self._is_asking = False
        self.refill()
        self._on_loaded()

    # --- to disk ---

    def page_new(self) -> bool:
        """Take the newest messages out of memory: for lazy queues. Returns: True if there were any."""
        had_new = self._q1.count > 0
        if had_new:
            self._page_q1(self.memory_bytes)
        return had_new

    def page_out(self, limit_bytes: int, keep_bytes: int = KEPT_BYTES) -> int:
        """Take messages out of memory, the newest first; return how many bytes of memory that was.

        limit_bytes: stop when that much is out.   keep_bytes: of bodies at the head, which stay.
        """
        before = self.memory_bytes
        if self._q1.count:
            self._page_q1(limit_bytes)
        freed = before - self.memory_bytes
        if not self._q1.count and not self._is_asking and freed < limit_bytes:
            self._page_q4(limit_bytes - freed, keep_bytes)
        return before - self.memory_bytes

    def _page_q1(self, limit_bytes: int) -> None:
        leaving: list[Run] = []
        while self._q1.count and limit_bytes > 0:
            run = self._q1.take(self._q1.count)
            leaving.append(run)
            limit_bytes -= run.body_bytes + len(run) * MESSAGE_BYTES
        self._note_deliveries(leaving)
        self._count_paged(leaving)
        behind: list[Run | Absent] = []
        for run in leaving:
            if run.store_id and run.is_indexed and run.size != MIXED_SIZES and not behind:
                self._q2.append(run.without_contents())
                if len(self._q2) <= ABSENT_MAX:
                    continue
            else:
                behind.append(run)
            if self._q2:
                behind[:0] = self._q2
                self._q2.clear()
        if behind:
            self._storage.page_out(behind)
        for entry in behind:
            for page in pages_of(entry, self.priority, self._storage.segment_entries):
                self._extend_delta(page)

    def _page_q4(self, limit_bytes: int, keep_bytes: int) -> None:
        self._begin_paging()
        leaving: deque[Run] = deque()
        while limit_bytes > 0 and self._q4.body_bytes > keep_bytes:
            run = self._q4.take_tail(self._taken_to, keep_bytes)
            if run is None:
                break
            leaving.appendleft(run)
            limit_bytes -= run.body_bytes + len(run) * MESSAGE_BYTES
        if not leaving:
            return
        # The entries of q3 stand between q4 and delta, so they go first; they are in segments.
        self._to_front(list(self._q3))
        self._q3.clear()
        self._storage.page_out(list(leaving))
        self._note_deliveries(leaving)
        self._count_paged(leaving)
        self._to_front(list(leaving))
        self._find_tail()

    def _note_deliveries(self, runs: Iterable[Run]) -> None:
        # Messages that were taken here never leave memory, so these were delivered by the queue's former master.
        for run in runs:
            if run.is_indexed and run.deliveries > 1:
                self._storage.delivered(run.seqs, run.deliveries)

    def _count_paged(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._disk_count += len(run)
            self._disk_bytes += run.body_bytes

    def _to_front(self, runs: Sequence[Run | Absent]) -> None:
        """Put runs that stand directly before delta at its front."""
        for run in reversed(runs):
            for page in reversed(pages_of(run, self.priority, self._storage.segment_entries)):
                if self._delta and self._delta[0].segment == page.segment:
                    self._delta[0] = page.joined(self._delta[0])
                else:
                    self._delta.appendleft(page)

    def _extend_delta(self, page: Page) -> None:
        if self._delta and self._delta[-1].segment == page.segment:
            self._delta[-1] = self._delta[-1].joined(page)
        else:
            self._delta.append(page)


def nobody() -> None:
    """Ignore loaded messages: their queue is gone."""


def _memory_bytes(part: Backlog) -> int:
    return part.body_bytes + part.count * MESSAGE_BYTES
