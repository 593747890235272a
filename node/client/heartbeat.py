"""Heartbeats of one connection: ours when nothing was sent; the client's, or any octets, show that it is alive.

Source: amqp-behaviour §1.6.
"""

from collections.abc import Callable
from typing import Final

from node.scheduling.timers import Timer, Timers

SILENT_INTERVALS_MAX: Final = 2


def _call_nobody() -> None:
    """Ignore a beat or a loss: there is no connection any more."""


def _excuse_nobody() -> bool:
    return False


class Heartbeat:
    """Sends heartbeats and detects a silent client: two checks an interval of the own output, one of the input.

    has_heard, has_spoken: set by the connection whenever octets come in or go out.
    beat: sends a heartbeat.   excuses: whether the client's silence is our doing.   lost: ends the connection.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        beat: Callable[[], None],
        excuses: Callable[[], bool],
        lost: Callable[[], None],
    ) -> None:
        self.interval_s = 0
        self.has_heard = False
        self.has_spoken = False
        self._timers = timers
        self._beat = beat
        self._excuses = excuses
        self._lost = lost
        self._timer: Timer | None = None
        self._silent_intervals = 0

    def start(self, interval_s: int, now: float) -> None:
        """Begin with the interval that the client chose; 0 for no heartbeats in either direction."""
        self.interval_s = interval_s
        if interval_s:
            self._timer = self._timers.at(now + interval_s / 2, self._first_check)

    def stop(self) -> None:
        """Stop all checks: the connection is not called any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._beat = self._lost = _call_nobody
        self._excuses = _excuse_nobody

    def _first_check(self, now: float) -> None:
        self.has_spoken = False  # the first heartbeat is sent in any case
        self._half_interval(now)

    def _half_interval(self, now: float) -> None:
        self._speak()
        self._timer = self._timers.at(now + self.interval_s / 2, self._whole_interval)

    def _whole_interval(self, now: float) -> None:
        self._silent_intervals = 0 if self.has_heard or self._excuses() else self._silent_intervals + 1
        self.has_heard = False
        if self._silent_intervals == SILENT_INTERVALS_MAX:
            self._lost()
            return
        self._speak()
        self._timer = self._timers.at(now + self.interval_s / 2, self._half_interval)

    def _speak(self) -> None:
        if not self.has_spoken:
            self._beat()
        self.has_spoken = False
