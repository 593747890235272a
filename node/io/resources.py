"""Memory and disk space: how much there is, how much is used, and the alarms when it gets short.

Two monitors check regularly, on the event loop, and call back when an alarm goes on or off:

    memory   on: resident set > watermark         off: below 95 % of it       every 0.02 to 2.5 s
    disk     on: free < limit                     off: free >= 105 % of it    every 0.1 to 10 s

RabbitMQ clears both alarms at the value that sets them; the distance keeps ours from going on and off while a
node moves along its limit. Source: amqp-behaviour §7.1, §7.3; malloc_trim(3), cgroups(7).
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Final

from node.config.config import DiskOptions, MemoryOptions
from node.override import override

MEMORY_CLEAR_RATIO: Final = 0.95
DISK_CLEAR_RATIO: Final = 1.05

MEMORY_FAST_BYTES_PER_S: Final = 500 * 1024 * 1024
"""The assumed rate at which clients may take memory: more than twice the rate seen in floods."""
MEMORY_INTERVAL_MIN_S: Final = 0.02
"""The shortest time between two checks, each of which takes some microseconds."""

DISK_FAST_BYTES_PER_S: Final = 250 * 1024 * 1024
"""The assumed rate at which a disk may fill: RabbitMQ's number."""
DISK_INTERVAL_MIN_S: Final = 0.1
DISK_INTERVAL_MAX_S: Final = 10.0
DISK_ALARMED_INTERVAL_S: Final = 1.0
"""The time between two checks while the alarm is on: publishers wait for its end."""

TRIM_INTERVAL_S: Final = 2.5
TRIM_SHARE: Final = 0.05
"""The part of the time that giving memory back may take: it holds the event loop."""
FALLEN_SHARE: Final = 0.25
"""When the resident set has fallen by this part of its maximum, memory that the C library still holds is given back."""

EXCESS_BYTES: Final = 32 * 1024 * 1024
"""When the node uses this much more than its minimum so far, freed memory is given back from time to time, even far
below the watermark."""
EXCESS_REST_S: Final = 30.0
EXCESS_REST_S_MAX: Final = 960.0
"""The longest rest between two such times. The rest doubles after each that gave back too little, as each looks through
the whole heap: that took 43 ms for a gigabyte of which every other piece was free."""
COLLECTED_BLOCKS_MAX: Final = 500_000
"""Small blocks of Python's above which its free lists are not cleared: that looks through all objects, which takes some
60 ms for so many."""
EXCESS_BYTES_MIN: Final = 4 * 1024 * 1024
"""Giving back less than this counts as too little."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"
_CGROUP: Final = "/proc/self/cgroup"
_CGROUP_ROOT: Final = "/sys/fs/cgroup"

OnChange = Callable[[bool, int, int], None]
"""Called when an alarm goes on (True) or off, with the bytes used (memory) or free (disk), and the limit."""


@cache
def _statm() -> int | None:
    """Return a descriptor that stays open, so that memory can be measured when sockets have taken all others."""
    try:
        return os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def rss_bytes() -> int:
    """Return the resident set of this process; where the system does not tell, its maximum so far."""
    statm = _statm()
    if statm is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(os.pread(statm, 256, 0).split()[1]) * _PAGE_BYTES


def total_memory_bytes(override_bytes: int | None = None) -> int:
    """Return the memory that the node can use: the machine's, or less if a control group allows less.

    override_bytes: from the configuration; it wins over both, as in RabbitMQ.
    """
    if override_bytes is not None:
        return override_bytes
    physical = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return min([physical, *cgroup_limits(_read(_CGROUP) or "", _read)])


def cgroup_limits(groups: str, read: Callable[[str], str | None]) -> list[int]:
    """Return the memory limits, in bytes, of a process's control groups and all above them, of both versions.

    groups: the content of /proc/self/cgroup.   read: returns the content of a file, None if there is none.
    """
    limits = []
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2; beside version 1 its root may be in a directory of its own
            roots, name = [_CGROUP_ROOT, f"{_CGROUP_ROOT}/unified"], "memory.max"
        elif "memory" in controllers.split(","):
            roots, name = [f"{_CGROUP_ROOT}/memory"], "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's, of which only the last part is mounted: as the root.
        steps = [step for step in path.split("/") if step]
        for root in roots:
            for count in range(len(steps) + 1):
                text = (read("/".join([root, *steps[:count], name])) or "").strip()
                if text.isdecimal():  # else "max"
                    limits.append(int(text))
    return limits


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def free_disk_bytes(path: str) -> int:
    """Return how many bytes this process may still write on the file system of a path. Raises OSError."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def watermark_bytes(options: MemoryOptions, total_bytes: int) -> int:
    """Return the resident set above which the memory alarm goes on."""
    if options.watermark_absolute_bytes is not None:
        return options.watermark_absolute_bytes
    return int(options.watermark_relative * total_bytes)


def free_limit_bytes(options: DiskOptions, total_bytes: int) -> int:
    """Return the free space below which the disk alarm goes on.   total_bytes: of memory."""
    if options.free_limit_relative is not None:
        return round(options.free_limit_relative * total_bytes)
    return options.free_limit_bytes


class HeapTrimmer:
    """Gives freed memory back to the system, where the C library can (glibc).

    trim: the function that does it; that of the C library unless given.   clock: seconds, monotonic.
    """

    def __init__(
        self, trim: Callable[[], object] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim = trim or _find_trim()
        self._clock = clock
        self._ended = float("-inf")
        self._took_s = 0.0

    def trim(self, *, rest_s: float = TRIM_INTERVAL_S, clears_free_lists: bool = False) -> bool:
        """Give freed memory back, unless that was done a moment ago. Returns: True if it was done now.

        rest_s: the least time since the last call that did it.   clears_free_lists: clear Python's own first, unless
            it has very many objects. It keeps up to 2,000 freed tuples of each size, each may hold a megabyte of heap.
        """
        begin = self._clock()
        if self._trim is None or begin < self._ended + max(rest_s, self._took_s / TRIM_SHARE):
            return False
        if clears_free_lists and sys.getallocatedblocks() <= COLLECTED_BLOCKS_MAX:
            gc.collect()
        self._trim()
        self._ended = self._clock()
        self._took_s = self._ended - begin
        return True


def _find_trim() -> Callable[[], object] | None:
    """Return `malloc_trim(0)`; None if the C library has none (musl, macOS)."""
    with contextlib.suppress(OSError, AttributeError):
        function = ctypes.CDLL(None).malloc_trim
        function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_int
        return lambda: function(0)
    return None


class _Monitor:
    """Checks a resource again and again, and calls back when its alarm goes on or off."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_alarmed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check now, and regularly from now on."""
        self._loop = loop
        self._tick()

    def stop(self) -> None:
        """Check no more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Check at once; calls back if the alarm goes on or off."""
        raise NotImplementedError

    def interval_s(self) -> float:
        """Return the seconds until the next check."""
        raise NotImplementedError

    def _tick(self) -> None:
        if self._loop is None:
            return
        try:
            self.check()
        finally:
            # Even after an exception of the callback.
            self._timer = self._loop.call_later(self.interval_s(), self._tick)

    def _set(self, is_alarmed: bool, value: int, limit: int) -> None:
        if is_alarmed != self.is_alarmed:
            self.is_alarmed = is_alarmed
            self._on_change(is_alarmed, value, limit)


class MemoryMonitor(_Monitor):
    """The memory alarm, and the threshold for paging.

    total_bytes: see `total_memory_bytes`.   rss: the resident set in bytes.
    """

    def __init__(
        self,
        options: MemoryOptions,
        on_change: OnChange,
        *,
        total_bytes: int,
        rss: Callable[[], int] = rss_bytes,
        trimmer: HeapTrimmer | None = None,
    ) -> None:
        super().__init__(on_change)
        self._rss = rss
        self._trimmer = trimmer or HeapTrimmer()
        self._paging_ratio = options.paging_ratio
        self._interval_s = options.monitor_interval_s
        self.total_bytes = total_bytes
        self.used_bytes = self._least_bytes = self._highest_bytes = rss()
        """The bytes in use at the last check, their minimum so far, and their maximum since memory was given back."""
        self._rest_s = EXCESS_REST_S
        self.limit_bytes = watermark_bytes(options, total_bytes)

    @property
    def paging_bytes(self) -> int:
        """The resident set above which messages are moved to disk."""
        return int(self.limit_bytes * self._paging_ratio)

    def set_limit(self, options: MemoryOptions) -> None:
        """Set another watermark (`set_vm_memory_high_watermark`); the other options stay."""
        self.limit_bytes = watermark_bytes(options, self.total_bytes)
        self.used_bytes = self._rss()
        self._set(self.used_bytes > self.limit_bytes, self.used_bytes, self.limit_bytes)

    @override
    def check(self) -> None:
        used = self._rss()
        self._highest_bytes = max(self._highest_bytes, used)
        has_fallen = used <= self._highest_bytes * (1 - FALLEN_SHARE)
        if used > self.paging_bytes or has_fallen:
            is_trimmed = self._trimmer.trim(clears_free_lists=has_fallen or self.is_alarmed)
        else:
            is_trimmed = used > self._least_bytes + EXCESS_BYTES and self._trimmer.trim(rest_s=self._rest_s)
        if is_trimmed:
            before, used = used, self._rss()
            self._highest_bytes = used
            has_helped = before - used >= EXCESS_BYTES_MIN
            self._rest_s = EXCESS_REST_S if has_helped else min(2 * self._rest_s, EXCESS_REST_S_MAX)
        self.used_bytes = used
        self._least_bytes = min(self._least_bytes, used)
        limit = self.limit_bytes * MEMORY_CLEAR_RATIO if self.is_alarmed else self.limit_bytes
        self._set(used > limit, used, self.limit_bytes)

    def interval_s(self) -> float:
        """Return the time in which clients could take the rest below the watermark; as configured once it is passed."""
        left_bytes = self.limit_bytes - self.used_bytes
        if self.is_alarmed or left_bytes < 0:
            return self._interval_s
        fastest_s = max(MEMORY_INTERVAL_MIN_S, left_bytes / MEMORY_FAST_BYTES_PER_S)
        return min(self._interval_s, fastest_s)


class DiskMonitor(_Monitor):
    """The disk alarm.

    total_bytes: of memory, see `total_memory_bytes`.   free: the free space in bytes; raises OSError.
    """

    def __init__(
        self,
        options: DiskOptions,
        on_change: OnChange,
        *,
        total_bytes: int,
        free: Callable[[], int],
    ) -> None:
        super().__init__(on_change)
        self._free = free
        self._total_bytes = total_bytes
        self.free_bytes: int | None = None
        """The free space at the last check; None if the system did not tell."""
        self.limit_bytes = free_limit_bytes(options, total_bytes)

    def set_limit(self, options: DiskOptions) -> None:
        """Set another limit (`set_disk_free_limit`)."""
        self.limit_bytes = free_limit_bytes(options, self._total_bytes)
        self._look(self.limit_bytes)

    @override
    def check(self) -> None:
        self._look(self.limit_bytes * DISK_CLEAR_RATIO if self.is_alarmed else self.limit_bytes)

    def _look(self, limit: float) -> None:
        try:
            self.free_bytes = free = self._free()
        except OSError:
            self.free_bytes = None
            return
        self._set(free < limit, free, self.limit_bytes)

    def interval_s(self) -> float:
        """Return the time in which a fast writer could take the rest above the limit."""
        if self.is_alarmed:
            return DISK_ALARMED_INTERVAL_S
        if self.free_bytes is None:
            return DISK_INTERVAL_MAX_S
        fastest_s = (self.free_bytes - self.limit_bytes) / DISK_FAST_BYTES_PER_S
        return min(DISK_INTERVAL_MAX_S, max(DISK_INTERVAL_MIN_S, fastest_s))
