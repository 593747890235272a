"""What the process itself suffers from besides a loop that is held: pauses of the garbage collector."""

import gc
import time


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
