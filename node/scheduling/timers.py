"""The timers of the broker: one heap of deadlines, driven by the owner of the clock.

timers.at(now + 5, callback)       timers.next_deadline()       timers.run(now)
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

_CANCELLED_MAX: Final = 1024
"""The limit of cancelled timers in the heap before it is rebuilt without them.

It is rebuilt only if at least half of its timers are cancelled.
"""


class Timer:
    """A callback at a time; `cancel` prevents the call."""

    __slots__ = ("_timers", "callback", "is_queued", "when")

    def __init__(self, timers: "Timers", when: float, callback: Callable[[float], None]) -> None:
        self._timers = timers
        self.when = when
        self.callback: Callable[[float], None] | None = callback
        """The callback; None once it was called or cancelled."""
        self.is_queued = True

    def cancel(self) -> None:
        """Prevent the call; nothing changes if it has already happened."""
        if self.callback is not None:
            self.callback = None
            if self.is_queued:
                self._timers.one_cancelled()


class Timers:
    """Pending timers by time, first come first served among equals."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = count()
        self._cancelled = 0  # of those in the heap
        self.on_earlier: Callable[[], None] = lambda: None
        """Called when a new timer is the next one."""

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, when: float, callback: Callable[[float], None]) -> Timer:
        """Call `callback(now)` once, when `run` is given a time of `when` or later."""
        timer = Timer(self, when, callback)
        heappush(self._heap, (when, next(self._number), timer))
        if self._heap[0][2] is timer:
            self.on_earlier()
        return timer

    def next_deadline(self) -> float | None:
        """Return the time of the next timer; None if there is none."""
        while self._heap and self._heap[0][2].callback is None:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Call all callbacks that are due, in order.

        A timer that a callback adds for a past time waits for the next run.
        """
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(self._pop())
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback(now)

    def _pop(self) -> Timer:
        timer = heappop(self._heap)[2]
        timer.is_queued = False
        if timer.callback is None:
            self._cancelled -= 1
        return timer

    def one_cancelled(self) -> None:
        """Count a timer in the heap as cancelled, and rebuild the heap if too many are."""
        self._cancelled += 1
        if self._cancelled > _CANCELLED_MAX and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapify(self._heap)
            self._cancelled = 0
