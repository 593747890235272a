"""Counters that start anew, findings that are raised and cleared, and what speaks for a minute."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from spark_ops.health.minutes import bucket_percentile, filled, held_since, percentile, rise, rises


@dataclass(frozen=True)
class One:
    minute: int
    boot: str
    mono_ms: int
    total: int | None


def facts(*values: tuple[int, str, int, int | None]) -> list[One]:
    return [One(*value) for value in values]


def test_a_restart_counts_from_nothing() -> None:
    """spark §6.18: no negative rate."""
    ones = facts((10, "a", 600_000, 100), (11, "a", 660_000, 130), (12, "b", 30_000, 7), (13, "b", 90_000, 9))
    assert rises(ones, lambda one: one.total) == [0, 30, 7, 2]
    assert rise(ones, lambda one: one.total, 12, 14) == 9


def test_a_process_that_ran_already_counts_from_what_it_tells() -> None:
    """A new master's counters are not new."""
    ones = facts((10, "a", 600_000, 100), (11, "b", 9_000_000, 5000), (12, "b", 9_060_000, 5010))
    assert rises(ones, lambda one: one.total) == [0, 0, 10]


def test_what_is_not_told_does_not_count() -> None:
    ones = facts((10, "a", 600_000, 5), (11, "a", 660_000, None), (12, "a", 720_000, 8))
    assert rises(ones, lambda one: one.total) == [0, 0, 3]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=30))
def test_no_rise_is_negative(values: list[tuple[int, int]]) -> None:
    """Whatever is told, and in whatever order."""
    ones = [One(at, f"boot{boot}", 60_000 * at, total) for at, (boot, total) in enumerate(values)]
    assert min(rises(ones, lambda one: one.total), default=0) >= 0


def test_a_row_speaks_for_some_minutes() -> None:
    ones = facts((10, "a", 0, 1), (13, "a", 0, 2))
    told = [None if one is None else one.total for one in filled(ones, 9, 20, 6)]
    assert told == [None, 1, 1, 1, 2, 2, 2, 2, 2, 2, None]


def held(text: str, up: int = 3, of: int = 5, clear: int = 4) -> int | None:
    return held_since([{"x": True, ".": False, " ": None}[char] for char in text], up, of, clear)


def test_raise_and_clear() -> None:
    """spark §3.5."""
    assert held("..xx....") is None
    assert held("..xxx") == 2
    assert held("..x.x.x") == 2
    assert held("..x..x..x..x") is None
    assert held("xxx...x...") == 0
    assert held("xxx....") is None
    assert held("xxx....xx") is None
    assert held("xxx....xxx") == 7
    assert held("xxx  .  .  .  ") == 0
    assert held("x  x  x") is None
    assert held("") is None


@given(st.lists(st.sampled_from([True, False, None]), max_size=60))
def test_what_stands_began_with_a_bad_minute(bad: list[bool | None]) -> None:
    at = held_since(bad, 3, 5, 10)
    assert at is None or bad[at] is True
    if sum(1 for each in bad if each) < 3:
        assert at is None


def test_percentiles() -> None:
    assert percentile(list(range(1, 101)), 0.95) == 95
    assert percentile([7.0], 0.5) == 7.0
    limits = (10.0, 20.0, float("inf"))
    assert bucket_percentile([0, 0, 0], limits, 0.5) is None
    assert bucket_percentile([9, 1, 0], limits, 0.5) == 10.0
    assert bucket_percentile([0, 0, 4], limits, 0.99) == 20.0
