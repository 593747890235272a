"""This module sends a node's status to the others as soon as it changes, with the heartbeats of the membership.

    connections open and close ─► soon ─┐
    broker starts, stops, drains ───────┼─► own_status ─► Membership.set_status ─► a heartbeat, if it is new
    each heartbeat ─► check (alarms) ───┘

Limits on connections count those of the whole cluster, so the others hear of each at once (amqp-behaviour §9.7).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from node.clustering.waiting import boottime

PAUSE_S: Final = 0.005
"""The least time between two reports of changes, as many connections may come and go.

A client that has opened a connection may try the next node within milliseconds and expect to be refused there.
"""

Counted = tuple[str | None, str | None]


class Publisher:
    """The publisher of one node's status.

    status: returns the present status.   tell: sends it.   check_s: the interval of checks for changes that did not
    call `soon`.
    """

    def __init__(
        self, status: Callable[[], dict[str, Any]], tell: Callable[[dict[str, Any]], None], check_s: float
    ) -> None:
        self._status = status
        self._tell_status = tell
        self._check_s = check_s
        self._loop = asyncio.get_running_loop()
        self._told: dict[str, Any] = {}
        self._timer: asyncio.Handle | None = None
        self._told_s = self._checked_s = 0.0
        self._is_closed = False

    def soon(self) -> None:
        """Publish a change at the end of this turn of the loop, or once the pause is over."""
        if self._timer is None and not self._is_closed:
            pause_s = self._told_s + PAUSE_S - boottime()
            tell = self._tell
            self._timer = self._loop.call_later(pause_s, tell) if pause_s > 0 else self._loop.call_soon(tell)

    def _tell(self) -> None:
        self._timer = None
        self._told_s = boottime()
        self.publish()

    def publish(self) -> None:
        """Send the status now if it differs from the last one."""
        self._checked_s = boottime()
        status = self._status()
        if status == self._told:
            return
        self._told = status
        self._tell_status(status)

    def check(self) -> None:
        """Publish changes that did not call `soon`, as often as heartbeats are sent anyway."""
        if boottime() - self._checked_s >= self._check_s:
            self.publish()

    def close(self) -> None:
        """Publish nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()


class WatchedCounts(Counter[Counted]):
    """Counts of connections that report changes. on_change: called after each change; it must not read them at once."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__()
        self._on_change = on_change

    def __setitem__(self, key: Counted, count: int) -> None:
        super().__setitem__(key, count)
        self._on_change()
