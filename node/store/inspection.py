"""Inspection of a store without changing it: it tells what a start would find.

The figures come from a recovery on a disk that takes no writes, so they are what the next start will say.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from node.amqp.frames import body_size
from node.amqp.reader import MIXED_SIZES
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command
from node.catalogue.durable_part import is_kept
from node.catalogue.mirrors.views import stored_uid
from node.catalogue.records import QueueRecord
from node.queue.operations import Enqueue, decode
from node.store import journal
from node.store.copies import recoverable_copies
from node.store.directory import MESSAGES, QUEUES, Identity
from node.store.disk import TO_THE_END, Disk, Read, Step
from node.store.findings import Damage, Finding
from node.store.journal_scan import Changes, JournalFile, journal_numbers
from node.store.message_store import MessageStore, StoreFigures
from node.store.metadata_log import PATH as METADATA_PATH
from node.store.metadata_log import MetadataLog, MetadataUnreadable
from node.store.options import StoreOptions
from node.store.recovery import RecoveredStore, recover, segment_files
from node.store.segment_scan import scan_segment
from node.store.seq_set import bits_of, ranges_of

_READ_COUNT: Final = 64
"""The number of stored contents that are read at once: some MiB mostly."""


class TrialDisk:
    """A `Disk` that executes nothing but reads."""

    pending_bytes = 0

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.names = disk.names
        self.size = disk.size

    def submit(
        self,
        steps: Sequence[Step],
        done: Callable[[list[Any]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Refuse: a tool runs its jobs at once, so nothing is submitted."""
        raise AssertionError("a tool runs its jobs at once")

    def run(self, steps: Sequence[Step]) -> list[Any]:
        """Execute the job's reads and leave out its other steps."""
        return self._disk.run([step for step in steps if isinstance(step, Read)])


@dataclass(slots=True)
class Metadata:
    """The durable queues of a store, as far as its metadata tells.

    queues: by uid.   findings: what is damaged.
    is_readable: False: the queues are the directories that are there, and their names are not known.
    is_whole: as `MetadataLog.is_whole`.
    """

    queues: dict[str, QueueRecord]
    findings: list[Finding]
    is_readable: bool = True
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures of one queue.

    segments: files.   operations: of it in the journal.   messages, body_bytes: that a start would find.
    """

    record: QueueRecord
    messages: int
    body_bytes: int
    segments: int
    operations: int


@dataclass(slots=True)
class Inspection:
    """The result of an inspection.

    has_metadata: as `Metadata.is_readable`.   is_catalogue_whole: as for `recover`.
    findings: in the order in which a start would come upon them.
    """

    identity: Identity
    queues: list[QueueFigures]
    recovered: RecoveredStore
    has_metadata: bool
    is_catalogue_whole: bool
    journal_files: int
    journal_bytes: int
    contents: StoreFigures
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class Listed:
    """One message of a listing.

    size: of its body in bytes.   expires_at_ms: since 1970; 0: never.   store_id: as in `Run`.
    content: None if it was not asked for, or is lost.
    """

    record: QueueRecord
    seq: int
    entry: Enqueue
    size: int
    deliveries: int
    store_id: int
    content: bytes | None


class _Index:
    """A queue's index for a recovery on a `TrialDisk`, which keeps nothing."""

    def adopt(self, number: int, live: Iterable[range], *, size_bytes: int, has_stored: bool) -> None:
        """Ignore the segment."""


@dataclass(slots=True)
class _Store:
    persistent: MessageStore
    options: StoreOptions
    index: _Index = field(default_factory=_Index)

    def open(self, record: QueueRecord) -> _Index:
        """Return the same index for every queue."""
        return self.index


def read_metadata(disk: Disk) -> Metadata:
    """Read which durable queues there are. Raises NewerFormat, OSError."""
    catalogue = Catalogue()
    findings: list[Finding] = []

    def submit(command: Command[Any], answer: Callable[[Any], None]) -> None:
        answer(catalogue.apply(command))
        catalogue.take_events()

    def report(path: str, offset: int, what: str) -> None:
        findings.append(
            Finding(Damage.CORRUPT, path, offset, 0, f"{what}: queues, users or others may be lost")
        )

    log = MetadataLog(TrialDisk(disk), catalogue)
    try:
        log.load(submit, report)
    except MetadataUnreadable as error:
        findings.append(Finding(Damage.CORRUPT, METADATA_PATH, 0, 0, str(error)))
        return unknown_metadata(disk, findings)
    kept = [queue for vhost in catalogue.vhosts() for queue in catalogue.queues(vhost.name) if is_kept(queue)]
    return Metadata({queue.uid: queue for queue in kept}, findings, is_whole=log.is_whole)


def cluster_metadata(catalogue: Catalogue, node: str) -> Metadata:
    """Return what a cluster's catalogue says of the queues that a node has on disk.

    Of a mirrored queue that went on without the node nothing is counted: the next start removes it.
    """
    homes = {
        stored_uid(queue.uid, queue.copy): queue
        for vhost in catalogue.vhosts()
        for queue in catalogue.queues(vhost.name)
        if is_kept(queue) and queue.view is None and queue.home == node
    }
    copies = {uid: record for uid, (record, _) in recoverable_copies(catalogue, node).items()}
    return Metadata(homes | copies, [])


def unknown_metadata(disk: Disk, findings: list[Finding]) -> Metadata:
    """Return the queues that have a directory, by uid: their names stand elsewhere, or nowhere any more."""
    named = {uid: QueueRecord("", uid, uid, durable=True) for uid in disk.names(QUEUES)}
    return Metadata(named, findings, is_readable=False, is_whole=False)


def inspect(disk: Disk, identity: Identity, metadata: Metadata) -> Inspection:
    """Inspect a whole store by a trial recovery. Raises NewerFormat, OSError."""
    trial = TrialDisk(disk)
    contents = MessageStore(MESSAGES, trial)
    recovered = recover(
        trial,
        _Store(contents, StoreOptions(segment_entries=identity.segment_entries)),
        metadata.queues,
        now=lambda: 0.0,
        is_catalogue_whole=metadata.is_whole,
        is_trial=True,
    )
    queues = [
        QueueFigures(
            metadata.queues[uid],
            sum(page.count for page in found.pages),
            sum(page.body_bytes for page in found.pages),
            len(segment_files(disk, uid)),
            found.operations,
        )
        for uid, found in recovered.queues.items()
    ]
    queues.sort(key=lambda queue: (queue.record.vhost, queue.record.name))
    numbers = journal_numbers(disk)
    return Inspection(
        identity,
        queues,
        recovered,
        metadata.is_readable,
        not metadata.findings,
        len(numbers),
        sum(disk.size(journal.file_path(number)) for number in numbers),
        contents.figures(),
        metadata.findings + recovered.findings,
    )


class Listing:
    """The messages of some queues, one by one.

    queues: by uid.   has_bodies: whether to fetch the contents, too.
    damaged: after the iteration, files in which there was something else than good records.

    Yields those in segments first, queue by queue, then those that are in the journal only.
    Raises NewerFormat, OSError.
    """

    def __init__(
        self, disk: Disk, queues: dict[str, QueueRecord], segment_entries: int, *, has_bodies: bool
    ) -> None:
        self.damaged: list[str] = []
        self._disk = disk
        self._queues = queues
        self._entries = segment_entries
        self._has_bodies = has_bodies
        self._numbers = journal_numbers(disk)
        self._changes = {uid: Changes(segment_entries) for uid in queues}
        self._known: dict[tuple[str, int], int] = {}
        self._contents = MessageStore(MESSAGES, TrialDisk(disk))

    def __iter__(self) -> Iterator[Listed]:
        if self._has_bodies:
            self._contents.recover(
                TrialDisk(self._disk), lambda path, offset, what: self.damaged.append(path)
            )
        for number in self._numbers:
            journal_file = JournalFile(self._disk, number)
            for uid, operation, _ in journal_file:
                if uid in self._changes:
                    self._changes[uid].apply(operation)
            if journal_file.file.findings:
                self.damaged.append(journal_file.file.path)
        for uid in self._queues:
            yield from self._in_segments(uid)
        for number in self._numbers:
            for uid, operation, raw in JournalFile(self._disk, number):
                if uid in self._queues and isinstance(operation, Enqueue) and operation.envelope.persistent:
                    yield from self._in_journal(uid, operation, raw)

    def _in_segments(self, uid: str) -> Iterator[Listed]:
        changes = self._changes[uid]
        for number, path in segment_files(self._disk, uid):
            [data] = self._disk.run([Read(path, 0, TO_THE_END)])
            scan = scan_segment(path, number, self._entries, data)
            if scan.file.findings:
                self.damaged.append(path)
            self._known[uid, number] = scan.known
            live = scan.known & ~scan.transient & ~scan.removed & ~changes.removed.of(number)
            deliveries = [*scan.deliveries.items(), *changes.deliveries(number)]
            pieces = sorted(scan.pieces(live), key=lambda found: found[1].first_seq)
            for entry, piece in pieces:
                whole = piece if piece.store_id else scan.contents_of(entry)
                start = piece.first_seq - whole.first_seq
                yield from self._listed(uid, whole[start : start + piece.count], deliveries, scan.base)

    def _in_journal(self, uid: str, head: Enqueue, raw: bytes) -> Iterator[Listed]:
        changes, entries = self._changes[uid], self._entries
        first, stop = head.first_seq, head.first_seq + head.count
        whole: Enqueue | None = None
        for number in range(first // entries, (stop - 1) // entries + 1):
            base = number * entries
            known = self._known.get((uid, number), 0)
            low, high = max(first, base), min(stop, base + entries)
            bits = bits_of(low - base, high - low) & ~known & ~changes.removed.of(number)
            if not bits:
                continue
            self._known[uid, number] = known | bits
            if whole is None:
                decoded = decode(raw)
                assert isinstance(decoded, Enqueue), "its head was one"
                whole = decoded
            for seqs in ranges_of(bits, base):
                part = whole[seqs.start - first : seqs.stop - first]
                yield from self._listed(uid, part, changes.deliveries(number), base)

    def _listed(
        self, uid: str, entry: Enqueue, deliveries: Sequence[tuple[int, int]], base: int
    ) -> Iterator[Listed]:
        """Yield the messages of an enqueue.   deliveries: count and bits; bit 0 is number `base`."""
        for at, (seq, content) in enumerate(zip(entry.seqs, self._contents_of(entry), strict=True)):
            counts = [count for count, bits in deliveries if bits >> (seq - base) & 1]
            size = entry.size
            if size == MIXED_SIZES:
                size = body_size(entry.contents[at])
            store_id = entry.store_id + at if entry.store_id else 0
            yield Listed(
                self._queues[uid], seq, entry, size, max([entry.deliveries, *counts]), store_id, content
            )

    def _contents_of(self, entry: Enqueue) -> Iterator[bytes | None]:
        if not self._has_bodies:
            yield from [None] * entry.count
        elif not entry.store_id:
            yield from entry.contents
        else:
            for start in range(0, entry.count, _READ_COUNT):
                count = min(_READ_COUNT, entry.count - start)
                steps = self._contents.read_steps(entry.store_id + start, count)
                found = [content for contents in self._disk.run(steps) for content in contents]
                yield from found or [None] * count
