"""The store of a node: it makes few jobs of the disk from all that the node's queues write.

    keep, forget ─► QueueIndex ─┐                              ┌─► settled waiters
    place ───────► MessageStore ┴─► turn: batch ─► the disk ───┴─► checkpoint, garbage collection

**Group commit.** Kept messages and removals gather at each queue; queues without anything cost nothing.
At the end of a turn of the loop all of it becomes one *batch*, a job of the disk: contents first, then one append
to the journal, one sync. While a batch is in flight everything gathers for the next, so batches grow as the disk
slows down. If no publisher waits, a batch is put off for a short time.

**Order.** In a batch all messages that come stand before all that go. A message that moved to another queue is
thus never lost when the batch is torn; it may be there twice. Files that are no longer needed are removed at the
end of the batch that says why.

**A failed disk** has lost some writes, and it is not known which. From then on nothing counts as safe and
nothing is written: the journal stays as it is for the next start.
Source: amqp-behaviour §7.2, §7.5; docs/internals/disk.md, "From a queue to the disk".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from node.catalogue.records import QueueRecord
from node.queue.counters import DiskCounters, ScrubCounters
from node.queue.operations import Delivered, Remove
from node.queue.storage import Waiter
from node.scheduling.timers import Timer, Timers
from node.store.checkpoint import Checkpoint
from node.store.directory import JOURNAL, MESSAGES, QUEUES, TRANSIENT
from node.store.disk import Disk, MakeDir, Step
from node.store.index_host import IndexHost
from node.store.journal import Journal
from node.store.message_store import PERSISTENT_FIRST_ID, TRANSIENT_FIRST_ID, MessageStore
from node.store.options import MIB, StoreOptions
from node.store.queue_index import QueueIndex
from node.store.scrubber import Scrubber
from node.store.synced import SyncedFile
from node.store.waiting import Waiting

CONGESTED_BYTES: Final = 16 * MIB
"""The bytes on their way to the disk above which publishers are put in flow, until half of them are written.

A disk that writes 100 MB/s is busy with so much for 160 ms: the time is short enough for waiting publishers, and half
of it is long enough that the disk never runs idle before publishers go on. The bytes are also memory.
"""

EARLY_BATCH_BYTES: Final = 4 * MIB
"""The size at which a batch is due though no publisher waits: a larger one would be no cheaper."""

ENCODE_BYTES: Final = 1 * MIB
"""The gathered bytes above which entries are encoded before their batch is due: two milliseconds of a turn.

Fewer may still be forgotten before they are ever written.
"""

JOURNAL_FILES_MAX: Final = 4
"""The number of journal files waiting for a checkpoint above which publishers are put in flow, too.

The journal must not grow without end where batches write faster than checkpoints.
"""

OPERATIONS_MAX: Final = 250_000
"""The number of operations at which a journal file counts as full.

Small ones, as single acknowledgements are, take memory in the indexes until a checkpoint tells the segments.
"""

SYNCED_S: Final = 1.0
"""The seconds after a batch within which `synced.log` says that it is safe."""

CHECKPOINT_JOBS_MAX: Final = 2
"""The limit of jobs of a checkpoint in flight: one to work on, one behind the next batch."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures about the state of the store.

    waiting: waiters, of both batches.   gathered_bytes: what the next batch would write, about.
    batches, journal_bytes, operations, checkpoints: since the start.
    journal_files: those that are needed now.   queues: open ones.
    """

    waiting: int
    gathered_bytes: int
    batches: int
    journal_bytes: int
    operations: int
    checkpoints: int
    journal_files: int
    queues: int


class Store:
    """The disk side of a node (`node.queue.storage.Storage`). It touches the disk from `begin` on.

    epoch_s: as `Storage.epoch_s`.
    report: called with path, offset in bytes and description of what can't be read while the node runs.
    counters: those that the disk keeps; None: it keeps none.
    """

    def __init__(
        self,
        disk: Disk,
        options: StoreOptions,
        timers: Timers,
        epoch_s: float = 0.0,
        *,
        report: Callable[[str, int, str], None] = lambda path, offset, what: None,
        counters: DiskCounters | None = None,
    ) -> None:
        self.disk = disk
        self.options = options
        self.epoch_s = epoch_s
        self.embed_max_bytes = options.embed_max_bytes
        self.persistent = MessageStore(MESSAGES, disk, options.store_file_bytes, PERSISTENT_FIRST_ID)
        self.transient = MessageStore(
            f"{TRANSIENT}/{MESSAGES}", disk, options.store_file_bytes, TRANSIENT_FIRST_ID
        )
        self.is_broken = False
        """True if a write has failed: nothing is safe any more, and nothing is written."""
        self.is_closed = False
        self.on_broken: Callable[[OSError], None] = lambda error: None
        """Called once, when `is_broken` becomes True and all waiters were told."""
        self.on_relieved: Callable[[], None] = lambda: None
        """Called when `is_congested` becomes False."""
        self.wake: Callable[[], None] = lambda: None
        """Called when the first work for the next `turn` comes up."""
        self.has_work = False
        """True if `turn` should be called: something came up since the last call."""
        self._timers = timers
        self._timer: Timer | None = None
        self._synced_timer: Timer | None = None
        self._journal = Journal(options.journal_file_bytes)
        self._synced = SyncedFile()
        self._counters = counters if counters is not None else DiskCounters()
        self._host = self._make_host(report)
        self._indexes: dict[str, QueueIndex] = {}
        self._reported: dict[QueueIndex, None] = {}  # since the last turn
        self._gathering: dict[QueueIndex, None] = {}  # with something for the next batch
        self._touched: dict[QueueIndex, None] = {}  # in the journal since the last checkpoint began
        self._scrubber = Scrubber(
            self._host,
            timers,
            options.scrub_rate,
            is_idle=lambda: self._in_flight is None and not self.disk.pending_bytes,
            is_over=lambda: self._is_over,
            indexes=lambda: self._indexes.values(),
            stores=(self.persistent, self.transient),
            journal=self._journal,
        )
        self._gathering_since: float | None = None
        self._gathered_bytes = 0  # when last weighed
        self._waiting = Waiting()  # for the next batch
        self._in_flight: Waiting | None = None  # for the batch that the disk has
        self.is_congested = self._is_flushing = False
        self._checkpoint: Checkpoint | None = None
        self._checkpointed: list[QueueIndex] = []  # by the present one
        self._checkpoint_jobs = 0  # in flight
        self._batches = self._checkpoints = 0

    def _make_host(self, report: Callable[[str, int, str], None]) -> IndexHost:
        """Return the parts that the indexes of all queues share."""
        return IndexHost(
            disk=self.disk,
            persistent=self.persistent,
            transient=self.transient,
            segment_entries=self.options.segment_entries,
            embed_max_bytes=self.options.embed_max_bytes,
            epoch_s=lambda: self.epoch_s,
            on_dirty=self._on_dirty,
            report=report,
            on_failed=self._break,
            later=self._later,
            is_over=lambda: self._is_over,
            counters=self._counters,
        )

    def begin(self) -> None:
        """Begin to write, at a node's start: in a journal file behind all that are there, which have been replayed.

        Raises: OSError.
        """
        # The names of these directories are made safe with the journal's.
        directories: list[Step] = [MakeDir(QUEUES), MakeDir(MESSAGES)]
        self.disk.run(directories + self._journal.begin(self.disk.names(JOURNAL)))
        self._scrubber.begin()
        self._synced.begin(self.disk, self._journal.place)

    # --- for the broker ---

    def open(self, record: QueueRecord) -> QueueIndex:
        """Return the index of a queue. One that recovery has opened before has its index already."""
        index = self._indexes.get(record.uid)
        if index is None:
            is_durable = record.durable and record.exclusive_owner is None
            index = QueueIndex(record.uid, is_durable=is_durable, host=self._host)
            self._indexes[record.uid] = index
        return index

    def place(self, contents: list[bytes], *, persistent: bool) -> int:
        """Give ids to large contents; return the first one. Persistent contents are written with the next batch."""
        if not persistent:
            return self.transient.reserve(len(contents))
        first_id = self.persistent.place(contents)
        self._wake()
        return first_id

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        """Have the waiter settled when all that was kept until now is safe.

        If nothing is on its way, the waiter is settled before this returns.
        """
        if self._is_over:
            waiter.settle(first, last, is_safe=False)
        elif self._is_gathering or self._waiting:
            self._waiting.add(waiter, first, last)
            self._wake()
        elif self._in_flight is not None:
            self._in_flight.add(waiter, first, last)
        else:
            waiter.settle(first, last, is_safe=True)

    @property
    def _is_gathering(self) -> bool:
        return bool(self._gathering) or self.persistent.gathered_bytes > 0

    def _on_dirty(self, index: QueueIndex) -> None:
        if self._is_flushing:
            return  # steps of a checkpoint are taken at once
        self._reported[index] = None
        self._gathering[index] = None
        self._wake()

    def _wake(self) -> None:
        if not self.has_work:
            self.has_work = True
            self.wake()

    @property
    def _is_over(self) -> bool:
        return self.is_broken or self.is_closed

    def _later(self, pause_s: float, call: Callable[[], None]) -> None:
        def begin(now: float) -> None:
            self._timers.at(now + pause_s, lambda _now: None if self._is_over else call())

        self._timers.at(0.0, begin)  # at once, as it says what time it is

    # --- the turn ---

    def turn(self, now: float) -> None:
        """Submit what is due at the end of a turn: paged-out messages, a batch, a job of a checkpoint."""
        self.has_work = False
        if self._is_over:
            return
        self._submit_paged_out()
        self._weigh()
        if self._in_flight is not None and self._gathered_bytes - self._journal.gathered_bytes > ENCODE_BYTES:
            self._encode_entries()
        if self._gathering_since is None and (self._is_gathering or self._waiting):
            self._gathering_since = now
        if self._in_flight is None and self._is_due(now):
            self._commit()
        if self._in_flight is None:
            self._arm_timer()
        elif self._synced_timer is None:
            self._synced_timer = self._timers.at(now + SYNCED_S, self._tell_synced)
        self._go_on_with_checkpoint()
        if not self._is_gathering:
            # Otherwise references may have been dropped by operations that the journal lacks.
            self.persistent.collect()
        self.transient.collect()

    def _encode_entries(self) -> None:
        """Encode enqueues while the disk is busy: all that gathers meanwhile would be too much for one turn.

        Removals are encoded with the batch, so that they stand behind.
        """
        for index in self._gathering:
            if index.is_durable:
                uid = bytes.fromhex(index.uid)
                for entry in index.take_entries():
                    self._journal.add(uid, entry)

    def _is_due(self, now: float) -> bool:
        since = self._gathering_since
        return since is not None and (
            len(self._waiting) > 0
            or now >= since + self.options.commit_interval_s
            or self._gathered_bytes >= EARLY_BATCH_BYTES
            or (self._checkpoint is not None and not self._checkpoint.is_flushed)
        )

    def _arm_timer(self) -> None:
        if self._gathering_since is not None and self._timer is None:
            self._timer = self._timers.at(
                self._gathering_since + self.options.commit_interval_s, self._timer_rang
            )

    def _timer_rang(self, now: float) -> None:
        self._timer = None
        self.turn(now)

    def _submit_paged_out(self) -> None:
        """Submit what left memory, whether or not a batch is due: nothing waits for it, and it is not synced."""
        reported, self._reported = self._reported, {}
        steps: list[Step] = []
        for index in reported:
            steps += index.take_steps()
        contents = self.transient.take_steps(turn_ended=True)
        if steps:
            contents += self.persistent.take_steps(turn_ended=True)
        self._submit(contents + steps, self._paged_out)

    def _paged_out(self, results: list[Any]) -> None:
        self._weigh()

    def _submit(self, steps: Sequence[Step], done: Callable[[list[Any]], None]) -> None:
        if steps:
            self.disk.submit(steps, done, self._break)

    # --- batches ---

    def _commit(self) -> None:
        """Submit what has gathered as a batch."""
        waiting, self._waiting = self._waiting, Waiting()
        steps = self._take_batch()
        if not steps:
            # What was kept was forgotten before it was written (§7.5: confirmed without a sync).
            waiting.settle(is_safe=True)
            self._weigh()
            return
        self._in_flight = waiting
        self._batches += 1
        self._submit(steps, self._committed)

    def _take_batch(self, *, is_last: bool = False) -> list[Step]:
        """Return what has gathered, as the steps of a batch.   is_last: with the mark of a clean stop."""
        if self._journal.is_full(OPERATIONS_MAX):
            self._journal.rotate()
        gathering, self._gathering = self._gathering, {}
        self._gathering_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        removals = self._take_operations(list(gathering))
        self._touched.update(
            (index, None) for index in gathering if index.is_durable and not index.is_dropped
        )
        if is_last:
            self._journal.add_clean()
        steps = self.persistent.take_steps(turn_ended=True)
        if self._journal.gathered_bytes:
            steps += self.persistent.sync_steps()
            steps += self._journal.take_steps()
            self._synced.journal_is_written(*self._journal.place)
        return steps + removals

    def _take_operations(self, gathering: list[QueueIndex]) -> list[Step]:
        """Give the journal the operations of these queues; return steps that remove files once the journal has them."""
        journal = self._journal
        later: list[tuple[bytes, Remove | Delivered]] = []
        removals: list[Step] = []
        shrunk: dict[str, list[tuple[int, int]]] = {}
        for index in gathering:
            if index.is_durable:
                uid = bytes.fromhex(index.uid)
                entries, removed, delivered = index.take_operations()
                for entry in entries:
                    journal.add(uid, entry)
                later += [(uid, operation) for operation in delivered]
                if removed is not None:
                    later.append((uid, removed))
            may_remove_synced = index.may_remove_synced
            unneeded = index.take_removals()
            removals += unneeded
            if index.is_dropped and unneeded:
                del self._indexes[index.uid]
                self._touched.pop(index, None)
            elif unneeded and may_remove_synced:
                shrunk[index.uid] = index.synced_sizes
        for uid, operation in later:
            journal.add(uid, operation)
        return self._synced.tell_safely(shrunk) + removals if shrunk else removals

    def _committed(self, results: list[Any]) -> None:
        """Settle the waiters of the batch, which is safe."""
        if self.is_broken:
            return  # a broken disk still executes removals; the waiters were told already
        waiting, self._in_flight = self._in_flight, None
        assert waiting is not None
        self._synced.journal_is_safe()
        waiting.settle(is_safe=True)
        self._weigh()
        if self._is_gathering or self._waiting or self._checkpoint is not None:
            self._wake()

    def _tell_synced(self, now: float) -> None:
        """Write down how much of the journal is safe. Nothing waits for it, and it is not synced."""
        self._synced_timer = None
        if self.is_broken or self.is_closed:
            return
        self._submit(self._synced.tell_journal(), lambda _results: None)
        if self._in_flight is not None:
            self._synced_timer = self._timers.at(now + SYNCED_S, self._tell_synced)

    def _break(self, error: OSError) -> None:
        """Break the store: a write has failed, so all waiters are told that nothing is safe."""
        if self.is_broken:
            return
        self.is_broken = True
        in_flight, self._in_flight = self._in_flight, None
        waiting, self._waiting = self._waiting, Waiting()
        for timer in (self._timer, self._synced_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._synced_timer = None
        if in_flight is not None:
            in_flight.settle(is_safe=False)
        waiting.settle(is_safe=False)
        self.on_broken(error)
        self._weigh()

    # --- congestion ---

    def _weigh(self) -> None:
        """Weigh the bytes and files that are on their way, and update `is_congested`."""
        self._gathered_bytes = (
            self._journal.gathered_bytes
            + self.persistent.gathered_bytes
            + self.transient.gathered_bytes
            + sum(index.fresh_bytes for index in self._gathering)
        )
        bytes_ = self._gathered_bytes + self.disk.pending_bytes
        files = len(self._journal.older)
        if not self.is_congested:
            self.is_congested = not self.is_broken and (bytes_ > CONGESTED_BYTES or files > JOURNAL_FILES_MAX)
        elif self.is_broken or (2 * bytes_ < CONGESTED_BYTES and 2 * files <= JOURNAL_FILES_MAX):
            self.is_congested = False
            self.on_relieved()

    # --- checkpoints ---

    def _go_on_with_checkpoint(self) -> None:
        """Submit a job of the checkpoint; begin one if there are older journal files."""
        if self._checkpoint is None:
            if not self._journal.older:
                return
            touched, self._touched = self._touched, {}
            self._checkpointed = indexes = [index for index in touched if index.is_durable]
            self._checkpoint = Checkpoint(list(self._journal.older), self.persistent, indexes)
        if self._checkpoint_jobs == CHECKPOINT_JOBS_MAX:
            return
        self._is_flushing = True
        steps = self._checkpoint.next_steps(is_gathering=self._is_gathering, jobs=self._checkpoint_jobs)
        self._is_flushing = False
        if steps:
            self._checkpoint_jobs += 1
            self._submit(steps, self._checkpoint_went_on)
        elif self._checkpoint.is_over:
            self._checkpoint_jobs += 1
            files = self._checkpoint.files
            self._synced.journal_goes(files)
            # Before the journal's files are removed, which prove until then that the segments' messages were safe.
            steps = self._tell_segments() + self._journal.remove_steps(files)
            self._submit(steps, self._checkpoint_ended)

    def _tell_segments(self) -> list[Step]:
        """Return steps that write down how much of the segments that the checkpoint has synced is safe."""
        is_large = self._synced.is_large
        indexes = self._indexes.values() if is_large else self._checkpointed
        sizes = {
            index.uid: index.synced_sizes for index in indexes if index.is_durable and not index.is_dropped
        }
        self._checkpointed = []
        return self._synced.renew(sizes) if is_large else self._synced.tell_safely(sizes)

    def _checkpoint_went_on(self, results: list[Any]) -> None:
        self._checkpoint_jobs -= 1
        self._weigh()
        self._wake()

    def _checkpoint_ended(self, results: list[Any]) -> None:
        self._checkpoint = None
        self._checkpoints += 1
        self._checkpoint_went_on(results)

    # --- the end ---

    def close(self) -> None:
        """Write at once what has gathered, and the mark of a clean stop. Nothing is written afterwards.

        The disk must have answered everything: nothing is in flight. If it fails now, the store breaks.
        """
        if self._is_over:
            return
        assert self._in_flight is None, "the disk has answered"
        assert not self._checkpoint_jobs, "the disk has answered"
        steps: list[Step] = []
        for index in self._reported:
            if index.is_durable:
                steps += index.take_steps()
        steps += self._take_batch(is_last=True)
        self._synced.journal_is_safe()
        steps += self._synced.tell_journal()
        try:
            self.disk.run(steps)
        except OSError as error:
            self._break(error)
            return
        self.is_closed = True
        self.has_work = False
        waiting, self._waiting = self._waiting, Waiting()
        waiting.settle(is_safe=True)

    # --- for tools ---

    @property
    def counters(self) -> DiskCounters:
        """The counters of reads and writes since the node's start."""
        counters = self._counters
        counters.msg_store_write_count = self.persistent.written_count + self.transient.written_count
        counters.queue_index_write_count = self._journal.operations
        return counters

    @property
    def scrubbing(self) -> ScrubCounters:
        """The progress of the scrubber."""
        return self._scrubber.figures

    def damaged_files(self) -> list[str]:
        """Return the paths of files with damage that costs messages.

        It costs a little for each file of a message store.
        """
        damaged = self._host.damaged
        for index in [index for index in damaged if index.is_dropped]:
            del damaged[index]
        return [
            index.path(number)
            for index in damaged
            for number, segment in index.segments.items()
            if segment.is_damaged
        ] + [
            file.path
            for store in (self.persistent, self.transient)
            for file in store.files
            if file.is_damaged
        ]

    def figures(self) -> Figures:
        """Return figures about the state of the store."""
        return Figures(
            waiting=len(self._waiting) + (len(self._in_flight) if self._in_flight is not None else 0),
            gathered_bytes=self._gathered_bytes,
            batches=self._batches,
            journal_bytes=self._journal.written_bytes,
            operations=self._journal.operations,
            checkpoints=self._checkpoints,
            journal_files=len(self._journal.older) + 1,
            queues=len(self._indexes),
        )
