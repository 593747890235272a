"""Numbers over time: rates, samples, means, and how long they are kept (management §1.0)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from node.statistics.query import Range
from node.statistics.series import IDLE, Budget, Clock, Ladder, Level, Retention, Watch

T = 1_700_000_100_000
"""A time of day that is a multiple of a minute."""

BASIC = Retention().basic


class Feed:
    """One object with two values, and the ticks that see it."""

    def __init__(self, ladder: Ladder = BASIC, interval_s: float = 5, limit: int = 1 << 30) -> None:
        self.clock = Clock(interval_s)
        self.budget = Budget(limit)
        self.watch = Watch(("a", "b"), ladder, self.clock, self.budget)
        self.watch.derive("sum", "a", "b")
        self.source = object()

    def tick(self, time_ms: int, *values: int) -> None:
        self.clock.begin(time_ms)
        self.budget.review()
        if values:
            self.watch.note("x", self.source, values)
        self.watch.sweep()
        self.clock.end()

    def details(self, name: str = "a", range_: Range | None = None) -> dict[str, Any]:
        return self.watch.details(self.watch.get("x"), self.watch.columns[name], range_)

    def samples(self, age_s: int, incr_s: int, name: str = "a") -> list[tuple[int, int]]:
        """Ticks before the last one in seconds, and values."""
        found = self.details(name, Range(age_s, incr_s))["samples"]
        return [((each["timestamp"] - self.clock.time_ms) // 1000, each["sample"]) for each in found]


def test_the_rate_is_that_of_the_last_interval() -> None:
    feed = Feed()
    for number, value in enumerate((0, 10, 30)):
        feed.tick(T + number * 5000, value, 0)
    assert feed.details() == {"rate": 4.0}
    assert feed.details("b") == {"rate": 0.0}
    assert feed.details("sum") == {"rate": 4.0}
    feed.tick(T + 15_000, 30, 0)
    assert feed.details() == {"rate": 0.0}


def test_lengths_may_fall() -> None:
    feed = Feed()
    feed.tick(T, 10, 0)
    feed.tick(T + 5000, 0, 0)
    assert feed.details() == {"rate": -2.0}


def test_the_first_sample_has_no_rate() -> None:
    """As in RabbitMQ, which needs two."""
    feed = Feed()
    feed.tick(T, 0, 0)
    feed.clock.begin(T + 5000)
    feed.watch.note("new", feed.source, (100, 0))
    feed.clock.end()
    assert feed.watch.details(feed.watch.get("new"), (0,), None) == IDLE


def test_samples_avg_and_avg_rate() -> None:
    """§1.0: newest first, aligned to the increment, age/incr + 1 of them, 0 before there was the object."""
    feed = Feed()
    for number, value in enumerate((100, 110, 130)):
        feed.tick(T + number * 5000 + 1234, value, 0)
    found = feed.details("a", Range(20, 5))
    newest = T + 10_000
    assert found["samples"] == [
        {"sample": 130, "timestamp": newest},
        {"sample": 110, "timestamp": newest - 5000},
        {"sample": 100, "timestamp": newest - 10_000},
        {"sample": 0, "timestamp": newest - 15_000},
        {"sample": 0, "timestamp": newest - 20_000},
    ]
    assert found["rate"] == 4.0
    assert found["avg"] == 340 / 5
    assert found["avg_rate"] == 130 / 20


def test_one_sample_has_no_mean() -> None:
    """As a live RabbitMQ: an age below the increment."""
    feed = Feed()
    feed.tick(T, 1, 0)
    assert feed.details("a", Range(3, 5)) == {"rate": 0.0, "samples": [{"sample": 1, "timestamp": T}]}


def test_what_no_tick_has_met_has_samples_of_zero() -> None:
    feed = Feed()
    feed.tick(T)
    found = feed.watch.details(None, (0,), Range(10, 5))
    assert [each["sample"] for each in found["samples"]] == [0, 0, 0]
    assert found["avg_rate"] == 0.0


def test_before_the_first_tick_there_are_no_samples() -> None:
    feed = Feed()
    assert feed.watch.details(None, (0,), Range(10, 5)) == IDLE


def test_an_idle_object_has_no_history_and_its_value_as_samples() -> None:
    feed = Feed()
    for number in range(4):
        feed.tick(T + number * 5000, 7, 0)
    tracked = feed.watch.get("x")
    assert tracked is not None
    assert tracked.history is None
    assert feed.samples(15, 5) == [(0, 7), (-5, 7), (-10, 7), (-15, 7)]
    assert feed.budget.used_bytes == 0


def test_a_value_that_begins_to_move_later_was_the_same_before() -> None:
    feed = Feed()
    for number, values in enumerate(((0, 9), (1, 9), (2, 9), (3, 5))):
        feed.tick(T + number * 5000, *values)
    assert [value for _, value in feed.samples(15, 5, "b")] == [5, 9, 9, 9]
    assert [value for _, value in feed.samples(15, 5, "sum")] == [8, 11, 10, 9]


def test_memory_is_counted_when_another_value_begins_to_move() -> None:
    feed = Feed()
    for number, values in enumerate(((0, 0), (1, 0), (2, 0), (3, 1), (4, 2))):
        feed.tick(T + number * 5000, *values)
    tracked = feed.watch.get("x")
    assert tracked is not None
    assert tracked.history is not None
    assert feed.budget.used_bytes == sum(len(points) for points in tracked.history.points) * 8 > 0


def test_ticks_that_are_early_or_late_fall_on_multiples_of_the_interval() -> None:
    feed = Feed()
    times = [2400, 2600, 2300, 2700, 2499, 4900, 200]
    for number, late_ms in enumerate(times):
        feed.tick(T + number * 5000 + late_ms, number, 0)
    assert feed.samples(30, 5) == [(-5 * number, len(times) - 1 - number) for number in range(7)]


def test_ticks_that_follow_each_other_too_fast() -> None:
    """One that was held up, and the next in time: rates go by the time between."""
    feed = Feed()
    for time_ms, value in ((0, 0), (5000, 10), (13_000, 26), (15_200, 30)):
        feed.tick(T + time_ms, value, 0)
    assert feed.clock.time_ms == T + 15_001
    assert feed.details()["rate"] == 4 / 2.2
    assert feed.samples(15, 5)[0] == (-1, 26)
    feed.tick(T + 20_000, 40, 0)
    assert feed.samples(10, 5) == [(0, 40), (-5, 26), (-10, 10)]


def test_a_tick_that_comes_far_too_late() -> None:
    """The machine was suspended, or the clock set: rates are by the time between."""
    feed = Feed()
    feed.tick(T, 0, 0)
    feed.tick(T + 100_000, 200, 0)
    assert feed.details() == {"rate": 2.0}
    assert [value for _, value in feed.samples(100, 50)] == [200, 0, 0]


def test_a_clock_that_is_set_back() -> None:
    feed = Feed()
    for number, time_ms in enumerate((T, T + 5000, T - 3_600_000, T - 3_595_000)):
        feed.tick(time_ms, number, 0)
    assert feed.clock.time_ms > T
    assert feed.details()["rate"] > 0


def test_the_level_follows_the_age() -> None:
    """§1.0: 600 s at 5 s, 3,600 s at 60 s."""
    feed = Feed()
    count = 3600 // 5 + 1
    for number in range(count):
        feed.tick(T + number * 5000, number, 0)
    assert feed.samples(600, 5) == [(-5 * n, count - 1 - n) for n in range(121)]
    assert feed.samples(3600, 60) == [(-60 * n, count - 1 - 12 * n) for n in range(61)]


def test_beyond_what_is_kept_there_is_nothing() -> None:
    feed = Feed((Level(60, 5),))
    for number in range(200):
        feed.tick(T + number * 5000, number, 0)
    found = feed.samples(900, 5)
    assert found == [(-5 * n, 199 - n) for n in range(len(found))]
    assert 60 // 5 <= len(found) < 60


def test_the_history_of_what_moves_no_more_ends() -> None:
    feed = Feed((Level(60, 5),))
    for number in range(3):
        feed.tick(T + number * 5000, number, 0)
    for number in range(3, 20):
        feed.tick(T + number * 5000, 2, 0)
    tracked = feed.watch.get("x")
    assert tracked is not None
    assert tracked.history is None
    assert feed.budget.used_bytes == 0
    assert {value for _, value in feed.samples(60, 5)} == {2}


def test_what_is_gone_drops_its_series() -> None:
    feed = Feed()
    for number in range(3):
        feed.tick(T + number * 5000, number, 0)
    feed.tick(T + 15_000)
    assert feed.watch.get("x") is None
    assert feed.budget.used_bytes == 0


def test_another_object_of_the_same_id_begins_anew() -> None:
    """A queue whose master came back: its counters begin at 0."""
    feed = Feed()
    feed.tick(T, 0, 0)
    feed.tick(T + 5000, 100, 0)
    feed.source = object()
    feed.tick(T + 10_000, 1, 0)
    assert feed.details() == IDLE
    assert [value for _, value in feed.samples(10, 5)] == [1, 0, 0]
    assert feed.budget.used_bytes == 0


def test_memory_is_bounded() -> None:
    """Too many objects that move: all of them go back less far."""
    feed, limit = Feed(limit=100_000), 100_000
    sources = [object() for _ in range(60)]
    used = []
    for number in range(400):
        feed.clock.begin(T + number * 5000)
        feed.budget.review()
        for source in sources:
            feed.watch.note(str(id(source)), source, (number, number))
        feed.watch.sweep()
        feed.clock.end()
        used.append(feed.budget.used_bytes)
    assert max(used) < 1.5 * limit
    history = feed.watch.objects[str(id(sources[0]))].history
    assert history is not None
    assert feed.budget.used_bytes == sum(len(points) for points in history.points) * 8 * len(sources)
    found = feed.watch.details(feed.watch.get(str(id(sources[0]))), (0,), Range(600, 5))["samples"]
    assert [each["sample"] for each in found] == [399 - n for n in range(len(found))]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-3, 3), st.booleans()),
        min_size=1,
        max_size=200,
    ),
    st.sampled_from([5, 10, 15, 60, 120]),
    st.integers(5, 590),
)
def test_samples_are_the_values_at_their_times(
    steps: list[tuple[int, int, bool]], incr_s: int, age_s: int
) -> None:
    """Against a model that remembers every tick. steps: by how much both values move; whether they do."""
    feed, known = Feed(), {}
    a, b = 50, 500
    for number, (up, by, moves) in enumerate(steps):
        a, b = (a + up, b + by) if moves else (a, b)
        feed.tick(T + number * 5000, a, b)
        known[T + number * 5000] = (a, b)
    last_ms = feed.clock.time_ms
    for name, index in (("a", 0), ("b", 1)):
        for time_ms, value in (
            (each["timestamp"], each["sample"])
            for each in feed.details(name, Range(age_s, incr_s))["samples"]
        ):
            assert time_ms % (incr_s * 1000) == 0
            assert last_ms - age_s * 1000 - incr_s * 1000 <= time_ms <= last_ms
            assert value == (known[time_ms][index] if time_ms >= T else 0)


@given(st.lists(st.integers(0, 5), min_size=13, max_size=400), st.integers(11, 60))
def test_coarse_samples_are_the_values_at_their_times(moves: list[int], minutes: int) -> None:
    """The level of a minute, at whole minutes."""
    feed, value, known = Feed(), 0, {}
    for number, up in enumerate(moves):
        value += up
        feed.tick(T + number * 5000, value, 0)
        known[T + number * 5000] = value
    for each in feed.details("a", Range(minutes * 60, 60))["samples"]:
        assert each["sample"] == known.get(each["timestamp"], 0)
