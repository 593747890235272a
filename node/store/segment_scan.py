"""One segment of a queue, as it is found on disk.

The whole file is read at once (64 MiB at most), but contents stay bytes: of each run only the head is decoded. Sets of
numbers are bits, see `node.store.seq_set`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from node.amqp.reader import MIXED_SIZES
from node.queue.operations import CorruptRecord, Enqueue, Remove, decode, decode_head
from node.store.record_file import RecordFile
from node.store.records import RECORD_HEAD_BYTES, SEGMENT_HEADER, payload_at
from node.store.seq_set import Deliveries, SeqSet, bits_of, clipped, ranges_of

_MEANING: Final = "messages of the queue may be missing, or be back though they were acknowledged"


class Entry(NamedTuple):
    """Messages that came into the queue, in one record.

    offset, length: of the whole record in the file.   head: without contents.
    """

    offset: int
    length: int
    head: Enqueue


@dataclass(slots=True)
class SegmentScan:
    """The contents of a segment. Sets of messages are bits; bit 0 is number `base`.

    entries: all that ever came in by this file, in its order; known: the same as bits.
    transient: those that end with the node.   removed: those that are gone.
    deliveries: of those that came back from clients.
    end: above every number in the file.
    """

    number: int
    base: int
    file: RecordFile
    known: int = 0
    transient: int = 0
    removed: int = 0
    deliveries: Deliveries = field(default_factory=Deliveries)
    entries: list[Entry] = field(default_factory=list)
    end: int = 0

    def pieces(self, live: int) -> Iterator[tuple[Entry, Enqueue]]:
        """Yield the live messages, as enqueues without contents, each with the entry that it is from.

        live: as bits. Each number comes once, though two records may have it.
        """
        for entry in self.entries:
            head = entry.head
            mine = bits_of(0, head.count)
            at = head.first_seq - self.base
            wanted = (live >> at) & mine
            if not wanted:
                continue
            live &= ~(mine << at)
            if wanted == mine:
                yield entry, head
                continue
            whole = self.contents_of(entry) if head.size == MIXED_SIZES else head
            for seqs in ranges_of(wanted, 0):
                piece = whole[seqs.start : seqs.stop]
                piece.contents = []
                yield entry, piece

    def contents_of(self, entry: Entry) -> Enqueue:
        """Return an entry with its contents."""
        payload = payload_at(self.file.data, entry.offset)
        assert payload is not None, "it was good a moment ago"
        operation = decode(payload)
        assert isinstance(operation, Enqueue), "it was one a moment ago"
        return operation


def scan_segment(path: str, number: int, segment_entries: int, data: bytes) -> SegmentScan:
    """Read a segment.   data: all of the file.   Raises NewerFormat."""
    base = number * segment_entries
    file = RecordFile(path, data, SEGMENT_HEADER, _MEANING)
    scan = SegmentScan(number, base, file)
    known, transient, removed = (SeqSet(segment_entries) for _ in range(3))
    for offset, payload in file:
        try:
            operation = decode_head(payload)
        except CorruptRecord as error:
            file.reject(offset, payload, str(error))
            continue
        if isinstance(operation, Enqueue):
            first, stop = operation.first_seq, operation.first_seq + operation.count
            if first < base or stop > base + segment_entries:
                file.reject(offset, payload, f"messages {first} to {stop - 1} don't belong here")
                continue
            scan.entries.append(Entry(offset, RECORD_HEAD_BYTES + len(payload), operation))
            known.add(first, stop)
            if not operation.envelope.persistent:
                transient.add(first, stop)
            if operation.deliveries:
                scan.deliveries.add(bits_of(first - base, operation.count), operation.deliveries)
        elif isinstance(operation, Remove):
            for seqs in operation.ranges:
                removed.add(seqs.start, seqs.stop)
        else:
            for seqs in clipped(operation.ranges, base, segment_entries):
                scan.deliveries.add(bits_of(seqs.start - base, len(seqs)), operation.count)
    scan.known, scan.transient, scan.removed = known.of(number), transient.of(number), removed.of(number)
    # Removes and deliveries are of messages that came in by this file, or by a stretch of it that is bad.
    scan.end = max(known.end, removed.end)
    return scan
