"""A checkpoint: what older journal files know goes to the queues' segments, until the files are superfluous.

    flush (4 MiB a job) ─► sync (16 files a job) ─► remove the journal files, the oldest first

Batches go in between, so that nobody who waits for safety waits for a checkpoint. It may be cut short anywhere:
the journal files are still there, and replaying them over what segments know changes nothing.
Source: architecture §2.2.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from node.store.disk import Append, Step

FLUSH_BYTES: Final = 4 * 1024 * 1024
"""What a job of a checkpoint writes: some 20 ms of a disk, which is what a batch may wait for it."""

SYNC_STEPS: Final = 16
"""What a job of a checkpoint syncs: each may take milliseconds."""


class Flushed(Protocol):
    """Of a queue's index, what a checkpoint needs."""

    @property
    def kept_to(self) -> int:
        """All that was kept has lower numbers."""

    def flush(self, limit_bytes: int, upto_seq: int) -> tuple[list[Step], bool]:
        """Steps that bring the oldest entries below `upto_seq` and what was removed to segments; whether
        nothing is left to do."""


class Synced(Protocol):
    """What has files that were written to."""

    def sync_steps(self) -> list[Step]:
        """Sync what was written since the last call."""


class Checkpoint:
    """What is left to do.

    files: the journal files that become superfluous.
    indexes: of the queues that these files speak of.
    """

    def __init__(self, files: list[int], indexes: Iterable[Flushed]) -> None:
        self.files = files
        self._to_flush = deque((index, index.kept_to) for index in indexes)
        self._to_sync: deque[Step] = deque()

    # --- first: flush ---

    @property
    def is_flushed(self) -> bool:
        """Whether everything has been handed out by `flush_steps`."""
        return not self._to_flush

    def flush_steps(self) -> list[Step]:
        """What the next job writes to segments; at least something of one queue, about `FLUSH_BYTES` in all."""
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

    # --- then: sync ---

    def begin_sync(self, written: Iterable[Synced]) -> None:
        """All that was flushed is on its way.   written: all that was written to, in the order to sync it."""
        assert self.is_flushed
        for each in written:
            self._to_sync += each.sync_steps()

    def sync_steps(self) -> list[Step]:
        """What the next job syncs; nothing when all has been handed out."""
        return [self._to_sync.popleft() for _ in range(min(SYNC_STEPS, len(self._to_sync)))]


def bytes_of(steps: Iterable[Step]) -> int:
    """Bytes that the steps write."""
    return sum(sum(map(len, step.parts)) for step in steps if isinstance(step, Append))
