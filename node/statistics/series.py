"""Numbers over time: present rates of all objects, and the past of those that move.

A *tick* is when all objects are looked at, each `interval_s`. An object has the values of the last two ticks, which
give its rates. Once a value moves it has a history as well: at each level of the ladder of retention one point for
each step in which something moved, in between the value holds. An object that doesn't move costs nothing but its
last values, and loses its history when all of it would be the same number.

    ladder:   600 s, a step of 5 s ── 3,600 s, of 60 s ── 28,800 s, of 600 s ── 86,400 s, of 1,800 s

Samples are what management shows: the values at multiples of the increment that is asked for, the newest first, from
the finest level that goes back so far; 0 before the object existed.
Source: management §1.0 "Time series parameters"; a live RabbitMQ 3.10.8.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from node.statistics.query import Range
from node.statistics.sums import ASKED_SINCE, KNOWN_SINCE, means

HISTORY_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most memory of all histories of a node. Beyond it each goes back half as far, and again."""

_SHORTEST: Final = 5
"""The most times that histories are halved; a few points are left then."""

_SPARE: Final = 32
"""The most surplus points of a history before the oldest go, so that this costs little."""

_INT64_BYTES: Final = 8

IDLE: Final = {"rate": 0.0}
"""The `X_details` of a value that doesn't move. Shared: never written to."""


class Level(NamedTuple):
    """Points are kept for so many seconds, one each `step_s`."""

    kept_s: int
    step_s: int


Ladder = tuple[Level, ...]

_LEVELS: Final = (Level(600, 5), Level(3_600, 60), Level(28_800, 600), Level(86_400, 1_800))


class Retention(NamedTuple):
    """The ladders of totals and vhosts; of objects; of pairs of objects. Each begins with the finest level."""

    overall: Ladder = _LEVELS
    basic: Ladder = _LEVELS[:2]
    detailed: Ladder = _LEVELS[:1]

    @classmethod
    def of(cls, *policies: Sequence[tuple[int, int]]) -> "Retention":
        """Make the ladders from the configuration: of each, seconds kept and step, at least one pair."""
        return cls(*(tuple(Level(*pair) for pair in sorted(pairs, key=_step)) for pairs in policies))


def _step(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], pair[0]


class Clock:
    """The ticks of one node, at multiples of the interval, so that they fall on the times that are asked for.

    time_ms: of the last tick whose values are all there, or 0.   ticking_ms: of the one that is under way.
    elapsed_s: between that and the one before, 0 when there was none.   number: of the tick.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_ms = max(1, round(interval_s * 1000))
        self._phase_ms = 0.0  # how long after a multiple ticks come, of late
        self._came_ms = 0
        self.number = 0
        self.time_ms = 0
        self.ticking_ms = 0
        self.elapsed_s = 0.0

    def begin(self, time_ms: int) -> None:
        """Begin a tick.   time_ms: the time of day."""
        interval_ms, last_ms = self._interval_ms, self.ticking_ms
        # Were the nearest multiple taken, ticks from between two would leave out one, or meet one twice.
        following_ms = round((time_ms - self._phase_ms) / interval_ms) * interval_ms
        if not last_ms:
            self._phase_ms = time_ms - following_ms
        elif following_ms <= last_ms - interval_ms:  # the time of day was set back
            following_ms = last_ms + interval_ms
            self._phase_ms = time_ms - following_ms
        elif following_ms <= last_ms:
            following_ms = last_ms + 1
        else:
            self._phase_ms += (time_ms - following_ms - self._phase_ms) / 10
        if last_ms:
            steps_ms, passed_ms = following_ms - last_ms, time_ms - self._came_ms
            is_regular = passed_ms <= 0 or abs(steps_ms - passed_ms) < interval_ms / 4
            self.elapsed_s = (steps_ms if is_regular else passed_ms) / 1000
        self._came_ms = time_ms
        self.ticking_ms = following_ms
        self.number += 1

    def end(self) -> None:
        """End a tick: all its values are there."""
        self.time_ms = self.ticking_ms


class Budget:
    """The memory of all histories.   halvings: how many times the length of histories is halved."""

    def __init__(self, limit_bytes: int = HISTORY_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self.halvings = 0

    def review(self) -> None:
        """Adapt the length of histories to the used memory; at most once a tick."""
        if self.used_bytes > self._limit_bytes:
            self.halvings = min(self.halvings + 1, _SHORTEST)
        elif self.used_bytes < self._limit_bytes // 4:
            self.halvings = max(self.halvings - 1, 0)

    @property
    def is_exhausted(self) -> bool:
        """True if no further history may begin."""
        return self.used_bytes > self._limit_bytes and self.halvings >= _SHORTEST


class History:
    """The past of one object, as far as it moved: at each level rising times in ms, each with the values since then.

    columns: the indices of the object's values in it; the others have never moved since the history began.
    is_cut: by level, whether the oldest points have been dropped.
    """

    __slots__ = ("_budget", "_ladder", "_resting", "_tracked", "columns", "is_cut", "points")

    def __init__(self, ladder: Ladder, budget: Budget, width: int) -> None:
        self._ladder = ladder
        self._budget = budget
        self.columns: tuple[int, ...] = ()
        self._tracked, self._resting = _getters((), width)
        self.points: list[array[int]] = [array("q") for _ in ladder]
        self.is_cut = [False] * len(ladder)

    def leave(self, from_ms: int, before: Sequence[int], to_ms: int, after: Sequence[int]) -> None:
        """Record that values which held since `from_ms` hold no more from `to_ms` on."""
        if self._resting(before) != self._resting(after):
            moved = [index for index, value in enumerate(before) if value != after[index]]
            self._widen(tuple(sorted({*moved, *self.columns})), before)
        stride, budget = len(self.columns) + 1, self._budget
        point: array[int] | None = None
        for number, (points, level) in enumerate(zip(self.points, self._ladder, strict=True)):
            step_ms = level.step_s * 1000
            # A tick at the very end of a step belongs to it.
            if (from_ms - 1) // step_ms == (to_ms - 1) // step_ms:
                continue
            if point is None:
                point = array("q", (from_ms, *self._tracked(before)))
            points.extend(point)
            budget.used_bytes += stride * _INT64_BYTES
            kept = (level.kept_s // level.step_s >> budget.halvings) + 2
            if len(points) > (kept + _SPARE) * stride:
                surplus = len(points) - kept * stride
                del points[:surplus]
                self.is_cut[number] = True
                budget.used_bytes -= surplus * _INT64_BYTES

    def _widen(self, columns: tuple[int, ...], values: Sequence[int]) -> None:
        """Add columns: up to now their values were those in `values`."""
        places = {index: place + 1 for place, index in enumerate(self.columns)}
        old, stride = len(self.columns) + 1, len(columns) + 1
        for number, points in enumerate(self.points):
            count = len(points) // old
            wide = array("q", bytes(count * stride * _INT64_BYTES))
            wide[0::stride] = points[0::old]
            for place, index in enumerate(columns, 1):
                known = places.get(index)
                column = points[known::old] if known is not None else array("q", (values[index],)) * count
                wide[place::stride] = column
            self.points[number] = wide
            self._budget.used_bytes += count * (stride - old) * _INT64_BYTES
        self.columns = columns
        self._tracked, self._resting = _getters(columns, len(values))

    def level_for(self, age_s: int) -> int:
        """Return the finest level that goes back so far, or the last one."""
        return next(
            (index for index, level in enumerate(self._ladder) if level.kept_s >= age_s),
            len(self._ladder) - 1,
        )

    def values_at(self, level: int, columns: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return times of a level, and the sums of these columns from each on; columns that never moved are left
        out.
        """
        points, stride = self.points[level], len(self.columns) + 1
        places = [self.columns.index(index) + 1 for index in columns if index in self.columns]
        sums = [sum(each) for each in zip(*(points[place::stride] for place in places), strict=True)]
        return points[0::stride].tolist(), sums

    def release(self) -> None:
        """End the history, and give its memory back to the budget."""
        self._budget.used_bytes -= sum(map(len, self.points)) * _INT64_BYTES


_Getter = Callable[[Sequence[int]], Any]


@lru_cache(maxsize=1024)
def _getters(columns: tuple[int, ...], width: int) -> tuple[_Getter, _Getter]:
    """Return a getter of these columns of values, and one that shows whether any of the others differ."""
    others = [index for index in range(width) if index not in columns]
    return (
        itemgetter(*columns) if len(columns) > 1 else lambda values: [values[index] for index in columns],
        itemgetter(*others) if others else lambda values: None,
    )


class Tracked:
    """One object over time.

    source: the object itself, unlike any other that had its id.   values: at the last tick.   before: at the one
    before; the same object if nothing has moved.   since_ms: of the tick that met it first.
    moved_ms: of the tick at which it moved last.   tick: the number of the last one.
    """

    __slots__ = ("before", "history", "moved_ms", "since_ms", "source", "tick", "values")

    def __init__(self, source: object, values: tuple[int, ...], clock: Clock) -> None:
        self.source = source
        self.values = self.before = values
        self.since_ms = self.moved_ms = clock.ticking_ms
        self.tick = clock.number
        self.history: History | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing has moved between the last two ticks."""
        return self.values is self.before


class Watch:
    """All objects of a kind.

    names: of the values that each of them has.   is_on: False: nothing is kept over time.
    """

    def __init__(
        self, names: tuple[str, ...], ladder: Ladder, clock: Clock, budget: Budget, *, is_on: bool = True
    ) -> None:
        self.names = names
        self.is_on = is_on
        self.columns: dict[str, tuple[int, ...]] = {name: (index,) for index, name in enumerate(names)}
        """The indices of the values that make up each shown name: `derive` adds sums."""
        self.objects: dict[str, Tracked] = {}
        self._ladder = ladder
        self._longest_ms = max(level.kept_s for level in ladder) * 1000
        self._clock = clock
        self._budget = budget
        self._zeros = (0,) * len(names)

    def derive(self, name: str, *parts: str) -> None:
        """Add a name for the sum of others."""
        self.columns[name] = tuple(index for part in parts for index in self.columns[part])

    def get(self, id_: str) -> Tracked | None:
        """Return the object of that id, if a tick has met it."""
        return self.objects.get(id_)

    # --- a tick ---

    def note(self, id_: str, source: object, values: tuple[int, ...]) -> Tracked:
        """Record an object's values of this tick."""
        tracked = self.objects.get(id_)
        if tracked is None or tracked.source is not source:
            if tracked is not None and tracked.history is not None:
                tracked.history.release()
            kept = self._zeros if values == self._zeros else values
            tracked = self.objects[id_] = Tracked(source, kept, self._clock)
            return tracked
        tracked.tick = self._clock.number
        former = tracked.values
        if values == former:
            tracked.before = former
            if tracked.history is not None and self._clock.ticking_ms - tracked.moved_ms > self._longest_ms:
                tracked.history.release()
                tracked.history = None
            return tracked
        if tracked.history is None and not self._budget.is_exhausted:
            tracked.history = History(self._ladder, self._budget, len(values))
        if tracked.history is not None:
            tracked.history.leave(tracked.moved_ms, former, self._clock.ticking_ms, values)
        tracked.before, tracked.values = former, values
        tracked.moved_ms = self._clock.ticking_ms
        return tracked

    def sweep(self) -> None:
        """End the tick: forget the objects that it hasn't met."""
        number = self._clock.number
        gone = [id_ for id_, tracked in self.objects.items() if tracked.tick != number]
        for id_ in gone:
            history = self.objects.pop(id_).history
            if history is not None:
                history.release()

    # --- what is shown ---

    def details(
        self, tracked: Tracked | None, columns: tuple[int, ...], range_: Range | None, known_since_ms: int = 0
    ) -> dict[str, Any]:
        """Return `X_details` of the sum of some values, see `columns`.

        They are the present rate a second; with a range also samples, their mean and their mean rate.
        known_since_ms: from when on the samples mean anything.
        """
        if range_ is not None and self._clock.time_ms:
            return self._sampled(tracked, columns, range_, known_since_ms)
        if tracked is None or tracked.values is tracked.before:
            return IDLE
        return {"rate": self._rate(tracked, columns)}

    def _rate(self, tracked: Tracked, columns: tuple[int, ...]) -> float:
        values, before, elapsed_s = tracked.values, tracked.before, self._clock.elapsed_s
        moved = sum(values[index] - before[index] for index in columns)
        return moved / elapsed_s if elapsed_s else 0.0

    def _sampled(
        self, tracked: Tracked | None, columns: tuple[int, ...], range_: Range, known_since_ms: int
    ) -> dict[str, Any]:
        samples = list(self._samples(tracked, columns, range_))
        oldest_ms = samples[-1][0] if samples else 0
        known = [sample for sample in samples if sample[0] >= known_since_ms] or samples[:1]
        gap = {} if len(known) == len(samples) else {KNOWN_SINCE: known[-1][0], ASKED_SINCE: oldest_ms}
        samples = known
        rate = 0.0
        if len(samples) > 1:
            (last_ms, last), (former_ms, former) = samples[:2]
            rate = (last - former) * 1000 / (last_ms - former_ms)
        return {"rate": rate, **means(samples), **gap}

    def _samples(
        self, tracked: Tracked | None, columns: tuple[int, ...], range_: Range
    ) -> Iterator[tuple[int, int]]:
        """Yield times in ms and values, the newest first."""
        step_ms = range_.incr_s * 1000
        newest_ms = self._clock.time_ms // step_ms * step_ms
        times_ms = range(newest_ms, newest_ms - range_.age_s * 1000 - 1, -step_ms)
        if tracked is None:
            yield from ((time_ms, 0) for time_ms in times_ms)
            return
        now = sum(tracked.values[index] for index in columns)
        points: list[int] = []
        sums: list[int] = []
        is_cut, rest = False, now
        if (history := tracked.history) is not None:
            moving = [index for index in columns if index in history.columns]
            rest = now - sum(tracked.values[index] for index in moving)
            if moving:
                level = history.level_for(range_.age_s)
                points, sums = history.values_at(level, moving)
                is_cut = history.is_cut[level]
        for time_ms in times_ms:
            if time_ms >= tracked.moved_ms or (not points and time_ms >= tracked.since_ms):
                yield time_ms, now
            elif time_ms < tracked.since_ms:
                yield time_ms, 0
            elif at := bisect_right(points, time_ms):
                yield time_ms, sums[at - 1] + rest
            elif is_cut:
                return
            else:
                yield time_ms, sums[0] + rest
