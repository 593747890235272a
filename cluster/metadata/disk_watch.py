"""Find out whether this member's own disk is stuck, while those of others are not.

A leader does not count itself for entries that it has not synced, and hears of its own disk last: with a disk that
hangs or is full it would lead on and commit nothing. So it compares. Entries that were handed to its disk at some
time reach the others at about the same time. As soon as a majority of all voters without the leader has them safe,
it could commit them alone, and the leader's disk is given as long again, and some time more. Where all disks are
slow alike the leader's disk is in time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_HOPELESS: Final = 4
"""After so many times the usual patience a leader whose disk is stuck stops waiting for the others' news, too: it may
be that they reach each other and not the leader, or that one lacks a snapshot that only a disk that works can give."""


@dataclass(slots=True)
class _Mark:
    """The length of the journal at some time, its last entry then, and when the other members had that entry."""

    written: int
    index: int
    at_s: float
    others_at_s: float | None = None


class DiskWatch:
    """Watches one mark at a time: the first that is not synced.   patience_s: longer than a healthy disk ever takes."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._mark: _Mark | None = None

    def observe(self, now: float, written: int, synced: int, last_index: int) -> None:
        """Note how far the journal is written and synced, after all new entries were handed over."""
        if self._mark is not None and self._mark.written <= synced:
            self._mark = None
        if self._mark is None and synced < written:
            self._mark = _Mark(written, last_index, now)

    def waits_s(self, now: float) -> float:
        """Return for how many seconds the oldest unsynced write has waited; 0 if all is synced."""
        return 0.0 if self._mark is None else now - self._mark.at_s

    def is_stuck(self, now: float) -> bool:
        """True if a write has waited longer than a healthy disk ever takes."""
        return self.waits_s(now) >= self._patience_s

    def look_at_others(self, now: float, have_others: Callable[[int], bool]) -> None:
        """Note when the others have what this disk lacks.   have_others: as in `holds_up`."""
        mark = self._mark
        if mark is not None and mark.others_at_s is None and have_others(mark.index):
            mark.others_at_s = now

    def holds_up(self, now: float, have_others: Callable[[int], bool]) -> bool:
        """True if another member should lead.   have_others: whether a majority without us has an entry safe."""
        self.look_at_others(now, have_others)
        return self._mark is not None and now >= self._due(self._mark)

    def due(self) -> float:
        """Return when to look again at the latest."""
        return float("inf") if self._mark is None else self._due(self._mark)

    def _due(self, mark: _Mark) -> float:
        if mark.others_at_s is None:
            return mark.at_s + _HOPELESS * self._patience_s
        return 2 * mark.others_at_s - mark.at_s + self._patience_s
