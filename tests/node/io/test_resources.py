"""Memory and disk space: limits, alarms and when they are looked at, on a clock that the tests turn."""

import asyncio
import gc
from collections.abc import Callable
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.config.config import DiskOptions, MemoryOptions
from node.io import resources
from node.io.resources import (
    COLLECTED_BLOCKS_MAX,
    DISK_INTERVAL_MAX_S,
    DISK_INTERVAL_MIN_S,
    EXCESS_REST_S,
    EXCESS_REST_S_MAX,
    MEMORY_FAST_BYTES_PER_S,
    MEMORY_INTERVAL_MIN_S,
    DiskMonitor,
    HeapTrimmer,
    MemoryMonitor,
    cgroup_limits,
    free_disk_bytes,
    free_limit_bytes,
    rss_bytes,
    total_memory_bytes,
    watermark_bytes,
)

GIB = 1 << 30
MIB = 1 << 20


class Clock:
    """A loop's timers, and a clock. One timer at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def __call__(self) -> float:
        return self.now

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "Clock":
        assert self.timer is None, "one look is due at a time"
        self.timer = (self.now + delay_s, call)
        return self

    def cancel(self) -> None:
        self.timer = None

    def pass_to_timer(self) -> float:
        """Go on to the timer. Returns: how long that was, in seconds."""
        assert self.timer is not None
        before = self.now
        (self.now, call), self.timer = self.timer, None
        call()
        return self.now - before

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)


class Recorder:
    def __init__(self) -> None:
        self.changes: list[tuple[bool, int, int]] = []

    def __call__(self, is_alarmed: bool, value: int, limit: int) -> None:
        self.changes.append((is_alarmed, value, limit))


class Trimmer(HeapTrimmer):
    """One that does nothing, or what `effect` does."""

    def __init__(
        self, clock: Callable[[], float] = lambda: 0.0, effect: Callable[[], Any] = lambda: None
    ) -> None:
        super().__init__(effect, clock=clock)


# ---- what there is ----


def test_the_resident_set_is_of_this_process() -> None:
    """The resident set grows with what the process takes, and is less than the machine has."""
    before = rss_bytes()
    with mmap(-1, 64 * MIB) as block:  # not of the heap, which may have as much to spare
        block.write(bytes(64 * MIB))
        assert rss_bytes() - before > 32 * MIB
        assert before + len(block) < total_memory_bytes()


def test_without_proc_the_highest_resident_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Better than nothing."""
    now = rss_bytes()
    monkeypatch.setattr(resources, "_STATM", "/no/such/file")
    assert rss_bytes() >= now // 2


def test_total_memory() -> None:
    """The override wins, as in RabbitMQ."""
    assert total_memory_bytes(5 * GIB) == 5 * GIB
    assert 0 < total_memory_bytes() < 1 << 50


@pytest.mark.parametrize(
    ("groups", "files", "limits"),
    [
        ("", {}, []),
        ("0::/", {"/sys/fs/cgroup/memory.max": "max\n"}, []),
        (
            "0::/a.slice/b.service\n",
            {
                "/sys/fs/cgroup/a.slice/memory.max": "2000\n",
                "/sys/fs/cgroup/a.slice/b.service/memory.max": "3000\n",
            },
            [2000, 3000],
        ),
        ("0::/", {"/sys/fs/cgroup/memory.max": "1000\n"}, [1000]),
        (
            "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
            {
                "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "4000\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            [9223372036854771712, 4000],
        ),
        # In a container: the path is the host's, the mount is the group itself.
        (
            "4:hugetlb,memory:/docker/abc\n",
            {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "4000\n"},
            [4000],
        ),
        ("1:name=systemd:/a:b\n0::/a:b\n", {"/sys/fs/cgroup/a:b/memory.max": "7\n"}, [7]),
    ],
)
def test_limits_of_control_groups(groups: str, files: dict[str, str], limits: list[int]) -> None:
    """Version 2, version 1, both at once; the group's own and all above."""
    assert cgroup_limits(groups, files.get) == limits


@given(st.text(max_size=80), st.text(max_size=10))
def test_any_text_in_proc_gives_limits(groups: str, content: str) -> None:
    """Any text in /proc gives whole numbers as limits; what cannot be understood is no limit."""
    assert all(isinstance(limit, int) for limit in cgroup_limits(groups, lambda path: content))


def test_free_disk_space(tmp_path: Path) -> None:
    """Free disk space is that of the file system that a path is on."""
    assert 0 < free_disk_bytes(str(tmp_path)) < 1 << 60
    with pytest.raises(FileNotFoundError):
        free_disk_bytes(str(tmp_path / "no"))


# ---- limits ----


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (MemoryOptions(), 4 * GIB),
        (MemoryOptions(watermark_relative=0.0), 0),
        (MemoryOptions(watermark_absolute_bytes=123), 123),
    ],
)
def test_watermark(options: MemoryOptions, limit: int) -> None:
    """A watermark is a limit in bytes, here of 10 GiB."""
    assert watermark_bytes(options, 10 * GIB) == limit


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (DiskOptions(), 50_000_000),
        (DiskOptions(free_limit_bytes=7), 7),
        (DiskOptions(free_limit_bytes=7, free_limit_relative=1.5), 15 * GIB),
    ],
)
def test_disk_limit(options: DiskOptions, limit: int) -> None:
    """Given both, the relative one counts, as in RabbitMQ; it is a multiple of the memory."""
    assert free_limit_bytes(options, 10 * GIB) == limit


# ---- memory ----


def test_the_memory_alarm() -> None:
    """On above the watermark, off at 95 % of it; told once each, with what is used and the watermark."""
    clock, told, used = Clock(), Recorder(), 100
    options = MemoryOptions(watermark_absolute_bytes=100)
    monitor = MemoryMonitor(options, told, total_bytes=1000, rss=lambda: used, trimmer=Trimmer())
    monitor.start(clock.loop)
    for used, changes in ((101, 1), (150, 1), (100, 1), (96, 1), (95, 2), (100, 2), (101, 3)):
        wait_s = 2.5 if monitor.is_alarmed else MEMORY_INTERVAL_MIN_S
        assert clock.pass_to_timer() == pytest.approx(wait_s)
        assert monitor.used_bytes == used
        assert len(told.changes) == changes, used
    assert told.changes == [(True, 101, 100), (False, 95, 100), (True, 101, 100)]
    assert monitor.is_alarmed
    monitor.stop()
    assert clock.timer is None


def test_memory_is_looked_at_the_more_often_the_less_is_left() -> None:
    """Memory is read more often the less is left, so that a flood brings little between two looks."""
    clock, told = Clock(), Recorder()
    options = MemoryOptions(watermark_absolute_bytes=1000 * MIB)

    def rss() -> int:
        return int(400 * MIB + clock.now * MEMORY_FAST_BYTES_PER_S)

    monitor = MemoryMonitor(options, told, total_bytes=GIB, rss=rss, trimmer=Trimmer())
    monitor.start(clock.loop)
    looks = 0
    while not told.changes:
        clock.pass_to_timer()
        looks += 1
        assert looks < 20
    assert rss() <= 1.02 * 1000 * MIB


def test_memory_is_looked_at_as_often_as_configured() -> None:
    """The monitor reads memory at once at the start, then at the configured interval."""
    clock, told = Clock(), Recorder()
    options = MemoryOptions(watermark_relative=0.0, monitor_interval_s=0.5)
    monitor = MemoryMonitor(options, told, total_bytes=1000, rss=lambda: 1, trimmer=Trimmer())
    monitor.start(clock.loop)
    assert told.changes == [(True, 1, 0)]
    assert clock.pass_to_timer() == 0.5


def test_memory_thresholds() -> None:
    """Messages go to disk above half of the watermark, which is 40 % of the memory."""
    monitor = MemoryMonitor(MemoryOptions(), Recorder(), total_bytes=1000, rss=lambda: 1, trimmer=Trimmer())
    assert (monitor.limit_bytes, monitor.paging_bytes) == (400, 200)
    monitor.set_limit(MemoryOptions(watermark_relative=0.6))
    assert (monitor.limit_bytes, monitor.paging_bytes) == (600, 300)


def test_another_watermark_counts_at_once() -> None:
    """Without the distance that keeps an alarm on."""
    told = Recorder()
    monitor = MemoryMonitor(MemoryOptions(), told, total_bytes=1000, rss=lambda: 300, trimmer=Trimmer())
    monitor.set_limit(MemoryOptions(watermark_relative=0.2))
    monitor.set_limit(MemoryOptions(watermark_relative=0.3))
    assert told.changes == [(True, 300, 200), (False, 300, 300)]


def test_freed_memory_is_given_back_before_it_counts() -> None:
    """Only above the threshold for paging."""
    clock, told, used, trims = Clock(), Recorder(), 200, 0

    def give_back() -> None:
        nonlocal used, trims
        used -= 100
        trims += 1

    trimmer = Trimmer(clock, give_back)
    monitor = MemoryMonitor(MemoryOptions(), told, total_bytes=1000, rss=lambda: used, trimmer=trimmer)
    monitor.check()
    assert trims == 0
    used = 450
    monitor.check()
    assert (trims, monitor.used_bytes, told.changes) == (1, 350, [])


def test_memory_is_given_back_when_a_quarter_has_gone() -> None:
    """Below the threshold for paging, too; once, measured against the highest that was seen since."""
    clock, told, used, trims = Clock(), Recorder(), 40, 0

    def give_back() -> None:
        nonlocal used, trims
        used -= 20
        trims += 1

    trimmer = Trimmer(clock, give_back)
    monitor = MemoryMonitor(MemoryOptions(), told, total_bytes=1000, rss=lambda: used, trimmer=trimmer)
    for used, trimmed in ((120, 0), (91, 0), (90, 1), (70, 1), (80, 1), (60, 2)):
        clock.now += 2.5
        monitor.check()
        assert trims == trimmed, used
        assert monitor.used_bytes == used
    assert used == 40


def test_memory_is_given_back_now_and_then() -> None:
    """Every 2.5 s, and more seldom where it takes long: the loop stands still meanwhile."""
    clock, calls, duration_s = Clock(), 0, 0.01

    def give_back() -> None:
        nonlocal calls
        calls += 1
        clock.now += duration_s

    trimmer = HeapTrimmer(give_back, clock=clock)
    assert (trimmer.trim(), trimmer.trim(), calls) == (True, False, 1)
    clock.now += 2.49
    assert not trimmer.trim()
    clock.now += 0.01
    duration_s = 0.5
    assert trimmer.trim()
    clock.now += 9.9
    assert not trimmer.trim()
    clock.now += 0.2
    assert (trimmer.trim(), calls) == (True, 3)


@pytest.mark.parametrize(("blocks", "is_collected"), [(1000, True), (COLLECTED_BLOCKS_MAX + 1, False)])
def test_free_lists_go_where_few_objects_are_left(
    monkeypatch: pytest.MonkeyPatch, blocks: int, is_collected: bool
) -> None:
    """After a flood of 1,500 queues they held 90 MB of heap that nobody used."""
    passes: list[int] = []
    monkeypatch.setattr("node.io.resources.sys.getallocatedblocks", lambda: blocks)
    monkeypatch.setattr("node.io.resources.gc.collect", lambda: passes.append(1))
    clock = Clock()
    options = MemoryOptions(watermark_absolute_bytes=100 * MIB)
    trimmer = HeapTrimmer(lambda: None, clock=clock)
    monitor = MemoryMonitor(options, Recorder(), total_bytes=GIB, rss=lambda: 150 * MIB, trimmer=trimmer)
    monitor.check()
    assert not passes, "the alarm was off"
    clock.now += 100.0
    monitor.check()
    assert bool(passes) == is_collected


def test_the_c_library_gives_back_or_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """glibc has malloc_trim; without it nothing happens."""
    clock = Clock()
    gc.collect()
    HeapTrimmer(clock=clock).trim()

    def missing(name: None) -> object:
        return object()

    monkeypatch.setattr(resources.ctypes, "CDLL", missing)
    assert not HeapTrimmer(clock=clock).trim()


def test_memory_that_strangers_took_is_given_back_far_below_the_watermark() -> None:
    """Once in a while; and at once when the alarm is near, whenever that was."""
    clock, used, trims = Clock(), 60 * MIB, 0

    def give_back() -> None:
        nonlocal used, trims
        used = max(60 * MIB, used - 160 * MIB)
        trims += 1

    options = MemoryOptions(watermark_absolute_bytes=1000 * MIB)
    trimmer = HeapTrimmer(give_back, clock=clock)
    monitor = MemoryMonitor(options, Recorder(), total_bytes=GIB, rss=lambda: used, trimmer=trimmer)
    monitor.start(clock.loop)
    assert trims == 0
    used = 220 * MIB
    clock.pass_to_timer()
    assert (trims, monitor.used_bytes) == (1, 60 * MIB)
    used = 220 * MIB
    before = clock.now
    while trims == 1:
        clock.pass_to_timer()
    assert clock.now - before >= EXCESS_REST_S - 2.5
    used = 900 * MIB
    while trims == 2:
        clock.pass_to_timer()
    assert clock.now - before < EXCESS_REST_S + 10


def test_a_fault_of_who_is_told_ends_no_monitor() -> None:
    """The loop reports it, and the next look comes."""

    def faulty(is_alarmed: bool, used: int, limit: int) -> None:
        raise ZeroDivisionError

    clock = Clock()
    options = MemoryOptions(watermark_relative=0.0)
    monitor = MemoryMonitor(options, faulty, total_bytes=1000, rss=lambda: 1, trimmer=Trimmer())
    with pytest.raises(ZeroDivisionError):
        monitor.start(clock.loop)
    assert clock.pass_to_timer() == 2.5
    assert monitor.is_alarmed


# ---- disk ----


def test_the_disk_alarm() -> None:
    """On below the limit, off at 105 % of it; told once each, with what is free and the limit."""
    clock, told, free = Clock(), Recorder(), 100
    monitor = DiskMonitor(DiskOptions(free_limit_bytes=100), told, total_bytes=0, free=lambda: free)
    monitor.start(clock.loop)
    for free, changes in ((99, 1), (50, 1), (104, 1), (105, 2), (100, 2), (0, 3)):
        clock.pass_to_timer()
        assert monitor.free_bytes == free
        assert len(told.changes) == changes, free
    assert told.changes == [(True, 99, 100), (False, 105, 100), (True, 0, 100)]
    monitor.set_limit(DiskOptions(free_limit_bytes=0))
    assert told.changes[3:] == [(False, 0, 0)]


@pytest.mark.parametrize(
    ("free", "interval_s"),
    [
        (1 << 50, DISK_INTERVAL_MAX_S),
        (GIB + 2500 * MIB, 10.0),
        (GIB + 1000 * MIB, 4.0),
        (GIB + 50 * MIB, 0.2),
        (GIB + 1, DISK_INTERVAL_MIN_S),
        (GIB, DISK_INTERVAL_MIN_S),
        (GIB - 1, 1.0),
    ],
)
def test_the_disk_is_looked_at_the_more_often_the_less_is_left(free: int, interval_s: float) -> None:
    """As often as something that writes 250 MiB a second could get to the limit."""
    clock = Clock()
    monitor = DiskMonitor(DiskOptions(free_limit_bytes=GIB), Recorder(), total_bytes=0, free=lambda: free)
    monitor.start(clock.loop)
    assert clock.pass_to_timer() == pytest.approx(interval_s)


def test_a_disk_that_does_not_tell_changes_nothing() -> None:
    """Neither way, and the next look comes."""
    clock, told, free = Clock(), Recorder(), 1

    def look() -> int:
        if free < 0:
            raise OSError
        return free

    monitor = DiskMonitor(DiskOptions(free_limit_bytes=100), told, total_bytes=0, free=look)
    monitor.start(clock.loop)
    free = -1
    clock.pass_to_timer()
    assert (monitor.free_bytes, monitor.is_alarmed) == (None, True)
    free = 200
    clock.pass_to_timer()
    assert told.changes == [(True, 1, 100), (False, 200, 100)]
    free = -1
    clock.pass_to_timer()
    assert clock.pass_to_timer() == DISK_INTERVAL_MAX_S
    monitor.stop()


def test_memory_that_cannot_be_given_back_is_tried_for_more_and_more_seldom() -> None:
    """Each try looks through all of the heap while the loop stands still."""
    clock, tries = Clock(), list[float]()
    used = 60 * MIB
    options = MemoryOptions(watermark_absolute_bytes=1000 * MIB)
    trimmer = HeapTrimmer(lambda: tries.append(clock.now), clock=clock)
    monitor = MemoryMonitor(options, Recorder(), total_bytes=GIB, rss=lambda: used, trimmer=trimmer)
    monitor.start(clock.loop)
    used = 220 * MIB
    while len(tries) < 8:
        clock.pass_to_timer()
    rests = [later - earlier for earlier, later in pairwise(tries)]
    assert all(later >= 1.8 * earlier for earlier, later in pairwise(rests[:4]))
    assert rests[-1] >= EXCESS_REST_S_MAX
