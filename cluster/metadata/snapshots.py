"""Snapshots of a member; stands in for PySyncObj's `Serializer`.

    serialize ─► piece ─► [Append tmp] … ─► switch: the journal begins with it ─► SUCCESS: the core forgets entries
    a member far behind ─► [Read] ─► pieces, one a message ─► it installs them

The items are taken when compacting begins and written piece by piece, a piece a job, so no turn of the loop is long.
To be sent, the snapshot is read back from the journal; it stays in memory only while a member needs it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pysyncobj.config import SERIALIZER_STATE  # type: ignore[import-untyped]

from cluster.metadata.entries import LogEntry
from cluster.metadata.journal import RaftJournal
from cluster.metadata.journal_file import (
    HEADER,
    NEW_PATH,
    PATH,
    Image,
    JournalUnreadable,
    end_payload,
    framed,
    head_payload,
    new_head,
    piece_items,
    piece_payloads,
    read_record,
)
from cluster.metadata.raft_pb2 import Piece, SnapshotHead
from cluster.metadata.state_machine import Restoring, StateMachine
from node.store.disk import Append, Disk, Read, Remove
from node.store.records import HEADER_BYTES, read_records

PIECES_MAX: Final = 100_000
"""The most pieces of a snapshot that is received."""


class OutgoingPiece(NamedTuple):
    """A piece for a member.   number: from 0 on.   is_last: there are no more, and this one is empty."""

    data: bytes
    number: int
    is_last: bool


class Snapshots:
    """Makes, sends and receives snapshots.

    The core calls all methods but `install` and `forget`. on_ready: called when there is more to send.
    """

    def __init__(
        self,
        journal: RaftJournal,
        disk: Disk | None,
        state: StateMachine,
        on_failed: Callable[[OSError], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._state = state
        self._on_failed = on_failed
        self._on_ready = on_ready
        self._compaction: _Compaction | None = None
        self._done: int | None = None
        """The entry up to which the log may be forgotten."""
        self._sent: dict[Any, int] = {}
        """Members that are being sent the snapshot, with the number of the next piece."""
        self._pieces: list[bytes] | None = None
        """The snapshot in memory while it is sent."""
        self._is_reading = False
        self._incoming: _Incoming | None = None

    # --- making ---

    def serialize(self, data: Any, id: int) -> None:
        """Begin a snapshot.   data: the last entry that is applied, and the one before."""
        assert self._compaction is None
        _, last, previous, _ = data
        head = new_head(previous, last, self._journal.voters(last[1]))
        if self._disk is None:
            self._journal.rebase(head)
            self._done = id
            return
        self._compaction = compaction = _Compaction(head, piece_payloads(self._state.snapshot()), id)
        self._disk.submit(
            [Remove(NEW_PATH), Append(NEW_PATH, compaction.take_head())],
            lambda _: self._continue(compaction),
            self._on_failed,
        )

    def _continue(self, compaction: "_Compaction") -> None:
        """Write the next piece, or all that is left."""
        assert self._disk is not None
        if self._compaction is not compaction:
            return
        parts = compaction.take_piece()
        if not compaction.is_at_end:
            self._disk.submit(
                [Append(NEW_PATH, parts)], lambda _: self._continue(compaction), self._on_failed
            )
            return
        self._journal.switch(compaction.head, compaction.written_bytes, parts)
        self._compaction = None
        self._done = compaction.up_to
        self._drop_outgoing()
        self._on_ready()

    def checkSerializing(self) -> tuple[int, int | None]:
        """Return whether a snapshot is being made, and, once, that it is there."""
        if self._done is not None:
            done, self._done = self._done, None
            return SERIALIZER_STATE.SUCCESS, done
        if self._compaction is not None:
            return SERIALIZER_STATE.SERIALIZING, None
        return SERIALIZER_STATE.NOT_SERIALIZING, None

    @property
    def is_idle(self) -> bool:
        """True if a snapshot may be begun."""
        return self._compaction is None and self._done is None

    # --- sending ---

    def getTransmissionData(self, node: Any) -> "OutgoingPiece | None":
        """Return the next piece for a member; None if there is none now."""
        if self._done is not None or not self._read():
            self._sent.setdefault(node, 0)
            return None
        assert self._pieces is not None
        number = self._sent.get(node, 0)
        is_last = number == len(self._pieces)
        data = b"" if is_last else self._pieces[number]
        if is_last:
            self.cancelTransmisstion(node)
        else:
            self._sent[node] = number + 1
        return OutgoingPiece(data, number, is_last)

    def cancelTransmisstion(self, id: Any) -> None:
        """Stop sending to a member: it needs no more, or all from the start."""
        self._sent.pop(id, None)
        if not self._sent and not self._is_reading:
            self._pieces = None

    def cancel(self, peer: str) -> None:
        """Stop sending to a peer: its link is gone, with all that was on its way."""
        for node in [node for node in self._sent if node.id == peer]:
            self.cancelTransmisstion(node)

    def _drop_outgoing(self) -> None:
        self._sent.clear()
        self._pieces = None

    def _read(self) -> bool:
        """True if the snapshot is in memory; otherwise begin to read it."""
        if self._pieces is not None:
            return True
        if not self._is_reading and self._disk is not None:
            self._is_reading = True
            head = self._journal.head
            size = self._journal.snapshot_bytes - HEADER_BYTES
            self._disk.submit(
                [Read(PATH, HEADER_BYTES, size, _payloads)],
                lambda results: self._was_read(head, results[0]),
                self._on_failed,
            )
        return False

    def _was_read(self, head: SnapshotHead, payloads: list[bytes]) -> None:
        self._is_reading = False
        if head is self._journal.head and self._sent:
            self._pieces = payloads[:-1]
            self._on_ready()

    # --- receiving ---

    def setTransmissionData(self, piece: Piece) -> bool:
        """Take a piece of a leader's snapshot; True if that makes it complete. Raises SnapshotUnreadable."""
        if not piece.HasField("data"):
            return False
        incoming = self._incoming
        if piece.number == 0:
            incoming = self._incoming = _Incoming(self._state.begin_restore())
        if incoming is None or piece.number != incoming.count or piece.number > PIECES_MAX:
            self._incoming = None
            return False
        if piece.is_last:
            return incoming.head is not None
        try:
            incoming.add(piece.data)
        except JournalUnreadable:
            self._incoming = None
        return False

    @property
    def incoming_head(self) -> SnapshotHead | None:
        """The head of the snapshot that is being received."""
        return None if self._incoming is None else self._incoming.head

    def install(self) -> None:
        """Replace the log and the state by the snapshot that was received."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        assert incoming.head is not None
        self._compaction = None
        self._done = None
        self._drop_outgoing()
        kept = incoming.pieces if self._disk is not None else []
        self._journal.install(Image(incoming.head, kept))
        incoming.state.install()

    def forget(self) -> None:
        """Drop the snapshot that was received: the log has all of it."""
        self._incoming = None


class _Compaction:
    """A snapshot on its way to the disk.   up_to: the entry before which the log may be forgotten then."""

    def __init__(self, head: SnapshotHead, payloads: Any, up_to: int) -> None:
        self.head = head
        self.up_to = up_to
        self.written_bytes = 0
        self.is_at_end = False
        self._payloads = payloads
        self._count = 0

    def take_head(self) -> list[bytes]:
        """Return the beginning of the file."""
        return self._take([HEADER, framed(head_payload(self.head))])

    def take_piece(self) -> list[bytes]:
        """Return the next piece, or the end."""
        payload = next(self._payloads, None)
        if payload is None:
            self.is_at_end = True
            payload = end_payload(self._count)
        self._count += 1
        return self._take([framed(payload)])

    def _take(self, parts: list[bytes]) -> list[bytes]:
        self.written_bytes += sum(map(len, parts))
        return parts


class _Incoming:
    """A snapshot that is being received.   count: of its pieces so far."""

    def __init__(self, state: Restoring) -> None:
        self.state = state
        self.head: SnapshotHead | None = None
        self.pieces: list[bytes] = []
        self.count = 0

    def add(self, payload: bytes) -> None:
        """Take the next piece; the first is the head. Raises JournalUnreadable, SnapshotUnreadable."""
        if self.head is None:
            found = read_record(payload)
            if found.WhichOneof("kind") != "head":
                raise JournalUnreadable("a snapshot begins with its head")
            self.head = found.head
        else:
            self.state.add(piece_items(payload))
            self.pieces.append(payload)
        self.count += 1


def _payloads(data: bytes) -> list[bytes]:
    """Return the payloads of the records in a part of a file; runs on the disk's thread."""
    return [payload for _, payload in read_records(data, 0)]


def first_entries() -> tuple[LogEntry, LogEntry]:
    """Return the first entries of a new group's log.

    They are far enough from 1 that a member that joins with an empty log gets the snapshot first.
    """
    return (b"\x01", 10, 1), (b"\x01", 11, 1)
