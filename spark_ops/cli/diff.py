"""`spark-ops diff` prints the differences of two plans, queue by queue. The exit code is 1 if there are any."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import EX_FINDINGS
from spark_ops.cli.plan_text import plain
from spark_ops.planning.diff import Change, Difference, difference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("first", type=Path, metavar="PLAN", help="the file of a plan")
    parser.add_argument("second", type=Path, metavar="OTHER", help="the file of the other plan")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the difference. Raises: OpsError."""
    found = difference(common.read_plan(arguments.first), common.read_plan(arguments.second))
    print(json.dumps(asdict(found)) if arguments.json else "\n".join(lines(found)))
    return 0 if found.is_none else EX_FINDINGS


def lines(found: Difference) -> Iterator[str]:
    """Yield the difference as lines: `-` is only in the first plan, `+` only in the second, `~` different."""
    for change in found.only_first:
        yield f"- {_about(change)}: {plain(change.text)}"
    for change in found.only_second:
        yield f"+ {_about(change)}: {plain(change.text)}"
    for one, other in found.changed:
        yield f"~ {_about(one)}: {plain(one.text)} | {plain(other.text)}"
    yield f"{found.same} queues alike, {len(found.changed)} different, only in one {_only(found)}"


def _only(found: Difference) -> str:
    return f"{len(found.only_first)} and {len(found.only_second)}"


def _about(change: Change) -> str:
    return plain(f"{change.queue} ({change.vhost})")
