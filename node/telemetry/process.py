"""Measure what the process gets of the host: CPU time of its threads, pauses, and a host that has too little CPU."""

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
    own = _own_cgroup(proc, cgroups)
    paths = [] if own is None else [own / "cpu.pressure"]
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


def thread_cpu_ns(thread_id: int, proc: Path = _PROC) -> int | None:
    """Return the CPU time of a thread of this process in ns; None: it has ended, or the kernel does not count it.

    thread_id: the kernel's number.   Source: proc(5), /proc/pid/schedstat.
    """
    try:
        return int((proc / "self" / "task" / str(thread_id) / "schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def usable_millicores(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return how many thousandths of a core this process may use: the cores it may run on, or its cgroup's quota.

    The quota is the smallest one from its cgroup up to the root: `cpu.max` of version 2 of cgroups, `cpu.cfs_quota_us`
    of version 1.
    """
    found = [usable_cores() * 1000]
    found += [_quota_millicores(place / "cpu.max") or found[0] for place in _upwards(proc, cgroups, "")]
    found += [_old_quota_millicores(place) or found[0] for place in _upwards(proc, cgroups / "cpu", "cpu")]
    return max(1, min(found))


def _upwards(proc: Path, root: Path, controller: str) -> list[Path]:
    """Return the directories of this process's cgroup and of those above it, up to the root of the controller."""
    own = _own_cgroup(proc, root, controller)
    return [] if own is None else [place for place in (own, *own.parents) if place.is_relative_to(root)]


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _own_cgroup(proc: Path, cgroups: Path, controller: str = "") -> Path | None:
    """Return the directory of this process's cgroup; None: it is in none.

    controller: of version 1 of cgroups, whose root is `cgroups`; empty: version 2.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return cgroups / path.strip("/")
    return None


def _quota_millicores(path: Path) -> int | None:
    """Return the quota in a `cpu.max`; None: there is none."""
    try:
        quota, period = path.read_text().split()
        return None if quota == "max" else int(quota) * 1000 // int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _old_quota_millicores(place: Path) -> int | None:
    """Return the quota of a cgroup of version 1; None: there is none, which the kernel writes as -1."""
    try:
        quota, period = (int((place / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota * 1000 // period if quota > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
