"""Long work in pieces."""

from collections.abc import Iterator

import pytest

from node.scheduling.chores import CHORES_S, Chores

PIECE_S = CHORES_S / 4


class Place:
    """Chores whose pieces cost a quarter of a turn's time each, and what was done so far."""

    def __init__(self) -> None:
        self.now = 0.0
        self.woken = 0
        self.done: list[str] = []
        self.chores = Chores(lambda: self.now, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def pieces(self, name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            self.now += PIECE_S
            self.done.append(name)
            yield

    def begin(self, name: str, count: int) -> None:
        self.chores.begin(self.pieces(name, count), lambda: self.done.append(f"{name} done"))

    def turn(self) -> float:
        """Run one turn and return its cost."""
        before = self.now
        self.chores.turn()
        self.chores.end_turn()
        return self.now - before


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_is_short_is_done_at_once(place: Place) -> None:
    place.begin("a", 2)
    assert place.done == ["a", "a", "a done"]
    assert not place.chores.has_work
    assert place.woken == 0


def test_what_is_long_goes_on_in_the_coming_turns(place: Place) -> None:
    place.begin("a", 30)
    assert place.now <= CHORES_S + 1.1 * PIECE_S
    assert place.woken == 1
    place.chores.end_turn()
    costs = []
    while place.chores.has_work:
        costs.append(place.turn())
    assert max(costs) <= CHORES_S + 1.1 * PIECE_S
    assert place.done == ["a"] * 30 + ["a done"]


def test_those_in_line_take_turns(place: Place) -> None:
    place.begin("a", 30)
    place.begin("b", 5)
    assert "b" not in place.done, "this turn's time is over"
    place.chores.end_turn()
    while "b done" not in place.done:
        place.turn()
    assert "a done" not in place.done


def test_a_fault_in_one_lets_its_waiter_and_the_others_go_on(place: Place) -> None:
    def faulty() -> Iterator[None]:
        yield from place.pieces("a", 10)
        raise KeyError("ours")

    place.chores.begin(faulty(), lambda: place.done.append("a done"))
    place.begin("b", 2)
    place.chores.end_turn()
    faults = 0
    for _ in range(10):
        try:
            place.turn()
        except KeyError:
            faults += 1
    assert faults == 1
    place.chores.end_turn()
    while place.chores.has_work:
        place.turn()
    assert place.done.count("a done") == 1
    assert "b done" in place.done
