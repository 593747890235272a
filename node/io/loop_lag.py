"""The loop lag is the longest time for which one piece of work holds the event loop, so that all clients wait.

Long work on the loop reports how long each piece took: the broker's turns and timers, the cluster's turns. All
other work shows as a delay of a timer of 0.1 s: such work may have taken up to 0.1 s more than the delay.
"""

import asyncio
import time
from typing import Final

from node.queue.metering import BUCKETS, bucket_of

SAMPLE_S: Final = 0.1


class Longest:
    """The longest time since the watcher that owns this last took it."""

    __slots__ = ("_lag", "_longest_s")

    def __init__(self, lag: "LoopLag") -> None:
        self._lag = lag
        self._longest_s = 0.0

    def note(self, seconds: float) -> None:
        """Take note that the loop was held for this time."""
        self._longest_s = max(self._longest_s, seconds)

    @property
    def ms(self) -> float:
        """The longest time in milliseconds; it is kept."""
        self._lag.tell()
        return round(self._longest_s * 1000, 3)

    def take_ms(self) -> float:
        """Return the longest time in milliseconds, and begin again with zero."""
        found = self.ms
        self._longest_s = 0.0
        return found


class LoopLag:
    """The loop lag of one process. `watch` on the loop; `leave`. The timer runs while there are watchers.

    histogram: of the delays of the timer.
    """

    def __init__(self) -> None:
        self.histogram = [0] * BUCKETS
        self._longest_s = 0.0  # not yet passed on to the watchers
        self._watching: list[Longest] = []
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> Longest:
        """Begin to measure for one more watcher."""
        longest = Longest(self)
        self._watching.append(longest)
        if self._timer is None:
            self._longest_s = 0.0
            self._wait(asyncio.get_running_loop())
        return longest

    def leave(self, longest: Longest) -> None:
        """Stop measuring for a watcher."""
        if longest in self._watching:
            self._watching.remove(longest)
        if not self._watching and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def held(self, seconds: float) -> None:
        """Take note that a piece of work held the loop for this time. Called in each turn, so it only compares."""
        if seconds > self._longest_s:
            self._longest_s = seconds

    def tell(self) -> None:
        """Pass the longest time on to all watchers."""
        for each in self._watching:
            each.note(self._longest_s)
        self._longest_s = 0.0

    def late(self, seconds: float) -> None:
        """Take note of the timer's delay."""
        self.histogram[bucket_of(seconds * 1e6)] += 1
        self.held(seconds)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's clock: uvloop's stands still during a turn, and is exact to a ms only.
        self._due_s = time.monotonic() + SAMPLE_S
        self._timer = loop.call_later(SAMPLE_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.late(max(0.0, time.monotonic() - self._due_s))
        self._wait(loop)
