"""The index by due time: order, ties, and the bounds of what an entry can say."""

from random import Random

import pytest

from node.queue.due_index import Due, DueIndex
from node.queue.run import NEVER


def test_entries_leave_by_time_and_among_equals_by_number() -> None:
    """Whatever the order in which they came."""
    entries = [Due(float(at), seq, 1) for at in range(20) for seq in range(5)]
    index = DueIndex()
    for entry in Random(1).sample(entries, len(entries)):
        index.push(*entry)
    assert len(index) == 100
    assert [index.pop() for _ in entries] == entries
    assert index.head is None


def test_times_are_rounded_up_to_the_microsecond() -> None:
    """Nothing leaves before its time."""
    index = DueIndex()
    index.push(1.000_000_4, 1, 1)
    index.push(2.5, 2, 1)
    assert index.pop().at == 1.000_001
    assert index.pop().at == 2.5


def test_times_before_the_clock_began_are_in_order_too() -> None:
    """A message that was due while the machine was down."""
    index = DueIndex()
    for at in (-5.0, 0.0, -100_000.5, 3.0):
        index.push(at, 1, 1)
    assert [index.pop().at for _ in range(4)] == [-100_000.5, -5.0, 0.0, 3.0]


def test_the_bounds_of_an_entry() -> None:
    """Ten years from now, the highest number, the largest run; what is due never comes last."""
    index = DueIndex()
    index.push(NEVER, 7, 1)
    index.push(315_360_000.0 + 1e9, (1 << 63) - 1, (1 << 32) - 1)
    assert index.pop() == Due(1_315_360_000.0, (1 << 63) - 1, (1 << 32) - 1)
    assert index.pop().first_seq == 7
    for bad in ((0.0, -1, 1), (0.0, 1 << 63, 1), (0.0, 1, 0), (0.0, 1, 1 << 32)):
        with pytest.raises(AssertionError):
            index.push(*bad)


def test_all_entries_can_be_looked_at_and_removed() -> None:
    """For a queue that is emptied."""
    index = DueIndex()
    index.push(2.0, 1, 3)
    index.push(1.0, 4, 1)
    assert sorted(index.entries()) == [Due(1.0, 4, 1), Due(2.0, 1, 3)]
    index.clear()
    assert index.entries() == []
