"""`spark-ops simulate` simulates a plan on a topology, also with nodes that die during it. It changes nothing.

The exit code is 1 if a step would be refused, a rule would be broken, or more queues would be lost than without the
plan.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import EX_FINDINGS, OpsError
from spark_ops.cli.plan_text import plain
from spark_ops.cli.topologies import add_topology_argument, read_topology
from spark_ops.planning.plan import Plan
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.simulation import Simulation, simulated

SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the file of a plan")
    add_topology_argument(
        parser,
        required=True,
        help_="the placement of all queues, from GET /api/mirroring/topology: a file, or the URL of a node",
    )
    parser.add_argument(
        "--kill",
        action="append",
        default=[],
        metavar="NODE@STEP",
        help="a node that dies after a step, such as rabbit@n1@s12; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Simulate the plan and print the result. Raises: OpsError."""
    plan = common.read_plan(arguments.plan)
    cluster = read_topology(arguments.topology, arguments.ca_file)
    if cluster.cluster != plan.cluster:
        raise OpsError(
            f"the plan is for the cluster {plan.cluster!r}, the topology is of {cluster.cluster!r}"
        )
    found = simulated(plan, cluster, kills_of(arguments.kill, plan, cluster))
    print(json.dumps(_document(found)) if arguments.json else "\n".join(map(plain, _lines(found))))
    is_bad = found.refused or found.problems or len(found.lost) > found.would_be_lost
    return EX_FINDINGS if is_bad else 0


def kills_of(given: Iterable[str], plan: Plan, cluster: ClusterRows) -> dict[str, list[str]]:
    """Return by step the nodes that die after it. Raises: OpsError."""
    nodes, steps = {row.node for row in cluster.nodes}, plan.by_id
    found: dict[str, list[str]] = {}
    for text in given:
        node, _, step = text.rpartition("@")
        if node not in nodes:
            raise OpsError(
                f"--kill {text!r}: there is no node {node!r}; write NODE@STEP, such as rabbit@n1@s12"
            )
        if step not in steps:
            raise OpsError(f"--kill {text!r}: the plan has no step {step!r}")
        found.setdefault(step, []).append(node)
    return found


def _document(found: Simulation) -> dict[str, object]:
    return {
        "done": found.done,
        "skipped": found.skipped,
        "refused": found.refused,
        "problems": found.problems,
        "lost": [{"vhost": vhost, "queue": queue, "at": at} for vhost, queue, at in found.lost],
        "would_be_lost": found.would_be_lost,
        "masters": found.masters(),
    }


def _lines(found: Simulation) -> Iterator[str]:
    yield f"{len(found.done)} steps done, {len(found.skipped)} not needed, {len(found.refused)} refused"
    yield from _some([f"{id_} would be refused: {why}" for id_, why in found.refused.items()])
    yield from _some(found.problems)
    yield from _some([f"queue {queue} ({vhost}) is lost after {at}" for vhost, queue, at in found.lost])
    if found.lost or found.would_be_lost:
        yield f"{len(found.lost)} queues lost; without the plan {found.would_be_lost}"
    if not found.problems:
        yield "no queue has fewer synchronised copies after any step than before, or than its policy wants"
    for node, count in sorted(found.masters().items()):
        yield f"{node}: {count} masters"


def _some(lines: list[str]) -> Iterator[str]:
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"… and {len(lines) - SHOWN} more"
