"""`spark-ops plan` finds moves that balance a cluster, and writes them as a plan. Nothing is moved.

It balances the loads found in telemetry (ROOT, needs Spark), or only the numbers of masters and copies in a topology
(no Spark). The exit code is 3 if too little telemetry of the window was seen.
"""

import argparse
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_ops.applying.journal import keep
from spark_ops.cli import plan_text
from spark_ops.cli.collect import seconds
from spark_ops.cli.errors import EX_ENGINE, EX_FINDINGS, EX_UNKNOWN, OpsError
from spark_ops.cli.topologies import add_topology_argument, read_topology, url_of
from spark_ops.planning.goals import NODE_MODES, Settings, SettingsError, checked, settings_from
from spark_ops.planning.plan import parse_document, written
from spark_ops.planning.rows import ClusterRows

if TYPE_CHECKING:
    from spark_ops.jobs.rollup_fields import RollupKind
    from spark_ops.planning.outcomes import Learned

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "root",
        type=Path,
        nargs="?",
        metavar="ROOT",
        help="the output directory of `collect` (needs Spark)",
    )
    add_topology_argument(
        parser,
        required=False,
        help_="balance only numbers of masters and copies: a topology file, or the URL of a node",
    )
    parser.add_argument(
        "--window", default="7d", metavar="TIME", help="how much telemetry to plan from (default: 7d)"
    )
    parser.add_argument("--cluster", metavar="NAME", help="the cluster, if ROOT has telemetry of several")
    parser.add_argument(
        "--mode",
        nargs="+",
        default=["full"],
        metavar="MODE",
        help="full, repair, or one of drain-node, add-node, demote and restore with a NODE",
    )
    parser.add_argument("--goals", type=Path, metavar="FILE", help="settings of the planner (TOML)")
    parser.add_argument("--max-moves", metavar="N|all", help="the most moves (default: 50)")
    parser.add_argument(
        "--max-bytes", metavar="SIZE|all", help="the most bytes to copy, such as 500M (default: 10 GiB)"
    )
    parser.add_argument("--no-copies", action="store_true", help="only promote existing mirrors")
    parser.add_argument("--only-vhost", metavar="RE", help="only queues in virtual hosts whose name matches")
    parser.add_argument("--exclude-queue", metavar="RE", help="leave out queues whose name matches")
    parser.add_argument(
        "--cool-down", metavar="TIME", help="leave out queues that were moved in the last TIME (default: 60m)"
    )
    parser.add_argument(
        "--optimize", choices=["milp"], help="let a solver look for fewer moves (small clusters)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="the seed that orders equal candidates (default: 0)"
    )
    parser.add_argument(
        "--min-coverage",
        type=float,
        default=0.95,
        metavar="SHARE",
        help="the least share of telemetry that must have been seen (default: 0.95)",
    )
    parser.add_argument(
        "--max-age",
        default="30m",
        metavar="TIME",
        help="the greatest age of the newest topology and telemetry in ROOT (default: 30m)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the plan to FILE")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write an HTML page")
    parser.add_argument("--json", action="store_true", help="print the plan's document")
    parser.add_argument(
        "--synthetic", metavar="NODESxQUEUES", help="a made-up fleet, to measure the cost of planning"
    )


def run(arguments: argparse.Namespace) -> int:
    """Draft a plan, write it to files and print it. Raises: OpsError."""
    _sort_out_mode(arguments)
    given = [arguments.root, arguments.topology, arguments.synthetic]
    if sum(each is not None for each in given) != 1:
        raise OpsError("give either ROOT, the output directory of `collect`, or --topology FILE|URL")
    settings = settings_of(arguments)
    now = time.time()
    try:
        document = _drafted(arguments, settings, now)
    except ImportError as error:
        raise OpsError(
            f"the Python package {error.name} is missing: pip install 'fluffle[spark]'", EX_ENGINE
        ) from None
    except SettingsError as error:
        raise OpsError(plan_text.plain(error)) from None
    _write(arguments, document, now)
    if arguments.json:
        sys.stdout.write(written(document))
    else:
        print("\n".join(plan_text.text(parse_document(document), steps_shown=60)))
        if arguments.output is None and document["waves"]:
            print("the plan was not saved: give -o FILE to apply it later", file=sys.stderr)
    is_stuck = not document["waves"] and not all(goal["met"] for goal in document["goals"])
    return EX_FINDINGS if is_stuck else 0


def _sort_out_mode(arguments: argparse.Namespace) -> None:
    """Take ROOT out of the values of --mode: a mode has at most one node, but argparse takes ROOT after it, too."""
    needed = 2 if arguments.mode[0] in NODE_MODES else 1
    if len(arguments.mode) == needed + 1 and arguments.root is None:
        arguments.root = Path(arguments.mode.pop())


def _drafted(arguments: argparse.Namespace, settings: Settings, now: float) -> dict[str, Any]:
    from spark_ops.planning.drafting import draft, draft_of

    if arguments.synthetic is not None:
        from spark_ops.planning.synthetic_fleet import synthetic_fleet

        if settings.capacity:
            raise OpsError("a made-up fleet has no capacities by setting")
        nodes, _, queues = arguments.synthetic.partition("x")
        if not (nodes.isdecimal() and queues.isdecimal() and 0 < int(nodes) <= 4096 and int(queues) <= 10**7):
            raise OpsError("--synthetic NODESxQUEUES, such as 1000x1000000")
        fleet = synthetic_fleet(int(nodes), int(queues))
        return draft_of(fleet, settings, {"synthetic": arguments.synthetic}, now=now)
    if arguments.topology is not None:
        cluster = read_topology(arguments.topology, arguments.ca_file)
        print("without telemetry: the plan balances only the numbers of masters and copies", file=sys.stderr)
        if arguments.max_bytes is not None:
            print("--max-bytes limits nothing: the sizes of copies are not known", file=sys.stderr)
        return draft(cluster, settings, now=now, came_from=url_of(arguments.topology))
    cluster = _from_telemetry(arguments, now)
    if cluster.coverage < arguments.min_coverage:
        raise OpsError(
            f"only {cluster.coverage:.1%} of the telemetry was seen, {arguments.min_coverage:.0%} is needed: "
            "run `spark-ops doctor`, or give a shorter --window or a lower --min-coverage",
            EX_UNKNOWN,
        )
    return draft(cluster, settings, now=now, earlier=_earlier(arguments.root, cluster.cluster))


def _earlier(root: Path, cluster: str) -> "Learned | None":
    """Return what earlier plans of the cluster teach. Raises: OpsError."""
    from spark_ops.jobs.outcomes import known

    try:
        return known(root, cluster)
    except OSError as error:
        raise OpsError(f"{error.filename}: {error.strerror}", EX_ENGINE) from None


def _from_telemetry(arguments: argparse.Namespace, now: float) -> ClusterRows:
    """Return the cluster with its loads. Raises: OpsError."""
    from spark_ops.jobs.engine import EngineError
    from spark_ops.jobs.loads import cluster_rows
    from spark_ops.jobs.rollup_store import rows_to_read
    from spark_ops.jobs.session import session
    from spark_ops.jobs.topology_snapshots import TopologyMissing

    root: Path = arguments.root
    if not root.is_dir():
        raise OpsError(f"{root} is not a directory: give the --out directory of `collect`")
    since = now - seconds(arguments.window)
    try:
        kinds: tuple[RollupKind, ...] = ("queue", "node")
        rows = sum(rows_to_read(root.absolute(), kind, since, now) for kind in kinds)
        with session("spark-ops plan", rows_hint=rows) as spark:
            found = cluster_rows(spark, root, since=since, until=now, now=now, cluster=arguments.cluster)
            _check_age(found, now, seconds(arguments.max_age))
            return found
    except EngineError as error:
        raise OpsError(str(error), EX_ENGINE) from None
    except TopologyMissing as error:
        raise OpsError(f"{root}: {error}", EX_UNKNOWN) from None
    except (FileNotFoundError, ValueError) as error:
        raise OpsError(f"{root}: {error}", EX_UNKNOWN) from None


def _check_age(rows: ClusterRows, now: float, age_max_s: float) -> None:
    """Refuse a plan from old telemetry, since queues may have moved and loads may have changed. Raises: OpsError."""
    for key, what in (("topology_at", "topology"), ("rows_at", "telemetry of a node that is up")):
        at = rows.facts.get(key)
        if at is not None and now - at > age_max_s:
            raise OpsError(
                f"the newest {what} is {(now - at) / 60:.0f} min old, at most {age_max_s / 60:.0f} min are allowed: "
                "check that `collect` runs, or give a greater --max-age",
                EX_UNKNOWN,
            )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings of the command line and of the file; the command line overrides. Raises: OpsError."""
    mode, *rest = arguments.mode
    if mode not in ("full", "repair", *NODE_MODES) or len(rest) > 1:
        raise OpsError(f"--mode is full, repair, or one of {', '.join(NODE_MODES)} with a NODE")
    settings = replace(Settings(), mode=mode, node=rest[0] if rest else None)
    try:
        checked(settings)
        if arguments.goals is not None:
            with arguments.goals.open("rb") as file:
                settings = settings_from(tomllib.load(file), settings)
        return checked(replace(settings, **_given(arguments)))
    except OSError as error:
        raise OpsError(f"{arguments.goals}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise OpsError(f"{arguments.goals}: {error}") from None
    except UnicodeDecodeError:
        raise OpsError(f"{arguments.goals}: it is not UTF-8") from None
    except SettingsError as error:
        raise OpsError(plan_text.plain(error)) from None


def _given(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """Return the settings that the command line names."""
    found: dict[str, Any] = {
        "only_vhost": arguments.only_vhost,
        "exclude_queue": arguments.exclude_queue,
        "optimize": arguments.optimize,
        "seed": arguments.seed,
        "cool_down_s": None if arguments.cool_down is None else seconds(arguments.cool_down),
    }
    found = {name: value for name, value in found.items() if value is not None}
    if arguments.no_copies:
        found["with_copies"] = False
    if arguments.max_moves is not None:
        found["max_moves"] = None if arguments.max_moves == "all" else _whole(arguments.max_moves)
    if arguments.max_bytes is not None:
        found["max_bytes"] = None if arguments.max_bytes == "all" else _whole(arguments.max_bytes)
    return found


def _whole(text: str) -> int:
    """Return a number such as 50, 500M or 10G. Raises: OpsError."""
    unit = text[-1:] if text[-1:] in _UNITS else ""
    number = text.removesuffix(unit)
    if not number.isascii() or not number.isdecimal() or len(number) > 15:
        raise OpsError(f"{text!r} is not a number: write 50, 500M, 10G, or all")
    return int(number) * _UNITS[unit]


def _write(arguments: argparse.Namespace, document: dict[str, Any], now: float) -> None:
    if arguments.output is not None:
        _keep(arguments.output, written(document))
    if arguments.html is not None:
        from spark_ops.planning.times import iso
        from spark_ops.reports.document import build
        from spark_ops.reports.page import page

        _keep(arguments.html, page(build(None, document, None, created=iso(now))))


def _keep(path: Path, text: str) -> None:
    try:
        keep(path, text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror}") from None
