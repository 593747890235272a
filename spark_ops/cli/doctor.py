"""`spark-ops doctor` reports missing requirements of each command on this machine. It starts neither Spark nor Java."""

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal

from spark_ops.cli.errors import EX_ENGINE

State = Literal["ok", "warn", "missing"]

PYTHON_MIN: Final = (3, 11)
PACKAGES: Final[dict[str, tuple[tuple[int, int], str, State]]] = {
    "pyspark": ((4, 0), "health, forecast, plan, rollup, report", "missing"),
    "pyarrow": ((18, 0), "collect, compact, and all that needs pyspark", "missing"),
    "numpy": ((1, 26), "plan", "missing"),
    "scipy": ((1, 11), "plan --optimize milp", "warn"),
}
"""Python packages: the oldest version that works, the commands that need it, and the state if it is missing."""
ROOM_MIN_BYTES: Final = 1_000_000_000
MEMORY_MIN_BYTES: Final = 3_000_000_000
CLOCK_MIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A clock that tells an earlier time was never set."""
AHEAD_S: Final = 60.0
"""How far the newest row may be ahead of this machine's clock before the check warns."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    what: str
    state: State
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "root", nargs="?", type=Path, metavar="ROOT", help="the output directory of `collect`"
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print all checks. Returns: 4 if something is missing."""
    found = list(checks(arguments.root))
    if arguments.json:
        print(json.dumps([asdict(check) for check in found]))
    else:
        width = max(len(check.what) for check in found)
        for check in found:
            print(f"{check.state:8}{check.what:{width}}  {check.text}")
    return EX_ENGINE if any(check.state == "missing" for check in found) else 0


def checks(root: Path | None) -> Iterator[Check]:
    """Yield the results of all checks."""
    yield _python()
    yield _java()
    for name in PACKAGES:
        yield package(name, version)
    yield _memory()
    yield room("temporary files", Path(tempfile.gettempdir()))
    yield _loopback()
    yield clock(datetime.fromtimestamp(time.time(), UTC))
    if root is not None:
        yield from _root(root)


def _python() -> Check:
    told = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= PYTHON_MIN:
        return Check("Python", "ok", told)
    return Check("Python", "missing", f"{told}; 3.11 or newer is needed")


def _java() -> Check:
    from spark_ops.jobs.engine import EngineError, java

    try:
        found = java()
    except EngineError as error:
        return Check("Java", "missing", str(error))
    return Check("Java", "ok", f"{found.version or 'of an unknown version'} at {found.path}")


def package(name: str, version_of: Callable[[str], str]) -> Check:
    """Check one of `PACKAGES`.   version_of: raises PackageNotFoundError if the package is missing."""
    oldest, needed_by, state = PACKAGES[name]
    try:
        told = version_of(name)
    except PackageNotFoundError:
        return Check(name, state, f"needed by {needed_by}: pip install 'fluffle[spark]'")
    numbers = tuple(int(part) for part in told.split(".")[:2] if part.isdecimal())
    if numbers < oldest:
        wanted = ".".join(str(part) for part in oldest)
        return Check(name, state, f"{told} is too old, {wanted} or newer is needed by {needed_by}")
    return Check(name, "ok", told)


def _memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{total / 1e9:.1f} GB"
    if total < MEMORY_MIN_BYTES:
        return Check("memory", "warn", f"{text}: Spark needs 3 GB")
    return Check("memory", "ok", text)


def room(what: str, directory: Path) -> Check:
    """Check that a directory can be written to and has free space."""
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return Check(what, "missing", f"{directory}: {error.strerror}")
    text = f"{free / 1e9:.1f} GB free in {directory}"
    if not os.access(directory, os.W_OK):
        return Check(what, "missing", f"{directory} cannot be written to")
    return Check(what, "ok" if free >= ROOM_MIN_BYTES else "warn", text)


def _loopback() -> Check:
    """Check that a port of 127.0.0.1 can be reached: the parts of Spark talk over such ports."""
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1)
            with socket.create_connection(listening.getsockname(), timeout=5):
                return Check("loopback", "ok", "a port of 127.0.0.1 can be listened on and reached")
    except OSError as error:
        return Check("loopback", "missing", f"127.0.0.1: {error.strerror or error}: Spark cannot start")


def clock(now: datetime) -> Check:
    """Check that the clock was set."""
    text = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    if now < CLOCK_MIN:
        return Check("clock", "missing", f"{text}: set it, because telemetry is stored by the hour")
    return Check("clock", "ok", text)


def _root(root: Path) -> Iterator[Check]:
    """Check the telemetry below a root: whether it can be written, its hours, and the age of the newest row."""
    if not root.is_dir():
        yield Check("telemetry", "missing", f"{root} is not a directory")
        return
    yield room("telemetry", root)
    from spark_ops.telemetry.layout import existing_hours
    from spark_ops.telemetry.quality import read_facts
    from spark_ops.telemetry.schema import KINDS

    for kind in KINDS:
        hours = existing_hours(root, kind)
        if hours:
            text = f"{len(hours)} hours, {hours[0]:%Y-%m-%dT%H}Z to {hours[-1]:%Y-%m-%dT%H}Z"
            yield Check(f"rows: {kind}", "ok", text)
        elif kind in ("node", "queue", "topology"):
            yield Check(f"rows: {kind}", "warn", "none: is `collect` running?")
    newest = max((last for facts in read_facts(root) for _, last in facts.boots.values()), default=None)
    if newest is not None:
        behind = time.time() - newest / 1000
        state: State = "warn" if behind < -AHEAD_S else "ok"
        said = f"{-behind:.0f} s ahead of this machine's clock" if behind < 0 else f"{behind:.0f} s old"
        yield Check("newest row", state, said)
