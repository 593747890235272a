"""The CPU that rollups save: p95 and slope of each replica's messages, for a day of 200 queues with three copies.

Everything is a command that is run from outside: made-up telemetry, its rollup, the question. The question is asked
several times in one process, and the CPU of each time is what the command tells of itself and its JVM: a start of
Spark costs the same for both. Medians of all but the first, which compiles. Requirement: at most 1/5.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.client import BenchError
from bench.report import Below, Row
from bench.servers import REPOSITORY, Server
from bench.workloads import FULL, Outcome, Scale, Workload

QUEUES, QUICK_QUEUES = 200, 20
HOURS = 24
REPEAT = 4
COMMAND_S = 1800.0


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            env=environment,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(arguments)} takes more than {COMMAND_S:.0f} s") from error
    if ran.returncode:
        raise BenchError(f"{' '.join(arguments)}: {ran.stderr.strip()[-500:]}")
    return ran


def _figures(root: Path, source: str) -> tuple[float, dict[tuple[str, ...], dict[str, float | None]]]:
    """Return the CPU seconds of the query, and its result by replica."""
    question = ("spark_ops", "rollup", str(root), "--figures", source, "--repeat", str(REPEAT), "--json")
    ran = _run(*question)
    told = [float(line.split()[1]) for line in ran.stderr.splitlines() if line.startswith("cpu_s ")]
    if len(told) != REPEAT:
        raise BenchError(f"{source}: {REPEAT} times were asked for, {len(told)} were told")
    replicas = json.loads(ran.stdout)["replicas"]
    names = ("cluster", "vhost", "queue", "node", "role")
    return statistics.median(told[1:]), {tuple(row[name] for name in names): row for row in replicas}


def _same(
    rolled: dict[tuple[str, ...], dict[str, float | None]],
    raw: dict[tuple[str, ...], dict[str, float | None]],
) -> None:
    """Compare both results. Raises: BenchError if they differ, since a query that does no work would be fast."""
    if rolled.keys() != raw.keys() or not raw:
        raise BenchError(f"{len(rolled)} replicas of rollups, {len(raw)} of raw rows")
    for name, exact in raw.items():
        slope, near = exact["slope_per_s"], rolled[name]["slope_per_s"]
        if (slope is None) != (near is None) or abs((slope or 0) - (near or 0)) > 1e-9 + 1e-6 * abs(
            slope or 0
        ):
            raise BenchError(f"{name}: slope {near} instead of {slope}")
        high, about = exact["p95"], rolled[name]["p95"]
        if (high is None) != (about is None) or not (high or 0) / 2 - 1 <= (about or 0) <= 2 * (
            high or 0
        ) + 1:
            raise BenchError(f"{name}: p95 {about} instead of {high}")


def rollups_and_raw(_server: Server, scale: Scale) -> Outcome:
    """Measure the CPU of both queries and of the rollup.   share: that with rollups, of that with raw rows."""
    started_at = time.perf_counter()
    queues = QUEUES if scale is FULL else QUICK_QUEUES
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as name:
        root = Path(name)
        _run("tests.kit.synthetic.files", name, "--queues", str(queues), "--hours", str(HOURS))
        made_s = json.loads(_run("spark_ops", "rollup", name, "--json").stdout)["cpu_s"]
        rolled_s, rolled = _figures(root, "rollup")
        raw_s, raw = _figures(root, "raw")
    _same(rolled, raw)
    metrics = {"share": rolled_s / raw_s, "rollup": rolled_s, "raw": raw_s, "making": made_s}
    elapsed_s = time.perf_counter() - started_at
    return Outcome(metrics, queues * HOURS * 360 * 3, elapsed_s, rolled_s + raw_s + made_s, 0.0)


SPARK_WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "spark-rollup",
        rollups_and_raw,
        [Row("share", "×", Below(0.2)), Row("rollup", "s"), Row("raw", "s"), Row("making", "s")],
        alone=True,
        rounds=1,
    ),
)
