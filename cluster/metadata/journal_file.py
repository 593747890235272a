"""The file of a Raft member: its promises, and the snapshot that its log continues.

    journal = header head piece* end state (entry | truncation | state)*      records of node/store/records.py

The snapshot and the log are in one file, so that they always fit together: compacting writes a new file and gives
it the old one's name. A torn end is left by a crash, and no member was told of its contents. Any other damage
may be a vote or an entry that others count on, so the file is refused, by name: the member has to be removed from
the cluster and to join again.

A power loss may also keep later pages of a write that was not synced, and leave zeros in place of earlier ones. One
write is synced before the next begins, and each record says where its write began. So zeros are the torn end of the
last write if all that stands behind them is of that write, too, and damage if something there began later.
Source: reliability §3.1, §3.9 item 1.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError

from cluster.metadata.entries import LogEntry, from_entry, to_entry
from cluster.metadata.raft_pb2 import (
    Entry,
    JournalRecord,
    SnapshotEnd,
    SnapshotHead,
    SnapshotPiece,
    State,
    Truncation,
)
from node.store.disk import TO_THE_END, Append, Disk, Read, Remove, Rename, Step, Sync, SyncDir
from node.store.records import (
    RECORD_HEAD_BYTES,
    End,
    EndState,
    NewerFormat,
    check_header,
    read_records,
    record,
)

PATH: Final = "journal"
NEW_PATH: Final = "journal.tmp"
HEADER: Final = b"FLFR\0\0\0\1"

_PAGE_BYTES: Final = 4096
"""The unit in which a file system writes."""

_ZEROS_MIN_BYTES: Final = 16
"""So many zeros at the least are no part of a record: it begins with its length and its checksum."""

PIECE_ITEMS: Final = 150
"""The most items of a piece of a snapshot, which one turn of the loop makes: some 2 ms."""

PIECE_BYTES: Final = 256 * 1024
"""A piece with so many bytes is full."""


class JournalUnreadable(Exception):
    """The journal has records that this version does not know, or damage elsewhere than at its end.

    The text is for the operator.
    """


_AHEAD: Final = ("head", "piece", "end")
"""The kinds of the records of the snapshot."""


@dataclass(slots=True)
class Image:
    """The content of a journal.

    head, pieces: the snapshot; pieces as they are sent to others.
    entries: the log: the two that the head names, and all after them.
    size_bytes, snapshot_bytes: of the file, and of its snapshot.   is_torn: its end was cut off.
    """

    head: SnapshotHead
    pieces: list[bytes] = field(default_factory=list)
    entries: list[LogEntry] = field(default_factory=list)
    term: int = 0
    vote: str | None = None
    commit_index: int = 0
    snapshot_bytes: int = 0
    size_bytes: int = 0
    is_torn: bool = False

    def __post_init__(self) -> None:
        if not self.entries:
            self.entries = [from_entry(self.head.previous), from_entry(self.head.last)]
        self.commit_index = max(self.commit_index, self.head.last.index)

    def items(self) -> Iterator[list[bytes]]:
        """The snapshot's items, piece by piece."""
        return map(piece_items, self.pieces)


# --- records ----------------------------------------------------------------------------------------------


def framed(payload: bytes) -> bytes:
    """Return a payload as a record."""
    return b"".join(record([payload]))


def head_payload(head: SnapshotHead) -> bytes:
    """Encode the first record of a snapshot."""
    return JournalRecord(head=head).SerializeToString()


def end_payload(pieces: int) -> bytes:
    """Encode the last record of a snapshot of so many pieces."""
    return JournalRecord(end=SnapshotEnd(pieces=pieces)).SerializeToString()


def entry_payload(entry: LogEntry, append_at: int = 0) -> bytes:
    """Encode an entry that follows all those before.

    append_at: where in the file its write begins, here and below; 0: it is part of a file that gets its name once
    all of it is synced.
    """
    return JournalRecord(append_at=append_at, entry=to_entry(entry)).SerializeToString()


def truncation_payload(from_index: int, append_at: int) -> bytes:
    """Encode that the log ends before this entry."""
    return JournalRecord(
        append_at=append_at, truncation=Truncation(from_index=from_index)
    ).SerializeToString()


def state_payload(term: int, vote: str | None, commit_index: int, append_at: int = 0) -> bytes:
    """Encode the member's term and vote, and how far it knew the log to be committed."""
    state = State(term=term, vote=vote, commit_index=commit_index)
    return JournalRecord(append_at=append_at, state=state).SerializeToString()


def piece_payloads(items: Iterable[bytes]) -> Iterator[bytes]:
    """Encode the items of a snapshot as pieces, one at a time as they are asked for."""
    items = iter(items)
    while True:
        piece: list[bytes] = []
        size = 0
        for item in islice(items, PIECE_ITEMS):
            piece.append(item)
            size += len(item)
            if size >= PIECE_BYTES:
                break
        if not piece:
            return
        yield JournalRecord(piece=SnapshotPiece(items=piece)).SerializeToString()


def read_record(payload: bytes) -> JournalRecord:
    """Decode a record. Raises JournalUnreadable."""
    found = JournalRecord()
    try:
        found.ParseFromString(payload)
    except DecodeError:
        raise JournalUnreadable("a record cannot be decoded") from None
    return found


def piece_items(payload: bytes) -> list[bytes]:
    """Return the items of a piece. Raises JournalUnreadable for a record of another kind."""
    found = read_record(payload)
    if found.WhichOneof("kind") != "piece":
        raise JournalUnreadable("a record is no piece of a snapshot")
    return list(found.piece.items)


def log_payloads(entries: Sequence[LogEntry], term: int, vote: str | None, commit_index: int) -> list[bytes]:
    """Encode the part of a file behind its snapshot.   entries: those after the one that the snapshot stands for."""
    return [state_payload(term, vote, commit_index), *map(entry_payload, entries)]


def new_head(previous: LogEntry, last: LogEntry, voters: Iterable[str]) -> SnapshotHead:
    """Return the head of a snapshot that stands for the log up to `last`."""
    return SnapshotHead(previous=to_entry(previous), last=to_entry(last), voters=sorted(voters))


# --- whole files ------------------------------------------------------------------------------------------


def image_bytes(image: Image) -> list[bytes]:
    """Encode a whole file, and set the image's sizes."""
    snapshot = [HEADER, framed(head_payload(image.head))]
    snapshot += map(framed, image.pieces)
    snapshot.append(framed(end_payload(len(image.pieces))))
    image.snapshot_bytes = sum(map(len, snapshot))
    rest = log_payloads(image.entries[2:], image.term, image.vote, image.commit_index)
    parts = snapshot + [framed(payload) for payload in rest]
    image.size_bytes = sum(map(len, parts))
    return parts


def replace_steps(parts: list[bytes]) -> list[Step]:
    """Return the steps that replace the old file by the new one, which ends with these parts."""
    return [Append(NEW_PATH, parts), Sync(NEW_PATH), Rename(NEW_PATH, PATH), SyncDir("")]


def write_image(disk: Disk, image: Image) -> None:
    """Write the whole file at once, when a member is created. Raises OSError."""
    disk.run([Remove(NEW_PATH), *replace_steps(image_bytes(image))])


def read_image(disk: Disk) -> Image:
    """Read the journal, and cut a torn end off, on disk too.

    Raises JournalUnreadable; NewerFormat; OSError.
    """
    # The file is synced, as writes before a kill -9 may not be, and from now on they count as safe.
    data = bytes(disk.run([Remove(NEW_PATH), Sync(PATH), SyncDir(""), Read(PATH, 0, TO_THE_END)])[0])
    try:
        image = parse(data)
    except JournalUnreadable as unreadable:
        raise JournalUnreadable(f"raft/{PATH}: {unreadable}") from None
    except NewerFormat as newer:
        raise NewerFormat(f"raft/{PATH}: {newer}") from None
    if image.is_torn:
        write_image(disk, image)
    return image


def parse(data: bytes) -> Image:
    """Decode a file. Raises JournalUnreadable, NewerFormat."""
    if not check_header(data, HEADER):
        raise JournalUnreadable("the header is damaged")
    records = read_records(data)
    found = list(records)
    end = records.end
    assert end is not None
    if end.bad:
        bad_at, length = end.bad[0]
        if not _is_unwritten(data, bad_at, length, [payload for offset, payload in found if offset > bad_at]):
            raise JournalUnreadable(f"{length} bytes at byte {bad_at} are no record")
        found = [each for each in found if each[0] < bad_at]
        end = End(bad_at, EndState.TORN)
    reader = _Reader()
    for offset, payload in found:
        try:
            reader.read(payload, offset + RECORD_HEAD_BYTES + len(payload))
        except JournalUnreadable as unreadable:
            raise JournalUnreadable(f"record at byte {offset}: {unreadable}") from None
    image = reader.image
    if image is None or not reader.is_snapshot_whole:
        # The file got its name after all of this was synced.
        raise JournalUnreadable("the snapshot at its beginning is not whole")
    image.commit_index = min(image.commit_index, image.entries[-1][1])
    image.size_bytes = end.offset
    image.is_torn = end.state is EndState.TORN
    return image


def _is_unwritten(data: bytes, bad_at: int, length: int, behind: list[bytes]) -> bool:
    """True if bytes that are no record are a part of the last write that never reached the disk.

    behind: the good records that follow. Raises JournalUnreadable.
    """
    last_write_at = {read_record(payload).append_at for payload in behind}
    if len(last_write_at) != 1:
        return False
    (write_at,) = last_write_at
    if not 0 < write_at <= bad_at:
        return False
    for page in range(bad_at - bad_at % _PAGE_BYTES, bad_at + length, _PAGE_BYTES):
        begin, end = max(page, write_at), min(page + _PAGE_BYTES, len(data))
        if end - begin >= _ZEROS_MIN_BYTES and data.count(0, begin, end) == end - begin:
            return True
    return False


class _Reader:
    """Builds an image of records."""

    def __init__(self) -> None:
        self.image: Image | None = None
        self.is_snapshot_whole = False

    def read(self, payload: bytes, end: int) -> None:
        """Take the next record, which ends at this byte. Raises JournalUnreadable."""
        found = read_record(payload)
        kind = found.WhichOneof("kind")
        image = self.image
        if kind is None:
            raise JournalUnreadable("it is of no kind that is known; was it written by a later version?")
        if (image is None) != (kind == "head") or (kind in _AHEAD) == self.is_snapshot_whole:
            raise JournalUnreadable(f"{kind} is out of place")
        if image is None:
            self.image = Image(found.head)
        elif kind == "piece":
            image.pieces.append(payload)
        elif kind == "end":
            if found.end.pieces != len(image.pieces):
                raise JournalUnreadable(f"{len(image.pieces)} pieces of {found.end.pieces}")
            self.is_snapshot_whole = True
            image.snapshot_bytes = end
        elif kind == "state":
            image.term = found.state.term
            image.vote = found.state.vote if found.state.HasField("vote") else None
            image.commit_index = max(image.commit_index, found.state.commit_index)
        elif kind == "entry":
            self._add(image, found.entry)
        else:
            self._truncate(image, found.truncation.from_index)

    def _add(self, image: Image, entry: Entry) -> None:
        last = image.entries[-1]
        if entry.index != last[1] + 1 or entry.term < last[2] or not entry.command:
            raise JournalUnreadable(f"entry {entry.index} of term {entry.term} after entry {last[1]}")
        image.entries.append(from_entry(entry))

    def _truncate(self, image: Image, from_index: int) -> None:
        kept = from_index - image.entries[0][1]
        if not 2 <= kept <= len(image.entries):
            raise JournalUnreadable(f"the log is cut off at entry {from_index}")
        del image.entries[kept:]
