"""A node's metadata and its membership do their work at most once in a turn of the event loop.

a link, a message, a command that was applied ─► metadata_changed, membership_changed ─┐
due work ────► timer ──────────────────────────────────────────────────────────────────┴─► a turn
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from node.clustering.waiting import boottime


class Ticks(NamedTuple):
    """The functions that a turn calls. Each tick is given the time, and returns when it is due again.

    look: called before each tick of the membership.   held: is told how many seconds the loop was held.
    """

    metadata: Callable[[float], float]
    look: Callable[[], None]
    membership: Callable[[float], float]
    held: Callable[[float], None]


class Turn:
    """The turns of one node, from now until `close`."""

    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self._loop = asyncio.get_running_loop()
        self._is_coming = False
        self._is_metadata_due = self._is_membership_due = True
        self._metadata_due_s = self._membership_due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def metadata_changed(self) -> None:
        """Have the metadata do their work in the next turn."""
        self._is_metadata_due = True
        self._wake()

    def membership_changed(self) -> None:
        """Have the membership do its work in the next turn."""
        self._is_membership_due = True
        self._wake()

    def close(self) -> None:
        """Cancel all further turns."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if not self._is_coming and not self._is_closed:
            self._is_coming = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_coming = False
        if self._is_closed:
            return
        now = boottime()
        if self._is_metadata_due or now >= self._metadata_due_s:
            self._is_metadata_due = False
            self._metadata_due_s = self._ticks.metadata(now)
        if self._is_membership_due or now >= self._membership_due_s:
            self._ticks.look()
            self._is_membership_due = False
            self._membership_due_s = self._ticks.membership(boottime())
        self._set_timer(min(self._metadata_due_s, self._membership_due_s))
        self._ticks.held(boottime() - now)

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.001, due_s - boottime()), self._wake)
