"""Pauses of the process by the garbage collector."""

import gc
import time


class GcPauses:
    """Measures the pauses by the garbage collector. `start`; `stop`."""

    def __init__(self) -> None:
        self.pause_ms = 0.0
        self.count = 0
        self._began = 0

    def start(self) -> None:
        """Begin to count."""
        gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Stop counting."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter_ns()
        elif self._began:
            self.pause_ms += (time.perf_counter_ns() - self._began) / 1e6
            self.count += 1
