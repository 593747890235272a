"""Sets of sequence numbers of one queue, which stay compact whatever their numbers are.

A million messages must not become a million objects while a node starts: the numbers of a segment are the bits
of one integer, two kilobytes for 16,384 of them. Bit 0 is the segment's first number.
"""

from collections.abc import Iterable, Iterator


def bits_of(first: int, count: int) -> int:
    """Return an integer with `count` consecutive bits set, from bit `first` on."""
    return ((1 << count) - 1) << first


def ranges_of(bits: int, base: int) -> list[range]:
    """Return the set bits as ranges of consecutive numbers, rising.   base: the number of bit 0."""
    digits = f"{bits:b}"[::-1] + "0"
    found, stop = [], 0
    while (start := digits.find("1", stop)) >= 0:
        stop = digits.find("0", start)
        found.append(range(base + start, base + stop))
    return found


def clipped(ranges: Iterable[range], base: int, count: int) -> Iterator[range]:
    """Yield the parts of the ranges that are among `count` numbers from `base` on."""
    for seqs in ranges:
        start, stop = max(seqs.start, base), min(seqs.stop, base + count)
        if start < stop:
            yield range(start, stop)


class SeqSet:
    """Numbers that are added range by range, and asked for segment by segment.

    entries: how many numbers share a segment.   end: above every number that was ever added; 0 at first.
    """

    __slots__ = ("_bits", "_entries", "_start", "_stop", "_wide", "end")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._bits: dict[int, int] = {}
        self._wide: list[range] = []  # what reaches over several segments: a purge may reach over thousands
        self._start = self._stop = 0  # the last range, which the next one often continues
        self.end = 0

    def add(self, start: int, stop: int) -> None:
        """Add the numbers from `start` to below `stop`."""
        assert start < stop, "an empty range"
        if start != self._stop:
            self._settle()
            self._start = start
        self._stop = stop
        if stop > self.end:
            self.end = stop

    def _settle(self) -> None:
        start, stop, entries = self._start, self._stop, self._entries
        self._start = self._stop = 0
        if start == stop:
            return
        first, last = start // entries, (stop - 1) // entries
        if last - first > 1:
            self._wide.append(range(start, stop))
            return
        for segment in range(first, last + 1):
            base = segment * entries
            low, high = max(start - base, 0), min(stop - base, entries)
            self._bits[segment] = self._bits.get(segment, 0) | bits_of(low, high - low)

    def of(self, segment: int) -> int:
        """Return the numbers in a segment, as bits."""
        self._settle()
        bits = self._bits.get(segment, 0)
        base = segment * self._entries
        for seqs in clipped(self._wide, base, self._entries):
            bits |= bits_of(seqs.start - base, len(seqs))
        return bits

    def segments(self) -> Iterator[int]:
        """Yield the segments that have any of the numbers, rising."""
        self._settle()
        found = set(self._bits)
        for wide in self._wide:
            found.update(range(wide.start // self._entries, (wide.stop - 1) // self._entries + 1))
        yield from sorted(found)


class Deliveries:
    """Counts how often messages of one segment came back from clients: the highest count that was given for each."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, bits: int, count: int) -> None:
        """Note that messages came back `count` times."""
        bits = self.fewer_than(count, bits)
        for other, known in self._bits.items():
            if other < count:
                self._bits[other] = known & ~bits
        if bits:
            self._bits[count] = self._bits.get(count, 0) | bits
        self._bits = {count: known for count, known in self._bits.items() if known}

    def fewer_than(self, count: int, bits: int) -> int:
        """Return those of the messages that came back fewer times."""
        for other, known in self._bits.items():
            if other >= count:
                bits &= ~known
        return bits

    def all(self) -> int:
        """Return the messages that came back at all, as bits."""
        found = 0
        for bits in self._bits.values():
            found |= bits
        return found

    def items(self) -> list[tuple[int, int]]:
        """Return pairs of count and bits, by count."""
        return sorted(self._bits.items())
