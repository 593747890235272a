"""What the process itself suffers from: a loop that comes late, pauses of the garbage collector."""

import asyncio
import gc
import time
from typing import Final

from node.queue.metering import BUCKETS, bucket_of

SAMPLE_S: Final = 0.1


class LoopLag:
    """How late the loop calls back, ten times a second. `start` it on the loop; `stop`."""

    def __init__(self) -> None:
        self.histogram = [0] * BUCKETS
        self._max_ms = 0.0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._wait(asyncio.get_running_loop())

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def take_max_ms(self) -> float:
        """The most since the last call."""
        found, self._max_ms = self._max_ms, 0.0
        return round(found, 3)

    def note(self, late_s: float) -> None:
        """It was so late once."""
        self.histogram[bucket_of(late_s * 1e6)] += 1
        self._max_ms = max(self._max_ms, late_s * 1000)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's clock: uvloop's stands still during a turn, and is exact to a ms only.
        self._due_s = time.monotonic() + SAMPLE_S
        self._timer = loop.call_later(SAMPLE_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.note(max(0.0, time.monotonic() - self._due_s))
        self._wait(loop)


class GcPauses:
    """What the garbage collector takes of the process. `start`; `stop`."""

    def __init__(self) -> None:
        self.pause_ms = 0.0
        self.count = 0
        self._began = 0

    def start(self) -> None:
        """Count from now on."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Count no more."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter_ns()
        elif self._began:
            self.pause_ms += (time.perf_counter_ns() - self._began) / 1e6
            self.count += 1
