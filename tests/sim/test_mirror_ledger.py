"""The checks of what clients saw: what they have to let pass, and what not."""

import pytest

from tests.sim.mirror_ledger import Ledger, rest_is_in_order
from tests.sim.mirror_world import Timeline, Violation


def ledger_of(count: int) -> Ledger:
    """So many messages of one publisher, numbered as they were published."""
    ledger = Ledger(Timeline(1, ("n1",)))
    for index in range(count):
        ledger.publish("q", "publisher", index, persistent=True, size=40, priority=0)
    return ledger


@pytest.mark.parametrize(
    ("ids", "moves"),
    [([0, 1, 2, 3, 4], 0), ([0, 1, 2, 3, 2, 3, 4], 1), ([0, 1, 2, 1, 2, 3, 2, 3, 4], 2), ([1, 1, 4], 1)],
)
def test_what_is_left_may_begin_again_with_each_new_master(ids: list[int], moves: int) -> None:
    """mirrors.md, A4."""
    rest_is_in_order(ledger_of(5), "q", ids, moves)


@pytest.mark.parametrize(
    ("ids", "moves"),
    [([0, 2, 1], 0), ([0, 1, 0, 1], 0), ([0, 1, 2, 1, 2, 1], 1), ([0, 2, 1], 1), ([0, 3, 0, 2, 3], 1)],
)
def test_what_is_left_is_in_order_all_the_same(ids: list[int], moves: int) -> None:
    """It begins again for no other reason, and nothing comes for the first time after a later one."""
    with pytest.raises(Violation):
        rest_is_in_order(ledger_of(5), "q", ids, moves)
