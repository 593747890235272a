"""The recovery of a store when its node starts: all messages that are alive end up in segments, the journal is empty.

    segments ─┐                       ┌─► pages of each queue, its index knows the segments
    journal ──┴─► which are alive? ───┼─► segments told: came in, removed, delivered ─► synced
                                      └─► journal removed, the oldest file first

    1. sync and read the journal: which numbers came in, which are gone
    2. read each segment: tell it what the journal knows; remove those in which nothing is alive, see `Completeness`
    3. read the journal again: copy what is alive and in no segment
    4. sync, then remove the journal

A message is there if a good record of it is anywhere and none that removes it is: the order doesn't matter, and doing
it again changes nothing. So a recovery may be cut short anywhere; the next one begins anew.

What is bad is kept in `corrupt/` and reported, and all that is good around it is used. Memory is bounded by one
file, and by some kilobytes for each segment that the journal speaks of.
Source: amqp-behaviour §4.11, §7.6; docs/storage.md, "What a start does".
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from node.catalogue.records import QueueRecord
from node.queue.operations import Delivered, Enqueue, Operation, Remove, decode, encode
from node.queue.storage import Page
from node.store import journal
from node.store.completeness import Completeness
from node.store.directory import JOURNAL, QUEUES, TRANSIENT
from node.store.disk import TO_THE_END, Disk, Read, RemoveTree, Sync, SyncDir
from node.store.disk import Remove as RemoveFile
from node.store.findings import WHOLE_FILE, Damage, Finding, Isolation
from node.store.journal_scan import Changes, JournalFile, journal_numbers
from node.store.message_store import MessageStore
from node.store.options import StoreOptions
from node.store.recovery_writer import NEW_SUFFIX, RecoveryWriter
from node.store.segment_scan import SegmentScan, scan_segment
from node.store.seq_set import bits_of, ranges_of
from node.store.synced import read_synced

SEGMENT_SUFFIX: Final = ".idx"

PROGRESS_S: Final = 2.0
"""The seconds between reports of a long recovery's progress."""

FIRST_SEQ: Final = 1
"""The number of a queue's first message."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a recovery.   done_bytes, total_bytes: of files.   messages: found so far."""

    done_bytes: int
    total_bytes: int
    messages: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """A queue that was recovered.

    next_seq: above all numbers it ever gave.   pages: sorted by segment.   operations: the queue's in the journal.
    is_clean: nothing that was safe is missing of it, as far as can be told, nor was at an earlier start.
    """

    next_seq: int
    pages: list[Page]
    operations: int = field(default=0, compare=False)
    is_clean: bool = field(default=True, compare=False)


@dataclass(slots=True)
class RecoveredStore:
    """The result of a recovery.

    queues: by uid, all that were asked for.   was_clean: the node was stopped before, and had not crashed.
    messages, body_bytes: in all queues together.   operations: of the journal.
    unknown_queues: uids that the store has something of and that no queue has.
    is_whole: the journal has all that was safe in it.
    """

    queues: dict[str, Recovered] = field(default_factory=dict)
    was_clean: bool = False
    is_whole: bool = True
    messages: int = 0
    body_bytes: int = 0
    operations: int = 0
    unknown_queues: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The line for the log that sums up the recovery."""
        how = "a clean stop" if self.was_clean else "a crash, or a first start"
        found = f"{len(self.findings)} findings" if self.findings else "nothing damaged"
        return (
            f"recovered {self.messages:,} messages, {self.body_bytes:,} bytes, in {len(self.queues):,} durable queues "
            f"after {how}; {self.operations:,} operations of the journal; {found}"
        )


class RecoveringIndex(Protocol):
    """The index of a queue, to which a recovery reports the queue's segments."""

    def adopt(self, number: int, live: Iterable[range], *, size_bytes: int, has_stored: bool) -> None:
        """Take over the file of a segment with these messages alive.   size_bytes: of the file.

        has_stored: whether some contents are in the message store.
        """


class RecoveringStore(Protocol):
    """The part of the store that a recovery needs."""

    @property
    def persistent(self) -> MessageStore:
        """The message store with the large contents of persistent messages."""

    @property
    def options(self) -> StoreOptions:
        """The sizes that the store was made with."""

    def open(self, record: QueueRecord) -> RecoveringIndex:
        """Return the index of a queue."""


def recover(
    disk: Disk,
    store: RecoveringStore,
    queues: Mapping[str, QueueRecord],
    *,
    now: Callable[[], float],
    progress: Callable[[Progress], None] = lambda progress: None,
    copies: Container[str] = (),
    is_catalogue_whole: bool = True,
    is_trial: bool = False,
) -> RecoveredStore:
    """Bring a store in order, at the start of a node, before anything is written to it.

    queues: the durable ones, by uid.   now: seconds on any clock, to tell the progress from time to time.
    copies: those of them of which other nodes have copies: losses of these are remembered.
    is_catalogue_whole: False: a queue may be missing only because the metadata is damaged; then what seems to belong to
        no queue is moved to `corrupt/` instead of being removed.
    is_trial: the disk takes no writes; findings don't say where something is kept.
    Raises: NewerFormat, OSError. Then nothing is lost, and it may be tried again.
    """
    isolation = Isolation(disk, is_dry=is_trial)
    mirrored = [uid for uid in queues if uid in copies]
    recovery = _Recovery(disk, store, queues, isolation, _Clock(now, progress), mirrored)
    return recovery.run(is_catalogue_whole=is_catalogue_whole)


class _Clock:
    """Reports the progress every `PROGRESS_S`."""

    def __init__(self, now: Callable[[], float], progress: Callable[[Progress], None]) -> None:
        self._now = now
        self._progress = progress
        self._next_s = now() + PROGRESS_S
        self._done_bytes = 0
        self.total_bytes = 0

    def count(self, done_bytes: int, messages: int) -> None:
        """Count bytes as done, and report the progress when it is time."""
        self._done_bytes += done_bytes
        if self._now() >= self._next_s:
            self._next_s = self._now() + PROGRESS_S
            self._progress(Progress(self._done_bytes, self.total_bytes, messages))


@dataclass(slots=True)
class _Segment:
    """A segment that is being recovered. Sets of messages are bits of an integer.

    size_bytes: of the file; 0: there is none yet.   alive: in the file.
    settled: of these, those for which the file says whether they came back from clients.
    wanted: those that are still to come from the journal.   returned: of these, those whose record says that they
        came back.
    tallies: by priority: first and last number, count and bytes of bodies, as in `Page` from first_seq on.
    """

    number: int
    base: int
    path: str
    size_bytes: int = 0
    alive: int = 0
    wanted: int = 0
    settled: int = 0
    returned: int = 0
    has_stored: bool = False
    tallies: dict[int, list[int]] = field(default_factory=dict)  # by priority, as in `Page` from first_seq on

    def count(self, piece: Enqueue) -> None:
        """Count messages that are alive in the file; `alive` has them already."""
        first, last = piece.first_seq, piece.first_seq + piece.count - 1
        tally = self.tallies.get(piece.envelope.priority)
        if tally is None:
            self.tallies[piece.envelope.priority] = [first, last, piece.count, piece.body_bytes]
        else:
            if first < tally[0]:
                tally[0] = first
            if last > tally[1]:
                tally[1] = last
            tally[2] += piece.count
            tally[3] += piece.body_bytes
        if piece.store_id:
            self.has_stored = True

    def pages(self) -> list[Page]:
        """Return the pages of the messages that are alive in the file, by priority."""
        return [Page(self.number, priority, *self.tallies[priority]) for priority in sorted(self.tallies)]


@dataclass(slots=True)
class _Queue:
    """A queue that is being recovered.

    growing: segments that the journal adds to.   sizes: of those that are done, in bytes.
    """

    uid: str
    index: RecoveringIndex
    changes: Changes
    end: int
    sizes: dict[int, int] = field(default_factory=dict)
    pages: list[Page] = field(default_factory=list)
    growing: dict[int, _Segment] = field(default_factory=dict)


class _Recovery:
    def __init__(
        self,
        disk: Disk,
        store: RecoveringStore,
        records: Mapping[str, QueueRecord],
        isolation: Isolation,
        clock: _Clock,
        copies: Iterable[str],
    ) -> None:
        self._disk = disk
        self._store = store
        self._contents = store.persistent
        self._entries = store.options.segment_entries
        self._records = records
        self._isolation = isolation
        self._clock = clock
        self._queues: dict[str, _Queue] = {}
        self._result = RecoveredStore()
        self._completeness = Completeness(read_synced(disk), isolation, copies)
        self._writer = RecoveryWriter(disk, self._completeness)

    def run(self, *, is_catalogue_whole: bool) -> RecoveredStore:
        """Recover the store in the steps that the module's docstring lists, and return the result."""
        result, disk = self._result, self._disk
        disk.run([RemoveTree(TRANSIENT), SyncDir("")])
        self._recover_contents()
        numbers = journal_numbers(disk)
        directories = disk.names(QUEUES)
        self._measure(numbers, directories)
        self._read_journal(numbers)
        for uid in self._records:
            self._recover_segments(self._queues[uid], has_directory=uid in directories)
        self._writer.remove_doomed()  # before the journal's messages are copied, which take room
        self._copy_from_journal(numbers)
        for queue in self._queues.values():
            self._finish_growing(queue)
            queue.pages.sort(key=_page_order)
            result.queues[queue.uid] = Recovered(
                max(queue.end, FIRST_SEQ),
                queue.pages,
                queue.changes.operations,
                self._completeness.is_clean(queue.uid),
            )
        result.is_whole = self._completeness.is_whole
        self._writer.sync()
        self._contents.finish_recovery()
        disk.run(self._contents.sync_steps())
        sizes = {queue.uid: queue.sizes for queue in self._queues.values()}
        disk.run(self._completeness.steps(sizes))
        self._completeness.is_written_down()
        self._writer.remove_doomed()
        self._writer.sync()
        self._remove_unknown(directories, is_catalogue_whole)
        self._remove_journal(numbers, is_catalogue_whole)
        result.findings = self._isolation.findings
        return result

    def _measure(self, numbers: list[int], directories: list[str]) -> None:
        """Count the bytes to read. The journal is read twice."""
        size = self._disk.size
        total = 2 * sum(size(journal.file_path(number)) for number in numbers)
        for uid in self._records.keys() & directories:
            total += sum(size(path) for _, path in segment_files(self._disk, uid))
        self._clock.total_bytes = total

    # --- contents ---

    def _recover_contents(self) -> None:
        """Read which contents are in the message store, and keep a copy of each file that is damaged."""
        damages: dict[str, list[tuple[int, str]]] = {}
        hopeless = self._contents.recover(
            self._disk, lambda path, offset, what: damages.setdefault(path, []).append((offset, what))
        )
        for path, found in damages.items():
            text = "; ".join(f"{what} at {offset}" for offset, what in found)
            finding = Finding(Damage.CORRUPT, path, 0, WHOLE_FILE, f"{text}: large messages may be lost")
            if path in hopeless:
                self._isolation.move(finding)
            else:
                [data] = self._disk.run([Read(path, 0, TO_THE_END)])
                self._isolation.keep([finding], data)

    def _refer(
        self, queue: _Queue, segment: _Segment, piece: Enqueue, path: str, offset: int
    ) -> list[Enqueue]:
        """Count the references to stored contents; return the parts of an enqueue whose contents are there.

        The other messages are not alive after all.   path, offset: of its record.
        """
        missing = self._contents.missing(piece.store_id, piece.count)
        if not missing:
            self._contents.add_refs(piece.store_id, piece.count)
            return [piece]
        lost = 0
        for store_id in missing:
            lost |= bits_of(store_id - piece.store_id, 1)
        lost_here = lost << (piece.first_seq - segment.base)
        segment.alive &= ~lost_here
        seqs = ", ".join(_shown(seqs) for seqs in ranges_of(lost, piece.first_seq))
        text = f"the contents of message {seqs} are no longer in the message store: dropped"
        self._isolation.note(Finding(Damage.MISSING, path, offset, 0, text))
        # A message that was paged out may be in a segment that was never synced, and in the journal, which was.
        is_in_journal = path != segment.path or bool(lost_here & queue.changes.enqueued.of(segment.number))
        self._completeness.missed_contents(queue.uid, None if is_in_journal else segment.number, offset)
        found = ranges_of(bits_of(0, piece.count) & ~lost, 0)
        parts = [piece[there.start : there.stop] for there in found]
        for part in parts:
            self._contents.add_refs(part.store_id, part.count)
        return parts

    # --- the journal, first time ---

    def _read_journal(self, numbers: list[int]) -> None:
        """Read which messages came in and which are gone.

        Files that a killed node has not synced are synced first: some of a recovery's writes that rely on them may
        outlive a power loss, and then so must the reason.
        """
        if numbers:
            files = [Sync(journal.file_path(number)) for number in numbers]
            self._disk.run([*files, SyncDir(JOURNAL)])
        changes = {uid: Changes(self._entries) for uid in self._records}
        is_clean = False
        for number in numbers:
            journal_file = JournalFile(self._disk, number)
            for uid, operation, _ in journal_file:
                self._result.operations += 1
                known = changes.get(uid)
                if known is None:
                    self._result.unknown_queues.add(uid)
                else:
                    known.apply(operation)
            is_clean = journal_file.is_clean
            file = journal_file.file
            self._isolation.keep(file.findings, file.data)
            self._completeness.see_journal_file(number, file, is_last=number == numbers[-1])
            self._clock.count(len(file.data), 0)
        self._completeness.saw_journal(numbers)
        self._result.was_clean = is_clean
        for uid, record in self._records.items():
            index = self._store.open(record)
            self._queues[uid] = _Queue(uid, index, changes[uid], changes[uid].end)

    # --- segments ---

    def _recover_segments(self, queue: _Queue, *, has_directory: bool) -> None:
        known: dict[int, int] = {}
        if has_directory:
            self._remove_leftovers(queue.uid)
            self._writer.keep_names(f"{QUEUES}/{queue.uid}")
            for number, path in segment_files(self._disk, queue.uid):
                [data] = self._disk.run([Read(path, 0, TO_THE_END)])
                scan = scan_segment(path, number, self._entries, data)
                known[number] = scan.known
                self._completeness.see_segment(queue.uid, number, scan.file)
                self._recover_segment(queue, scan)
                self._clock.count(len(data), self._result.messages)
        changes = queue.changes
        self._completeness.saw_segments(queue.uid, f"{QUEUES}/{queue.uid}")
        for number in changes.enqueued.segments():
            wanted = changes.enqueued.of(number) & ~known.get(number, 0) & ~changes.removed.of(number)
            if wanted and number not in queue.growing:
                path = segment_path(queue.uid, number)
                queue.growing[number] = _Segment(number, number * self._entries, path, wanted=wanted)

    def _remove_leftovers(self, uid: str) -> None:
        """Remove the new versions of segments that a recovery left behind when it was cut short."""
        directory = f"{QUEUES}/{uid}"
        names = [name for name in self._disk.names(directory) if name.endswith(NEW_SUFFIX)]
        self._disk.run([RemoveFile(f"{directory}/{name}") for name in names])

    def _recover_segment(self, queue: _Queue, scan: SegmentScan) -> None:
        """Learn what is in a segment, and write to it what only the journal knows."""
        number, base, file = scan.number, scan.base, scan.file
        changes = queue.changes
        queue.end = max(queue.end, scan.end)
        gone = scan.removed | changes.removed.of(number)
        wanted = changes.enqueued.of(number) & ~scan.known & ~gone
        segment = _Segment(number, base, file.path, len(file.data), wanted=wanted)
        segment.alive = live = scan.known & ~scan.transient & ~gone
        for entry, piece in scan.pieces(live):
            if not piece.store_id:
                segment.count(piece)
                continue
            for part in self._refer(queue, segment, piece, file.path, entry.offset):
                segment.count(part)
        self._isolation.keep(file.findings, file.data)
        if not segment.alive and not wanted:
            self._writer.doom(queue.uid, number, file.path)
            self._completeness.segment_goes(queue.uid, number)
            return
        if file.needs_rewrite:
            segment.size_bytes = self._writer.rewrite(file)
        told: list[Operation] = []
        newly_gone = scan.known & ~scan.removed & ~segment.alive
        if newly_gone:
            told.append(Remove(tuple(ranges_of(newly_gone, base))))
        told += self._deliveries(queue, segment, segment.alive, scan)
        self._tell(segment, told)
        segment.settled = segment.alive
        if wanted:
            queue.growing[number] = segment
        else:
            self._adopt(queue, segment)

    def _deliveries(
        self, queue: _Queue, segment: _Segment, alive: int, scan: SegmentScan | None
    ) -> Iterator[Delivered]:
        """Yield the records for a segment of messages that came back; after a crash these are all messages (§4.11)."""
        returned = scan.deliveries.all() if scan is not None else segment.returned
        for count, bits in queue.changes.deliveries(segment.number):
            bits &= alive
            returned |= bits
            if scan is not None:
                bits = scan.deliveries.fewer_than(count, bits)
            if bits:
                yield Delivered(tuple(ranges_of(bits, segment.base)), count)
        if not self._result.was_clean and alive & ~returned:
            yield Delivered(tuple(ranges_of(alive & ~returned, segment.base)), 1)

    def _tell(self, segment: _Segment, operations: Iterable[Operation]) -> None:
        payloads = [encode(operation) for operation in operations]
        if payloads:
            self._append(segment, payloads)

    def _append(self, segment: _Segment, payloads: list[list[bytes]]) -> None:
        is_new = not segment.size_bytes
        segment.size_bytes += self._writer.append(segment.path, payloads, is_new=is_new)

    def _adopt(self, queue: _Queue, segment: _Segment) -> None:
        """Hand a segment over to the queue's index: all about it is known."""
        self._writer.keep(segment.path)
        queue.sizes[segment.number] = segment.size_bytes
        alive = ranges_of(segment.alive, segment.base)
        queue.index.adopt(segment.number, alive, size_bytes=segment.size_bytes, has_stored=segment.has_stored)
        for page in segment.pages():
            queue.pages.append(page)
            self._result.messages += page.count
            self._result.body_bytes += page.body_bytes

    # --- the journal, second time ---

    def _copy_from_journal(self, numbers: list[int]) -> None:
        """Write to segments the messages that are alive and in no segment."""
        if not any(queue.growing for queue in self._queues.values()):
            return
        for number in numbers:
            journal_file = JournalFile(self._disk, number)
            path = journal_file.file.path
            for uid, operation, raw in journal_file:
                queue = self._queues.get(uid)
                if queue is not None and queue.growing and isinstance(operation, Enqueue):
                    self._copy(queue, operation, raw, path, journal_file.offset)
            self._clock.count(len(journal_file.file.data), self._result.messages)

    def _copy(self, queue: _Queue, head: Enqueue, raw: bytes, path: str, offset: int) -> None:
        """Copy those of some messages that are wanted.   raw: the operation.   path, offset: of its record."""
        if not head.envelope.persistent:
            return
        first, stop, entries = head.first_seq, head.first_seq + head.count, self._entries
        whole: Enqueue | None = None
        for number in range(first // entries, (stop - 1) // entries + 1):
            segment = queue.growing.get(number)
            if segment is None:
                continue
            low, high = max(first, segment.base), min(stop, segment.base + entries)
            at = low - segment.base
            bits = (segment.wanted >> at) & bits_of(0, high - low)
            if not bits:
                continue
            segment.wanted &= ~(bits << at)
            segment.alive |= bits << at
            if head.deliveries:
                segment.returned |= bits << at
            if bits == bits_of(0, head.count):
                self._put(queue, segment, head, raw, path, offset)
                continue
            whole = whole or (head if head.store_id else _decoded(raw))
            for seqs in ranges_of(bits, low):
                self._put(queue, segment, whole[seqs.start - first : seqs.stop - first], None, path, offset)

    def _put(
        self, queue: _Queue, segment: _Segment, entry: Enqueue, raw: bytes | None, path: str, offset: int
    ) -> None:
        """Write messages to a segment.   raw: the operation, where it is known as bytes."""
        parts = self._refer(queue, segment, entry, path, offset) if entry.store_id else [entry]
        for part in parts:
            self._append(segment, [[raw] if raw is not None and part is entry else encode(part)])
            segment.count(part)

    def _finish_growing(self, queue: _Queue) -> None:
        """Finish a queue's segments to which the journal has added: all messages are in them."""
        for segment in queue.growing.values():
            copied = segment.alive & ~segment.settled
            self._tell(segment, self._deliveries(queue, segment, copied, None))
            if segment.alive:
                self._adopt(queue, segment)
            elif segment.size_bytes:
                # The messages that were expected have lost their contents.
                self._writer.doom(queue.uid, segment.number, segment.path)
        queue.growing.clear()

    # --- the end ---

    def _remove_unknown(self, directories: list[str], is_catalogue_whole: bool) -> None:
        """Remove what belongs to no queue, as the directory of a queue that was deleted when the node ended."""
        unknown = [name for name in directories if name not in self._records]
        self._result.unknown_queues.update(unknown)
        if not unknown:
            return
        if is_catalogue_whole:
            self._disk.run([*(RemoveTree(f"{QUEUES}/{name}") for name in unknown), SyncDir(QUEUES)])
            return
        text = "messages of a queue that is not in the (damaged) metadata; large ones are not kept"
        for name in unknown:
            self._isolation.move(Finding(Damage.UNKNOWN, f"{QUEUES}/{name}", 0, WHOLE_FILE, text))

    def _remove_journal(self, numbers: list[int], is_catalogue_whole: bool) -> None:
        """Remove the journal: all messages that are alive are in segments, safely.

        The oldest file goes first: without a newer file's removals its messages would be back.
        """
        is_kept = not is_catalogue_whole and bool(self._result.unknown_queues)
        text = "operations of queues that are not in the (damaged) metadata"
        for number in numbers:
            path = journal.file_path(number)
            if is_kept:
                self._isolation.move(Finding(Damage.UNKNOWN, path, 0, WHOLE_FILE, text))
            else:
                self._disk.run([RemoveFile(path), SyncDir(JOURNAL)])


# --- files of a queue ---


def segment_path(uid: str, number: int) -> str:
    """Return the path of a segment of a durable queue."""
    return f"{QUEUES}/{uid}/{number}{SEGMENT_SUFFIX}"


def segment_files(disk: Disk, uid: str) -> list[tuple[int, str]]:
    """Return number and path of each segment of a durable queue, rising."""
    stems = [
        name.removesuffix(SEGMENT_SUFFIX)
        for name in disk.names(f"{QUEUES}/{uid}")
        if name.endswith(SEGMENT_SUFFIX)
    ]
    return [
        (number, segment_path(uid, number))
        for number in sorted(int(stem) for stem in stems if stem.isdecimal())
    ]


def _decoded(raw: bytes) -> Enqueue:
    operation = decode(raw)
    assert isinstance(operation, Enqueue), "its head was one"
    return operation


def _page_order(page: Page) -> tuple[int, int]:
    return page.segment, page.priority


def _shown(seqs: range) -> str:
    return str(seqs.start) if len(seqs) == 1 else f"{seqs.start} to {seqs[-1]}"
