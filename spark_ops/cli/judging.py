"""Shared parts of `health` and `forecast`: the window of telemetry, the thresholds, and findings as text."""

import argparse
import tomllib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from spark_ops.cli.collect import seconds
from spark_ops.cli.errors import EX_FINDINGS, EX_UNKNOWN, OpsError
from spark_ops.health.settings import Settings, from_tables

FINDINGS_SHOWN: Final = 5
"""The most findings of each kind that are printed, unless all are asked for."""
MARKS: Final = {"crit": "CRITICAL", "warn": "WARNING ", "info": "info    "}


def add_window(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose the window and the thresholds."""
    parser.add_argument("root", type=Path, metavar="ROOT", help="the output directory of `collect`")
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


def window_of(arguments: argparse.Namespace) -> tuple[float, float | str]:
    """Return the length of the window in s, and its end as for `until_of`. Raises: OpsError."""
    if not arguments.root.is_dir():
        raise OpsError(f"{arguments.root} is not a directory: give the --out directory of `collect`")
    window_s = seconds(arguments.window)
    if window_s < 60:
        raise OpsError("--window: at least 1m")
    return window_s, until_of(arguments.until)


def until_of(text: str) -> float | str:
    """Return `now`, `last` or a time in s since 1970. Raises: OpsError."""
    if text in ("now", "last"):
        return text
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise OpsError(f"{text!r} is not a time: write now, last or 2026-11-21T09:00:00Z") from error
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).timestamp()


def read_settings(path: Path | None) -> Settings:
    """Return the thresholds of a file. Raises: OpsError, with the file and the line or the key that is wrong."""
    if path is None:
        return Settings()
    try:
        with path.open("rb") as file:
            return from_tables(tomllib.load(file))
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:  # errors of TOML, of UTF-8 and of our checks
        raise OpsError(f"{path}: {error}") from error


def exit_code(document: dict[str, Any], fail_on: str) -> int:
    """Return 1 for findings of the severity `fail_on` or worse, 3 if too little is known, else 0."""
    if document["verdict"] == "unknown":
        return EX_UNKNOWN
    bad = {"crit"} if fail_on == "crit" else {"warn", "crit"}
    return EX_FINDINGS if any(finding["severity"] in bad for finding in document["findings"]) else 0


def plain(text: str) -> str:
    """Return text safe for a terminal: names of queues come from strangers and may have control characters."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def lines(document: dict[str, Any], *, is_all: bool = False) -> Iterator[str]:
    """Yield a health document as text: the verdict, the findings, the nodes, and the telemetry that is missing."""
    coverage = document["coverage"]
    score = "" if document["score"] is None else f", score {document['score']} of 100"
    yield plain(f"{document['cluster'] or 'no cluster'}: {document['verdict']}{score}")
    begin, end = document["window"]
    yield f"{begin} to {end}, {coverage['share']:.1%} of {coverage['expected']} rows seen"
    if document["verdict"] == "unknown":
        yield "Too little telemetry was seen for a verdict. The findings are from what was seen."
    shown: Counter[str] = Counter()
    advised: set[str] = set()
    kinds = Counter(finding["kind"] for finding in document["findings"])
    for finding in document["findings"]:
        kind = finding["kind"]
        shown[kind] += 1
        if not is_all and shown[kind] > FINDINGS_SHOWN:
            continue
        yield ""
        yield plain(f"{MARKS[finding['severity']]} {finding['text']}")
        since = f", since {finding['since']}" if finding["since"] else ""
        yield f"         {kind}, {finding['share']:.1%} of the load{since}"
        if finding["advice"] not in advised:
            advised.add(finding["advice"])
            yield plain(f"         {finding['advice']}")
        if not is_all and shown[kind] == FINDINGS_SHOWN < kinds[kind]:
            yield f"         … and {kinds[kind] - FINDINGS_SHOWN} more of {kind} (--all)"
    if document["nodes"]:
        yield ""
        yield from _table(document["nodes"])
    yield from _unseen(coverage)


def _table(nodes: list[dict[str, Any]]) -> Iterator[str]:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f}"

    width = max(4, *(len(plain(node["node"])) for node in nodes))
    yield f"{'node':<{width}}  score   cpu  memory  disk  fds  masters  mirrors  loop lag ms"
    for node in nodes:
        yield (
            f"{plain(node['node']):<{width}}  {number(node['score']):>5}  {share(node['cpu']):>4}  "
            f"{share(node['memory']):>6}  {share(node['disk']):>4}  {share(node['fds']):>3}  "
            f"{number(node['masters']):>7}  {number(node['mirrors']):>7}  {number(node['loop_lag_ms']):>11}"
        )


def _unseen(coverage: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each gap and each kind of unusable telemetry."""
    told = [
        f"not seen: {plain(hole['node'])} from {hole['from']} to {hole['to']}" for hole in coverage["missing"]
    ]
    told += [f"cannot be read: {plain(path)}" for path in coverage["torn"]]
    counts = {
        "rows came twice": "duplicates",
        "rows came late": "late",
        "rows are of a newer version": "unknown_versions",
        "lines were torn": "torn_lines",
        "suspicious queues were not examined": "skipped_queues",
    }
    told += [f"{coverage[key]} {what}" for what, key in counts.items() if coverage[key]]
    if told:
        yield ""
        yield from told
