"""A mirror's copy of a queue: its messages by number, in memory and on disk, until a promotion makes a queue of them.

A copy knows nothing of deliveries: no order, no consumers, no message that is out with a client. Runs
stay whole, so what the master says costs per run. Persistent messages of a durable queue are kept as a queue keeps
them. Where memory is short the oldest leave it: all that is in memory has higher numbers than all that is on disk only.

    enqueue, install ─► runs in memory ─ page_out ─► paged: known by number
                             └────────────┬─────────────┘
                          fill: a backlog, to be delivered again

Messages that the master has and a late copy lacks are *missing*. They are known by their numbers,
not by their count: a message that is requeued at the master keeps its number, and is still missing.
Source: reliability §4.5, §4.6; docs/internals/disk.md, "Paging".
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

from cluster.errors import Malformed
from cluster.mirror.paged_messages import PagedMessages
from node.amqp.reader import MIXED_SIZES
from node.catalogue.records import QueueRecord
from node.queue.backlog import RUN_MAX
from node.queue.delay_backlog import DelayBacklog
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue, expiry_of
from node.queue.paged_backlog import MESSAGE_BYTES, PagedBacklog
from node.queue.pieces import by_place
from node.queue.priority_backlog import PriorityBacklog
from node.queue.queue import Queue
from node.queue.run import Absent, Batch, Run, bytes_of
from node.queue.storage import NO_STORE_ID, Page, QueueStorage

MESSAGES_MAX: Final = 1 << 32
"""The most messages in one queue: so many would take some hundred megabytes for their numbers alone."""

_TOMBSTONES_MAX: Final = 1024
"""The number of empty parts at which the list of parts is rebuilt without them: so many that rebuilding is rare."""


class _Part:
    """A run in memory. Its contents are blank where they are gone.   live: how many are not."""

    __slots__ = ("live", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.live = len(run.contents)


class Copy:
    """A copy of a queue.

    storage: its disk side on this node.   place: see `Storage.place`.   epoch: gives `Storage.epoch_s`.
    embed_max_bytes: contents of at least this size go to the message store.

    held: the numbers of all messages that are here.   next_seq: above all that ever were in the queue.
    missing: the numbers of those that the master has and this copy lacks; None until the master has sent its inventory.
    """

    def __init__(
        self,
        record: QueueRecord,
        storage: QueueStorage,
        place: Callable[[list[bytes], bool], int],
        epoch: Callable[[], float],
        embed_max_bytes: int,
    ) -> None:
        self.is_durable = record.durable and record.exclusive_owner is None
        """True if persistent messages in it survive a restart of the node."""
        self.held = NumberSet()
        self.next_seq = 1
        self.missing: NumberSet | None = None
        self._storage = storage
        self._place = place
        self._epoch = epoch
        self._master_epoch_s: float | None = None
        self._embed_max_bytes = embed_max_bytes
        self._parts: list[_Part] = []  # by number; those before _head are gone
        self._head = 0
        self._count = 0  # in memory
        self._body_bytes = 0
        self._paged = PagedMessages(storage)
        self._is_filling = False

    # --- what the master does ---

    def enqueue(self, entry: Enqueue) -> None:
        """Add new messages, with their contents embedded. Raises: Malformed."""
        if entry.first_seq < self.next_seq:
            raise Malformed(f"message {entry.first_seq} comes when {self.next_seq} is the next")
        seqs = entry.seqs
        self.next_seq = seqs.stop
        self.held.add(seqs)
        self._take_in(entry)

    def hear_clock(self, at_ms: int, now: float) -> None:
        """Note the time of the master's node, to which expiry times refer.   now: the same moment on this node's
        clock.
        """
        self._master_epoch_s = at_ms / 1000 - now

    @property
    def epoch_s(self) -> float:
        """The difference between the time to which expiry times refer and this node's clock, in seconds, as `install`
        takes it.
        """
        return self._epoch() if self._master_epoch_s is None else self._master_epoch_s

    def remove(self, ranges: Iterable[range]) -> None:
        """Remove messages that are settled. Those that this copy lacked are no longer missing."""
        missing, held = self.missing, self.held
        for numbers in ranges:
            if missing:
                missing.discard(numbers)
            found = held.intersection(numbers)
            if found:
                held.discard(numbers)
                for seqs in found:
                    self._drop(seqs)

    def delivered(self, ranges: Iterable[range], count: int) -> None:
        """Note how often messages have come back from clients."""
        for numbers in ranges:
            for seqs in self.held.intersection(numbers):
                paged = range(seqs.start, min(seqs.stop, self._paged.stop))
                if paged:
                    self._storage.delivered(paged, count)
                in_memory = range(max(seqs.start, self._paged.stop), seqs.stop)
                if in_memory:
                    self._cut_at(in_memory.stop)
                    for index in range(self._cut_at(in_memory.start), len(self._parts)):
                        part = self._parts[index]
                        if part.run.seqs.start >= in_memory.stop:
                            break
                        part.run.deliveries = count

    # --- what is missing ---

    def take_inventory(self, ids: Sequence[range], next_seq: int) -> None:
        """Take the inventory: forget all other messages, and owe those that are not here.

        next_seq: above all that ever were in the queue.   Raises: Malformed.
        """
        if sum(map(len, ids)) > MESSAGES_MAX:
            raise Malformed("more messages than a queue may have")
        there = NumberSet(ids)
        self.remove(self.held.minus(there).ranges())
        self.missing = there.minus(self.held)
        self.next_seq = max(self.next_seq, next_seq, there.stop)

    def install(self, entries: Iterable[Enqueue]) -> None:
        """Store those missing messages that the master had before this copy began. Their contents are embedded."""
        if not self.missing:
            return
        for entry in entries:
            for seqs in self.missing.intersection(entry.seqs):
                self.missing.discard(seqs)
                self.held.add(seqs)
                first = seqs.start - entry.first_seq
                self._take_in(entry if len(seqs) == entry.count else entry[first : first + len(seqs)])
        if self._count and self._oldest < self._paged.stop:
            # Newer ones have left memory already.
            self._page_out_below(self._paged.stop)

    # --- in memory ---

    @property
    def memory_bytes(self) -> int:
        """The bytes that the messages in memory cost, about."""
        return self._body_bytes + self._count * MESSAGE_BYTES

    @property
    def _oldest(self) -> int:
        self._tidy()
        return self._parts[self._head].run.seqs.start

    def _take_in(self, entry: Enqueue) -> None:
        assert len(entry.contents) == entry.count, "contents are embedded"
        envelope, first, embed_max_bytes = entry.envelope, entry.first_seq, self._embed_max_bytes
        expiry = expiry_of(entry.expires_at_ms, self.epoch_s)
        is_kept = self.is_durable and envelope.persistent
        for contents in by_place(entry.contents, entry.size, embed_max_bytes):
            is_large = len(contents[0]) >= embed_max_bytes
            store_id = self._place(contents, is_kept) if is_large else NO_STORE_ID
            if is_kept:
                self._storage.keep(Batch(envelope, contents, entry.size, store_id), first, expiry)
            seqs = range(first, first + len(contents))
            self._put(Run(envelope, seqs, contents, entry.size, expiry, entry.deliveries, store_id, is_kept))
            first = seqs.stop

    def _put(self, run: Run) -> None:
        """Put a run in its place.   run: the list of its contents may be the caller's, so it is copied."""
        parts, start, count = self._parts, run.seqs.start, len(run.contents)
        self._count += count
        self._body_bytes += run.body_bytes
        at = len(parts)
        if at > self._head and start < parts[-1].run.seqs.start:
            at = bisect_left(parts, start, lo=self._head, key=_first_seq)
        if at > self._head and _continues(parts[at - 1], run):
            part = parts[at - 1]
            before = part.run
            before.contents += run.contents
            before.seqs = range(before.seqs.start, run.seqs.stop)
            if before.size != run.size:
                before.size = MIXED_SIZES
            part.live += count
        else:
            run.contents = run.contents.copy()
            parts.insert(at, _Part(run))

    def _drop(self, seqs: range) -> None:
        """Drop consecutive messages, all of which are here, and have the storage forget them."""
        bound = self._paged.stop
        if seqs.start < bound:
            self._paged.forget(range(seqs.start, min(seqs.stop, bound)))
            if seqs.stop <= bound:
                return
            seqs = range(bound, seqs.stop)
        index = self._index(seqs.start)
        start, stop = seqs.start, seqs.stop
        while start < stop:
            part = self._parts[index]
            behind = min(stop, part.run.seqs.stop)
            self._drop_of(part, range(start, behind))
            start = behind
            index += 1
        self._tidy()

    def _drop_of(self, part: _Part, seqs: range) -> None:
        run, count = part.run, len(seqs)
        low = seqs.start - run.seqs.start
        if run.is_indexed:
            self._storage.forget(seqs, run.store_id + low if run.store_id else NO_STORE_ID)
        at = slice(low, low + count)
        if run.size != MIXED_SIZES:
            self._body_bytes -= run.size * count
        else:
            self._body_bytes -= bytes_of(run.contents[at], MIXED_SIZES)
        self._count -= count
        part.live -= count
        if part.live:
            run.contents[at] = [b""] * count
        else:
            run.contents = []

    def _index(self, number: int) -> int:
        """Return the index of the part in memory that has this number."""
        parts, head = self._parts, self._head
        if head < len(parts) and number in parts[head].run.seqs:
            return head  # it mostly is the oldest that goes
        index = bisect_right(parts, number, lo=head, key=_first_seq) - 1
        assert number in parts[index].run.seqs, "held messages are in memory or on disk"
        return index

    def _cut_at(self, number: int) -> int:
        """Return the index of the first part from a number on; a part with the number inside is cut there."""
        parts = self._parts
        index = bisect_left(parts, number, lo=self._head, key=_first_seq)
        if index > self._head and parts[index - 1].live and number < parts[index - 1].run.seqs.stop:
            run = parts[index - 1].run
            cut = number - run.seqs.start
            pieces = [_Part(run[:cut]), _Part(run[cut:])]
            for piece in pieces:
                piece.live = sum(map(len, self.held.intersection(piece.run.seqs)))
            parts[index - 1 : index] = pieces
        return index

    def _runs_of(self, part: _Part) -> list[Run]:
        """Return the messages of a part that are still here."""
        run = part.run
        if part.live == len(run.contents):
            return [run]
        first = run.seqs.start
        return [run[seqs.start - first : seqs.stop - first] for seqs in self.held.intersection(run.seqs)]

    def _runs(self) -> Iterator[Run]:
        """Yield all messages in memory, in order."""
        for index in range(self._head, len(self._parts)):
            part = self._parts[index]
            if part.live:
                yield from self._runs_of(part)

    def _tidy(self) -> None:
        parts = self._parts
        while self._head < len(parts) and not parts[self._head].live:
            self._head += 1
        if self._head == len(parts):
            parts.clear()
            self._head = 0
        elif self._head > _TOMBSTONES_MAX and self._head * 2 > len(parts):
            del parts[: self._head]
            self._head = 0
        if len(parts) - self._head > 2 * self._count + _TOMBSTONES_MAX:
            self._parts = [part for part in parts[self._head :] if part.live]
            self._head = 0

    # --- to disk ---

    def page_out(self, limit_bytes: int) -> int:
        """Take messages out of memory, the oldest first; return how many bytes of memory that freed.

        limit_bytes: stop when that much is out. Nothing leaves while the copy becomes a queue, as its messages on
            disk are being counted then: the queue will page.
        """
        if not self._storage.can_page or not self._count or self._is_filling:
            return 0
        self._tidy()
        room, bound = limit_bytes, 0
        for index in range(self._head, len(self._parts)):
            part = self._parts[index]
            if not part.live:
                continue
            run, cost = part.run, self._cost(part)
            if cost > room:
                bound = run.seqs.start + max(1, len(run.seqs) * room // cost)
                break
            bound = run.seqs.stop
            room -= cost
        before = self.memory_bytes
        self._page_out_below(bound)
        return before - self.memory_bytes

    def _cost(self, part: _Part) -> int:
        size = part.run.size
        body_bytes = size * part.live if size != MIXED_SIZES else bytes_of(part.run.contents, size)
        return body_bytes + part.live * MESSAGE_BYTES

    def _page_out_below(self, bound: int) -> None:
        stop = self._cut_at(bound)
        leaving: list[Run] = []
        for index in range(self._head, stop):
            part = self._parts[index]
            if part.live:
                leaving += self._runs_of(part)
                self._count -= part.live
                self._body_bytes -= self._cost(part) - part.live * MESSAGE_BYTES
        del self._parts[self._head : stop]
        if leaving:
            self._paged.take_in(leaving)
        self._tidy()

    def note_deliveries(self) -> None:
        """Tell the storage which messages came back from clients. Called when the node stops."""
        if self.is_durable:
            for run in self._runs():
                if run.is_indexed and run.deliveries > 1:
                    self._storage.delivered(run.seqs, run.deliveries)

    # --- its beginning and its end ---

    def adopt(self, next_seq: int, pages: Iterable[Page], alive: Iterable[range]) -> None:
        """Begin with the messages that a recovery found, before anything else comes.   alive: the numbers that the
        pages count.
        """
        for numbers in alive:
            self.held.add(numbers)
        for page in pages:
            self._paged.take_page(page)
        self._paged.recount(self.held)
        self.next_seq = max(self.next_seq, next_seq)

    def fill(
        self, backlog: PagedBacklog | PriorityBacklog | DelayBacklog, on_done: Callable[[], None]
    ) -> None:
        """Become a queue: all messages are ready, as if they had been delivered before. Then the copy is empty.

        backlog: an empty one.
        on_done: called when it has all; before this returns, unless segments must be read. What turned out to be lost
            there is no longer `held`: that set is the caller's then, the copy has another one.
        """

        def settled(lost: NumberSet) -> None:
            for numbers in lost:
                self.held.discard(numbers)
            backlog.redelivered_below(self.next_seq)
            pages = self._paged.pages()
            if pages:
                backlog.restore(pages)
            for run in self._runs():
                run.deliveries = run.deliveries or 1
                backlog.add(run)
            self._let_go()
            on_done()

        self._is_filling = True
        self._paged.settle(settled)

    @classmethod
    def taken_from(
        cls,
        queue: Queue,
        live: NumberSet,
        loose: Iterable[Run],
        place: Callable[[list[bytes], bool], int],
        epoch: Callable[[], float],
        embed_max_bytes: int,
    ) -> tuple[Self, list[range]]:
        """Return the copy that a queue becomes when another node becomes its master.

        live: the numbers of all its messages.   loose: those that are out with clients or on their way elsewhere;
            contents that are None are left out.
        Returns: also the numbers of messages that this copy lacks. The backlog is empty afterwards.
        """
        copy = cls(queue.record, queue.storage, place, epoch, embed_max_bytes)
        copy.next_seq = queue.next_seq
        had = queue.backlog.hand_over()
        missing = live.copy()
        copy.held = live.copy()
        runs: list[Run] = []
        with_clients = [piece for run in loose for piece in _open_pieces(run)]
        for run in had.runs + with_clients:
            first = run.seqs.start
            found = live.intersection(run.seqs)
            if found != [run.seqs]:
                copy._forget_others(run.seqs, found, run.store_id if run.is_indexed else None)
            for seqs in found:
                missing.discard(seqs)
                piece = run[seqs.start - first : seqs.stop - first]
                piece.seqs = seqs
                runs.append(piece)
        if had.absents:
            queue.storage.page_out(had.absents)
        for absent in had.absents:
            found = live.intersection(absent.seqs)
            if found != [absent.seqs]:
                copy._forget_others(absent.seqs, found, absent.store_id)
            missing.discard(absent.seqs)
            copy._paged.take_absent(absent)
        for page in had.pages:
            missing.discard(range(page.first_seq, page.last_seq + 1))
            copy._paged.take_page(page)
        copy._take_over(runs, missing)
        return copy, missing.ranges()

    def _forget_others(self, seqs: range, wanted: list[range], store_id: int | None) -> None:
        """Have the storage forget messages that the queue no longer has.   store_id: None: it doesn't know them."""
        others = NumberSet([seqs])
        for numbers in wanted:
            others.discard(numbers)
        for numbers in others:
            if store_id is not None:
                first = store_id + numbers.start - seqs.start if store_id else NO_STORE_ID
                self._storage.forget(numbers, first)

    def _take_over(self, runs: list[Run], missing: NumberSet) -> None:
        """Keep these runs in memory, beside paged messages, or page them as well.   missing: those of `held` that
        were not found.
        """
        for numbers in missing:
            self.held.discard(numbers)
        self.missing = missing
        for run in sorted(runs, key=_start):
            self._count += len(run)
            self._body_bytes += run.body_bytes
            self._parts.append(_Part(run))
        if self._paged.stop:
            on_disk = self.held.copy()
            for run in runs:
                on_disk.discard(run.seqs)
            self._paged.recount(on_disk)
            self._page_out_below(self._paged.stop)

    def drop(self) -> None:
        """Forget all messages, in memory and on disk: the copy is of no use any more."""
        self._let_go()
        self.missing = None
        self._storage.drop()

    def _let_go(self) -> None:
        self.held = NumberSet()
        self._parts = []
        self._head = self._count = self._body_bytes = 0
        self._is_filling = False
        self._paged.clear()


def numbers_of(queue: Queue, loose: Iterable[Run], in_segments: Iterable[range]) -> NumberSet:
    """Return the numbers of all messages of a queue.

    loose: see `Copy.taken_from`.   in_segments: the numbers that its storage has in segments.
    """
    found = NumberSet(in_segments)
    for level in queue.backlog.levels:
        for run in level.in_memory(0):
            found.add(run.seqs)
        for absent in level.on_disk(0):
            if isinstance(absent, Absent):
                found.add(absent.seqs)
    for run in loose:
        for piece in _open_pieces(run):
            found.add(piece.seqs)
    return found


def _first_seq(part: _Part) -> int:
    return part.run.seqs.start


def _start(run: Run) -> int:
    return run.seqs.start


def _continues(part: _Part, run: Run) -> bool:
    """True if a run can become part of the one before it."""
    before = part.run
    return (
        before.envelope is run.envelope
        and before.seqs.stop == run.seqs.start
        and part.live > 0
        and before.expiry == run.expiry
        and before.deliveries == run.deliveries
        and len(before.contents) < RUN_MAX
        and before.is_indexed is run.is_indexed
        and (run.store_id == before.store_id + len(before.contents) if before.store_id else not run.store_id)
    )


def _open_pieces(run: Run) -> Iterator[Run]:
    """Yield the messages of a run that are still with a client, by consecutive numbers."""
    for piece in run.pieces():
        contents: list[bytes | None] = list(piece.contents)
        if None not in contents:
            yield piece
            continue
        yield from (single for single in piece.singles() if single.contents[0] is not None)
