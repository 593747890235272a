"""The ready messages of a queue, in the order in which they are to go out.

A `Backlog` holds runs by rising number. Messages come in at the tail and leave at the head; what is requeued
goes back to its old place. `PriorityBacklog` is one backlog a priority level, highest first, behind the same
methods.
Source: amqp-behaviour §4.8, §4.11, §5.6.
"""

from collections import deque
from typing import Final

from node.amqp.reader import MIXED_SIZES
from node.broker.run import NEVER, Envelope, Run, bytes_of

RUN_MAX: Final = 4096
"""Messages at which a run grows no more: what a partly consumed run can pin in memory stays small."""


class Backlog:
    """Ready messages of one priority."""

    __slots__ = ("_at", "_runs", "body_bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.body_bytes = 0
        self._runs: deque[Run] = deque()
        self._at = 0  # messages of the first run that have left already

    def append(
        self, envelope: Envelope, first_seq: int, contents: list[bytes], size: int, expiry: float = NEVER
    ) -> None:
        """Add new messages at the tail. The list is copied, its bytes are shared."""
        added = len(contents)
        self.count += added
        self.body_bytes += size * added if size != MIXED_SIZES else bytes_of(contents, size)
        if self._runs:
            tail = self._runs[-1]
            if (
                tail.envelope is envelope
                and tail.seqs.stop == first_seq
                and tail.expiry == expiry
                and not tail.deliveries
                and len(tail.contents) < RUN_MAX
            ):
                tail.contents += contents
                tail.seqs = range(tail.seqs.start, first_seq + added)
                if tail.size != size:
                    tail.size = MIXED_SIZES
                return
        self._runs.append(Run(envelope, range(first_seq, first_seq + added), contents.copy(), size, expiry))

    def take(self, limit: int) -> Run:
        """Remove and return up to `limit` (at least 1) messages from the head; fewer where they don't share a run."""
        run, at = self._runs[0], self._at
        left = len(run.contents) - at
        if limit >= left:
            self._runs.popleft()
            self._at = 0
            taken = run[at:] if at else run
        else:
            taken = run[at : at + limit]
            self._at = at + limit
            if self._at * 2 > len(run.contents):
                # Let go of what has left; at half, so that this costs each message once.
                self._drop_taken()
        self.count -= len(taken.contents)
        self.body_bytes -= taken.body_bytes
        return taken

    def _drop_taken(self) -> None:
        if self._at:
            self._runs[0] = self._runs[0][self._at :]
            self._at = 0

    def put_back(self, run: Run) -> None:
        """Return messages to their place among the others."""
        self._drop_taken()
        self.count += len(run)
        self.body_bytes += run.body_bytes
        for piece in run.pieces():
            self._place(piece)

    def _place(self, run: Run) -> None:
        runs, first = self._runs, run.seqs[0]
        if not runs or first > runs[-1].seqs[-1]:
            runs.append(run)
            return
        # From the head: what comes back is older than nearly all that is here.
        index = 0
        while runs[index].seqs[-1] < first:
            index += 1
        inside = runs[index]
        if inside.seqs[0] < first:
            cut = first - inside.seqs[0]
            runs[index] = inside[cut:]
            runs.insert(index, inside[:cut])
            index += 1
        if runs[index].seqs[0] > run.seqs[-1]:
            runs.insert(index, run)
        else:
            # It spans messages that are here: number by number.
            for single in run.singles():
                self._place(single)

    @property
    def head_expiry(self) -> float:
        """When the message at the head expires; `NEVER` if there is none."""
        return self._runs[0].expiry if self._runs else NEVER

    def clear(self) -> int:
        """Drop all messages; how many there were."""
        count = self.count
        self._runs.clear()
        self._at = self.count = self.body_bytes = 0
        return count


class PriorityBacklog:
    """Ready messages of a queue with `x-max-priority`: the highest level first, each in its own order."""

    __slots__ = ("_levels", "_max_priority", "_ordered")

    def __init__(self, max_priority: int) -> None:
        self._max_priority = max_priority
        self._levels: dict[int, Backlog] = {}
        self._ordered: list[Backlog] = []  # the levels that were ever used, highest first

    @property
    def count(self) -> int:
        """Messages of all levels."""
        return sum(level.count for level in self._ordered)

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies."""
        return sum(level.body_bytes for level in self._ordered)

    def _level(self, envelope: Envelope) -> Backlog:
        priority = min(envelope.priority, self._max_priority)
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = Backlog()
            self._ordered = [self._levels[known] for known in sorted(self._levels, reverse=True)]
        return level

    def append(
        self, envelope: Envelope, first_seq: int, contents: list[bytes], size: int, expiry: float = NEVER
    ) -> None:
        """See `Backlog.append`."""
        self._level(envelope).append(envelope, first_seq, contents, size, expiry)

    def take(self, limit: int) -> Run:
        """See `Backlog.take`."""
        return next(level for level in self._ordered if level.count).take(limit)

    def put_back(self, run: Run) -> None:
        """See `Backlog.put_back`."""
        self._level(run.envelope).put_back(run)

    @property
    def head_expiry(self) -> float:
        """See `Backlog.head_expiry`: the head is that of the highest level with messages (§5.2, live)."""
        return next((level.head_expiry for level in self._ordered if level.count), NEVER)

    def clear(self) -> int:
        """See `Backlog.clear`."""
        return sum(level.clear() for level in self._ordered)
