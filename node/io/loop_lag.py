"""For how long the loop of this process is held at once: what everybody waits for whom it serves.

Who does long work on the loop says how long each piece took: the broker's turns and timers, the cluster's turns. What
else holds it is seen by a timer that is called late, ten times a second: it may have taken up to 0.1 s more than that.
"""

import asyncio
import time
from typing import Final

from node.queue.metering import BUCKETS, bucket_of

SAMPLE_S: Final = 0.1


class Longest:
    """The longest time since one who watches last took it."""

    __slots__ = ("_lag", "_longest_s")

    def __init__(self, lag: "LoopLag") -> None:
        self._lag = lag
        self._longest_s = 0.0

    def note(self, seconds: float) -> None:
        """The loop was held so long."""
        self._longest_s = max(self._longest_s, seconds)

    @property
    def ms(self) -> float:
        """In milliseconds, which stays."""
        self._lag.tell()
        return round(self._longest_s * 1000, 3)

    def take_ms(self) -> float:
        """In milliseconds, and from now on anew."""
        found = self.ms
        self._longest_s = 0.0
        return found


class LoopLag:
    """Of one process. `watch` on the loop; `leave`. The timer runs while somebody watches.

    histogram: how late the timer was, each time.
    """

    def __init__(self) -> None:
        self.histogram = [0] * BUCKETS
        self._longest_s = 0.0  # that those who watch have not been told
        self._watching: list[Longest] = []
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> Longest:
        """Look from now on."""
        longest = Longest(self)
        self._watching.append(longest)
        if self._timer is None:
            self._longest_s = 0.0
            self._wait(asyncio.get_running_loop())
        return longest

    def leave(self, longest: Longest) -> None:
        """This one looks no more."""
        if longest in self._watching:
            self._watching.remove(longest)
        if not self._watching and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def held(self, seconds: float) -> None:
        """A piece of work took so long. Called for each turn: a comparison."""
        if seconds > self._longest_s:
            self._longest_s = seconds

    def tell(self) -> None:
        """Tell those who watch."""
        for each in self._watching:
            each.note(self._longest_s)
        self._longest_s = 0.0

    def late(self, seconds: float) -> None:
        """The timer was called so late."""
        self.histogram[bucket_of(seconds * 1e6)] += 1
        self.held(seconds)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's clock: uvloop's stands still during a turn, and is exact to a ms only.
        self._due_s = time.monotonic() + SAMPLE_S
        self._timer = loop.call_later(SAMPLE_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.late(max(0.0, time.monotonic() - self._due_s))
        self._wait(loop)
