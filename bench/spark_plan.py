"""The cost of a plan without Spark for 1,000 nodes with a million queues, and the duration of `show`.

Everything is a command that is run from outside. The CPU is that of the whole process: start, a fleet that is made up,
the planner, the file. That the plan is one is seen by its steps: nobody gets a fast figure for an empty one.
Requirement: at most 10 CPU-s for the plan, less than 0.5 s for `show`.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.client import BenchError
from bench.report import Below, Row
from bench.servers import REPOSITORY, Server
from bench.workloads import FULL, Outcome, Scale, Workload

FLEET, QUICK_FLEET = "1000x1000000", "100x100000"
MOVES = 50
SHOWS = 5
COMMAND_S = 600.0


def _run(*arguments: str) -> tuple[float, str]:
    """Return the CPU seconds of a command, and its output. Raises: BenchError."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "spark_ops", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(arguments)} takes more than {COMMAND_S:.0f} s") from error
    if ran.returncode:
        raise BenchError(f"{' '.join(arguments)}: {ran.stderr.strip()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, ran.stdout


def _planned(fleet: str, moves: str, path: Path) -> tuple[float, int]:
    """Return the CPU seconds of a plan, and its number of moves."""
    cpu_s, _ = _run("plan", "--synthetic", fleet, "--max-moves", moves, "--max-bytes", "all", "-o", str(path))
    summary = json.loads(path.read_text())["summary"]
    return cpu_s, summary["promotions"] + summary["copies"]


def plan_and_show(_server: Server, scale: Scale) -> Outcome:
    """Measure one round. `show` counts with its fastest run, since the machine may be busy with other work."""
    started_at = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as name:
        path = Path(name, "plan.json")
        cpu_s, moves = _planned(FLEET if scale is FULL else QUICK_FLEET, str(MOVES), path)
        if moves < MOVES:
            raise BenchError(f"the plan has {moves} moves and not {MOVES}")
        shown = []
        for _ in range(SHOWS):
            show_at = time.perf_counter()
            _, text = _run("show", str(path))
            shown.append(time.perf_counter() - show_at)
            if "promote" not in text:
                raise BenchError("show shows no steps")
    metrics = {"plan": cpu_s, "show": min(shown)}
    return Outcome(metrics, moves, time.perf_counter() - started_at, 0.0, cpu_s)


PLAN_WORKLOADS = (
    Workload(
        "spark-plan",
        plan_and_show,
        [Row("plan", "s", Below(10.0)), Row("show", "s", Below(0.5))],
        alone=True,
    ),
)
