"""The disk side of one queue: which of its messages are on disk, and where.

    keep ─► Unflushed ─► flush, page_out ─► outbox ─► take_steps ─► segments ─► scan, load
                  └────► take_operations ─► journal

Of a durable queue the persistent messages are kept: journaled at once, and written to segments at a checkpoint
or when they are paged out, oldest first: all that was kept below some number is in segments, and nothing above.
Other messages get to segments only when they are paged out. Nothing is written to segments twice.

**How steps leave.** What is to be appended gathers in an outbox, joined by file. The store submits it once a
turn; before the index reads anything it submits the outbox itself, so that the read, which comes later in order,
finds what was written. Steps that a method returns must be submitted before the index is asked for anything else.
Files that are no longer needed leave by a way of their own, `take_removals`: they may only go when the journal has
what was gathered until then, because the last trace of a message may be an operation that is not submitted yet (the
copy that a dead letter became).

**Forgotten messages** are marked in memory at once. The file is told at the next checkpoint; a segment in which
nothing is left alive is removed as a file, unless it is written to again before.
Source: amqp-behaviour §7.4; docs/internals/disk.md, "Operations" and "From a queue to the disk".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from node.queue.number_set import NumberSet
from node.queue.operations import Delivered, Enqueue, Operation, Remove, encode, enqueues, joined
from node.queue.run import Absent, Batch, Run
from node.queue.storage import StorageOwner
from node.store.damage import UNREADABLE
from node.store.directory import QUEUES, TRANSIENT
from node.store.disk import MakeDir, RemoveTree, Step, Sync, SyncDir, appends
from node.store.disk import Remove as RemoveFile
from node.store.index_host import IndexHost
from node.store.loading import Load
from node.store.records import SEGMENT_HEADER, record
from node.store.releasing import Releases
from node.store.scanning import Scan
from node.store.segment import Found, Segment, Wanted, by_segment, find, singles
from node.store.unflushed import Entry, Unflushed

NO_LIMIT: Final = 1 << 62

_OPERATIONS: Final = 1
_STEPS: Final = 2
_REMOVALS: Final = 4
"""Kinds of work that the host is told of."""

_REMOVED_RANGE_BYTES: Final = 8
"""The bytes that a range of removed numbers takes in the journal, about."""


class QueueIndex:
    """The index of a queue, see `QueueStorage`.

    uid: the queue's.   is_durable: messages are kept, and files synced, for durable queues only.
    is_dropped: the queue was deleted. Once `take_removals` has given its last steps the index is not used any more.
    """

    __slots__ = (
        "_behind",
        "_dead",
        "_delivered",
        "_has_directory",
        "_is_removed",
        "_must_make_directory",
        "_outbox",
        "_releases",
        "_removed",
        "_told",
        "_unsynced_directories",
        "_unwritten",
        "directory",
        "disk_reads",
        "disk_writes",
        "host",
        "is_dropped",
        "is_durable",
        "owner",
        "segment_entries",
        "segments",
        "uid",
        "unflushed",
        "unreadable",
    )

    can_page = True

    def __init__(self, uid: str, *, is_durable: bool, host: IndexHost) -> None:
        self.uid = uid
        self.is_durable = is_durable
        self.segment_entries = host.segment_entries
        self.is_dropped = False
        self.disk_reads = self.disk_writes = 0
        self.directory = f"{QUEUES}/{uid}" if is_durable else f"{TRANSIENT}/{QUEUES}/{uid}"
        self.host = host
        self.unflushed = Unflushed(host.segment_entries)
        self.segments: dict[int, Segment] = {}
        self._outbox: dict[int, list[bytes]] = {}  # what is to be appended, by segment
        self._has_directory = False
        self._must_make_directory = False
        self._unsynced_directories: set[str] = set()
        self._removed: list[range] = []  # for the journal; of any step
        self._delivered: list[Delivered] = []  # for the journal
        self._unwritten: dict[int, list[Delivered]] = {}  # for the segments, by number
        self._behind: set[int] = set()  # segments whose files lack the latest removals
        self._dead: set[int] = set()  # segments with nothing alive, when last looked at
        self._releases: Releases | None = None  # of cleared messages whose contents may be stored
        self._is_removed = False  # the directory, after a drop
        self._told = 0  # the kinds of work that the host knows of
        self.owner: StorageOwner | None = None
        self.unreadable: NumberSet | None = None

    # --- figures ---

    @property
    def alive(self) -> list[range]:
        """The numbers of the messages in segments, rising."""
        segments = sorted(self.segments.items())
        return [seqs for _, segment in segments for seqs in segment.wanted(0, NO_LIMIT).ranges]

    @property
    def fresh_bytes(self) -> int:
        """The bytes that the result of `take_operations` would take in the journal, about."""
        return self.unflushed.fresh_bytes + len(self._removed) * _REMOVED_RANGE_BYTES

    @property
    def kept_to(self) -> int:
        """A number above those of all messages that were kept since the node's start."""
        return self.unflushed.next_seq

    @property
    def needs_flush(self) -> bool:
        """True if a checkpoint has something to do here."""
        return bool(self.unflushed.count or self._behind or self._unwritten)

    # --- messages come ---

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Keep persistent messages with numbers from `first_seq` on: they go to the journal with the next batch."""
        assert self.is_durable, "only durable queues keep messages"
        if self.is_dropped:
            return
        count = len(batch.contents)
        if batch.store_id:
            self.host.contents(batch.store_id).add_refs(batch.store_id, count)
        self.disk_writes += count
        self.unflushed.keep(batch, first_seq, expiry)
        self._tell(_OPERATIONS)

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        """Put messages into segments. The runs may come in any order.

        A run that was not indexed keeps its mark, as the caller drops it.
        """
        if self.is_dropped:
            return
        upto_seq = 0
        for run in runs:
            if isinstance(run, Run) and not run.is_indexed:
                self._write_run(run)
            else:
                # A kept message may still be in `unflushed`; other indexed messages are in segments.
                upto_seq = max(upto_seq, run.seqs[-1] + 1)
        self._flush_entries(NO_LIMIT, upto_seq)

    def put(self, entry: Enqueue) -> None:
        """Write messages of one segment to it. They have their references in the message store already."""
        number = entry.first_seq // self.segment_entries
        assert entry.seqs[-1] // self.segment_entries == number, "a record concerns one segment"
        self._append(number, entry)
        segment = self.segments[number]
        segment.add(entry.seqs)
        if entry.store_id:
            segment.has_stored = True

    def _write_run(self, run: Run) -> None:
        """Write messages that were not kept."""
        self.disk_writes += len(run)
        for piece in run.pieces():
            for part in self.host.with_ids(piece):
                if part.store_id:
                    store = self.host.contents(part.store_id)
                    store.write(part.store_id, part.contents)
                    store.add_refs(part.store_id, len(part))
                for entry in enqueues(part, self.host.epoch_s()):
                    for _, seqs in by_segment(entry.seqs, self.segment_entries):
                        self.put(entry[seqs.start - entry.first_seq : seqs.stop - entry.first_seq])

    # --- messages go ---

    def forget(self, seqs: range, store_id: int) -> None:
        """Forget messages that left the queue. Unknown numbers, and those forgotten before, change nothing in
        segments.
        """
        if self.is_dropped:
            return
        if self.unreadable is not None:
            self._no_longer_missed(seqs)
        for part, entry in self.unflushed.parts(seqs):
            if entry is None:
                forgotten = self._forget_in_segments(part)
            else:
                if entry.is_journaled:
                    self._to_journal([part])
                self.unflushed.forget(entry, part)
                forgotten = [part]
            if store_id:
                for gone in forgotten:
                    self._drop_refs(store_id + gone.start - seqs.start, gone)

    def clear(self, first_seq: int, last_seq: int) -> None:
        """Forget all messages from first to last in segments. References to stored contents are dropped later, as the
        files must be read for them.
        """
        if self.unreadable is not None:
            self._no_longer_missed(range(first_seq, last_seq + 1))
        low, high = first_seq // self.segment_entries, last_seq // self.segment_entries
        for number in sorted(self.segments.keys() & range(low, high + 1)):
            segment = self.segments[number]
            wanted = segment.wanted(first_seq, last_seq)
            if segment.has_stored and wanted.count:
                self._release(number, wanted)
            self._forget_in(segment, range(first_seq, last_seq + 1))
        self._release_next()

    def delivered(self, seqs: range, count: int) -> None:
        """Note how often messages came back from clients: for the journal, and for their segments."""
        if not self.is_durable or self.is_dropped:
            return
        ranges = tuple(joined(singles(seqs)))
        self._delivered.append(Delivered(ranges, count))
        for part in ranges:
            for number, within in by_segment(part, self.segment_entries):
                self._unwritten.setdefault(number, []).append(Delivered((within,), count))
        self._tell(_OPERATIONS)

    def drop(self) -> None:
        """Forget everything: the queue was deleted. `take_removals` removes the directory once references were
        dropped.
        """
        if self.is_dropped:
            return
        for entry in self.unflushed:
            if entry.store_id:
                for seqs in entry.alive():
                    self._drop_refs(entry.store_id + seqs.start - entry.seqs.start, seqs)
        for number, segment in sorted(self.segments.items()):
            if segment.has_stored and segment.live:
                self._release(number, segment.wanted(0, NO_LIMIT))
        if self._releases is not None:
            self.hand_over()
        self.is_dropped = True
        self.unreadable = self.owner = None
        self.unflushed.clear()
        self._unsynced_directories.clear()
        self._removed, self._delivered = [], []
        self._must_make_directory = False
        for numbers in (self.segments, self._outbox, self._unwritten, self._behind, self._dead):
            numbers.clear()
        self._release_next()
        self._tell_if_unneeded()

    def _forget_in_segments(self, seqs: range) -> list[range]:
        return [
            gone
            for number, part in by_segment(seqs, self.segment_entries)
            if (segment := self.segments.get(number)) is not None
            for gone in self._forget_in(segment, part)
        ]

    def _forget_in(self, segment: Segment, seqs: range) -> list[range]:
        forgotten = segment.forget(seqs)
        if self.is_durable and forgotten:
            self._behind.add(segment.number)
            self._to_journal(forgotten)
        self._look_if_dead(segment)
        return forgotten

    def _to_journal(self, ranges: Iterable[range]) -> None:
        removed = self._removed
        for part in ranges:
            if removed and removed[-1].step == part.step == 1 and removed[-1].stop == part.start:
                removed[-1] = range(removed[-1].start, part.stop)
            else:
                removed.append(part)
        self._tell(_OPERATIONS)

    def _look_if_dead(self, segment: Segment) -> None:
        # A file with unreadable parts must stay, so that the next start sets it aside.
        if not segment.live and not segment.is_damaged:
            self._dead.add(segment.number)
            self._tell(_REMOVALS)

    def _drop_refs(self, first_id: int, seqs: range) -> None:
        """Drop references to contents that are numbered like these messages."""
        store = self.host.contents(first_id)
        if seqs.step == 1:
            store.drop_refs(first_id, len(seqs))
            return
        for seq in seqs:
            store.drop_refs(first_id + seq - seqs.start, 1)

    # --- contents of cleared messages ---

    def _release(self, number: int, wanted: Wanted) -> None:
        if self._releases is None:
            self._releases = Releases()
        self._releases.add(number, wanted)

    def _release_next(self) -> None:
        if self._releases is not None:
            self._releases.go_on(self)

    def released(self, number: int) -> None:
        """Note that the references of a segment's cleared messages were dropped, after its file was read."""
        if number in self._dead:
            self._tell(_REMOVALS)
        self._tell_if_unneeded()

    @property
    def _is_releasing(self) -> bool:
        return self._releases is not None and self._releases.is_busy

    def _tell_if_unneeded(self) -> None:
        if self.is_dropped and not self._is_releasing:
            self._tell(_REMOVALS)

    # --- messages come back ---

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        """Find the messages of a segment from first to last that are not forgotten; `done` is called later."""
        known = self.segments.get(segment)
        if known is None or not known.wanted(first_seq, last_seq).count:
            self.host.disk.submit([], lambda _results: done([]), lambda _error: done([]))
            return
        self.hand_over()
        Scan(self, known, range(first_seq, last_seq + 1), done).start()

    def finder(self, segment: int, wanted: Wanted) -> Callable[[bytes], Found]:
        """Return a function that finds messages in the bytes of a segment's file, for the disk's thread."""
        delivered = tuple(self._unwritten.get(segment, ()))
        epoch_s = self.host.epoch_s()
        return partial(find, number=segment, wanted=wanted, delivered=delivered, epoch_s=epoch_s)

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """Fetch contents: a run for each absent run, in order, or None if the disk no longer has them; `done` is
        called later.
        """
        if self.is_dropped:
            self.host.disk.submit(
                [], lambda _results: done([None] * len(absent)), lambda _error: done([None] * len(absent))
            )
            return
        self.hand_over()
        for store in (self.host.persistent, self.host.transient):
            if store.gathered_bytes and any(each.place is None for each in absent):
                self._submit(store.take_steps())
        self.disk_reads += sum(map(len, absent))
        Load(self, absent, done).start()

    # --- unreadable messages ---

    def belong_to(self, owner: StorageOwner) -> None:
        """Set the owner of the messages, and tell it if some are unreadable already."""
        self.owner = owner
        if self.unreadable is not None:
            owner.unreadable(UNREADABLE)

    def _no_longer_missed(self, seqs: range) -> None:
        assert self.unreadable is not None
        for part in singles(seqs):
            self.unreadable.discard(part)

    def alive_of(self, seqs: Iterable[range]) -> Iterator[range]:
        """Yield those of some consecutive numbers that are not forgotten."""
        for each in seqs:
            for part, entry in self.unflushed.parts(each):
                if entry is not None:
                    yield from NumberSet(entry.alive()).intersection(part)
                    continue
                for number, inside in by_segment(part, self.segment_entries):
                    segment = self.segments.get(number)
                    if segment is not None:
                        yield from segment.wanted(inside.start, inside[-1]).ranges

    def lose(self, seqs: Iterable[range]) -> None:
        """Give up these unreadable messages.

        This is not written to disk: if the journal still has them, or the disk can read them again, the next start
        finds them.
        """
        for each in list(self.alive_of(seqs)):
            for part, entry in self.unflushed.parts(each):
                if entry is not None:
                    self.unflushed.forget(entry, part)
                    continue
                for number, inside in by_segment(part, self.segment_entries):
                    self.segments[number].lose([inside])
        self.unreadable = None

    # --- for the store ---

    def take_operations(self) -> tuple[list[Enqueue], Remove | None, list[Delivered]]:
        """Return the operations for the journal since the last call, in this order; to be encoded at once.

        Messages that were forgotten before this call are left out.
        """
        self._told &= ~_OPERATIONS
        entries = self.take_entries()
        removed, delivered = self._removed, self._delivered
        if not (removed or delivered):
            return entries, None, []
        self._removed, self._delivered = [], []
        ranges = joined(single for part in removed for single in singles(part))
        return entries, Remove(tuple(ranges)) if ranges else None, delivered

    def take_entries(self) -> list[Enqueue]:
        """Return only the enqueues of `take_operations`; the other operations stay for that."""
        epoch_s = self.host.epoch_s()
        return [operation for entry in self.unflushed.take_fresh() for operation in entry.operations(epoch_s)]

    def take_steps(self) -> list[Step]:
        """Return the appends to segments, joined by file; to be submitted at once."""
        self._told &= ~_STEPS
        if not (self._outbox or self._must_make_directory):
            return []
        outbox, self._outbox = self._outbox, {}
        steps = appends(((self.path(number), parts) for number, parts in outbox.items()), SEGMENT_HEADER)
        if self._must_make_directory:
            self._must_make_directory = False
            steps.insert(0, MakeDir(self.directory))
        return steps

    def take_removals(self) -> list[Step]:
        """Return steps that remove unneeded files: nothing but Remove and RemoveTree.

        To be submitted at once, behind a batch of the journal with all operations of all queues up to now.
        """
        self._told &= ~_REMOVALS
        if self.is_dropped:
            if self._is_releasing or self._is_removed:
                return []
            self._is_removed = True
            return [RemoveTree(self.directory)]
        if not self._dead:
            return []
        steps: list[Step] = []
        needed = self._releases.needed if self._releases is not None else set()
        for number in sorted(self._dead - needed):
            self._dead.discard(number)
            segment = self.segments[number]
            if segment.live or segment.is_damaged:
                continue
            del self.segments[number]
            self._behind.discard(number)
            self._outbox.pop(number, None)
            steps.append(RemoveFile(self.path(number)))
        if steps and self.is_durable:
            self._unsynced_directories.add(self.directory)
        return steps

    @property
    def may_remove_synced(self) -> bool:
        """True if `take_removals` may remove files that were synced."""
        return bool(self._dead) and any(self.segments[number].synced_bytes for number in self._dead)

    def flush(self, limit_bytes: int, upto_seq: int) -> tuple[list[Step], bool]:
        """Do the work of a checkpoint: write kept messages below a number to segments, and note what was forgotten.

        limit_bytes: when to stop, about.   Returns: steps to be submitted at once, and True if nothing is left.
        """
        left_bytes = limit_bytes - self._flush_entries(limit_bytes, upto_seq)
        first = self.unflushed.first
        if first is not None and first.seqs.start < upto_seq:
            return self.take_steps(), False
        while self._behind:
            if left_bytes <= 0:
                return self.take_steps(), False
            number = self._behind.pop()
            left_bytes -= self._append(number, Remove(self.segments[number].take_gone()))
        self._flush_delivered(first)
        return self.take_steps(), True

    def sync_steps(self, limit: int = NO_LIMIT) -> list[Step]:
        """Return steps that sync at most `limit` written files, and the names of all.

        To be submitted at once: a file that is synced later may have been removed by then.
        """
        if not self.is_durable:
            return []
        steps = self.take_steps()
        dirty = [segment for segment in self.segments.values() if segment.is_dirty]
        for segment in dirty[:limit]:
            segment.is_dirty = False
            segment.synced_bytes = segment.size_bytes
            steps.append(Sync(self.path(segment.number)))
        steps += map(SyncDir, sorted(self._unsynced_directories, reverse=True))
        self._unsynced_directories.clear()
        return steps

    @property
    def synced_sizes(self) -> list[tuple[int, int]]:
        """The number and size of each segment with live messages, once all of `sync_steps` is done."""
        alive = (segment for segment in self.segments.values() if segment.live)
        return [(segment.number, segment.synced_bytes) for segment in alive if segment.synced_bytes]

    # --- for recovery ---

    def adopt(self, number: int, live: Iterable[range], *, size_bytes: int, has_stored: bool) -> None:
        """Take a segment's file as a recovery left it, before the index is used for anything else.

        live: the messages in it, of step 1. The file has records that all its other messages are gone.
        size_bytes: of the whole file, all of which is good, and safe.
        has_stored: whether contents of some messages are in the message store. The caller adds the references.
        """
        assert number not in self.segments, "a segment has one file"
        segment = Segment(number, notes_gone=self.is_durable, size_bytes=size_bytes, has_stored=has_stored)
        for seqs in live:
            segment.add(seqs)
        self.segments[number] = segment
        self._has_directory = True
        self._look_if_dead(segment)

    # --- to segments ---

    def _flush_entries(self, limit_bytes: int, upto_seq: int) -> int:
        """Write the oldest kept messages below a number to segments; return how many bytes that was, about."""
        written_bytes = 0
        while written_bytes < limit_bytes:
            entry = self.unflushed.first
            if entry is None or entry.seqs.start >= upto_seq:
                break
            for operation in entry.operations(self.host.epoch_s()):
                self.put(operation)
            written_bytes += entry.bytes
            self.unflushed.pop()
        return written_bytes

    def _flush_delivered(self, first: Entry | None) -> None:
        """Write to segments how often their messages came back.   first: the first entry that is not written yet."""
        bound = first.seqs.start if first is not None else NO_LIMIT
        unwritten, self._unwritten = self._unwritten, {}
        for number, operations in unwritten.items():
            for operation in operations:
                [seqs] = operation.ranges
                told = range(seqs.start, min(seqs.stop, bound))
                later = range(max(seqs.start, bound), seqs.stop)
                if told and number in self.segments:
                    self._append(number, Delivered((told,), operation.count))
                if later:
                    self._unwritten.setdefault(number, []).append(Delivered((later,), operation.count))

    def _append(self, number: int, operation: Operation) -> int:
        """Write an operation to a segment; return how many bytes it takes."""
        segment = self.segments.get(number)
        if segment is None:
            segment = self.segments[number] = Segment(number, notes_gone=self.is_durable)
        parts = self._outbox.setdefault(number, [])
        if not segment.size_bytes:
            self._begin_file(segment, parts)
        written = record(encode(operation))
        length = sum(map(len, written))
        parts += written
        segment.size_bytes += length
        segment.is_dirty = self.is_durable
        self._tell(_STEPS)
        return length

    def _begin_file(self, segment: Segment, parts: list[bytes]) -> None:
        parts.append(SEGMENT_HEADER)
        segment.size_bytes = len(SEGMENT_HEADER)
        if not self._has_directory:
            self._has_directory = self._must_make_directory = True
            self._unsynced_directories.add(self.directory.rpartition("/")[0])
        self._unsynced_directories.add(self.directory)

    def path(self, number: int) -> str:
        return f"{self.directory}/{number}.idx"

    def hand_over(self) -> None:
        """Submit all gathered steps, so that a read that follows finds their result."""
        self._submit(self.take_steps())

    def _submit(self, steps: list[Step]) -> None:
        if steps:
            self.host.disk.submit(steps, lambda _results: None, self.host.on_failed)

    def _tell(self, work: int) -> None:
        if not self._told & work:
            self._told |= work
            self.host.on_dirty(self)
