"""`spark-ops rollback` writes the plan that undoes what a plan did so far. `spark-ops apply` carries it out."""

import argparse
import sys
import time
from pathlib import Path

from spark_ops.applying.history import History
from spark_ops.applying.journal import is_busy, keep
from spark_ops.applying.outlook import is_so_now
from spark_ops.applying.states import PlanState, StepState
from spark_ops.applying.work import works
from spark_ops.cli import carrying_out as common
from spark_ops.cli.apply import owner
from spark_ops.cli.elsewhere import brought
from spark_ops.cli.errors import OpsError
from spark_ops.planning.inverse import undone
from spark_ops.planning.plan import Plan, written
from spark_ops.planning.rows import ClusterRows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="write the new plan to FILE"
    )
    common.add_cluster_arguments(parser)
    common.add_place_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the plan from the journal and the current placement. Raises: OpsError."""
    place = brought(arguments, arguments.plan, owner())
    found = common.begun(place)
    if is_busy(place.journal):
        raise OpsError(
            "this plan is being carried out: abort it first, or pause it and interrupt that process"
        )
    if found.state is PlanState.ROLLED_BACK:
        raise OpsError("this plan has already been rolled back")
    plan = common.read_plan(place.plan)
    nodes = common.client(arguments, plan.came_from)
    name = common.cluster_name(nodes)
    if plan.cluster != name:
        raise OpsError(f"this plan is for the cluster {plan.cluster!r}, this one is {name!r}")
    now = time.time()
    current = common.topology(nodes, now)
    document = undone(plan, completed(plan, found, current), current, now=now)
    try:
        keep(arguments.output, written(document).encode())
    except OSError as error:
        raise OpsError(f"{arguments.output}: {error.strerror}") from None
    steps = [step for step in document["steps"] if step["action"] != "note"]
    for note in document["steps"]:
        if note["action"] == "note":
            print(f"{note['queue']} ({note['vhost']}): {note['why']}"[:500].replace("\n", " "))
    print(f"{len(steps)} steps undo plan {common.short(plan.plan_id)}: {arguments.output}")
    if steps:
        print(f"apply it with: spark-ops apply {arguments.output}", file=sys.stderr)
    return 0


def completed(plan: Plan, found: History, current: ClusterRows) -> set[str]:
    """Return the ids of the steps that the plan did; steps without an outcome count if their effect is there now."""
    own = set(found.changed())
    rows = {(row.vhost, row.queue): row for row in current.queues}
    return {
        step.id
        for step in works(plan)
        if step.id in own
        and (found.state_of(step.id) is StepState.DONE or is_so_now(step, rows.get((step.vhost, step.queue))))
    }
