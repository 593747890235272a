"""`spark-ops report` writes a report about health, a plan or a plan's result, as a page, JSON, CSV and Parquet.

Without ROOT it needs no Spark: it reads the documents that `health` and `plan` wrote.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from spark_ops.applying.journal import Place
from spark_ops.cli import carrying_out as common
from spark_ops.cli.collect import describe, seconds
from spark_ops.cli.errors import EX_ENGINE, EX_UNKNOWN, OpsError
from spark_ops.cli.judging import read_settings, window_of
from spark_ops.jobs import outcomes
from spark_ops.planning import plan as plans
from spark_ops.planning.outcomes import outcome_of
from spark_ops.planning.strict import Malformed, loaded
from spark_ops.planning.times import seconds as since_1970
from spark_ops.reports import after as after_plan
from spark_ops.reports import checking
from spark_ops.reports.document import build
from spark_ops.reports.figures import iso
from spark_ops.reports.page import page
from spark_ops.reports.tables import csv_of, tables_of, write_parquet

HEALTH_FORMAT: Final = "spark-ops-health/1"
BYTES_MAX: Final = 1 << 28
"""The largest health document in bytes; a larger one is refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "root",
        type=Path,
        nargs="?",
        metavar="ROOT",
        help="the output directory of `collect`, to judge it now (needs Spark)",
    )
    parser.add_argument(
        "--health", type=Path, metavar="FILE", help="the output of `health --json`, instead of ROOT"
    )
    parser.add_argument(
        "--plan", type=Path, metavar="FILE", help="a plan to show, or to compare with its result"
    )
    parser.add_argument(
        "--after",
        nargs="?",
        const=True,
        metavar="FILE",
        help="compare what the plan predicted with what ROOT has measured since, and save that as PLAN.after.json; "
        "with FILE, show a saved comparison",
    )
    parser.add_argument("--window", default="6h", metavar="TIME", help="how far to look back (default: 6h)")
    parser.add_argument(
        "--until",
        default="now",
        metavar="TIME",
        help="the end of the window: now, last (the newest telemetry), or 2026-11-21T09:00:00Z (default: now)",
    )
    parser.add_argument("--cluster", metavar="NAME", help="the cluster, if ROOT has telemetry of several")
    parser.add_argument(
        "--thresholds", type=Path, metavar="FILE", help="TOML file of thresholds that replace the defaults"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="with --after: the begin of the measurement: 2026-11-21T09:00:00Z, or 15m for the last 15 min",
    )
    common.add_place_argument(parser)
    parser.add_argument(
        "-o",
        "--html",
        type=Path,
        metavar="FILE",
        help="write the page to FILE (default, without other outputs: report.html)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of the report as JSON")
    parser.add_argument("--csv", type=Path, metavar="DIR", help="write the tables as CSV files")
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="write the tables as Parquet files")


def run(arguments: argparse.Namespace) -> int:
    """Write the files that the options name; the page if they name none. Raises: OpsError."""
    if arguments.after and not arguments.plan:
        raise OpsError("--after compares with a plan: give --plan FILE")
    if not (arguments.root or arguments.health or arguments.plan):
        raise OpsError("give ROOT, --health FILE or --plan FILE")
    if arguments.after is True and not arguments.root:
        raise OpsError("--after needs measurements: give ROOT, or a saved comparison: --after FILE")
    now = time.time()
    created = str(iso(now))
    plan = None if arguments.plan is None else read_plan(arguments.plan)
    health = (
        None if arguments.health is None else read_document(arguments.health, HEALTH_FORMAT, checking.HEALTH)
    )
    after = None
    if isinstance(arguments.after, str):
        after = read_document(Path(arguments.after), after_plan.FORMAT, {"cluster": str})
    load_model = None
    if arguments.root is not None:
        health, after, load_model = _from_root(arguments, plan, health, after, now)
    try:
        document = build(health, plan, after, created=created, load_model=load_model)
    except ValueError as error:
        raise OpsError(str(error)) from error
    for path in write_all(document, arguments):
        print(path)
    if arguments.root is not None and health is not None and not health["coverage"]["seen"]:
        print("there is no telemetry in this window", file=sys.stderr)
        return EX_UNKNOWN
    return 0


def read_plan(path: Path) -> dict[str, Any]:
    """Return the document of a plan whose hash is right. Raises: OpsError."""
    data = _read(path, plans.BYTES_MAX)
    try:
        plans.parse(data)
        document: dict[str, Any] = loaded(data)
        checking.check(document, checking.PLAN)
    except (plans.PlanError, ValueError) as error:
        raise OpsError(f"{path}: {error}") from error
    return document


def read_document(path: Path, format_: str, shape: checking.Shape) -> dict[str, Any]:
    """Return a document of this format. Raises: OpsError."""
    try:
        document = loaded(_read(path, BYTES_MAX))
        if not isinstance(document, dict) or document.get("format") != format_:
            raise Malformed(f"its format is not {format_}")
        checking.check(document, shape)
    except ValueError as error:
        raise OpsError(f"{path}: {error}") from error
    return document


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        if path.stat().st_size > bytes_max:
            raise OpsError(f"{path} is larger than {bytes_max >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror}") from error


def _from_root(
    arguments: argparse.Namespace,
    plan: dict[str, Any] | None,
    health: dict[str, Any] | None,
    after: dict[str, Any] | None,
    now: float,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """Return the health document, the plan's result and the check of loads, computed in one Spark session.

    Raises: OpsError.
    """
    from spark_ops.health.document import health_document
    from spark_ops.jobs.engine import EngineError
    from spark_ops.jobs.health import choose_window, files_of, judge_empty, judge_window
    from spark_ops.jobs.load_check import load_check
    from spark_ops.jobs.loads import cluster_rows
    from spark_ops.jobs.session import is_submitted, session
    from spark_ops.jobs.small_health import judge_small

    window_s, until = window_of(arguments)
    settings = read_settings(arguments.thresholds)
    root: Path = arguments.root.absolute()
    cluster: str | None = arguments.cluster or (None if plan is None else plan["cluster"])
    try:
        window = choose_window(root, window_s=window_s, now_s=now, until=until, cluster=cluster)
        end = window.end * 60.0
        done = plan if arguments.after is True else None
        since = end if done is None else _since(arguments, done, end)  # before Spark's slow start
        files = files_of(root, window)
        if not files.rows and health is None and done is None:
            return health_document(judge_empty(window, settings, files), now), after, None
        with session("spark-ops report", rows_hint=files.rows) as spark:
            if health is None:
                small = None if is_submitted() else judge_small(root, window, settings, files)
                judged = small or judge_window(spark, root, window, settings, files)
                health = health_document(judged, now)
            model = load_check(spark, root, window, files)
            if done is not None:
                rows = cluster_rows(spark, root, since=since, until=end, now=now, cluster=cluster)
                after = after_plan.compare(done, rows, created=str(iso(now)))
                print(write(arguments.plan.with_suffix(".after.json"), _json(after)))
                if (outcome := outcome_of(after)) is not None:
                    print(outcomes.keep(root, rows.cluster, outcome))
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from error
    except ValueError as error:  # nothing to judge, no topology, another cluster: each has a text of one line
        raise OpsError(f"{root}: {error}", EX_UNKNOWN) from error
    except OSError as error:
        raise OpsError(describe(error, root), EX_ENGINE) from error
    return health, after, None if model is None else model.document


def _since(arguments: argparse.Namespace, plan: dict[str, Any], end: float) -> float:
    """Return the begin of the measurement: as given, else when the plan was carried out, else when it was made.

    Raises: OpsError if that is not before `end`.
    """
    begin = since_1970(str(plan["created"]))
    past = common.past(Place(common.directory(arguments), str(plan["plan_id"])))
    if past.changed_at is not None:
        begin = past.changed_at
    if arguments.since is not None:
        try:
            begin = since_1970(arguments.since)
        except ValueError:
            begin = max(begin, end - seconds(arguments.since))
    if begin >= end:
        raise OpsError(f"there is no telemetry after {iso(begin)} yet: wait some minutes", EX_UNKNOWN)
    return begin


def write_all(document: dict[str, Any], arguments: argparse.Namespace) -> list[Path]:
    """Write all files that the options name. Returns: their paths. Raises: OpsError."""
    html: Path | None = arguments.html
    if not (html or arguments.json or arguments.csv or arguments.parquet):
        html = Path("report.html")
    written: list[Path] = []
    tables = tables_of(document)
    try:
        if html:
            written.append(write(html, page(document).encode()))
        if arguments.json:
            written.append(write(arguments.json, _json(document)))
        if arguments.csv:
            arguments.csv.mkdir(parents=True, exist_ok=True)
            for table in tables:
                written.append(write(arguments.csv / f"{table.name}.csv", csv_of(table).encode("utf-8-sig")))
        if arguments.parquet:
            arguments.parquet.mkdir(parents=True, exist_ok=True)
            for table in tables:
                path = arguments.parquet / f"{table.name}.parquet"
                written.append(_replaced(path, lambda new, table=table: write_parquet(table, new)))  # type: ignore[misc]
    except ImportError as error:
        raise OpsError("Parquet needs pyarrow: pip install 'fluffle[spark]'", EX_ENGINE) from error
    except OSError as error:
        raise OpsError(f"{error.filename or 'the report'}: {error.strerror or error}", EX_ENGINE) from error
    return written


def _json(document: dict[str, Any]) -> bytes:
    """Return JSON with sorted keys. A lone surrogate in a name becomes an escape, which JSON readers decode again."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    return (text + "\n").encode("utf-8", "backslashreplace")


def write(path: Path, data: bytes) -> Path:
    """Write a file whole or not at all. Returns: the path. Raises: OSError."""
    return _replaced(path, lambda new: _filled(new, data))


def _filled(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replaced(path: Path, make: Callable[[Path], object]) -> Path:
    """Let `make` write a new file beside the path, then replace the path with it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    new = Path(name)
    try:
        make(new)
        new.chmod(0o644)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return path
