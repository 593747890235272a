"""A store as files for tests of its recovery: written by hand, operation by operation, and read again."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from node.amqp.reader import MIXED_SIZES
from node.catalogue.records import QueueRecord
from node.queue.operations import Delivered, Enqueue, Operation, Remove, decode, encode
from node.queue.run import Envelope
from node.store import journal
from node.store.disk import Step
from node.store.message_store import MessageStore
from node.store.options import StoreOptions
from node.store.records import (
    JOURNAL_HEADER,
    MESSAGES_HEADER,
    RECORD_HEAD_BYTES,
    SEGMENT_HEADER,
    read_records,
    record,
)
from node.store.recovery import RecoveredStore, recover
from tests.kit.disk import SimulatedDisk
from tests.kit.messages import body_of, content

NODE = "rabbit@test"
ENTRIES = 16
"""Messages of a segment in these tests."""

UID = "00" * 15 + "01"
OTHER_UID = "00" * 15 + "02"
UNKNOWN_UID = "ff" * 16

PERSISTENT = Envelope("", "q", channel=1, frame_max_bytes=0, persistent=True)
TRANSIENT = Envelope("", "q", channel=1, frame_max_bytes=0)


def urgent(priority: int) -> Envelope:
    """Return the envelope of a persistent message with a priority."""
    return Envelope("", "q", channel=1, frame_max_bytes=0, persistent=True, priority=priority)


def enqueue(
    first_seq: int,
    *bodies: bytes,
    envelope: Envelope = PERSISTENT,
    deliveries: int = 0,
    expires_at_ms: int = 0,
) -> Enqueue:
    """Return an enqueue of messages whose contents are embedded."""
    sizes = {len(body) for body in bodies}
    size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
    contents = [content(body) for body in bodies]
    total = sum(map(len, bodies))
    return Enqueue(envelope, first_seq, contents, len(bodies), size, total, expires_at_ms, deliveries)


def enqueue_stored(first_seq: int, store_id: int, count: int, size: int = 5000) -> Enqueue:
    """Return an enqueue of messages whose contents are in the message store."""
    return Enqueue(PERSISTENT, first_seq, [], count, size, size * count, store_id=store_id)


def remove(*seqs: int) -> Remove:
    """Return the operation that removes messages."""
    return Remove(tuple(range(seq, seq + 1) for seq in seqs))


def delivered(count: int, *seqs: int) -> Delivered:
    """Return the operation for messages that clients returned."""
    return Delivered(tuple(range(seq, seq + 1) for seq in seqs), count)


def framed(payloads: Iterable[Sequence[bytes]]) -> bytes:
    """Return records with these payloads, each given in parts."""
    return b"".join(part for payload in payloads for part in record(payload))


def journal_bytes(operations: Iterable[tuple[str, Operation]], *, is_clean: bool = False) -> bytes:
    """Return the bytes of a journal file."""
    payloads = [[bytes.fromhex(uid), *encode(operation)] for uid, operation in operations]
    return JOURNAL_HEADER + framed([*payloads, *([[journal.CLEAN]] if is_clean else [])])


def segment_bytes(operations: Iterable[Operation]) -> bytes:
    """Return the bytes of a segment."""
    return SEGMENT_HEADER + framed(map(encode, operations))


def contents_bytes(contents: Mapping[int, bytes]) -> bytes:
    """Return the bytes of a file of the message store."""
    return MESSAGES_HEADER + framed([store_id.to_bytes(8), raw] for store_id, raw in contents.items())


class Index:
    """An index that records its calls."""

    def __init__(self) -> None:
        self.segments: dict[int, tuple[list[int], int, bool]] = {}

    def adopt(self, number: int, live: Iterable[range], *, size_bytes: int, has_stored: bool) -> None:
        assert number not in self.segments
        self.segments[number] = ([seq for seqs in live for seq in seqs], size_bytes, has_stored)


class Store:
    """The parts of a store that a recovery needs."""

    def __init__(self, disk: Any) -> None:
        self.persistent = MessageStore("messages", disk)
        self.options = StoreOptions(segment_entries=ENTRIES)
        self.indexes: dict[str, Index] = {}

    def open(self, queue: QueueRecord) -> Index:
        return self.indexes.setdefault(queue.uid, Index())


class PowerOff(Exception):
    """The power went off."""


class FailingDisk:
    """A simulated disk whose power goes off after this many steps.   torn: the last step may be half done."""

    def __init__(self, disk: SimulatedDisk, steps: int) -> None:
        self.disk = disk
        self.left = steps
        self.names = disk.names
        self.size = disk.size

    def run(self, steps: Sequence[Step]) -> list[Any]:
        results = []
        for step in steps:
            if not self.left:
                raise PowerOff
            self.left -= 1
            results += self.disk.run([step])
        return results


class Files:
    """The files of a node with two queues."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        self.disk = disk or SimulatedDisk()
        self.records = {uid: QueueRecord("/", f"q{uid[-1]}", uid, durable=True) for uid in (UID, OTHER_UID)}
        if disk is None:
            self.disk.write("store.json", json.dumps({"format": 1, "node": NODE}).encode())

    def segment(self, number: int, *operations: Operation, uid: str = UID) -> str:
        """Write a segment. Returns: its path."""
        path = f"queues/{uid}/{number}.idx"
        self.disk.write(path, segment_bytes(operations))
        return path

    def journal(self, *operations: Operation, number: int = 1, uid: str = UID, is_clean: bool = False) -> str:
        """Write a journal file. Returns: its path."""
        path = journal.file_path(number)
        self.disk.write(path, journal_bytes([(uid, each) for each in operations], is_clean=is_clean))
        return path

    def contents(self, number: int, contents: Mapping[int, bytes]) -> str:
        """Write a file of the message store. Returns: its path."""
        path = f"messages/{number}.rdq"
        self.disk.write(path, contents_bytes(contents))
        return path

    def recover(self, disk: Any = None, **options: Any) -> tuple[RecoveredStore, Store]:
        """Recover the store as a node does at its start."""
        disk = disk or self.disk
        store = Store(disk)
        return recover(disk, store, self.records, now=lambda: 0.0, **options), store

    def operations(self, uid: str = UID) -> list[Operation]:
        """Return all operations in the segments of a queue."""
        found = []
        for name in self.disk.names(f"queues/{uid}"):
            records = read_records(self.disk.content(f"queues/{uid}/{name}"))
            found += [decode(payload) for _, payload in records]
            assert records.end is not None
            assert records.end.state.value == "clean"
        return found

    def messages(self, uid: str = UID) -> dict[int, tuple[bytes | int, int]]:
        """Return the messages of a queue: body (or store id) and deliveries, by number."""
        return told_by(self.operations(uid))

    def bodies(self, uid: str = UID) -> dict[int, bytes | int]:
        """Return the messages of a queue: body or store id, by number."""
        return {seq: body for seq, (body, _) in self.messages(uid).items()}


def told_by(operations: Iterable[Operation]) -> dict[int, tuple[bytes | int, int]]:
    """Return the messages after operations: body (or store id) and deliveries, by number."""
    found: dict[int, tuple[bytes | int, int]] = {}
    for entry in Image(operations).entries:
        for at, seq in enumerate(entry.seqs):
            body = entry.store_id + at if entry.store_id else body_of(entry.contents[at])
            found[seq] = (body, entry.deliveries)
    return found


def offset_of(data: bytes, number: int) -> int:
    """Return the offset of a record; number 0 is the first."""
    return list(read_records(data))[number][0] if number >= 0 else 0


def corrupt(disk: SimulatedDisk, path: str, number: int) -> int:
    """Damage the payload of a record. Returns: its offset."""
    offset = offset_of(disk.content(path), number)
    disk.flip_bit(path, offset + RECORD_HEAD_BYTES + 5)
    return offset


class Image:
    """The messages of a queue that result from its operations.

    An operation may come again: an Enqueue of messages that were here already, removed or not, changes nothing,
    nor does a Remove or Delivered of unknown ones.

    entries: what is in the queue, by rising number. Never changed in place.
    """

    __slots__ = ("_known", "_starts", "entries")

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self.entries: list[Enqueue] = []
        self._starts: list[int] = []  # the first number of each
        self._known: list[int] = []  # bounds of the ranges of numbers that were ever here, rising
        for operation in operations:
            self.apply(operation)

    def __len__(self) -> int:
        return sum(entry.count for entry in self.entries)

    @property
    def body_bytes(self) -> int:
        """The number of bytes of all bodies."""
        return sum(entry.body_bytes for entry in self.entries)

    @property
    def next_seq(self) -> int:
        """The number above that of every message that was ever here; 0 if there was none."""
        return self._known[-1] if self._known else 0

    def apply(self, operation: Operation) -> None:
        """Apply an operation."""
        if isinstance(operation, Enqueue):
            self._enqueue(operation)
            return
        for seqs in operation.ranges:
            first, stop = self._index(seqs.start), self._index(seqs.stop)
            if isinstance(operation, Remove):
                del self.entries[first:stop]
                del self._starts[first:stop]
            else:
                for index in range(first, stop):
                    self.entries[index] = replace(self.entries[index], deliveries=operation.count)

    def _enqueue(self, entry: Enqueue) -> None:
        first = entry.first_seq
        for seqs in _missing(self._known, entry.seqs):
            piece = entry if len(seqs) == entry.count else entry[seqs.start - first : seqs.stop - first]
            index = bisect_left(self._starts, seqs.start)
            self.entries.insert(index, piece)
            self._starts.insert(index, seqs.start)
        _add(self._known, entry.seqs)

    def _index(self, seq: int) -> int:
        """Return the index of the first entry from a number on; an entry with the number inside is cut there."""
        index = bisect_left(self._starts, seq)
        if index:
            before = self.entries[index - 1]
            cut = seq - before.first_seq
            if cut < before.count:
                self.entries[index - 1 : index] = [before[:cut], before[cut:]]
                self._starts.insert(index, seq)
        return index


def _add(bounds: list[int], seqs: range) -> None:
    """Add numbers to a set of them.   bounds: where ranges of numbers begin and end, in turn."""
    low, high = bisect_left(bounds, seqs.start), bisect_right(bounds, seqs.stop)
    bounds[low:high] = [seqs.start] * (low % 2 == 0) + [seqs.stop] * (high % 2 == 0)


def _missing(bounds: Sequence[int], seqs: range) -> list[range]:
    """Return the ranges of the numbers that are not in a set.   bounds: as in `_add`."""
    low, high = bisect_right(bounds, seqs.start), bisect_left(bounds, seqs.stop)
    edges = [seqs.start] * (low % 2 == 0) + list(bounds[low:high]) + [seqs.stop] * (high % 2 == 0)
    return [range(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
