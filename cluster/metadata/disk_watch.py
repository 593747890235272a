"""Whether this member's own disk is stuck, while others' are not.

A leader does not count itself for what it has not synced, and hears of its own disk last: with a disk that hangs or
is full it would lead on and commit nothing. So it compares. What was handed to its disk at some time, the others
have got at about the same time; as soon as a majority of all voters without itself has it safe, they could commit it
alone, and the leader's disk is given as long again, and some time more. Where all disks are slow alike it is in time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_HOPELESS: Final = 4
"""After so many times the usual patience a leader whose disk is stuck stops waiting for the others' news, too: it may
be that they reach each other and not the leader, or that one lacks a snapshot that only a disk that works can give."""


@dataclass(slots=True)
class _Mark:
    """How far the journal was written at a time, its last entry then, and when the others had that."""

    written: int
    index: int
    at_s: float
    others_at_s: float | None = None


class DiskWatch:
    """Watches one mark at a time: the first that is not synced.   patience_s: what a healthy disk never takes."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._mark: _Mark | None = None

    def observe(self, now: float, written: int, synced: int, last_index: int) -> None:
        """How far the journal is, after all that is new was handed over."""
        if self._mark is not None and self._mark.written <= synced:
            self._mark = None
        if self._mark is None and synced < written:
            self._mark = _Mark(written, last_index, now)

    def waits_s(self, now: float) -> float:
        """For how long something has not been synced."""
        return 0.0 if self._mark is None else now - self._mark.at_s

    def is_stuck(self, now: float) -> bool:
        """Whether that is too long."""
        return self.waits_s(now) >= self._patience_s

    def holds_up(self, now: float, have_others: Callable[[int], bool]) -> bool:
        """Whether somebody else should lead.   have_others: whether a majority without us has an entry safe."""
        mark = self._mark
        if mark is None:
            return False
        if mark.others_at_s is None and have_others(mark.index):
            mark.others_at_s = now
        return now >= self._due(mark)

    def due(self) -> float:
        """When to look again at the latest."""
        return float("inf") if self._mark is None else self._due(self._mark)

    def _due(self, mark: _Mark) -> float:
        if mark.others_at_s is None:
            return mark.at_s + _HOPELESS * self._patience_s
        return 2 * mark.others_at_s - mark.at_s + self._patience_s
