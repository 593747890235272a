"""Clients of a run are followed second by second, and when one queue was unavailable. Times: seconds, monotonic."""

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

LEAST_S: Final = 0.25
"""A shorter time without a confirm is none: publishers look every 25 ms, and share two processors with the nodes."""
LATENCY_MIN_S: Final = 0.0005
_STEP: Final = 1.05
"""Latencies are counted in classes, each so much wider than the one before: 5 % is exact enough."""


class Latencies:
    """Counts how long confirms took, so that millions of them take no room."""

    def __init__(self) -> None:
        self._bounds = [LATENCY_MIN_S]
        while self._bounds[-1] < 1000:
            self._bounds.append(self._bounds[-1] * _STEP)
        self._counts: Counter[int] = Counter()

    def add(self, waited_s: float) -> None:
        """One more."""
        self._counts[bisect.bisect_left(self._bounds, waited_s)] += 1

    def quantile(self, part: float) -> float:
        """The latency in s below which this part of them is, 0 if there was none.   part: 0 to 1."""
        wanted = part * self._counts.total()
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            if seen >= wanted:
                return self._bounds[min(index, len(self._bounds) - 1)]
        return 0.0

    def __len__(self) -> int:
        return self._counts.total()


@dataclass(slots=True)
class Timeline:
    """The run so far.

    began: its first moment.   confirms, deliveries: how many, by second since then.   gaps: from when to when the
    anchor queue had no confirm for any client, if for longer than `LEAST_S`.   is_quiet: nothing is being done to the
    nodes; quiet, faulty: how long confirms took then, and else.   is_watched: somebody publishes all the time, so that
    a time without confirms is a gap.
    """

    began: float
    confirms: Counter[int] = field(default_factory=Counter)
    deliveries: Counter[int] = field(default_factory=Counter)
    gaps: list[tuple[float, float]] = field(default_factory=list)
    is_quiet: bool = True
    is_watched: bool = False
    quiet: Latencies = field(default_factory=Latencies)
    faulty: Latencies = field(default_factory=Latencies)
    _last: float | None = None

    def confirmed(self, now: float, waited_s: float, *, is_anchor: bool) -> None:
        """Some client was told that a message of its is safe."""
        self.confirms[int(now - self.began)] += 1
        (self.quiet if self.is_quiet else self.faulty).add(waited_s)
        if is_anchor and self.is_watched:
            self._close_gap(now)
            self._last = now

    def delivered(self, now: float) -> None:
        """Some client was given a message."""
        self.deliveries[int(now - self.began)] += 1

    def watch(self) -> None:
        """From the next confirm on there are to be confirms all the time."""
        self.is_watched = True

    def pause(self, now: float) -> None:
        """Watch for no gaps from here on, as confirms may stop."""
        self._close_gap(now)
        self._last = None
        self.is_watched = False

    def longest_gap(self, since: float, until: float) -> float:
        """The longest of the gaps that have a part between these, as a whole."""
        last = [(self._last, until)] if self._last is not None and until - self._last > LEAST_S else []
        lasted = [end - start for start, end in (*self.gaps, *last) if end > since and start < until]
        return max(lasted, default=0.0)

    def per_second(self, counts: Counter[int]) -> list[int]:
        """All seconds in order, also those with nothing."""
        return [counts[second] for second in range(max(counts, default=-1) + 1)]

    def _close_gap(self, now: float) -> None:
        if self._last is not None and now - self._last > LEAST_S:
            self.gaps.append((self._last, now))


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of them is (nearest rank), 0 if there is none.   part: 0 to 1."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
