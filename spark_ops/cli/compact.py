"""`spark-ops compact` merges the small files of past hours, and removes files that are too old.

It is meant for a timer, once an hour. It starts Spark only if an hour is too large for the memory of one process.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from spark_ops.cli.collect import describe, seconds
from spark_ops.cli.errors import EX_ENGINE, OpsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of spark §5."""
    parser.add_argument("root", type=Path, metavar="ROOT", help="the output directory of `collect`")
    parser.add_argument(
        "--older-than",
        default="20m",
        metavar="TIME",
        help="leave out hours that ended less than TIME ago (default: 20m)",
    )
    parser.add_argument(
        "--grace",
        default="1h",
        metavar="TIME",
        help="how long to keep replaced files for jobs that read them (default: 1h)",
    )
    parser.add_argument(
        "--keep-raw",
        metavar="TIME",
        help="remove raw rows older than TIME (default: 3d, or 7d if there are few)",
    )
    parser.add_argument("--no-retention", action="store_true", help="remove no old files")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Merge files, then remove old ones. Raises: OpsError."""
    root: Path = arguments.root
    older_than, grace = seconds(arguments.older_than), seconds(arguments.grace)
    raw_days = None if arguments.keep_raw is None else max(1, round(seconds(arguments.keep_raw) / 86400))
    if find_spec("pyarrow") is None:
        raise OpsError("compact needs the Python package pyarrow: pip install 'fluffle[spark]'", EX_ENGINE)
    if not root.is_dir():
        raise OpsError(f"{root} is not a directory: give the --out directory of `collect`")
    from spark_ops.jobs.compact import CompactError, compact
    from spark_ops.jobs.engine import EngineError
    from spark_ops.jobs.session import session
    from spark_ops.telemetry.manifest import ManifestError
    from spark_ops.telemetry.retention import remove_old

    now = datetime.now(UTC)
    try:
        done = compact(
            root,
            now=now,
            older_than=timedelta(seconds=older_than),
            grace=timedelta(seconds=grace),
            spark=lambda rows: session("spark-ops compact", rows_hint=rows),
            progress=_Progress(),
        )
        removed = None if arguments.no_retention else remove_old(root, now, raw_days=raw_days)
    except (CompactError, ManifestError) as error:
        raise OpsError(str(error)) from error
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from error
    except OSError as error:
        raise OpsError(describe(error, root), EX_ENGINE) from error
    if arguments.json:
        print(json.dumps({**asdict(done), "retention": asdict(removed) if removed else None}))
        return 0
    print(
        f"{done.hours} hours: {done.files_before} files became {done.files_after}, {done.rows} rows; "
        f"{done.removed} replaced files removed"
    )
    for name in done.passed:
        print(f"left out, because it cannot be read, is damaged or has a newer version: {name}")
    if removed is not None and (removed.hours or removed.files):
        print(f"removed because of their age: {removed.hours} hours, {removed.files} files of damaged lines")
    return 0


class _Progress:
    """Prints the progress: on a terminal at once, elsewhere after 5 seconds."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty() or time.monotonic() - self.begun > 5:
            print(text, file=sys.stderr, flush=True)
