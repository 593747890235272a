"""`spark-ops forecast` says when memory, disk and file descriptors of nodes reach their limits.

Exit codes: 0 done, 2 an invalid command line, 3 there is no telemetry of the node, 4 Spark.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_ops.cli.collect import describe
from spark_ops.cli.errors import EX_ENGINE, EX_UNKNOWN, OpsError
from spark_ops.cli.judging import add_window, plain, read_settings, window_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of spark §5."""
    add_window(parser)
    parser.add_argument("--node", metavar="NAME", help="only forecasts of this node")
    parser.add_argument("--to", choices=("memory", "disk", "fd"), help="only forecasts of this resource")
    parser.add_argument("--json", action="store_true", help="print JSON, as in the health document")


def run(arguments: argparse.Namespace) -> int:
    """Print the forecasts. Raises: OpsError."""
    settings = read_settings(arguments.thresholds)
    window_s, until = window_of(arguments)
    from spark_ops.jobs.engine import EngineError
    from spark_ops.jobs.forecasts import forecast
    from spark_ops.jobs.health import HealthError, choose_window, files_of
    from spark_ops.jobs.session import is_submitted, session
    from spark_ops.jobs.small_health import forecast_small

    root: Path = arguments.root.absolute()
    try:
        window = choose_window(
            root, window_s=window_s, now_s=time.time(), until=until, cluster=arguments.cluster
        )
        files, found = files_of(root, window), []
        if files.rows:
            small = None if is_submitted() else forecast_small(root, window, settings, files)
            if small is not None:
                found = small
            else:
                with session("spark-ops forecast", rows_hint=files.rows) as spark:
                    found = forecast(spark, root, window, settings, files)
    except HealthError as error:
        raise OpsError(str(error)) from error
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from error
    except OSError as error:
        raise OpsError(describe(error, root), EX_ENGINE) from error
    wanted = [
        each
        for each in found
        if arguments.node in (None, each["node"]) and arguments.to in (None, each["resource"])
    ]
    if arguments.json:
        print(json.dumps(wanted, indent=1, ensure_ascii=False))
    else:
        print("\n".join(lines(wanted)))
    return 0 if wanted else EX_UNKNOWN


def lines(forecasts: list[dict[str, Any]]) -> Iterator[str]:
    """Yield forecasts as text; times are approximate."""
    if not forecasts:
        yield "there is no telemetry in this window"
        return
    width = max(len(plain(each["node"])) for each in forecasts)
    for each in forecasts:
        now, limit = amount(each, "now"), amount(each, "limit")
        figures = f"{now} free, limit {limit}" if each["resource"] == "disk" else f"{now} of {limit}"
        begin = f"{plain(each['node']):<{width}}  {each['resource']:<6}  {figures}"
        if each["eta_s"] is None:
            yield f"{begin}  no forecast: {each['why_not']}"
            continue
        early, late = each["band"]
        yield f"{begin}  at its limit in about {span(each['eta_s'])} ({span(early)} to {span(late)})"
        for queue in each["queues"]:
            name = f"{queue['queue']!r} in {queue['vhost']!r}"
            yield plain(f"{'':<{width}}          {name}: {queue['slope_per_s'] * 3600 / 1e6:.1f} MB an hour")


def amount(forecast: dict[str, Any], key: str) -> str:
    """Return a figure with its unit."""
    value = forecast[key]
    if value is None:
        return "?"
    if forecast["resource"] == "fd":
        return f"{value:.0f}"
    return f"{value / 1e9:.2f} GB" if abs(value) >= 1e9 else f"{value / 1e6:.1f} MB"


def span(seconds: float) -> str:
    """Return a time in words, in minutes, hours or days."""
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
