"""The timers of one client of another protocol: none calls back once the connection is gone."""

from collections.abc import Callable

from node.scheduling.timers import Timer, Timers


class SessionTimers:
    """The timers of one connection."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._running: set[Timer] = set()

    def at(self, time: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at a time of the broker's clock. Returns: a function that cancels it."""

        def due(now: float) -> None:
            self._running.discard(timer)
            callback()

        def cancel() -> None:
            self._running.discard(timer)
            timer.cancel()

        timer = self._timers.at(time, due)
        self._running.add(timer)
        return cancel

    def cancel_all(self) -> None:
        """Call nobody back any more."""
        for timer in self._running:
            timer.cancel()
        self._running.clear()
