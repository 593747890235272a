"""The log of safe sizes: by `synced.log` a start tells a loss from the normal traces of a crash.

A torn end of the journal is nothing where it was never synced, and a loss where it was. So beside the files stands how
much of each is safe at least: of the journal a second after its batches, of segments when a checkpoint or a recovery is
over. The file is appended to and not synced, so it may say less than is true. It never says more: before a segment is
removed, this is written to the file and synced, as the number may soon be that of another segment file.

    synced.log = header, then records
    record     = "J", number:8 size:8                        a journal file
               | "Q", uid:16 is_lossy:1 (number:8 size:8)*   all segments of a queue that have something alive

The last record about something counts. A recovery, and a checkpoint that finds the file too large, begin it anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from node.store.directory import NEW_SYNCED, SYNCED
from node.store.disk import TO_THE_END, Append, Disk, Read, Remove, Rename, Step, Sync, SyncDir
from node.store.records import check_header, read_records, record

SYNCED_HEADER: Final = b"FLFB\0\0\0\1"

GROWTH_BYTES: Final = 16 * 1024 * 1024
"""The bytes that are appended before the file is begun anew: days of records about the journal."""

_JOURNAL: Final = b"J"
_QUEUE: Final = b"Q"
_PLACE: Final = Struct(">QQ")
_UID_BYTES: Final = 16
_SEGMENTS_AT: Final = 1 + _UID_BYTES + 1


@dataclass(slots=True)
class Synced:
    """The contents of the file.

    is_known: there is one.   journal: bytes of each journal file.   segments: of each queue, bytes by number.
    lossy: copies of mirrored queues that have lost something, by uid.
    """

    is_known: bool = False
    journal: dict[int, int] = field(default_factory=dict)
    segments: dict[str, dict[int, int]] = field(default_factory=dict)
    lossy: set[str] = field(default_factory=set)

    def apply(self, payload: bytes) -> None:
        """Apply a record; one that makes no sense is ignored."""
        kind, rest = payload[:1], payload[1:]
        if kind == _JOURNAL and len(rest) == _PLACE.size:
            number, size = _PLACE.unpack(rest)
            self.journal[number] = size
        elif (
            kind == _QUEUE
            and len(payload) >= _SEGMENTS_AT
            and not (len(payload) - _SEGMENTS_AT) % _PLACE.size
        ):
            uid = rest[:_UID_BYTES].hex()
            self.segments[uid] = dict(_PLACE.iter_unpack(payload[_SEGMENTS_AT:]))
            if rest[_UID_BYTES]:
                self.lossy.add(uid)
            else:
                self.lossy.discard(uid)


def read_synced(disk: Disk) -> Synced:
    """Read what is known to have been safe. Raises NewerFormat, OSError."""
    if SYNCED not in disk.names(""):
        return Synced()
    [data] = disk.run([Read(SYNCED, 0, TO_THE_END)])
    known = Synced(is_known=check_header(data, SYNCED_HEADER))
    for _, payload in read_records(data):
        known.apply(payload)
    return known


def about_journal(sizes: Mapping[int, int]) -> list[bytes]:
    """Return records about journal files.   sizes: bytes by number."""
    return [part for number, size in sizes.items() for part in record([_JOURNAL + _PLACE.pack(number, size)])]


def about_queue(uid: str, sizes: Iterable[tuple[int, int]], *, is_lossy: bool) -> list[bytes]:
    """Return a record about a queue.   sizes: number and bytes of each segment."""
    places = [_PLACE.pack(number, size) for number, size in sizes]
    return record([b"".join((_QUEUE, bytes.fromhex(uid), bytes([is_lossy]), *places))])


def renewal(parts: Iterable[bytes]) -> list[Step]:
    """Return steps that begin the file anew, safely."""
    return [
        Remove(NEW_SYNCED),
        Append(NEW_SYNCED, [SYNCED_HEADER, *parts]),
        Sync(NEW_SYNCED),
        Rename(NEW_SYNCED, SYNCED),
        SyncDir(""),
    ]


class SyncedFile:
    """The file while a node runs.   journal: the safe bytes of each journal file that is there, by number.

    lossy: as in `Synced`.
    """

    def __init__(self) -> None:
        self.journal: dict[int, int] = {}
        self.lossy: set[str] = set()
        self._told: dict[int, int] = {}
        self._written = (0, 0)
        self._size_bytes = 0
        self._renewed_bytes = 0

    def begin(self, disk: Disk, journal: tuple[int, int]) -> None:
        """Continue the file of a recovery.   journal: number and size of the new journal file. Raises: OSError."""
        if SYNCED in disk.names(""):
            self.lossy = read_synced(disk).lossy
            self._size_bytes = self._renewed_bytes = disk.size(SYNCED)
        self.journal_is_written(*journal)
        self.journal_is_safe()
        disk.run(self.tell_journal())

    def journal_is_written(self, number: int, size: int) -> None:
        """Note that a batch goes to the disk, with which a journal file has so many bytes."""
        self._written = number, size

    def journal_is_safe(self) -> None:
        """Note that what was written of the journal is safe."""
        number, size = self._written
        self.journal[number] = size

    def tell_journal(self) -> list[Step]:
        """Return steps that write down what is new of the journal; none if nothing is."""
        new = {number: size for number, size in self.journal.items() if self._told.get(number) != size}
        self._told = self.journal.copy()
        return self._append(about_journal(new))

    def journal_goes(self, numbers: Iterable[int]) -> None:
        """Forget journal files that are removed."""
        for number in numbers:
            self.journal.pop(number, None)

    def tell_queues(self, queues: Mapping[str, Iterable[tuple[int, int]]]) -> list[Step]:
        """Return steps that write down what is safe of the segments of some queues."""
        return self._append(self._about(queues))

    def tell_safely(self, queues: Mapping[str, Iterable[tuple[int, int]]]) -> list[Step]:
        """Return steps that write down, safely, what is safe of some queues, before files are removed.

        The files may be segments of theirs, or the journal's.
        """
        steps = self.tell_queues(queues)
        return [*steps, Sync(SYNCED)] if steps else []

    @property
    def is_large(self) -> bool:
        """True if the file should be begun anew."""
        return self._size_bytes > self._renewed_bytes + GROWTH_BYTES

    def renew(self, queues: Mapping[str, Iterable[tuple[int, int]]]) -> list[Step]:
        """Return steps that begin the file anew.   queues: all that there are."""
        self.lossy &= queues.keys()
        self._told = self.journal.copy()
        steps = renewal([*about_journal(self.journal), *self._about(queues)])
        [append] = [step for step in steps if isinstance(step, Append)]
        self._size_bytes = self._renewed_bytes = sum(map(len, append.parts))
        return steps

    def _about(self, queues: Mapping[str, Iterable[tuple[int, int]]]) -> list[bytes]:
        return [
            part
            for uid, sizes in queues.items()
            for part in about_queue(uid, sizes, is_lossy=uid in self.lossy)
        ]

    def _append(self, parts: list[bytes]) -> list[Step]:
        if not parts:
            return []
        if not self._size_bytes:
            parts.insert(0, SYNCED_HEADER)
        self._size_bytes += sum(map(len, parts))
        return [Append(SYNCED, [b"".join(parts)])]
