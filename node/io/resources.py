"""Memory and disk space: how much there is, how much is used, and who must be told.

Two monitors look now and then, on the loop, and call back when an alarm goes on or off:

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

MEMORY_CLEAR_RATIO: Final = 0.95
DISK_CLEAR_RATIO: Final = 1.05

MEMORY_FAST_BYTES_PER_S: Final = 500 * 1024 * 1024
"""How fast we assume that clients may take memory: more than twice what floods were seen to take."""
MEMORY_INTERVAL_MIN_S: Final = 0.02
"""A look takes some microseconds."""

DISK_FAST_BYTES_PER_S: Final = 250 * 1024 * 1024
"""How fast we assume that a disk may fill: RabbitMQ's number."""
DISK_INTERVAL_MIN_S: Final = 0.1
DISK_INTERVAL_MAX_S: Final = 10.0
DISK_ALARMED_INTERVAL_S: Final = 1.0
"""While the alarm is on: publishers wait for its end."""

TRIM_INTERVAL_S: Final = 2.5
TRIM_SHARE: Final = 0.05
"""How much of the time may go into giving memory back: the loop stands still meanwhile."""
FALLEN_SHARE: Final = 0.25
"""Once so much of the highest resident set has gone, what the C library still holds of it is given back, too."""

EXCESS_BYTES: Final = 32 * 1024 * 1024
"""More than the least that the node ever used: then what was freed is given back now and then, be it far below the
watermark."""
EXCESS_REST_S: Final = 30.0
EXCESS_REST_S_MAX: Final = 960.0
"""How long to rest between two such times: twice as long after each that gave back next to nothing, as it looks through
all of the heap. That took 43 ms for a gigabyte of which every other piece was free."""
COLLECTED_BLOCKS_MAX: Final = 500_000
"""Small blocks of Python's above which its free lists are not cleared: that looks through all objects, which takes some
60 ms for so many."""
EXCESS_BYTES_MIN: Final = 4 * 1024 * 1024
"""Less than so much is next to nothing."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"
_CGROUP: Final = "/proc/self/cgroup"
_CGROUP_ROOT: Final = "/sys/fs/cgroup"

OnChange = Callable[[bool, int, int], None]
"""Told that an alarm went on (True) or off, and of the bytes used (memory) or free (disk), and the limit."""


@cache
def _statm() -> int | None:
    """A descriptor that stays open, so that memory is watched when sockets have taken all others."""
    try:
        return os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def rss_bytes() -> int:
    """The resident set of this process; where the system does not tell, the highest it ever was."""
    statm = _statm()
    if statm is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(os.pread(statm, 256, 0).split()[1]) * _PAGE_BYTES


def total_memory_bytes(override_bytes: int | None = None) -> int:
    """The memory that the node may count on: the machine's, or less where a control group allows less.

    override_bytes: from the configuration; it wins over both, as in RabbitMQ.
    """
    if override_bytes is not None:
        return override_bytes
    physical = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return min([physical, *cgroup_limits(_read(_CGROUP) or "", _read)])


def cgroup_limits(groups: str, read: Callable[[str], str | None]) -> list[int]:
    """The limits of memory, in bytes, of a process's control groups and all above them, of both versions.

    groups: the content of /proc/self/cgroup.   read: the content of a file, None where there is none.
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
    """What we may still write on the file system of a path. Raises OSError."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def watermark_bytes(options: MemoryOptions, total_bytes: int) -> int:
    """The resident set above which the memory alarm goes on."""
    if options.watermark_absolute_bytes is not None:
        return options.watermark_absolute_bytes
    return int(options.watermark_relative * total_bytes)


def free_limit_bytes(options: DiskOptions, total_bytes: int) -> int:
    """The free space below which the disk alarm goes on.   total_bytes: of memory."""
    if options.free_limit_relative is not None:
        return round(options.free_limit_relative * total_bytes)
    return options.free_limit_bytes


class HeapTrimmer:
    """Gives memory that was freed back to the system, where the C library can (glibc).

    trim: gives back; found in the C library unless given.   clock: seconds, monotonic.
    """

    def __init__(
        self, trim: Callable[[], object] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim = trim or _find_trim()
        self._clock = clock
        self._ended = float("-inf")
        self._took_s = 0.0

    def trim(self, *, rest_s: float = TRIM_INTERVAL_S, clears_free_lists: bool = False) -> bool:
        """Give back, unless that was done a moment ago. Returns: whether it was done now.

        rest_s: since the last time, at least.   clears_free_lists: clear Python's own first, unless it has very many
            objects. It keeps up to 2,000 freed tuples of each size, and each of them may hold a megabyte of heap.
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
    """`malloc_trim(0)`; None where the C library has none (musl, macOS)."""
    with contextlib.suppress(OSError, AttributeError):
        function = ctypes.CDLL(None).malloc_trim
        function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_int
        return lambda: function(0)
    return None


class _Monitor:
    """Looks again and again, and calls back when what it finds changes."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_alarmed = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look now, and from now on."""
        self._loop = loop
        self._tick()

    def stop(self) -> None:
        """Look no more."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Look at once; calls back if the alarm goes on or off."""
        raise NotImplementedError

    def interval_s(self) -> float:
        """How long until the next look."""
        raise NotImplementedError

    def _tick(self) -> None:
        if self._loop is None:
            return
        try:
            self.check()
        finally:
            # Also after a fault of who is called back.
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
        """What the last look found; the least ever; and the most since memory was given back."""
        self._rest_s = EXCESS_REST_S
        self.limit_bytes = watermark_bytes(options, total_bytes)

    @property
    def paging_bytes(self) -> int:
        """The resident set above which messages shall go to disk."""
        return int(self.limit_bytes * self._paging_ratio)

    def set_limit(self, options: MemoryOptions) -> None:
        """Another watermark, from now on (`set_vm_memory_high_watermark`); nothing else of the options."""
        self.limit_bytes = watermark_bytes(options, self.total_bytes)
        self.used_bytes = self._rss()
        self._set(self.used_bytes > self.limit_bytes, self.used_bytes, self.limit_bytes)

    def check(self) -> None:
        """See `_Monitor.check`. Memory that was freed is given back first."""
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
        """The time in which clients could take what is left below the watermark; as configured once it is passed."""
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
        """What the last look found; None if the system did not tell."""
        self.limit_bytes = free_limit_bytes(options, total_bytes)

    def set_limit(self, options: DiskOptions) -> None:
        """Another limit, from now on (`set_disk_free_limit`)."""
        self.limit_bytes = free_limit_bytes(options, self._total_bytes)
        self._look(self.limit_bytes)

    def check(self) -> None:
        """See `_Monitor.check`. What the system does not tell changes nothing."""
        self._look(self.limit_bytes * DISK_CLEAR_RATIO if self.is_alarmed else self.limit_bytes)

    def _look(self, limit: float) -> None:
        try:
            self.free_bytes = free = self._free()
        except OSError:
            self.free_bytes = None
            return
        self._set(free < limit, free, self.limit_bytes)

    def interval_s(self) -> float:
        """The time in which a fast writer could take what is left above the limit."""
        if self.is_alarmed:
            return DISK_ALARMED_INTERVAL_S
        if self.free_bytes is None:
            return DISK_INTERVAL_MAX_S
        fastest_s = (self.free_bytes - self.limit_bytes) / DISK_FAST_BYTES_PER_S
        return min(DISK_INTERVAL_MAX_S, max(DISK_INTERVAL_MIN_S, fastest_s))
