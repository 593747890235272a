"""`spark-ops rollup` summarises hours of telemetry, so that later jobs read less.

spark-ops rollup ROOT                          rolls up hours without a rollup, or with rows newer than it
spark-ops rollup ROOT --figures                prints p95, slope and mean of the ready messages of each replica
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ops.cli.errors import EX_ENGINE, EX_UNKNOWN, OpsError

if TYPE_CHECKING:
    from spark_ops.jobs.files import Found
    from spark_ops.jobs.rollup_fields import RollupKind
    from spark_ops.jobs.rollup_store import Rolled

KINDS: "tuple[RollupKind, ...]" = ("queue", "node", "link")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("root", type=Path, metavar="ROOT", help="the output directory of `collect`")
    parser.add_argument(
        "--since", type=moment, metavar="TIME", help="hours from this time on, such as 2026-11-22T13:00Z"
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="hours before this time; an hour that contains it is read whole",
    )
    parser.add_argument("--again", action="store_true", help="also roll up hours that have a rollup")
    parser.add_argument(
        "--figures",
        choices=("rollup", "raw"),
        nargs="?",
        const="rollup",
        help="write nothing; print figures of the ready messages of replicas, from rollups or from raw rows",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="compute the figures N times, and print the CPU time of each on stderr",
    )
    parser.add_argument("--master", help="the URL of Spark's master (default: all cores of this machine)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def moment(text: str) -> float:
    """Return a time of the command line in s since 1970; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write 2026-11-22T13:00Z") from error
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def run(arguments: argparse.Namespace) -> int:
    """Roll up, or print figures. Raises: OpsError."""
    from spark_ops.jobs.engine import EngineError

    try:
        return _figures(arguments) if arguments.figures else _rollup(arguments)
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from error
    except OSError as error:
        raise OpsError(f"{error.filename}: {error.strerror}" if error.strerror else str(error)) from error


def _found(arguments: argparse.Namespace) -> "dict[RollupKind, Found]":
    """Return the files of each kind; print which cannot be read. Raises: OpsError if there are none, EngineError."""
    from spark_ops.jobs.engine import packages

    packages("pyarrow")
    from spark_ops.jobs.files import find

    root = arguments.root.absolute()
    found = {kind: find(root, kind, arguments.since, arguments.until) for kind in KINDS}
    for name in sorted({name for each in found.values() for name in each.torn}):
        print(f"cannot be read, left out: {name}", file=sys.stderr)
    if not any(each.hours for each in found.values()):
        raise OpsError(
            f"{root} has no telemetry of that time: is it the output directory of `collect`?", EX_UNKNOWN
        )
    return found


def _rollup(arguments: argparse.Namespace) -> int:
    from spark_ops.jobs.figures import cpu_s
    from spark_ops.jobs.progress import progress
    from spark_ops.jobs.rollup_store import stale, write
    from spark_ops.jobs.session import session
    from spark_ops.telemetry import damage

    root = arguments.root.absolute()
    found = _found(arguments)
    todo = {
        kind: list(each.hours) if arguments.again else stale(root, kind, each) for kind, each in found.items()
    }
    rows = sum(hour.rows for hours in todo.values() for hour in hours)
    done: list[Rolled] = []
    used_s = 0.0
    damaged = damage.recorded(root)
    started_at = time.monotonic()
    if rows:
        with session("spark-ops rollup", rows_hint=rows, master=arguments.master) as spark:
            for kind, hours in todo.items():
                with progress(spark, f"rollup of {kind}, {len(hours)} hours"):
                    done += write(spark, root, kind, hours)
            used_s = cpu_s()
    for name in sorted(damage.recorded(root).keys() - damaged.keys()):
        print(f"{name} has damaged pages and is left out", file=sys.stderr)
    _tell(done, {kind: len(each.hours) for kind, each in found.items()}, used_s, arguments.json)
    if time.monotonic() - started_at > 5 and not arguments.json:
        print(f"{rows} rows in {time.monotonic() - started_at:.0f} s", file=sys.stderr)
    return 0


def _tell(done: "list[Rolled]", hours: "dict[RollupKind, int]", used_s: float, as_json: bool) -> None:
    """Print what was rolled up. used_s: CPU time, the JVM's included."""
    if as_json:
        rolled = [
            {"kind": each.kind, "hour": _hour(each.hour_s), "rows": each.rows, "raw_rows": each.raw_rows}
            for each in done
        ]
        document = {"format": "spark-ops-rollup-run/1", "rolled": rolled, "hours": hours, "cpu_s": used_s}
        print(json.dumps(document, indent=1))
        return
    print(f"{'KIND':8}{'HOUR':20}{'ROWS':>10}{'OF RAW':>12}")
    for each in done:
        print(f"{each.kind:8}{_hour(each.hour_s):20}{each.rows:>10}{each.raw_rows:>12}")
    for kind, count in hours.items():
        same = count - sum(each.kind == kind for each in done)
        if same:
            print(f"{kind:8}{same} hours already had a rollup")


def _hour(hour_s: int) -> str:
    return datetime.fromtimestamp(hour_s, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _figures(arguments: argparse.Namespace) -> int:
    from spark_ops.jobs.progress import progress
    from spark_ops.jobs.rollup_store import stored
    from spark_ops.jobs.session import session

    root = arguments.root.absolute()
    found = _found(arguments)["queue"]
    known = [hour.hour_s for hour in found.hours] or sorted(stored(root, "queue", None, None))
    if not known:
        raise OpsError(f"{root} has no telemetry of queues of that time", EX_UNKNOWN)
    since = float(known[0]) if arguments.since is None else arguments.since
    hour = timedelta(hours=1).total_seconds()
    until = known[-1] + hour if arguments.until is None else arguments.until
    rows = found.rows if arguments.figures == "raw" else 0
    with (
        session("spark-ops figures", rows_hint=rows, master=arguments.master) as spark,
        progress(spark, "figures"),
    ):
        answer = _asked(spark, root, arguments, since, until)
    if arguments.json:
        print(
            json.dumps(
                {"format": "spark-ops-figures/1", "of": arguments.figures, "replicas": answer}, indent=1
            )
        )
        return 0
    print(f"{'P95':>12} {'PER SECOND':>12} {'R2':>5} {'MEAN':>12}  ROLE    NODE, VHOST, QUEUE")
    for row in answer:
        figures = f"{_number(row['p95']):>12} {_number(row['slope_per_s']):>12} {_number(row['r2']):>5}"
        names = " ".join(ascii(row[name])[1:-1] for name in ("node", "vhost", "queue"))
        print(f"{figures} {_number(row['mean']):>12}  {row['role'] or '-':7} {names}")
    return 0


def _asked(
    spark: Any, root: Path, arguments: argparse.Namespace, since: float, until: float
) -> list[dict[str, Any]]:
    """Return the figures, most messages first. Each repetition makes a new frame: a collected one reuses files."""
    from spark_ops.jobs.figures import cpu_s, from_raw, from_rollups

    made = from_raw if arguments.figures == "raw" else from_rollups
    answer: list[dict[str, Any]] = []
    for _ in range(max(1, arguments.repeat)):
        before = cpu_s() if arguments.repeat > 1 else 0.0
        answer = made(spark, root, since=since, until=until).toArrow().to_pylist()
        if arguments.repeat > 1:
            print(f"cpu_s {cpu_s() - before:.2f}", file=sys.stderr, flush=True)
    return sorted(
        answer, key=lambda row: (-(row["p95"] or 0.0), *(str(row[name]) for name in ("queue", "node")))
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
