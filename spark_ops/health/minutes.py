"""Arithmetic on minutes: counters that restart at 0, states that persist, raised and cleared findings, percentiles.

Source: spark §2.1 (boot_id), §3.5 (raise and clear).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import Protocol, TypeVar


class Minute(Protocol):
    """The attributes that all facts about minutes have."""

    @property
    def minute(self) -> int:
        """The minute, counted since 1970."""
        ...

    @property
    def boot(self) -> str:
        """The boot_id of the process."""
        ...

    @property
    def mono_ms(self) -> int:
        """The time since the start of the process, in ms."""
        ...


Fact = TypeVar("Fact", bound=Minute)


def filled(facts: Sequence[Fact], start: int, end: int, stale_minutes: int) -> list[Fact | None]:
    """Return the latest fact up to each minute of [start, end); None if that fact is `stale_minutes` old or older.

    facts: in order of minutes.
    """
    minutes = [fact.minute for fact in facts]
    found: list[Fact | None] = []
    for minute in range(start, end):
        at = bisect_right(minutes, minute) - 1
        is_fresh = at >= 0 and minute - minutes[at] < stale_minutes
        found.append(facts[at] if is_fresh else None)
    return found


def rises(
    facts: Sequence[Fact], counter: Callable[[Fact], int | None], *, is_of_host: bool = False
) -> list[int]:
    """Return how much a counter rose at each fact since the previous fact of the same process; never negative.

    For the first fact of a process, the counter is compared with 0 if the process started after the previous fact.
    Otherwise the rise is 0: at the first fact of all, or if the process already ran, as that of a queue's next master.
    is_of_host: the counter does not begin with the process, so nothing is known of its rise before the first fact.
    """
    last: dict[str, int] = {}
    found: list[int] = []
    previous: int | None = None
    for fact in facts:
        value = counter(fact)
        if value is None:
            found.append(0)
            continue
        is_new = (
            not is_of_host and previous is not None and fact.minute - fact.mono_ms // 60_000 > previous - 1
        )
        before = last.get(fact.boot, 0 if is_new else value)
        found.append(max(0, value - before))
        last[fact.boot], previous = value, fact.minute
    return found


def rise(facts: Sequence[Fact], counter: Callable[[Fact], int | None], start: int, end: int) -> int:
    """Return how much a counter rose in the minutes [start, end)."""
    by_fact = zip(facts, rises(facts, counter), strict=True)
    return sum(amount for fact, amount in by_fact if start <= fact.minute < end)


def running(facts: Sequence[Fact]) -> list[int]:
    """Return for how many ms the process ran between its previous fact and each fact: the denominator of rates."""
    return rises(facts, lambda fact: fact.mono_ms)


def held_since(
    bad: Sequence[bool | None], raise_minutes: int, raise_of: int, clear_minutes: int
) -> int | None:
    """Return the position at which a finding began that is active after the last minute; None if it is not active.

    A finding is raised when `raise_minutes` of the last `raise_of` minutes were bad, and cleared after `clear_minutes`
    consecutive good minutes. Unknown minutes (None) neither raise nor clear a finding (spark §3.5).
    """
    window: deque[tuple[int, bool]] = deque()
    since: int | None = None
    good = 0
    for at, is_bad in enumerate(bad):
        if is_bad is None:
            continue
        window.append((at, is_bad))
        while window[0][0] <= at - raise_of:
            window.popleft()
        good = 0 if is_bad else good + 1
        if since is None:
            if sum(was for _, was in window) >= raise_minutes:
                since = next(position for position, was in window if was)
        elif good >= clear_minutes:
            since = None
            window.clear()
    return since


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed. Raises: IndexError if there are no values."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def bucket_percentile(counts: Sequence[int], limits: Sequence[float], share: float) -> float | None:
    """Return the upper limit of the percentile's bucket (of the last bucket, the lower); None if all counts are 0."""
    total = sum(counts)
    if total <= 0:
        return None
    wanted, seen = share * total, 0
    for at, count in enumerate(counts):
        seen += count
        if seen >= wanted and count:
            return limits[at] if limits[at] != float("inf") else limits[at - 1]
    return None


def bucket_rises(
    facts: Sequence[Fact], histogram: Callable[[Fact], Sequence[int] | None], start: int, end: int
) -> list[int]:
    """Return how much each bucket of a histogram rose in the minutes [start, end)."""
    length = max((len(histogram(fact) or ()) for fact in facts), default=0)

    def bucket(fact: Fact, at: int) -> int | None:
        counts = histogram(fact)
        return counts[at] if counts is not None and at < len(counts) else None

    return [rise(facts, lambda fact, at=at: bucket(fact, at), start, end) for at in range(length)]  # type: ignore[misc]
