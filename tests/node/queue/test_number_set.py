"""Sets of message numbers against Python's sets."""

from hypothesis import given
from hypothesis import strategies as st

from node.queue.number_set import BLOCK_NUMBERS, NumberSet

EDGES = (0, 1, 60, BLOCK_NUMBERS - 2, BLOCK_NUMBERS, BLOCK_NUMBERS + 70, 3 * BLOCK_NUMBERS)

numbers = st.builds(
    lambda edge, offset, length, step: range(edge + offset, edge + offset + length, step),
    st.sampled_from(EDGES),
    st.integers(0, 5),
    st.one_of(st.integers(0, 8), st.sampled_from((BLOCK_NUMBERS, 2 * BLOCK_NUMBERS + 3))),
    st.sampled_from((1, 1, 1, 2, 3, 1000)),
)


def ranges_of(members: set[int]) -> list[range]:
    """The fewest ranges."""
    found: list[range] = []
    for number in sorted(members):
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


@given(st.lists(st.tuples(st.booleans(), numbers), max_size=20), numbers, st.integers(0, 4))
def test_it_is_a_set(changes: list[tuple[bool, range]], asked: range, limit: int) -> None:
    """Each answer is that of a set of single numbers."""
    found, model = NumberSet(), set[int]()
    for is_added, some in changes:
        if is_added:
            assert found.add(some) == len(set(some) - model)
            model |= set(some)
        else:
            assert found.discard(some) == len(set(some) & model)
            model -= set(some)
        assert len(found) == len(model)
        assert found.first == min(model, default=None)
        assert found.stop == max(model, default=-1) + 1
    assert found.ranges() == ranges_of(model)
    assert found == NumberSet(ranges_of(model)) == found.copy()
    assert found.intersection(asked) == ranges_of(model & set(asked))
    assert found.minus(NumberSet([asked])).ranges() == ranges_of(model - set(asked))
    assert all((number in found) is (number in model) for number in (*asked[:20], 0, 1))
    assert found.count_below(asked.start) == sum(number < asked.start for number in model)
    above = {number for number in model if number >= asked.start}
    assert found.ranges_from(asked.start, limit) == ranges_of(above)[:limit]


def test_a_range_beyond_all_measure_costs_nothing() -> None:
    """A range that a peer says is removed may be huge, and costs only the numbers that are there."""
    found = NumberSet([range(5, 10), range(10_000, 10_010)])
    huge = range(7, 1 << 62)
    assert found.intersection(huge) == [range(7, 10), range(10_000, 10_010)]
    assert found.discard(huge) == 13
    assert found.ranges() == [range(5, 7)]
    assert NumberSet().discard(huge) == 0
    assert NumberSet().intersection(huge) == []


def test_a_million_fragments() -> None:
    """Each second message is acknowledged: one by one, from the middle on, without a look at the others."""
    found = NumberSet([range(2_000_000)])
    for number in range(1_000_000, 1_100_000, 2):
        assert found.discard(range(number, number + 1)) == 1
    assert found.discard(range(0, 1_000_000, 2)) == 500_000
    assert len(found) == 1_450_000
    assert found.ranges_from(1_000_000, 2) == [range(1_000_001, 1_000_002), range(1_000_003, 1_000_004)]
