"""Sets of sequence numbers as bits, against Python's sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from node.store.seq_set import Deliveries, SeqSet, bits_of, clipped, ranges_of

ENTRIES = 16

RANGES = st.builds(
    lambda start, length: range(start, start + length), st.integers(0, 100), st.integers(1, 70)
)


def numbers_of(bits: int, base: int = 0) -> set[int]:
    """The set bits as numbers."""
    return {base + at for at in range(bits.bit_length()) if bits >> at & 1}


@given(st.integers(0, 1 << 40), st.integers(0, 1000))
def test_ranges_are_the_bits(bits: int, base: int) -> None:
    """Rising, and none touches the next."""
    ranges = ranges_of(bits, base)
    assert {seq for seqs in ranges for seq in seqs} == numbers_of(bits, base)
    assert all(one.stop < other.start for one, other in pairwise(ranges))


@given(st.lists(RANGES), st.integers(0, 100), st.integers(0, 50))
def test_clipped(ranges: list[range], base: int, count: int) -> None:
    found = {seq for seqs in clipped(ranges, base, count) for seq in seqs}
    assert found == {seq for seqs in ranges for seq in seqs if base <= seq < base + count}


@given(st.lists(RANGES), st.booleans())
def test_a_set_of_numbers(ranges: list[range], looks_between: bool) -> None:
    """Whatever ranges come, continuing each other, overlapping, or over many segments."""
    seqs, numbers = SeqSet(ENTRIES), set()
    for part in ranges:
        seqs.add(part.start, part.stop)
        numbers.update(part)
        if looks_between:
            seqs.of(part.start // ENTRIES)
    assert list(seqs.segments()) == sorted({number // ENTRIES for number in numbers})
    found = set()
    for segment in range(15):
        found |= numbers_of(seqs.of(segment), segment * ENTRIES)
    assert found == numbers
    assert seqs.end == max(numbers, default=-1) + 1


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 4))), st.integers(0, 255), st.integers(1, 4))
def test_deliveries_keep_the_highest_count(told: list[tuple[int, int]], bits: int, count: int) -> None:
    deliveries, counts = Deliveries(), dict.fromkeys(range(8), 0)
    for each, times in told:
        deliveries.add(each, times)
        counts.update({at: max(counts[at], times) for at in numbers_of(each)})
    assert {at: times for times, each in deliveries.items() for at in numbers_of(each)} == {
        at: times for at, times in counts.items() if times
    }
    assert numbers_of(deliveries.all()) == {at for at, times in counts.items() if times}
    assert numbers_of(deliveries.fewer_than(count, bits)) == {
        at for at in numbers_of(bits) if counts[at] < count
    }


def test_bits_of() -> None:
    assert numbers_of(bits_of(3, 2)) == {3, 4}
