"""A load of many subjects is estimated from their hourly values, in memory that does not grow with the hours. Pure.

An estimate is the greater of a weighted mean, in which newer hours count more, and the 95th percentile of the hours, so
that a nightly peak counts. Values are integers and so are the weights, so that the order of hours changes nothing. The
percentile of n values depends on the greatest of them only, some 5 %, and no others are kept.
`spark_ops.jobs.loads` makes the same estimates with Spark; tests compare the two. Source: spark §3.1, §6.8.
"""

import math
from typing import Final

import numpy as np

from spark_ops.jobs.loads import GREATEST, SHARE, TAU_S, WEIGHT
from spark_ops.jobs.small_columns import Floats, Longs, Numbers

HALF_HOUR_S: Final = 1800.0
"""The age of an hour's values is counted from the middle of the hour."""
_NONE: Final = np.iinfo(np.int64).min


def weight_of(hour_s: int, until: float) -> int:
    """Return the weight of an hour's values.   hour_s, until: begin of the hour and end of the window, s since 1970.

    It is at least 1, so that a queue that was last seen a week ago has a load.
    """
    age_s = max((until - hour_s) - HALF_HOUR_S, 0.0)
    return max(int(rounded(np.array([math.exp(-age_s / TAU_S) * WEIGHT]))[0]), 1)


def rounded(values: Floats) -> Longs:
    """Return the nearest integers, a half away from 0 as Spark does, and at most `GREATEST`.   values: from 0 on."""
    low = np.floor(values)
    whole = low + (values - low >= 0.5)
    return np.asarray(np.minimum(whole, float(GREATEST)), dtype=np.int64)


def quotient(above: Numbers, below: Numbers, factor: float = 1.0) -> Numbers:
    """Return above * factor / below; there is no value where one of them is missing or `below` is 0."""
    known = above.known & below.known & (below.values != 0)
    divisor = np.where(known, below.values, 1).astype(np.float64)
    return Numbers(np.where(known, above.values.astype(np.float64) * factor / divisor, 0.0), known)


def kept(hours: int) -> int:
    """Return how many of the greatest values the percentile of up to so many hours can depend on."""
    return hours - math.floor((hours - 1) * SHARE) if hours else 0


class Estimates:
    """The estimates of one figure.   subjects: their number.   hours: the greatest number of values of a subject."""

    def __init__(self, subjects: int, hours: int) -> None:
        self._greatest = np.full((kept(hours), subjects), _NONE, dtype=np.int64)  # in falling order
        self._counts = np.zeros(subjects, dtype=np.int32)
        self._weights = np.zeros(subjects, dtype=np.int64)
        self._sums = np.zeros(subjects, dtype=np.int64)

    def add(self, values: Numbers, weight: int) -> None:
        """Add the values of an hour, one for each subject."""
        if not values.known.any():
            return
        new = rounded(values.values)
        self._counts += values.known
        self._weights += values.known * np.int64(weight)
        self._sums += np.where(values.known, new, 0) * np.int64(weight)
        falling = np.where(values.known, new, _NONE)
        for row in self._greatest:
            lower = np.minimum(row, falling)
            np.maximum(row, falling, out=row)
            falling = lower

    def percentile(self) -> Numbers:
        """Return the percentile of the values of each subject, between two of them as Spark's `percentile`."""
        known = self._counts > 0
        last = np.maximum(self._counts, 1) - 1
        position = last * SHARE
        low, high = np.floor(position), np.ceil(position)
        if not len(self._greatest):
            return Numbers(np.zeros(len(known)), known)
        at = np.arange(len(known))
        below, above = (
            self._greatest[(last - place).astype(np.int64), at].astype(np.float64) for place in (low, high)
        )
        between = (high - position) * below + (position - low) * above
        return Numbers(np.where(known, np.where(below == above, below, between), 0.0), known)

    def mean(self) -> Numbers:
        """Return the weighted mean of the values of each subject."""
        known = self._counts > 0
        return quotient(Numbers(self._sums, known), Numbers(self._weights, known))

    def load(self) -> Numbers:
        """Return the greater of mean and percentile of each subject."""
        mean, high = self.mean(), self.percentile()
        return Numbers(np.maximum(mean.values, high.values), mean.known)
