"""A checkpoint: the contents of older journal files go to the queues' segments, until the files are superfluous.

    flush (4 MiB a job) ─► sync (16 files a job) ─► remove the journal files, the oldest first

Batches go in between, so that no waiter for a batch has to wait for a checkpoint. A crash may interrupt it anywhere:
the journal files are still there, and replaying them over the segments changes nothing.

Segments must not have operations that the journal lacks: a message that moved would be gone from one queue and not yet
be in the other. So nothing is flushed while operations gather for a batch.
Source: docs/internals/disk.md, "From a queue to the disk".
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from node.store.disk import Append, Step

FLUSH_BYTES: Final = 2 * 1024 * 1024
"""The bytes that a job of a checkpoint writes: some 40 ms of a disk, which is what a batch may have to wait for it."""

SYNC_STEPS: Final = 16
"""The files that a job of a checkpoint syncs: each may take milliseconds."""


class Contents(Protocol):
    """The part of the persistent message store that a checkpoint needs."""

    def sync_steps(self) -> list[Step]:
        """Return the steps that sync what was written since the last call."""


class Index(Protocol):
    """The part of a queue's index that a checkpoint needs. Steps that it returns are to be submitted at once."""

    @property
    def kept_to(self) -> int:
        """A number above those of all messages that were kept."""

    def flush(self, limit_bytes: int, upto_seq: int) -> tuple[list[Step], bool]:
        """Bring the oldest entries below `upto_seq` to segments, and tell these what was removed.

        Returns: the steps, of about `limit_bytes` at most, and whether nothing is left to do.
        """

    def sync_steps(self, limit: int) -> list[Step]:
        """Return steps that sync at most `limit` written files, and names; none when nothing is left."""


class Checkpoint:
    """The work of one checkpoint that is left to do.

    files: the journal files that become superfluous.
    contents: the persistent message store; it is synced before what refers to it.
    indexes: those of the queues that these files speak of, and of queues whose segments were written to otherwise.
    """

    def __init__(self, files: list[int], contents: Contents, indexes: Sequence[Index]) -> None:
        self.files = files
        self.is_over = False
        """True if all is synced, so that the files may be removed."""
        self._contents: Contents | None = contents
        self._to_flush = deque((index, index.kept_to) for index in indexes)
        self._to_sync = deque(indexes)

    @property
    def is_flushed(self) -> bool:
        """True if everything is in segments or on its way there."""
        return not self._to_flush

    def next_steps(self, *, is_gathering: bool, jobs: int) -> list[Step]:
        """Return the next job, to be submitted at once; none if there is nothing to do just now.

        is_gathering: whether something gathers for a batch.   jobs: how many of this checkpoint are in flight.
        """
        if self._to_flush:
            steps = [] if is_gathering else self._flush()
            if steps or self._to_flush:
                return steps
        steps = self._sync()
        self.is_over = not steps and not jobs
        return steps

    def _flush(self) -> list[Step]:
        steps: list[Step] = []
        left_bytes = FLUSH_BYTES
        while self._to_flush and left_bytes > 0:
            index, upto_seq = self._to_flush[0]
            more, is_done = index.flush(left_bytes, upto_seq)
            steps += more
            left_bytes -= bytes_of(more)
            if is_done:
                self._to_flush.popleft()
        return steps

    def _sync(self) -> list[Step]:
        if self._contents is not None:
            # All at once: they are few, as batches sync them.
            steps = self._contents.sync_steps()
            self._contents = None
            if steps:
                return steps
        steps = []
        while self._to_sync and len(steps) < SYNC_STEPS:
            more = self._to_sync[0].sync_steps(SYNC_STEPS - len(steps))
            steps += more
            if not more:
                self._to_sync.popleft()
        return steps


def bytes_of(steps: Iterable[Step]) -> int:
    """Return the number of bytes that the steps append."""
    return sum(sum(map(len, step.parts)) for step in steps if isinstance(step, Append))
