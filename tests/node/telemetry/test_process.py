"""The kernel's figures about a host without CPU are read from files as the kernel writes them."""

import threading
import time
from pathlib import Path

from node.telemetry.process import (
    stolen_cpu_ms,
    thread_cpu_ns,
    usable_cores,
    usable_millicores,
    waited_for_cpu_us,
)

PRESSURE = (
    "some avg10=60.24 avg60=40.34 avg300=16.98 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
)


def files(root: Path, **contents: str) -> tuple[Path, Path]:
    """Return the folders of `/proc` and of the cgroups, with some files in them."""
    for name, text in contents.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "proc", root / "cgroup"


def test_the_cgroup_of_the_process_counts(tmp_path: Path) -> None:
    places = files(
        tmp_path,
        proc__self__cgroup="4:memory:/x\n0::/system.slice/broker\n",
        proc__pressure__cpu=PRESSURE.format(5),
    )
    assert waited_for_cpu_us(*places) == 5
    (tmp_path / "cgroup" / "system.slice" / "broker").mkdir(parents=True)
    (tmp_path / "cgroup" / "system.slice" / "broker" / "cpu.pressure").write_text(PRESSURE.format(12345))
    assert waited_for_cpu_us(*places) == 12345


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    places = files(tmp_path, proc__pressure__cpu="")
    assert waited_for_cpu_us(*places) is None
    assert waited_for_cpu_us(tmp_path / "none", tmp_path / "none") is None
    assert stolen_cpu_ms(tmp_path / "none") is None


def test_stolen_time_is_the_eighth_figure(tmp_path: Path) -> None:
    proc, _ = files(tmp_path, proc__stat="cpu  1 2 3 4 5 6 7 3098 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    assert stolen_cpu_ms(proc) == 30980  # at 100 ticks a second
    (proc / "stat").write_text("cpu 1 2\n")
    assert stolen_cpu_ms(proc) is None


def test_a_quota_above_the_process_holds_it(tmp_path: Path) -> None:
    """The smallest quota from the process's cgroup up to the root is how much it may use."""
    cores = usable_cores() * 1000
    places = files(
        tmp_path,
        proc__self__cgroup="0::/slice/broker\n",
        cgroup__slice__broker__cpu_max="max 100000\n",
        cgroup__slice__cpu_max="25000 100000\n",
        cgroup__cpu_max="max 100000\n",
    )
    for name in ("slice/broker", "slice", ""):
        (places[1] / name / "cpu_max").rename(places[1] / name / "cpu.max")
    assert usable_millicores(*places) == 250
    (places[1] / "slice" / "cpu.max").write_text("nonsense")
    assert usable_millicores(*places) == cores
    assert usable_millicores(tmp_path / "none", tmp_path / "none") == cores


def test_a_quota_of_the_older_cgroups_holds_it_too(tmp_path: Path) -> None:
    """A controller has a tree of its own there, in which -1 stands for no quota."""
    proc, cgroups = files(tmp_path, proc__self__cgroup="3:cpu,cpuacct:/slice/broker\n0::/\n")
    for name, quota in (("slice/broker", -1), ("slice", 50_000), ("", -1)):
        place = cgroups / "cpu" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (place / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_millicores(proc, cgroups) == 500
    (cgroups / "cpu" / "slice" / "cpu.cfs_quota_us").write_text("-1\n")
    assert usable_millicores(proc, cgroups) == usable_cores() * 1000


def test_the_cpu_time_of_a_thread_is_its_own(tmp_path: Path) -> None:
    """The kernel counts the CPU time of each thread; that of a thread that has ended is unknown."""
    places = files(tmp_path, proc__self__task__17__schedstat="123456789 5 9\n")
    assert thread_cpu_ns(17, places[0]) == 123456789
    assert thread_cpu_ns(18, places[0]) is None
    began = time.thread_time_ns()
    while time.thread_time_ns() - began < 20_000_000:
        pass
    spent_ns = thread_cpu_ns(threading.get_native_id())
    assert spent_ns is None or spent_ns >= 20_000_000
