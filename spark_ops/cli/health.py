"""`spark-ops health` says what is wrong with a cluster; with --follow, it prints changes as telemetry comes in.

Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 an invalid command line, 3 too little is known, 4 Spark.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ops.cli.collect import describe, seconds
from spark_ops.cli.errors import EX_ENGINE, EX_UNKNOWN, OpsError
from spark_ops.cli.judging import add_window, exit_code, lines, plain, read_settings, window_of
from spark_ops.health.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_ops.health.judge import Judged
    from spark_ops.jobs.health import Window, WindowFiles
    from spark_ops.jobs.outbox import Sink
    from spark_ops.jobs.streaming import Change, Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of spark §5."""
    add_window(parser)
    parser.add_argument("--json", action="store_true", help="print the health document")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write an HTML page")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="also write the health document")
    parser.add_argument(
        "--all", action="store_true", help="print all findings, not only the first of each kind"
    )
    parser.add_argument(
        "--fail-on",
        choices=("warn", "crit"),
        default="warn",
        help="the lowest severity with which the exit code is 1 (default: warn)",
    )
    parser.add_argument("--follow", action="store_true", help="keep running, and report changes")
    parser.add_argument(
        "--once", action="store_true", help="with --follow: judge the existing telemetry, and exit"
    )
    parser.add_argument(
        "--every", default="60s", metavar="TIME", help="with --follow: how often to judge (default: 60s)"
    )
    parser.add_argument(
        "--alerts",
        action="append",
        default=[],
        metavar="FILE|URL",
        help="with --follow: append changes to a file or post them to a webhook, at least once; can be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Judge the window and print the result. Returns: the exit code for its verdict. Raises: OpsError."""
    settings = read_settings(arguments.thresholds)
    window_s, until = window_of(arguments)
    every_s = seconds(arguments.every)
    if every_s < 1:
        raise OpsError("--every: at least 1s")
    if arguments.once and not arguments.follow:
        raise OpsError("--once goes with --follow")
    from spark_ops.jobs.outbox import sink_of

    if arguments.alerts and not arguments.follow:
        raise OpsError("--alerts goes with --follow")
    try:
        for text in arguments.alerts:
            sink_of(text)
    except ValueError as error:
        raise OpsError(f"--alerts: {error}") from error
    if arguments.follow and until != "now":
        raise OpsError("--follow starts now: it takes no --until")
    from spark_ops.health.document import health_document
    from spark_ops.jobs.engine import EngineError
    from spark_ops.jobs.health import HealthError, choose_window, files_of, judge_empty
    from spark_ops.jobs.session import is_submitted
    from spark_ops.jobs.small_health import judge_small

    root: Path = arguments.root.absolute()
    now = time.time()
    try:
        window = choose_window(root, window_s=window_s, now_s=now, until=until, cluster=arguments.cluster)
        if arguments.follow and not window.cluster:
            raise OpsError("there is no telemetry yet: try again when `collect` has written some", EX_UNKNOWN)
        if arguments.follow:
            return _follow(root, window, settings, arguments, window_s, every_s)
        files = files_of(root, window)
        judged = judge_empty(window, settings, files)
        if files.rows:
            small = None if is_submitted() else judge_small(root, window, settings, files)
            judged = small or _judged_by_spark(root, window, settings, files)
        document = health_document(judged, now)
    except HealthError as error:
        raise OpsError(str(error)) from error
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from error
    except OSError as error:
        raise OpsError(describe(error, root), EX_ENGINE) from error
    _show(document, arguments)
    newest = window.newest_s
    if not document["coverage"]["seen"]:
        hint = "" if newest is None else ": give --until last to judge the newest telemetry"
        print(f"there is no telemetry in this window{hint}", file=sys.stderr)
    return exit_code(document, arguments.fail_on)


def _show(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print a document and write the files that were asked for. Raises: OpsError."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    print(text if arguments.json else "\n".join(lines(document, is_all=arguments.all)))
    try:
        if arguments.output is not None:
            arguments.output.write_text(text + "\n", encoding="utf-8")
        if arguments.html is not None:
            from spark_ops.reports.document import build
            from spark_ops.reports.page import page

            arguments.html.write_text(page(build(document, created=document["created"])), encoding="utf-8")
    except OSError as error:
        raise OpsError(f"{error.filename}: {error.strerror or error}") from error


def _judged_by_spark(root: Path, window: "Window", settings: Settings, files: "WindowFiles") -> "Judged":
    """Judge a window on Spark. Raises: EngineError, OSError."""
    from spark_ops.jobs.health import judge_window
    from spark_ops.jobs.session import session

    with session("spark-ops health", rows_hint=files.rows) as spark:
        return judge_window(spark, root, window, settings, files)


def _follow(
    root: Path,
    window: "Window",
    settings: Settings,
    arguments: argparse.Namespace,
    window_s: float,
    every_s: float,
) -> int:
    """Print raised and cleared findings, line by line; until Ctrl-C, or once with --once."""
    from spark_ops.jobs.outbox import sink_of
    from spark_ops.jobs.streaming import Store

    code = EX_UNKNOWN
    sinks = [sink_of(text) for text in arguments.alerts]
    store = Store(root, window.cluster)
    failed = _deliver(store, sinks, [])  # what a run before this one could not
    for change in _changes(root, store, window, settings, window_s, None if arguments.once else every_s):
        _tell(change, is_json=arguments.json)
        failed = _deliver(store, sinks, failed)
        code = exit_code(change.document, arguments.fail_on)
    return code


def _changes(
    root: Path, store: "Store", window: "Window", settings: Settings, window_s: float, every_s: float | None
) -> "Iterator[Change]":
    """Yield the changes of each judgement: without Spark while windows are small, then with it.   every_s: None: once.

    Raises: EngineError, OSError.
    """
    from spark_ops.jobs import small_follow, streaming
    from spark_ops.jobs.health import files_of
    from spark_ops.jobs.session import is_submitted, session

    cluster = window.cluster
    if not is_submitted():
        is_left = yield from small_follow.follow(
            root, store, cluster, window_s=window_s, settings=settings, every_s=every_s, now=time.time
        )
        if not is_left:
            return
    with session("spark-ops health", rows_hint=files_of(root, window).rows) as spark:
        if every_s is not None:
            yield from streaming.follow(
                spark, root, cluster, window_s=window_s, settings=settings, every_s=every_s, now=time.time
            )
            return
        streaming.awaited(streaming.start(spark, root, store, cluster, is_once=True), store)
        change = streaming.judge_store(
            spark, root, store, cluster, window_s=window_s, settings=settings, now_s=time.time()
        )
        if change is not None:
            yield change


def _deliver(store: "Store", sinks: "list[Sink]", failed: list[str]) -> list[str]:
    """Deliver alerts, and print failures that are not those of the round before. Returns: the failures."""
    failures = store.outbox.deliver(sinks)
    for failure in failures:
        if failure not in failed:
            print(plain(f"spark-ops health: {failure}; trying again"), file=sys.stderr, flush=True)
    return failures


def _tell(change: Any, *, is_json: bool) -> None:
    """Print the changes of a judgement, a line each; with JSON one line for all."""
    document = change.document
    end = document["window"][1]
    if is_json:
        told = {"end": end, "verdict": document["verdict"], "score": document["score"]}
        print(json.dumps({**told, "raised": change.raised, "cleared": change.cleared}), flush=True)
        return
    texts = {finding["id"]: finding["text"] for finding in document["findings"]}
    for each in change.raised:
        print(plain(f"{end} raised  {texts.get(each, each)}"), flush=True)
    for each in change.cleared:
        print(plain(f"{end} cleared {each}"), flush=True)
    score = "" if document["score"] is None else f", score {document['score']}"
    print(f"{end} {document['verdict']}{score}", flush=True)
