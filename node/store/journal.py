"""The journal: operations on persistent messages in durable queues, all queues in one file.

    journal/N.journal = header, then records
    record            = queue:16 bytes of its uid, operation         see node.queue.operations
                      | sixteen zeros                                CLEAN: the node was stopped, nothing follows

Files are numbered upwards and only the last one is written. A checkpoint (`node.store.checkpoint`) moves the contents
of the older ones to the queues' segments; then they are removed, the oldest first. Replaying the files
that are left over what the segments know gives every queue as it was: operations are idempotent.
Source: amqp-behaviour §7.5; docs/storage.md, "journal/N.journal".
"""

from collections.abc import Iterable
from typing import Final

from node.queue.operations import Operation, encode
from node.store.directory import JOURNAL
from node.store.disk import Append, MakeDir, Remove, Step, Sync, SyncDir
from node.store.records import HEADER_BYTES, JOURNAL_HEADER, record

_SUFFIX: Final = ".journal"

UID_BYTES: Final = 16
CLEAN: Final = bytes(UID_BYTES)
"""The payload of the last record after a clean stop."""

_PART_BYTES: Final = 32 * 1024
"""The size up to which small parts are joined: a call costs some microseconds a part, as long as copying so much.

Larger parts are left as they are.
"""


def file_path(number: int) -> str:
    """Return the path of a journal file."""
    return f"{JOURNAL}/{number}{_SUFFIX}"


def file_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the journal files among the names in their directory, rising."""
    stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def split(payload: bytes) -> tuple[str, bytes]:
    """Return the uid of the queue and the operation (for `operations.decode`) of a payload other than `CLEAN`.

    A payload that is too short has an empty operation, which cannot be decoded.
    """
    return payload[:UID_BYTES].hex(), payload[UID_BYTES:]


class Journal:
    """The journal file that is written, and the older ones that are still needed.

    Operations gather until a batch takes them.
    gathered_bytes: what a batch would write now.   written_bytes, operations: since the start, for figures.
    """

    def __init__(self, file_bytes: int) -> None:
        self.gathered_bytes = 0
        self.written_bytes = 0
        self.operations = 0
        self.older: list[int] = []
        """The numbers of files that a checkpoint makes superfluous, rising."""
        self.sizes: dict[int, int] = {}
        """The size in bytes of each of these files."""
        self._file_bytes = file_bytes
        self._number = 0
        self._size_bytes = 0
        self._is_new = False  # the next batch creates the file
        self._operations_in_file = 0
        self._parts: list[bytes] = []

    def begin(self, names: Iterable[str]) -> list[Step]:
        """Begin a file behind all that are in the directory; return steps to be run before anything is added.

        names: the directory's names. The caller has replayed what is in those files.
        """
        self._number = max(file_numbers(names), default=0) + 1
        self._size_bytes = HEADER_BYTES
        path = file_path(self._number)
        return [MakeDir(JOURNAL), SyncDir(""), Append(path, [JOURNAL_HEADER]), Sync(path), SyncDir(JOURNAL)]

    @property
    def place(self) -> tuple[int, int]:
        """The number of the file that is written, and its size with all that was taken."""
        return self._number, self._size_bytes

    # --- what gathers ---

    def add(self, uid: bytes, operation: Operation) -> None:
        """Add an operation of a queue to the next batch.   uid: of `UID_BYTES`."""
        self._add(record([uid, *encode(operation)]))
        self.operations += 1
        self._operations_in_file += 1

    def add_clean(self) -> None:
        """Add the mark of a clean stop to the next batch: nothing may follow it."""
        self._add(record([CLEAN]))

    def _add(self, parts: list[bytes]) -> None:
        self._parts += parts
        self.gathered_bytes += sum(map(len, parts))

    def take_steps(self) -> list[Step]:
        """Return steps that write and sync what has gathered; none if nothing has."""
        if not self._parts:
            return []
        count_bytes, self.gathered_bytes = self.gathered_bytes, 0
        parts, self._parts = _joined(self._parts, count_bytes), []
        path = file_path(self._number)
        names: list[Step] = []
        is_new = self._is_new
        if is_new:
            self._is_new = False
            parts.insert(0, JOURNAL_HEADER)
            count_bytes += HEADER_BYTES
            names = [SyncDir(JOURNAL)]
        self._size_bytes += count_bytes
        self.written_bytes += count_bytes
        return [Append(path, parts, creates=is_new), Sync(path), *names]

    # --- files ---

    def is_full(self, operations_max: int) -> bool:
        """True if the file has its full size, or has that many operations."""
        return self._size_bytes >= self._file_bytes or self._operations_in_file >= operations_max

    def rotate(self) -> None:
        """Begin a new file for operations that no batch has taken yet."""
        self.older.append(self._number)
        self.sizes[self._number] = self._size_bytes
        self._number += 1
        self._size_bytes = 0
        self._operations_in_file = 0
        self._is_new = True

    def remove_steps(self, numbers: list[int]) -> list[Step]:
        """Return steps that remove older files whose checkpoint is done.   numbers: the first ones of `older`.

        One is always there, though nothing came for it yet: no file at all is a lost journal.
        """
        assert numbers == self.older[: len(numbers)], "the oldest go first"
        del self.older[: len(numbers)]
        steps: list[Step] = []
        if self._is_new and not self.older:
            self._is_new = False
            self._size_bytes += HEADER_BYTES
            path = file_path(self._number)
            steps = [Append(path, [JOURNAL_HEADER]), Sync(path), SyncDir(JOURNAL)]
        for number in numbers:
            del self.sizes[number]
            # One after the other also for a power loss: what a file says is gone must not come back by an
            # older one.
            steps += [Remove(file_path(number)), SyncDir(JOURNAL)]
        return steps


def _joined(parts: list[bytes], count_bytes: int) -> list[bytes]:
    """Return the same bytes in few parts.   count_bytes: of all."""
    if count_bytes <= _PART_BYTES:
        return [b"".join(parts)]
    few: list[bytes] = []
    small: list[bytes] = []
    small_bytes = 0
    for part in parts:
        if small and small_bytes + len(part) > _PART_BYTES:
            few.append(b"".join(small))  # which copies nothing where there is only one
            small, small_bytes = [], 0
        small.append(part)
        small_bytes += len(part)
    if small:
        few.append(b"".join(small))
    return few
