"""Estimates keep the greatest values only, and are those of all values."""

import math
import random

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import numpy as np

from spark_ops.jobs.hourly_estimates import Estimates, kept, quotient, rounded, weight_of
from spark_ops.jobs.loads import GREATEST, SHARE
from spark_ops.jobs.small_columns import Numbers

UNTIL = 1_000_000 * 3600.0


def numbers(values: list[float | None]) -> Numbers:
    known = np.array([value is not None for value in values])
    return Numbers(np.array([0 if value is None else value for value in values]), known)


def percentile(values: list[int]) -> float:
    """Return the percentile as Spark's function computes it, from all values."""
    values = sorted(values)
    position = (len(values) - 1) * SHARE
    low, high = math.floor(position), math.ceil(position)
    if values[low] == values[high]:
        return values[low]
    return (high - position) * values[low] + (position - low) * values[high]


def test_a_value_counts_less_with_its_age() -> None:
    hour = int(UNTIL) - 3600
    assert weight_of(hour, UNTIL) == round(10_000 * math.exp(-1800 / 21600))
    assert weight_of(int(UNTIL) - 600, UNTIL) == 10_000  # the hour is not over
    assert weight_of(hour - 21600, UNTIL) == round(10_000 * math.exp(-1800 / 21600 - 1))
    assert weight_of(hour - 30 * 86400, UNTIL) == 1


def test_halves_are_rounded_up() -> None:
    values = np.array([0.0, 0.49999999999999994, 0.5, 1.5, 2.5, 2.4999999999999996, 1e300])
    assert rounded(values).tolist() == [0, 0, 1, 2, 3, 2, GREATEST]


def test_what_cannot_be_divided_has_no_value() -> None:
    found = quotient(numbers([3, None, 5, 7]), numbers([2, 4, 0, None]), 1000.0)
    assert (found.known.tolist(), found.values.tolist()) == ([True, False, False, False], [1500.0, 0, 0, 0])


def test_the_greatest_values_are_enough() -> None:
    """The number of values that are kept is enough for each lower number of values, too."""
    for hours in range(1, 1000):
        assert kept(hours) >= kept(hours - 1)
        assert kept(hours) >= hours - math.floor((hours - 1) * SHARE)
    assert (kept(0), kept(1), kept(24), kept(168)) == (0, 1, 3, 10)


@pytest.mark.parametrize("hours", [1, 2, 20, 21, 24, 50])
def test_estimates_are_those_of_all_values(hours: int) -> None:
    """Subjects have values in some of the hours, equal ones among them, and some have none at all."""
    chance = random.Random(hours)
    subjects = 60
    there = [chance.choice((0.0, 0.3, 0.9, 1.0)) for _ in range(subjects)]
    rows = [
        [chance.choice((7, chance.randrange(10**13))) if chance.random() < share else None for share in there]
        for _ in range(hours)
    ]
    weights = [weight_of(int(UNTIL) - 3600 * (age + 1), UNTIL) for age in range(hours)]
    estimates = Estimates(subjects, hours)
    for values, weight in chance.sample(list(zip(rows, weights, strict=True)), hours):
        estimates.add(numbers(values), weight)
    mean, high, load = estimates.mean(), estimates.percentile(), estimates.load()
    for at in range(subjects):
        own = [
            (values[at], weight)
            for values, weight in zip(rows, weights, strict=True)
            if values[at] is not None
        ]
        assert mean.known[at] == high.known[at] == load.known[at] == bool(own)
        if own:
            wanted = float(sum(v * w for v, w in own)) / float(sum(w for _, w in own))
            assert mean.values[at] == wanted
            assert high.values[at] == percentile([v for v, _ in own])
            assert load.values[at] == max(wanted, high.values[at])


def test_no_hours() -> None:
    found = Estimates(3, 0)
    found.add(numbers([None, None, None]), 1)
    assert not found.load().known.any()
