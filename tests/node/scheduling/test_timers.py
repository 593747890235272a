"""The heap of deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from node.scheduling.timers import Timer, Timers


class Rung:
    """Callbacks that write down when they went off."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.rung: list[tuple[str, float]] = []

    def at(self, when: float, name: str) -> Timer:
        return self.timers.at(when, lambda now: self.rung.append((name, now)))


def test_nothing_pending() -> None:
    timers = Timers()
    assert (len(timers), timers.next_deadline()) == (0, None)
    timers.run(9.0)


def test_due_timers_go_off_in_order_and_once() -> None:
    clock = Rung()
    clock.at(2.0, "b")
    clock.at(1.0, "a")
    clock.at(2.0, "c")
    clock.at(3.5, "late")
    clock.timers.run(3.0)
    clock.timers.run(3.1)
    assert clock.rung == [("a", 3.0), ("b", 3.0), ("c", 3.0)]
    assert (len(clock.timers), clock.timers.next_deadline()) == (1, 3.5)


def test_a_timer_goes_off_at_its_very_time() -> None:
    clock = Rung()
    clock.at(2.0, "a")
    clock.timers.run(1.999)
    assert clock.rung == []
    clock.timers.run(2.0)
    assert clock.rung == [("a", 2.0)]


def test_a_cancelled_timer_does_not_go_off() -> None:
    clock = Rung()
    timer = clock.at(1.0, "a")
    clock.at(2.0, "b")
    timer.cancel()
    timer.cancel()
    assert (len(clock.timers), clock.timers.next_deadline()) == (1, 2.0)
    clock.timers.run(5.0)
    assert clock.rung == [("b", 5.0)]
    assert len(clock.timers) == 0


def test_cancelling_what_has_happened_is_nothing() -> None:
    clock = Rung()
    timer = clock.at(1.0, "a")
    clock.at(9.0, "b")
    clock.timers.run(1.0)
    timer.cancel()
    assert len(clock.timers) == 1


def test_a_callback_may_cancel_another_that_is_due() -> None:
    clock = Rung()
    clock.timers.at(1.0, lambda now: other.cancel())
    other = clock.at(2.0, "other")
    clock.timers.run(3.0)
    assert clock.rung == []
    assert len(clock.timers) == 0


def test_what_a_callback_adds_for_the_past_waits_for_the_next_run() -> None:
    """A callback that always wants to be called again must not hang the loop."""
    timers = Timers()
    calls = []

    def again(now: float) -> None:
        calls.append(now)
        timers.at(now, again)

    timers.at(1.0, again)
    timers.run(1.0)
    assert calls == [1.0]
    timers.run(1.0)
    assert calls == [1.0, 1.0]


def test_what_is_added_for_the_past_keeps_nobody_waiting() -> None:
    clock = Rung()

    def add(now: float) -> None:
        clock.at(0.5, "past")

    clock.timers.at(1.0, add)
    clock.at(2.0, "due")
    clock.timers.run(3.0)
    assert clock.rung == [("due", 3.0)]
    clock.timers.run(3.0)
    assert clock.rung == [("due", 3.0), ("past", 3.0)]


def test_the_shell_is_told_of_an_earlier_deadline_only() -> None:
    clock = Rung()
    told: list[float | None] = []
    clock.timers.on_earlier = lambda: told.append(clock.timers.next_deadline())
    for when in (5.0, 4.0, 6.0, 4.5):
        assert clock.at(when, "").when == when
    assert told == [5.0, 4.0]


def test_cancelled_timers_do_not_fill_the_heap() -> None:
    clock = Rung()
    clock.at(1e9, "kept")
    for _ in range(10_000):
        clock.at(1e6, "cancelled").cancel()
        assert len(clock.timers._heap) < 1100
    assert (len(clock.timers), clock.timers.next_deadline()) == (1, 1e9)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=30), st.integers(0, 9))
def test_just_what_is_due_and_not_cancelled(timers: list[tuple[int, bool]], now: int) -> None:
    clock = Rung()
    for number, (when, is_cancelled) in enumerate(timers):
        timer = clock.at(when, f"{when} {number:02}")
        if is_cancelled:
            timer.cancel()
    clock.timers.run(now)
    due = sorted(
        f"{when} {n:02}" for n, (when, is_cancelled) in enumerate(timers) if when <= now and not is_cancelled
    )
    assert clock.rung == [(name, now) for name in due]
    assert len(clock.timers) == sum(when > now and not is_cancelled for when, is_cancelled in timers)
