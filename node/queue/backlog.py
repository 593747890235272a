"""Ready messages in memory, in the order in which they are to go out.

A `Backlog` holds runs by rising number. Messages come in at the tail and leave at the head; what is requeued
goes back to its old place. Memory is not all there is: see `node.queue.paged_backlog`.
Source: amqp-behaviour §4.8, §4.11.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from node.amqp.reader import MIXED_SIZES
from node.queue.run import NEVER, Batch, Run, bytes_of

RUN_MAX: Final = 4096
"""The most messages to which a run grows, so that a partly consumed run keeps little in memory."""

RUNS_TAKEN_MAX: Final = 256
"""The most runs that are taken at once: delivering so many short ones takes less than a millisecond."""


class Backlog:
    """Runs of ready messages. `count` messages, `body_bytes` of bodies."""

    __slots__ = ("_at", "_runs", "body_bytes", "came_back", "count")

    def __init__(self) -> None:
        self.count = 0
        self.body_bytes = 0
        self._runs: deque[Run] = deque()
        self._at = 0  # messages of the first run that have left already
        self.came_back: list[range] | None = None
        """The numbers of messages that were put back, for a caller that looks past some messages and empties this
        list; None: there is no such caller."""

    def append(self, batch: Batch, first_seq: int, expiry: float = NEVER, is_indexed: bool = False) -> None:
        """Add new messages at the tail; see `Run`. The list is copied, its bytes are shared."""
        envelope, contents, size, store_id = batch.envelope, batch.contents, batch.size, batch.store_id
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
                and (store_id == tail.store_id + len(tail.contents) if tail.store_id else not store_id)
                and tail.is_indexed is is_indexed
            ):
                tail.contents += contents
                tail.seqs = range(tail.seqs.start, first_seq + added)
                if tail.size != size:
                    tail.size = MIXED_SIZES
                return
        seqs = range(first_seq, first_seq + added)
        self._runs.append(Run(envelope, seqs, contents.copy(), size, expiry, 0, store_id, is_indexed))

    def add(self, run: Run) -> None:
        """Add a run whose numbers are above all others."""
        self.count += len(run)
        self.body_bytes += run.body_bytes
        self._runs.append(run)

    @property
    def at_hand(self) -> int:
        """The number of messages that can be taken now; see `PagedBacklog`."""
        return self.count

    @property
    def mean_bytes(self) -> int:
        """The mean size in bytes of the bodies, of which there must be some."""
        return self.body_bytes // self.count

    def take_tail(self, above: int, keep_bytes: int) -> Run | None:
        """Remove and return messages at the tail that share a run, or None.

        above: only such with higher numbers.   keep_bytes: of bodies, which stay, about.
        """
        if len(self._runs) == 1:
            self._drop_taken()
        if not self._runs:
            return None
        run = self._runs[-1]
        run_bytes = run.body_bytes
        room = keep_bytes - (self.body_bytes - run_bytes)
        kept = max(0, above + 1 - run.seqs[0])
        if room > 0:
            kept = max(kept, room * len(run) // max(run_bytes, 1) + 1)
        if kept >= len(run):
            return None
        self._runs.pop()
        if kept:
            self._runs.append(run[:kept])
            run = run[kept:]
        self.count -= len(run)
        self.body_bytes -= run.body_bytes
        return run

    def __iter__(self) -> Iterator[Run]:
        """Yield the runs, in order."""
        self._drop_taken()
        return iter(self._runs)

    def runs_from(self, number: int) -> Iterator[Run]:
        """Yield the runs with this number or a higher one, in order. Nothing may change until the last is taken."""
        at = self._at
        index = bisect_left(self._runs, number, key=_last_seq)
        for run in islice(self._runs, index, None):
            yield run[at:] if at and not index else run
            index = 1

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
                # Drop the messages that have left once they are half of the list, so that this costs each message once.
                self._drop_taken()
        self.count -= len(taken.contents)
        self.body_bytes -= taken.body_bytes
        return taken

    def take_runs(self, limit: int) -> list[Run]:
        """Remove and return runs from the head that have up to `limit` (at least 1) messages together.

        They are at most `RUNS_TAKEN_MAX`. Only the first one may be a part of a run.
        """
        runs = self._runs
        if limit >= self.count and not self._at and len(runs) <= RUNS_TAKEN_MAX:
            taken = list(runs)
            self.clear()
            return taken
        taken = [self.take(limit)]
        limit -= len(taken[0].contents)
        count = 0
        while runs and not self._at and len(taken) < RUNS_TAKEN_MAX:
            run = runs[0]
            added = len(run.contents)
            if count + added > limit:
                break
            taken.append(runs.popleft())
            count += added
            self.body_bytes -= run.size * added if run.size != MIXED_SIZES else run.body_bytes
        self.count -= count
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
        if self.came_back is not None:
            self.came_back.append(run.seqs)
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

    # --- messages behind the head ---

    @property
    def last_seq(self) -> int:
        """The number of the last message; 0 if there is none."""
        return self._runs[-1].seqs[-1] if self._runs else 0

    def peek(self, number: int) -> tuple[int, bytes, float] | None:
        """Return number, content and expiry of the first message that has this number or a higher one, or None."""
        runs = self._runs
        if not runs or runs[-1].seqs[-1] < number:
            return None
        index = self._index_of(number)
        run = runs[index]
        at = max(number - run.seqs.start, 0 if index else self._at)
        return run.seqs[at], run.contents[at], run.expiry

    def run_from(self, number: int) -> Run | None:
        """Return the run with the first message that has this number or a higher one; None: there is none."""
        runs = self._runs
        return None if not runs or runs[-1].seqs[-1] < number else runs[self._index_of(number)]

    def take_number(self, number: int, limit: int = 1) -> Run | None:
        """Remove and return the message with this number, and up to `limit` with those that follow it in its run.

        Returns: None if it is not here.
        """
        runs = self._runs
        if not runs or runs[-1].seqs[-1] < number:
            return None
        index = self._index_of(number)
        run = runs[index]
        at = number - run.seqs.start
        if at < (0 if index else self._at):
            return None
        if not index and at == self._at:
            return self.take(limit)
        if not index and self._at:
            at -= self._at
            self._drop_taken()
            run = runs[0]
        taken = run[at : at + limit]
        behind = run[at + limit :]
        if at:
            runs[index] = run[:at]
            if len(behind):
                runs.insert(index + 1, behind)
        elif len(behind):
            runs[index] = behind
        else:
            del runs[index]
        self.count -= len(taken.contents)
        self.body_bytes -= taken.body_bytes
        return taken

    def _index_of(self, number: int) -> int:
        """Return the index of the first run that ends with this number or a higher one; there must be one."""
        runs = self._runs
        return 0 if runs[0].seqs[-1] >= number else bisect_left(runs, number, key=_last_seq)

    @property
    def head_expiry(self) -> float:
        """The time at which the message at the head expires; `NEVER` if there is none."""
        return self._runs[0].expiry if self._runs else NEVER

    def clear(self) -> None:
        """Drop all messages."""
        self._runs.clear()
        self._at = self.count = self.body_bytes = 0


def _last_seq(run: Run) -> int:
    return run.seqs[-1]
