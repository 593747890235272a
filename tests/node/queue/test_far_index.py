"""The index of messages on disk by due time: order over segments, ties, and what is taken together."""

from random import Random

import pytest

from node.queue.due_index import Due
from node.queue.far_index import SIZE_MAX, FarIndex
from node.queue.run import NEVER


def drained(index: FarIndex) -> list[Due]:
    """Take all entries, one at a time, each from the segment of the first."""
    found: list[Due] = []
    while (head := index.head) is not None:
        (due,) = index.take(head.first_seq // 8, NEVER, 1)
        assert due == head
        found.append(due)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_entries_leave_by_time_and_among_equals_by_number(seed: int) -> None:
    """Over all segments, however they came: one by one, many at once, and while others leave."""
    dice = Random(seed)
    index = FarIndex(8)
    waiting: list[Due] = []
    numbers = iter(dice.sample(range(400), 400))
    for number in numbers:
        due = Due(dice.randrange(-20, 60) / 4, number, 1)
        if dice.randrange(3):
            index.push(*due)
            waiting.append(due)
        else:
            segment = number // 8
            more = [due, Due(dice.randrange(60) / 4, 1000 * 8 + number, 1)]
            index.extend(segment, more[:1])
            index.extend(1000 + segment, more[1:])
            waiting += more
        if not dice.randrange(4):
            head = index.head
            assert head == min(waiting)
            (taken,) = index.take(head.first_seq // 8, head.at, 1)
            waiting.remove(taken)
        assert len(index) == len(waiting)
    assert sorted(index.entries()) == sorted(waiting)
    assert drained(index) == sorted(waiting)
    assert index.head is None


def test_what_is_due_soon_in_a_segment_is_taken_together() -> None:
    index = FarIndex(8)
    index.extend(0, [(5.0, 1, 2), (1.0, 3, 1), (9.0, 4, 1), (2.0, 0, 1)])
    index.push(1.5, 9, 1)
    assert index.take(0, 5.0, 3) == [Due(1.0, 3, 1), Due(2.0, 0, 1), Due(5.0, 1, 2)]
    assert index.head == Due(1.5, 9, 1)
    assert index.take(0, 5.0, 3) == []
    assert index.take(7, 5.0, 3) == []
    assert list(index.of(0)) == [Due(9.0, 4, 1)]
    index.clear()
    assert (len(index), index.head, list(index.of(0))) == (0, None, [])


def test_times_are_rounded_down_to_the_millisecond() -> None:
    """A message is fetched before it is due."""
    index = FarIndex(8)
    index.push(1.0009, 1, 1)
    index.push(-0.0001, 9, 1)
    assert drained(index) == [Due(-0.001, 9, 1), Due(1.0, 1, 1)]


def test_the_bounds_of_an_entry() -> None:
    """Ten years from now, high numbers, long runs; what is never due comes last."""
    index = FarIndex(100_000)
    last = (1 << 62) // 100_000 * 100_000
    index.push(NEVER, 7, 1)
    index.push(315_360_000.0 + 1e9, last, 100_000)
    found = index.take(last // 100_000, NEVER, 1 << 30)
    assert found == [
        Due(1_315_360_000.0, last, SIZE_MAX),
        Due(1_315_360_000.0, last + SIZE_MAX, 100_000 - SIZE_MAX),
    ]
    assert index.head is not None
    assert index.head.first_seq == 7
    for first_seq, size in ((99_999, 2), (5, 0)):
        with pytest.raises(AssertionError):
            index.push(0.0, first_seq, size)


@pytest.mark.parametrize("gone", [10, 11, 12, 13])
def test_a_single_message_can_be_removed(gone: int) -> None:
    """From either end of an entry, or from within."""
    index = FarIndex(8)
    index.push(1.0, 10, 4)
    index.push(1.0, 14, 1)
    index.push(2.0, 9, 1)
    assert index.discard(gone)
    assert not index.discard(gone)
    assert not index.discard(15)
    assert not index.discard(70)
    found = [seq for due in drained(index) for seq in range(due.first_seq, due.first_seq + due.size)]
    assert found == [seq for seq in (10, 11, 12, 13, 14, 9) if seq != gone]


def test_what_is_due_next_is_the_head_after_the_first_was_removed() -> None:
    index = FarIndex(8)
    index.push(1.0, 1, 1)
    index.push(3.0, 2, 1)
    index.push(2.0, 9, 1)
    assert index.discard(1)
    assert index.head == Due(2.0, 9, 1)
    assert index.discard(9)
    assert index.head == Due(3.0, 2, 1)
    assert index.discard(2)
    assert index.head is None
