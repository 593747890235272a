"""The journal as it is found when a node starts: the changes of each queue.

Operations are idempotent, and a number is never given twice: so the messages that exist are those that came in without
those that were removed, in whatever order. They are kept as sets of numbers; the messages themselves stay in the file.
"""

from collections.abc import Iterator
from typing import Final

from node.queue.operations import CorruptRecord, Enqueue, Operation, Remove, decode_head
from node.store import journal
from node.store.directory import JOURNAL
from node.store.disk import TO_THE_END, Disk, Read
from node.store.record_file import RecordFile
from node.store.records import JOURNAL_HEADER
from node.store.seq_set import Deliveries, SeqSet, bits_of, clipped

_MEANING: Final = "messages of any queue may be missing, or be back though they were acknowledged"


class Changes:
    """The changes of one queue in the journal.

    enqueued: persistent messages that came in.   removed: messages that are gone.   operations: their number.
    """

    def __init__(self, segment_entries: int) -> None:
        self.enqueued = SeqSet(segment_entries)
        self.removed = SeqSet(segment_entries)
        self.operations = 0
        self._entries = segment_entries
        self._deliveries: dict[int, Deliveries] = {}

    @property
    def end(self) -> int:
        """A number above every number in the journal."""
        return max(self.enqueued.end, self.removed.end)

    def apply(self, operation: Operation) -> None:
        """Add an operation, whose contents may be left out."""
        self.operations += 1
        if isinstance(operation, Enqueue):
            if operation.envelope.persistent:
                self.enqueued.add(operation.first_seq, operation.first_seq + operation.count)
        elif isinstance(operation, Remove):
            for seqs in operation.ranges:
                self.removed.add(seqs.start, seqs.stop)
        else:
            self._deliver(operation.ranges, operation.count)

    def _deliver(self, ranges: tuple[range, ...], count: int) -> None:
        entries = self._entries
        for seqs in ranges:
            for segment in range(seqs.start // entries, (seqs.stop - 1) // entries + 1):
                deliveries = self._deliveries.setdefault(segment, Deliveries())
                for part in clipped([seqs], segment * entries, entries):
                    deliveries.add(bits_of(part.start - segment * entries, len(part)), count)

    def deliveries(self, segment: int) -> list[tuple[int, int]]:
        """Return count and bits of messages of a segment that came back from clients, by count."""
        found = self._deliveries.get(segment)
        return found.items() if found is not None else []


class JournalFile:
    """One file of the journal: iterate over the operations, without contents; then `file.findings` is complete.

    Yields: uid of the queue, the operation, its bytes.
    offset: of the record that came last.
    is_clean: after the iteration, whether the last record is the mark of a clean stop.
    """

    def __init__(self, disk: Disk, number: int) -> None:
        """Raises NewerFormat, OSError."""
        path = journal.file_path(number)
        [data] = disk.run([Read(path, 0, TO_THE_END)])
        self.file = RecordFile(path, data, JOURNAL_HEADER, _MEANING)
        self.offset = 0
        self.is_clean = False

    def __iter__(self) -> Iterator[tuple[str, Operation, bytes]]:
        is_clean = False
        for offset, payload in self.file:
            is_clean = payload == journal.CLEAN
            if is_clean:
                continue
            uid, raw = journal.split(payload)
            try:
                operation = decode_head(raw)
            except CorruptRecord as error:
                self.file.reject(offset, payload, str(error))
                continue
            self.offset = offset
            yield uid, operation, raw
        self.is_clean = is_clean and not self.file.findings


def journal_numbers(disk: Disk) -> list[int]:
    """Return the numbers of the journal files, rising."""
    return journal.file_numbers(disk.names(JOURNAL))
