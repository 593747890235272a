"""Sets of message numbers, which stay compact whatever their numbers are.

Numbers of a queue lie close together: a million messages are mostly one range, and after clients have acknowledged
some of them they may be a million ranges. So numbers are bits, a block of 4096 of them is one integer, and a change
of a run costs some operations on an integer of half a kilobyte, at either end or in the middle. A block
without a number in the set takes nothing.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

BLOCK_BITS: Final = 12
BLOCK_NUMBERS: Final = 1 << BLOCK_BITS
"""The count of numbers that share an integer."""

_WITHIN: Final = BLOCK_NUMBERS - 1
_FULL: Final = (1 << BLOCK_NUMBERS) - 1


class NumberSet:
    """A set of numbers from 0 on. `len` costs nothing.

    Ranges that are given may have any positive step; those that come back are of step 1, rising, none empty, none
    touching the next.
    """

    __slots__ = ("_blocks", "_count", "_first")

    def __init__(self, ranges: Iterable[range] = ()) -> None:
        self._blocks: dict[int, int] = {}
        self._count = 0
        self._first = 0  # no block that is lower has a number
        for numbers in ranges:
            self.add(numbers)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return bool(self._blocks.get(number >> BLOCK_BITS, 0) >> (number & _WITHIN) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberSet) and self._blocks == other._blocks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"NumberSet({self.ranges()})"

    def add(self, numbers: range) -> int:
        """Add numbers; return how many of them are new."""
        blocks, before = self._blocks, self._count
        if numbers and (not before or numbers.start >> BLOCK_BITS < self._first):
            self._first = numbers.start >> BLOCK_BITS
        for block, bits in _one_block(numbers) or _by_block(numbers):
            known = blocks.get(block)
            if known is None:
                blocks[block] = bits
                self._count += bits.bit_count()
            elif missing := bits & ~known:
                blocks[block] = known | missing
                self._count += missing.bit_count()
        return self._count - before

    def discard(self, numbers: range) -> int:
        """Remove numbers; return how many of them were in the set."""
        blocks, before = self._blocks, self._count
        if len(numbers) > len(blocks) << BLOCK_BITS:
            # Hardly anything of so wide a range can be here.
            numbers = self._clipped(numbers)
        for block, bits in _one_block(numbers) or _by_block(numbers):
            known = blocks.get(block)
            if known is None:
                continue
            found = known & bits
            self._count -= found.bit_count()
            if found == known:
                del blocks[block]
            elif found:
                blocks[block] = known ^ found
        return before - self._count

    def intersection(self, numbers: range) -> list[range]:
        """Return those of the numbers that are in the set."""
        for block, bits in _one_block(numbers):
            found = self._blocks.get(block, 0) & bits
            if found == bits:
                return [numbers]
            return list(_ranges_of(found, block << BLOCK_BITS)) if found else []
        if len(numbers) > len(self._blocks) << BLOCK_BITS:
            numbers = self._clipped(numbers)
        blocks = self._blocks
        return list(_joined((block, blocks.get(block, 0) & bits) for block, bits in _by_block(numbers)))

    def count_below(self, number: int) -> int:
        """Return how many numbers of the set are lower than this one. Costs a look at each block of the set."""
        first = self.first
        if first is None or number <= first:
            return 0
        last, blocks = number >> BLOCK_BITS, self._blocks
        part = blocks.get(last, 0) & (1 << (number & _WITHIN)) - 1
        return part.bit_count() + sum(bits.bit_count() for block, bits in blocks.items() if block < last)

    def minus(self, other: "NumberSet") -> "NumberSet":
        """Return the numbers that are in this set and not in the other."""
        result = NumberSet()
        for block, bits in self._blocks.items():
            if left := bits & ~other._blocks.get(block, 0):
                result._blocks[block] = left
                result._count += left.bit_count()
        result._first = self._first
        return result

    def copy(self) -> "NumberSet":
        """Return another set of the same numbers."""
        return self.minus(NumberSet())

    @property
    def first(self) -> int | None:
        """The lowest number; None: there is none."""
        if not self._count:
            return None
        blocks = self._blocks
        if self._first not in blocks:
            self._first = min(blocks)
        bits = blocks[self._first]
        return (self._first << BLOCK_BITS) + (bits & -bits).bit_length() - 1

    @property
    def stop(self) -> int:
        """The number above the highest one; 0: there is none."""
        if not self._count:
            return 0
        last = max(self._blocks)
        return (last << BLOCK_BITS) + self._blocks[last].bit_length()

    def __iter__(self) -> Iterator[range]:
        """Yield the numbers as ranges, made as they are asked for; the set must not change meanwhile."""
        blocks = self._blocks
        return _joined((block, blocks[block]) for block in sorted(blocks))

    def ranges(self) -> list[range]:
        """Return the numbers as ranges."""
        return list(self)

    def ranges_from(self, first: int, limit: int) -> list[range]:
        """Return the numbers from `first` on as ranges, at most `limit` of them.

        Costs the ranges that are given, and a look at each block of the set.
        """
        blocks, low = self._blocks, first >> BLOCK_BITS
        below = (1 << (first & _WITHIN)) - 1
        head = [(low, blocks.get(low, 0) & ~below)]
        rest = ((block, blocks[block]) for block in sorted(block for block in blocks if block > low))
        return list(islice(_joined(chain(head, rest)), limit))

    def clear(self) -> None:
        """Remove all."""
        self._blocks.clear()
        self._count = 0

    def _clipped(self, numbers: range) -> range:
        """Return the part of a range that is between the lowest and the highest number of the set."""
        first, stop = self.first or 0, self.stop
        if numbers.start < first:
            numbers = numbers[-(-(first - numbers.start) // numbers.step) :]
        return numbers[: max(0, -(-(stop - numbers.start) // numbers.step))]


def _one_block(numbers: range) -> tuple[tuple[int, int], ...]:
    """Return the result of `_by_block` for consecutive numbers in one block, the usual case; empty for others."""
    start, stop = numbers.start, numbers.stop
    block = start >> BLOCK_BITS
    if numbers.step != 1 or start >= stop or (stop - 1) >> BLOCK_BITS != block or start < 0:
        return ()
    return ((block, ((1 << stop - start) - 1) << (start & _WITHIN)),)


def _by_block(numbers: range) -> Iterator[tuple[int, int]]:
    """Yield numbers as bits, by block."""
    while numbers:
        start, step = numbers.start, numbers.step
        assert start >= 0, "numbers begin at 0"
        assert step > 0, "numbers rise"
        block, low = start >> BLOCK_BITS, start & _WITHIN
        if step == 1:
            count = min(len(numbers), BLOCK_NUMBERS - low)
            yield block, _FULL if count == BLOCK_NUMBERS else ((1 << count) - 1) << low
        else:
            count = min(len(numbers), -(-(BLOCK_NUMBERS - low) // step))
            # 1 + 2**step + 2**(2 * step) and so on is a geometric series.
            yield block, ((1 << step * count) - 1) // ((1 << step) - 1) << low
        numbers = numbers[count:]


def _joined(parts: Iterable[tuple[int, int]]) -> Iterator[range]:
    """Yield blocks of rising number as ranges, also those that reach over blocks."""
    start = stop = -1
    for block, bits in parts:
        if not bits:
            continue
        base = block << BLOCK_BITS
        found = (range(base, base + BLOCK_NUMBERS),) if bits == _FULL else _ranges_of(bits, base)
        for numbers in found:
            if numbers.start == stop:
                stop = numbers.stop
                continue
            if stop >= 0:
                yield range(start, stop)
            start, stop = numbers.start, numbers.stop
    if stop >= 0:
        yield range(start, stop)


def _ranges_of(bits: int, base: int) -> Iterator[range]:
    """Yield the set bits as ranges.   base: the number of bit 0."""
    digits = f"{bits:b}"[::-1] + "0"
    stop = 0
    while (start := digits.find("1", stop)) >= 0:
        stop = digits.find("0", start)
        yield range(base + start, base + stop)
