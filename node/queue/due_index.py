"""Runs of messages by the time at which they are due, and among equals by their numbers.

    push(due, seq, size) ─► a heap ─► head, pop: what is due first

An entry is one integer, so that a million of them are 56 MB and a comparison is one of numbers. The index knows
nothing of contents, and reads no clock.
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from node.queue.run import NEVER

_US: Final = 1_000_000
_BASE_US: Final = 1 << 60
"""The offset of times, so that those before the broker's clock began are positive too."""

_DUE_MAX_US: Final = 1 << 61
"""The latest time after the offset: some 36,000 years; everything later counts as that."""

_SIZE_BITS: Final = 32
_SEQ_BITS: Final = 63
_SIZE_MASK: Final = (1 << _SIZE_BITS) - 1
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1


class Due(NamedTuple):
    """An entry: `size` messages from `first_seq` on that are due at `at`, in seconds on the broker's clock."""

    at: float
    first_seq: int
    size: int


class DueIndex:
    """A heap of entries. Times are kept to the microsecond, rounded up."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, at: float, first_seq: int, size: int) -> None:
        """Add messages with consecutive numbers that are due at the same time."""
        assert 0 < size <= _SIZE_MASK, size
        assert 0 <= first_seq <= _SEQ_MASK, first_seq
        heappush(self._heap, (_us(at) << _SEQ_BITS | first_seq) << _SIZE_BITS | size)

    @property
    def head(self) -> Due | None:
        """The entry that is due first; None: there is none."""
        return _entry(self._heap[0]) if self._heap else None

    def pop(self) -> Due:
        """Remove and return the entry that is due first; there must be one."""
        return _entry(heappop(self._heap))

    def entries(self) -> list[Due]:
        """Return all entries, in no order."""
        return list(map(_entry, self._heap))

    def clear(self) -> None:
        """Remove all entries."""
        self._heap.clear()


def _us(at: float) -> int:
    if at == NEVER:
        return _DUE_MAX_US
    return max(0, min(_DUE_MAX_US, _BASE_US - int(-at * _US // 1)))


def _entry(key: int) -> Due:
    rest = key >> _SIZE_BITS
    at_us = (rest >> _SEQ_BITS) - _BASE_US
    return Due(at_us / _US, rest & _SEQ_MASK, key & _SIZE_MASK)
