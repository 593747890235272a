"""The checks of what clients saw: what they have to let pass, and what not."""

import pytest

from tests.sim.mirror_ledger import Ledger, nothing_confirmed_is_lost, rest_is_in_order
from tests.sim.mirror_world import Timeline, Violation


def ledger_of(count: int) -> Ledger:
    """Return a ledger with so many messages of one publisher, numbered as they were published."""
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
    """Reading begins again for no other reason, and no message comes for the first time after a later one."""
    with pytest.raises(Violation):
        rest_is_in_order(ledger_of(5), "q", ids, moves)


def confirmed_late(*, gone_since: float | None, excused_at: float | None, transient_only: bool) -> Ledger:
    """A persistent message was published and confirmed at 3.0.

    gone_since: when the node was declared down that confirms it.   excused_at: when something happened to its queue.
    """
    ledger = ledger_of(0)
    if excused_at is not None:
        ledger.world.now = excused_at
        ledger.excuse("q", "its only copy went with its node", transient_only=transient_only)
    ledger.world.now = 3.0
    message = ledger.publish("q", "publisher", 0, persistent=True, size=40, priority=0)
    ledger.gone_since = {"n1": gone_since}.get
    ledger.confirm(message, "confirmed", "n1")
    return ledger


def test_what_a_node_confirms_that_is_gone_may_go_with_it() -> None:
    """mirrors.md, A7: it was frozen, and has not heard that its queue was deleted since it counts as down."""
    ledger = confirmed_late(gone_since=1.0, excused_at=1.0, transient_only=False)
    nothing_confirmed_is_lost(ledger, {}, ())


@pytest.mark.parametrize(
    ("gone_since", "excused_at", "transient_only"),
    [(None, 1.0, False), (1.0, 0.5, False), (1.0, 1.0, True), (1.0, None, False)],
    ids=["it is up", "it was up", "the message is on its disk", "others have a copy"],
)
def test_what_a_node_confirms_is_there_all_the_same(
    gone_since: float | None, excused_at: float | None, transient_only: bool
) -> None:
    """A node that counts as down may confirm what others have, and what its disk will bring back."""
    ledger = confirmed_late(gone_since=gone_since, excused_at=excused_at, transient_only=transient_only)
    with pytest.raises(Violation):
        nothing_confirmed_is_lost(ledger, {}, ())
