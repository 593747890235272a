"""The journal of a Raft member, as PySyncObj sees it: a list of entries, a term, a vote.

PySyncObj changes it and continues at once; changes that must outlive this process are gathered and handed to the disk
with `flush`, one job after the other. `written` counts the promised changes, `synced` how many of these are safe: a
message about a promise waits for that (`WriteBarrier`). A member without a disk promises nothing that it must keep: it
never votes.
Source: reliability §3.1 (what PySyncObj's own journal loses), §3.9 item 1.
"""

from collections.abc import Callable
from typing import Any, Final

from pysyncobj.journal import Journal  # type: ignore[import-untyped]

from cluster.metadata.entries import Change, LogEntry, changed, decode_change
from cluster.metadata.journal_file import (
    NEW_PATH,
    PATH,
    Image,
    entry_payload,
    framed,
    image_bytes,
    log_payloads,
    replace_steps,
    state_payload,
    truncation_payload,
)
from cluster.metadata.raft_pb2 import SnapshotHead
from node.store.disk import Append, Disk, Remove, Step, Sync

UNSYNCED_MAX_BYTES: Final = 16 * 1024 * 1024
"""The most that waits for a disk that is stuck: beyond it a follower takes no entries and a leader no commands."""


class RaftJournal(Journal):  # type: ignore[misc]  # PySyncObj has no types
    """A Raft member's journal on our disk, with the interface of PySyncObj's `Journal`.

    on_synced: called when more is safe.   on_failed: called once, when the disk broke.
    on_voters: called whenever the voters may have changed; set by the core.
    """

    def __init__(
        self,
        image: Image,
        disk: Disk | None,
        on_synced: Callable[[], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self.head: SnapshotHead = image.head
        """The head of the snapshot that the file begins with."""
        self.snapshot_bytes = image.snapshot_bytes
        self.size_bytes = image.size_bytes
        """The size of the file once all that was gathered is written."""
        self.written = 0
        self.synced = 0
        self.ruling_written = 0
        """The value of `written` after the last change of the term, the vote or the voters. A leader's messages wait
        until that is synced: others heed a change of the voters once they have it, so its maker may not forget it.
        """
        self.synced_index = image.entries[-1][1]
        """The last entry that is safe, as all before it."""
        self.on_voters: Callable[[], None] = lambda: None
        self._entries = image.entries
        self._term = image.term
        self._vote = image.vote
        self._commit_index = image.commit_index
        self._is_commit_written = True
        self._disk = disk
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._jobs = 0
        self._submitted_index = self.synced_index
        """The last entry that was handed to the disk and stayed in the log since."""
        self._is_broken = False
        self._is_closed = False
        self._changes: list[tuple[int, Change]] = []
        """Changes of the voters behind the snapshot, by index."""
        for command, index, _ in self._entries[2:]:
            self._note_change(command, index)
        self.current_voters = self.voters()
        """The voters by the whole log: a change counts once it is in it."""

    # --- what PySyncObj calls ---

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry."""
        assert idx == self._entries[-1][1] + 1, f"entry {idx} after {self._entries[-1][1]}"
        entry = (command, idx, term)
        self._entries.append(entry)
        self._promise(entry_payload(entry, self._append_at))
        if self._note_change(command, idx):
            self.ruling_written = self.written
            self._revote()

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Cut off the entries from this position on."""
        if entryFrom >= len(self._entries):
            return
        assert entryFrom >= 2, "what the snapshot stands for is committed"
        index = self._entries[entryFrom][1]
        self.synced_index = min(self.synced_index, index - 1)
        self._submitted_index = min(self._submitted_index, index - 1)
        del self._entries[entryFrom:]
        self._promise(truncation_payload(index, self._append_at))
        if self._changes and self._changes[-1][0] >= index:
            self._changes = [change for change in self._changes if change[0] < index]
            self._revote()

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Forget the entries before this position: a snapshot stands for them, and the file begins with it."""
        del self._entries[:entryTo]

    def clear(self) -> None:
        """Fail: `install` takes the place of this method of PySyncObj."""
        raise AssertionError("only install may clear the journal")

    def __getitem__(self, item: Any) -> Any:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Remember how far the log is committed. This is no promise; it saves a restarted member the question."""
        if raftCommitIndex != self._commit_index:
            self._commit_index = raftCommitIndex
            self._is_commit_written = False

    def getRaftCommitIndex(self) -> int:
        """Return the index up to which the log is known to be committed."""
        return self._commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Enter a term, or vote in it."""
        if (term, votedForNodeId) != (self._term, self._vote):
            assert term >= self._term, f"term {term} after {self._term}"
            assert term > self._term or self._vote is None, f"a second vote in term {term}"
            self._term, self._vote = term, votedForNodeId
            self._promise(state_payload(term, votedForNodeId, self._commit_index, self._append_at))
            self.ruling_written = self.written
            self._is_commit_written = True

    def getCurrentTerm(self) -> int:
        """Return the term."""
        return self._term

    def getVotedForNodeId(self) -> str | None:
        """Return the member that got this one's vote in the term."""
        return self._vote

    def onOneSecondTimer(self) -> None:
        """Write the commit index, which no message waits for."""
        self._gather_commit()

    def _destroy(self) -> None:
        pass

    # --- voters ---

    @property
    def last(self) -> LogEntry:
        """The last entry."""
        return self._entries[-1]

    @property
    def base_index(self) -> int:
        """The last entry that the snapshot stands for."""
        return int(self.head.last.index)

    @property
    def last_change_index(self) -> int:
        """The last entry behind the snapshot that changes the voters; 0 if there is none."""
        return self._changes[-1][0] if self._changes else 0

    def voters(self, up_to: int | None = None) -> frozenset[str]:
        """Return the voters by the log up to an entry; None: by all of it."""
        return changed(
            frozenset(self.head.voters),
            (change for index, change in self._changes if up_to is None or index <= up_to),
        )

    def _revote(self) -> None:
        self.current_voters = self.voters()
        self.on_voters()

    def _note_change(self, command: bytes, index: int) -> bool:
        change = decode_change(command)
        if change is not None:
            self._changes.append((index, change))
        return change is not None

    # --- writing ---

    @property
    def unsynced_bytes(self) -> int:
        """The bytes that have gathered behind the job that the disk is at."""
        return self._gathered_bytes

    @property
    def is_full(self) -> bool:
        """True if so much waits for the disk that no more entries may come."""
        return self._gathered_bytes > UNSYNCED_MAX_BYTES

    @property
    def has_gathered(self) -> bool:
        """True if `flush` has something to hand over now."""
        return bool(self._gathered) and not self._jobs

    def flush(self) -> None:
        """Hand over to the disk what has gathered. If the disk is busy, that waits and shares the next job."""
        if self._gathered and not self._jobs and self._disk is not None and not self._is_broken:
            self._gather_commit()
            parts = self._take_gathered()
            self._submit([Append(PATH, parts), Sync(PATH)])

    def switch(self, head: SnapshotHead, written_bytes: int, parts: list[bytes]) -> None:
        """Make the new file the journal: it has its snapshot but for these parts.

        written_bytes: of the snapshot, these parts included.
        """
        base = head.last.index - self._entries[0][1]
        entries = self._entries[base + 1 :]
        rest = [
            framed(payload) for payload in log_payloads(entries, self._term, self._vote, self._commit_index)
        ]
        self._rebase(head, written_bytes, written_bytes + sum(map(len, rest)))
        self._submit(replace_steps(parts + rest))

    def install(self, image: Image) -> None:
        """Replace all content by a leader's snapshot. The image has no entries of its own."""
        assert image.commit_index >= self._commit_index, "what is committed may not be lost"
        image.term, image.vote = self._term, self._vote
        self._entries = image.entries
        self.synced_index = self._submitted_index = 0
        self._commit_index = image.commit_index
        parts = image_bytes(image)
        self._changes = []
        self._rebase(image.head, image.snapshot_bytes, image.size_bytes)
        if self._disk is not None:
            self.written += 1
            self._submit([Remove(NEW_PATH), *replace_steps(parts)])
        self._revote()

    def rebase(self, head: SnapshotHead) -> None:
        """Let the present state stand for the log up to here, in a member without a disk."""
        self._rebase(head, 0, 0)

    def _rebase(self, head: SnapshotHead, snapshot_bytes: int, size_bytes: int) -> None:
        self.head = head
        self.snapshot_bytes, self.size_bytes = snapshot_bytes, size_bytes
        self._changes = [change for change in self._changes if change[0] > head.last.index]
        self._take_gathered()
        self._is_commit_written = True

    @property
    def _append_at(self) -> int:
        """The offset in the file where the gathered write will begin.

        All before it is synced by then, as one job is done before the next one is handed over.
        """
        return self.size_bytes - self._gathered_bytes

    def _promise(self, payload: bytes) -> None:
        if self._disk is not None:
            self.written += 1
            self._gather(payload)

    def _gather_commit(self) -> None:
        if not self._is_commit_written:
            self._is_commit_written = True
            self._gather(state_payload(self._term, self._vote, self._commit_index, self._append_at))

    def _gather(self, payload: bytes) -> None:
        written = framed(payload)
        self._gathered.append(written)
        self._gathered_bytes += len(written)
        self.size_bytes += len(written)

    def _take_gathered(self) -> list[bytes]:
        parts, self._gathered, self._gathered_bytes = self._gathered, [], 0
        return parts

    def close(self) -> None:
        """Give the disk nothing more: it ends. No message has promised what has gathered."""
        self._is_closed = True

    def _submit(self, steps: list[Step]) -> None:
        assert self._disk is not None
        if self._is_broken or self._is_closed:
            return
        covers = self.written
        self._submitted_index = self.last[1]
        self._jobs += 1
        self._disk.submit(steps, lambda _: self._settled(covers), self._failed)

    def _settled(self, covers: int) -> None:
        self._jobs -= 1
        if not self._is_broken:
            self.synced = max(self.synced, covers)
            if not self._jobs:
                self.synced_index = self._submitted_index
            self.flush()
            self._on_synced()

    def _failed(self, error: OSError) -> None:
        self._jobs -= 1
        if not self._is_broken:
            self._is_broken = True
            self._on_failed(error)
