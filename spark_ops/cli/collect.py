"""`spark-ops collect` runs beside one or several nodes and makes Parquet files of telemetry segments. No Spark.

spark-ops collect /var/lib/fluffle/telemetry --out /srv/telemetry             runs until it is stopped
spark-ops collect n1/telemetry n2/telemetry --out recorded --once --keep      collects the existing files
"""

import argparse
import errno
import json
import signal
import sys
import threading
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_ops.cli.errors import EX_ENGINE, OpsError

if TYPE_CHECKING:
    from spark_ops.telemetry.collector import Taken
    from spark_ops.telemetry.rounds import Rounds

FLUSH_MIN_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of spark §5."""
    parser.add_argument(
        "directories",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="the telemetry.directory of one or more nodes",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="ROOT", help="the directory for the Parquet files"
    )
    parser.add_argument(
        "--flush", default="60s", metavar="TIME", help="how often to collect closed segments (default: 60s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the segments instead of removing them")
    parser.add_argument("--once", action="store_true", help="collect the existing files, and exit")
    parser.add_argument("--json", action="store_true", help="print a line of JSON about each round")


def run(arguments: argparse.Namespace) -> int:
    """Take segments until a signal comes, or once. Raises: OpsError."""
    flush_s = max(FLUSH_MIN_S, seconds(arguments.flush))
    if find_spec("pyarrow") is None:
        raise OpsError("collect needs the Python package pyarrow: pip install 'fluffle[spark]'", EX_ENGINE)
    for directory in arguments.directories:
        if arguments.once and not directory.is_dir():
            raise OpsError(f"{directory} is not a directory: give the node's telemetry.directory")
    if arguments.once:
        _tell(_turn(arguments), arguments, is_always=True)
        return 0
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    _follow(arguments, flush_s, stop)
    return 0


def _follow(arguments: argparse.Namespace, flush_s: float, stop: threading.Event) -> None:
    """Take segments again and again. A failure is printed once and retried: segments stay where they are."""
    from spark_ops.telemetry.rounds import Rounds

    rounds = Rounds(arguments.out, arguments.directories, flush_s, time.time())
    failed = ""
    while not stop.is_set():
        try:
            taken = _turn(arguments, rounds)
        except OpsError as error:
            if str(error) != failed:
                print(f"spark-ops collect: {error}; trying again", file=sys.stderr, flush=True)
            failed = str(error)
        else:
            if failed:
                print("spark-ops collect: continues", file=sys.stderr, flush=True)
            failed = ""
            _tell(taken, arguments, is_always=False)
        stop.wait(flush_s)


def _turn(arguments: argparse.Namespace, rounds: "Rounds | None" = None) -> "Taken":
    """Take the segments that are there now.   rounds: where it is recorded. Raises: OpsError."""
    from spark_ops.telemetry.checkpoint import CheckpointError
    from spark_ops.telemetry.collector import take_all

    try:
        there = [directory for directory in arguments.directories if directory.is_dir()]
        missing = [str(directory) for directory in arguments.directories if not directory.is_dir()]
        begun = time.time()

        def progress() -> None:
            if rounds is not None:
                rounds.renew(time.time())

        progress()
        taken = take_all(there, arguments.out, keep=arguments.keep, now=begun, progress=progress)
        if rounds is not None and not missing:
            rounds.ended(begun, time.time())
    except CheckpointError as error:
        raise OpsError(str(error)) from error
    except OSError as error:
        raise OpsError(describe(error, arguments.out), EX_ENGINE) from error
    if missing:
        raise OpsError(f"{', '.join(missing)}: no such directory")
    return taken


def describe(error: OSError, root: Path) -> str:
    """Return an error as one line for the operator."""
    where = error.filename or root
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {where}: free some; all removed segments are in the Parquet files"
    return f"{where}: {error.strerror or error}"


def seconds(text: str) -> float:
    """Return a time such as 90, 60s, 5m, 2h or 3d in seconds. Raises: OpsError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise OpsError(f"{text!r} is not a time: write 60s, 5m, 2h or 3d")
    return value


def _tell(taken: "Taken", arguments: argparse.Namespace, *, is_always: bool) -> None:
    """Print the counts if anything was taken, or always if `is_always`."""
    if not (taken.segments or is_always):
        return
    if arguments.json:
        print(json.dumps(asdict(taken)), flush=True)
        return
    line = f"{taken.segments} segments, {taken.rows} rows in {taken.files} files"
    remarks = {
        "torn lines": taken.torn,
        "damaged rows": taken.bad,
        "rows of an unknown version": taken.unknown_versions,
        "duplicates dropped": taken.duplicates,
        "late rows": taken.late,
    }
    found = [f"{count} {what}" for what, count in remarks.items() if count]
    if is_always or found:
        print("; ".join([line, *found]), flush=True)
