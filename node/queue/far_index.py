"""Messages that are on disk only, by the time at which they are due: a sorted array for each segment.

    push, extend ─► the array of a segment ─► head, take: what is due first, with what is due next in its segment

Ten million entries are 100 MB: an entry is ten bytes, in two arrays. Times are kept to the millisecond, rounded down,
so that a message is fetched rather a millisecond too early than too late. The index reads no clock.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import floor
from typing import Final

from node.queue.due_index import Due
from node.queue.run import NEVER

_BASE_MS: Final = 1 << 42
"""The offset of times, so that those before the broker's clock began are positive too."""

_AT_MAX_MS: Final = (1 << 44) - 1
"""The latest time after the offset: some 400 years; everything later counts as that."""

_SLACK_MS: Final = 0.001
"""A microsecond more, as a whole number of milliseconds is not exact in seconds."""

_OFFSET_BITS: Final = 20
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_SIZE_BITS: Final = 16
SIZE_MAX: Final = (1 << _SIZE_BITS) - 1
"""The most messages of an entry; more become several."""


class _Segment:
    """The entries of one segment, in order.   keys: time and offset in the segment.   sizes: messages of each.

    at: how many entries at the front are gone.
    """

    __slots__ = ("at", "keys", "sizes")

    def __init__(self) -> None:
        self.keys = array("Q")
        self.sizes = array("H")
        self.at = 0

    def insert(self, key: int, size: int) -> None:
        """Add an entry."""
        keys = self.keys
        at = bisect_left(keys, key, lo=self.at)
        if at == len(keys):
            keys.append(key)
            self.sizes.append(size)
        else:
            keys.insert(at, key)
            self.sizes.insert(at, size)

    def merge(self, entries: list[int]) -> None:
        """Add entries: keys with sizes in the lowest bits."""
        known = zip(self.keys[self.at :], self.sizes[self.at :], strict=True)
        entries += [key << _SIZE_BITS | size for key, size in known]
        entries.sort()
        self.keys = array("Q", [entry >> _SIZE_BITS for entry in entries])
        self.sizes = array("H", [entry & SIZE_MAX for entry in entries])
        self.at = 0

    def drop(self, stop: int) -> None:
        """Remove the entries before an index; their room is freed once they are half of all."""
        self.at = stop
        if 2 * stop > len(self.keys):
            del self.keys[:stop]
            del self.sizes[:stop]
            self.at = 0


class FarIndex:
    """Entries of the segments of one queue.   entries_max: how many numbers share a segment."""

    __slots__ = ("_entries_max", "_heads", "_segments")

    def __init__(self, entries_max: int) -> None:
        assert entries_max <= _OFFSET_MASK + 1, entries_max
        self._entries_max = entries_max
        self._segments: dict[int, _Segment] = {}
        self._heads: list[tuple[int, int]] = []
        """A heap: first time of each segment, and its number; and such pairs as are no longer right."""

    def __len__(self) -> int:
        return sum(len(part.keys) - part.at for part in self._segments.values())

    def push(self, at: float, first_seq: int, size: int) -> None:
        """Add messages with consecutive numbers, of one segment, that are due at the same time."""
        segment, offset = divmod(first_seq, self._entries_max)
        assert 0 < size <= self._entries_max - offset, size
        part = self._segments.get(segment)
        before = None if part is None else part.keys[part.at]
        if part is None:
            part = self._segments[segment] = _Segment()
        key = _ms(at) << _OFFSET_BITS | offset
        for skipped in range(0, size, SIZE_MAX):
            part.insert(key + skipped, min(size - skipped, SIZE_MAX))
        if before is None or key < before:
            heappush(self._heads, (key >> _OFFSET_BITS, segment))

    def extend(self, segment: int, dues: Iterable[tuple[float, int, int]]) -> None:
        """Add many entries of one segment: time, first number and size of each."""
        base = segment * self._entries_max
        entries = [
            (_ms(at) << _OFFSET_BITS | (first_seq + skipped - base)) << _SIZE_BITS
            | min(size - skipped, SIZE_MAX)
            for at, first_seq, size in dues
            for skipped in range(0, size, SIZE_MAX)
        ]
        if not entries:
            return
        part = self._segments.get(segment)
        before = None if part is None else part.keys[part.at]
        if part is None:
            part = self._segments[segment] = _Segment()
        part.merge(entries)
        if before != part.keys[0]:
            heappush(self._heads, (part.keys[0] >> _OFFSET_BITS, segment))

    @property
    def head(self) -> Due | None:
        """The entry that is due first; None: there is none."""
        heads = self._heads
        while heads:
            at_ms, segment = heads[0]
            part = self._segments.get(segment)
            if part is not None and part.keys[part.at] >> _OFFSET_BITS == at_ms:
                return self._due(segment, part, part.at)
            heappop(heads)
        return None

    def take(self, segment: int, until: float, limit: int) -> list[Due]:
        """Remove and return the first entries of a segment, at most `limit` messages but at least one entry, of those
        that are due at some time or before.
        """
        part = self._segments.get(segment)
        if part is None:
            return []
        stop, end = part.at, (_ms(until) + 1) << _OFFSET_BITS
        found: list[Due] = []
        while limit > 0 and stop < len(part.keys) and part.keys[stop] < end:
            found.append(self._due(segment, part, stop))
            limit -= part.sizes[stop]
            stop += 1
        if stop == len(part.keys):
            del self._segments[segment]
        elif stop > part.at:
            part.drop(stop)
            heappush(self._heads, (part.keys[part.at] >> _OFFSET_BITS, segment))
        return found

    def discard(self, seq: int) -> bool:
        """Remove a single message; False: no entry has it."""
        segment, offset = divmod(seq, self._entries_max)
        part = self._segments.get(segment)
        if part is None:
            return False
        for index in range(part.at, len(part.keys)):
            key, size = part.keys[index], part.sizes[index]
            before = offset - (key & _OFFSET_MASK)
            if not 0 <= before < size:
                continue
            del part.keys[index], part.sizes[index]
            if before:
                part.insert(key, before)
            if before + 1 < size:
                part.insert(key + before + 1, size - before - 1)
            if part.at == len(part.keys):
                del self._segments[segment]
            elif index == part.at:
                heappush(self._heads, (part.keys[part.at] >> _OFFSET_BITS, segment))
            return True
        return False

    def entries(self) -> Iterator[Due]:
        """Yield all entries, in no order."""
        for segment, part in self._segments.items():
            for index in range(part.at, len(part.keys)):
                yield self._due(segment, part, index)

    def of(self, segment: int) -> Iterator[Due]:
        """Yield the entries of one segment, as they are due."""
        part = self._segments.get(segment)
        if part is not None:
            for index in range(part.at, len(part.keys)):
                yield self._due(segment, part, index)

    def clear(self) -> None:
        """Remove all entries."""
        self._segments.clear()
        self._heads.clear()

    def _due(self, segment: int, part: _Segment, index: int) -> Due:
        key = part.keys[index]
        at = ((key >> _OFFSET_BITS) - _BASE_MS) / 1000
        return Due(at, segment * self._entries_max + (key & _OFFSET_MASK), part.sizes[index])


def _ms(at: float) -> int:
    if at == NEVER:
        return _AT_MAX_MS
    return max(0, min(_AT_MAX_MS, _BASE_MS + floor(at * 1000 + _SLACK_MS)))
