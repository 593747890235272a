"""The cost of rollups, a plan and a judgement from telemetry of a large fleet: CPU seconds, memory and time.

    python -m bench.spark_fleet                                   1,000 nodes, a million queues, a day
    python -m bench.spark_fleet --nodes 100 --queues 100000 --hours 6 --keep DIR

Each is a command that is run from outside; its figures are those of its process and of the JVM that it starts.
Required of the plan are at most 200 CPU seconds and 8 GB. The table is printed as Markdown.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.servers import REPOSITORY

PLAN_CPU_S: Final = 200.0
PLAN_BYTES: Final = 8 << 30
LOOK_S: Final = 0.2
"""The interval in seconds at which processes are looked at; what one uses between the last look and its end is lost."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a command.   memory_bytes: the peaks of all its processes together."""

    code: int
    cpu_s: float
    memory_bytes: int
    elapsed_s: float
    output: str


class Tree:
    """A process and its descendants, as they were at the last look."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks: dict[int, int] = {}
        self._peaks: dict[int, int] = {}

    @property
    def cpu_s(self) -> float:
        """The CPU time of all processes that were seen, in seconds."""
        return sum(self._ticks.values()) / _TICKS

    @property
    def memory_bytes(self) -> int:
        """The peak of each process that was seen, added up."""
        return sum(self._peaks.values())

    def look(self) -> None:
        """Look at all processes that run now."""
        parents: dict[int, int] = {}
        ticks: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
        own = {self._pid}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        for pid in own & ticks.keys():
            self._ticks[pid] = ticks[pid]
            self._peaks[pid] = max(self._peaks.get(pid, 0), _peak_bytes(pid))


def _peak_bytes(pid: int) -> int:
    """Return the most memory that a process had at any time; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def cost_of(*words: str) -> Cost:
    """Run a module of Python, and return what it costs. Raises: OSError."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        tree = Tree(process.pid)
        try:
            while process.poll() is None:
                tree.look()
                time.sleep(LOOK_S)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return Cost(
            process.returncode, tree.cpu_s, tree.memory_bytes, time.monotonic() - began, output.read()
        )


def main(argv: list[str] | None = None) -> int:
    """Make the telemetry, and run each command once. Returns: 0 if all of them succeed and the plan is cheap enough."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_fleet", description="The cost of a large fleet's telemetry."
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--interval-s", type=int, default=1800, help="between two rows of a copy")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="where the telemetry stays; used if it is there"
    )
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        kept: Path | None = arguments.keep
        root = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-fleet-")))
        return _measured(root, arguments)


def _measured(root: Path, arguments: argparse.Namespace) -> int:
    size = ("--nodes", str(arguments.nodes), "--queues", str(arguments.queues))
    span = ("--hours", str(arguments.hours), "--interval-s", str(arguments.interval_s))
    # The telemetry may be some hours old when it is planned from.
    late = ("--window", f"{arguments.hours + 24}h", "--max-age", "7d", "--min-coverage", "0.3")
    plan, health = str(root / "plan.json"), str(root / "health.json")
    steps: list[tuple[str, tuple[str, ...], tuple[int, ...]]] = [
        ("telemetry", ("tests.kit.synthetic.fleet", str(root), *size, *span, "--uneven", "0.5"), (0,)),
        ("rollup", ("spark_ops", "rollup", str(root)), (0,)),
        ("plan", ("spark_ops", "plan", str(root), *late, "--max-bytes", "all", "-o", plan), (0,)),
        (
            "health",
            ("spark_ops", "health", str(root), "--until", "last", "--window", "2h", "-o", health),
            (0, 1, 3),
        ),
    ]
    if (root / "v1").exists():
        steps = steps[1:]
    is_good = True
    print("| step | CPU-s | memory | seconds |\n|---|---:|---:|---:|", flush=True)
    for name, words, codes in steps:
        cost = cost_of(*words)
        print(
            f"| {name} | {cost.cpu_s:.0f} | {cost.memory_bytes / 1e9:.1f} GB | {cost.elapsed_s:.0f} |",
            flush=True,
        )
        if cost.code not in codes:
            print(f"{name} ended with {cost.code}: {cost.output.strip()[-1000:]}", file=sys.stderr)
            return 1
        if name == "plan":
            is_good = cost.cpu_s <= PLAN_CPU_S and cost.memory_bytes <= PLAN_BYTES
    if not is_good:
        print(f"a plan may take {PLAN_CPU_S:.0f} CPU-s and {PLAN_BYTES >> 30} GiB", file=sys.stderr)
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
