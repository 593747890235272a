"""Lists that are freed in pieces."""

import weakref

from node.scheduling.chores import CHORES_S, Chores
from node.scheduling.waste import FREED_AT_ONCE, Waste


class Thing:
    """Something that costs a look at the clock when it goes."""

    def __init__(self, clock: list[float], cost_s: float) -> None:
        weakref.finalize(self, lambda: clock.__setitem__(0, clock[0] + cost_s))


def test_a_long_list_is_freed_in_pieces_and_others_get_their_turns() -> None:
    clock = [0.0]
    woken: list[int] = []
    chores = Chores(lambda: clock[0], lambda: woken.append(1))
    waste = Waste(chores.begin)
    for _ in range(3):
        waste.add([Thing(clock, CHORES_S / FREED_AT_ONCE) for _ in range(4 * FREED_AT_ONCE)])
    assert woken, "a turn is to come"
    done: list[int] = []
    chores.begin(iter([None]), lambda: done.append(1))
    costs = []
    while chores.has_work:
        before = clock[0]
        chores.turn()
        costs.append(clock[0] - before)
        assert done or len(costs) < 3, "another chore is not kept waiting by all lists"
    assert max(costs) <= 2.1 * CHORES_S
    assert round(clock[0] / CHORES_S) == 12


def test_a_short_list_is_left_to_the_caller() -> None:
    chores = Chores(lambda: 0.0, lambda: None)
    waste = Waste(chores.begin)
    things = [object()] * FREED_AT_ONCE
    waste.add(things)
    assert len(things) == FREED_AT_ONCE
    assert not chores.has_work
