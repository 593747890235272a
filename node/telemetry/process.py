"""Measure what holds up the process: pauses by the garbage collector, and a host that has too little CPU."""

import gc
import os
import time
from pathlib import Path
from typing import Final


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


_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def waited_for_cpu_us(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the time in us for which any task of this process's cgroup, otherwise of the host, has waited for a CPU.

    It is the kernel's pressure stall information (`some` of `cpu.pressure`), which also counts the time in which a
    quota holds the cgroup. None where the kernel does not keep it.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = next((line.removeprefix("0::").lstrip("/") for line in lines if line.startswith("0::")), None)
    paths = [] if own is None else [cgroups / own / "cpu.pressure"]
    for path in (*paths, proc / "pressure" / "cpu"):
        try:
            some = path.read_text().splitlines()[0].split()
            return int(some[-1].removeprefix("total="))
        except (OSError, ValueError, IndexError):
            continue
    return None


def stolen_cpu_ms(proc: Path = _PROC) -> int | None:
    """Return how much CPU time the hypervisor gave to other hosts while ours had work, in ms of all cores."""
    try:
        with (proc / "stat").open() as file:
            ticks = int(file.readline().split()[8])
    except (OSError, ValueError, IndexError):
        return None
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")
