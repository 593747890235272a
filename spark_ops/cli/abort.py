"""`spark-ops abort` ends a plan, which cannot be resumed. Nothing is undone: `rollback` makes the plan for that."""

import argparse
import sys
import time

from spark_ops.applying.history import JournalDamaged
from spark_ops.applying.journal import Journal, JournalBusy, Place, is_busy, order
from spark_ops.applying.states import EDGES, PlanState
from spark_ops.cli import carrying_out as common
from spark_ops.cli.apply import owner
from spark_ops.cli.elsewhere import brought, known_place, mark, ordered
from spark_ops.cli.errors import OpsError

WHY = "aborted by the operator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    common.add_cluster_arguments(parser)
    common.add_place_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Order the plan's process, here or on another machine, to abort; without one, record the abort in the journal.

    Raises: OpsError.
    """
    place, unknown = known_place(arguments, arguments.plan)
    if place is not None and _is_told(place):
        return 0
    try:
        taker = ordered(arguments, place, unknown, "abort", owner())
    except OpsError as error:
        if place is None or not common.past(place).plan:
            raise
        print(f"not asked whether another machine carries out the plan: {error}", file=sys.stderr)
    else:
        if taker is not None:
            print(f"{taker} was told to abort the plan", file=sys.stderr)
            return 0
        place = brought(arguments, arguments.plan, owner())
    now = time.time()
    plan_id = _record(place, now)
    _tell_cluster(arguments, place, plan_id, now)
    return 0


def _is_told(place: Place) -> bool:
    """True if a process of this machine carries out the plan, which is told to abort it. Raises: OpsError."""
    try:
        if not is_busy(place.journal):
            return False
        order(place.control, "abort")
    except OSError as error:
        raise OpsError(f"{place.journal}: {error}") from None
    print("the process that carries out the plan was told to abort it", file=sys.stderr)
    return True


def _record(place: Place, now: float) -> str:
    """Record the abort in the journal of a plan that nobody carries out. Returns: the plan's id. Raises: OpsError."""
    common.begun(place)
    try:
        journal = Journal(place.journal)
    except (OSError, JournalDamaged) as error:
        raise OpsError(f"{place.journal}: {error}") from None
    except JournalBusy:
        raise OpsError("a process has just resumed this plan: try again") from None
    try:
        found = journal.past
        if PlanState.ABORTED not in EDGES[found.state]:
            raise OpsError(f"this plan is {found.state}: {common.verbs(found)}")
        journal.write([{"at": now, "plan": found.plan, "to": PlanState.ABORTED, "why": WHY}])
    finally:
        journal.close()
    print(f"plan {common.short(found.plan)} is aborted: {common.summary(found)}")
    return found.plan


def _tell_cluster(arguments: argparse.Namespace, place: Place, plan_id: str, now: float) -> None:
    """Have the cluster note the abort, if it keeps the plan, so that no other machine resumes it."""
    try:
        came_from = common.read_plan(place.plan).came_from if place.plan.exists() else None
        nodes = common.client(arguments, came_from)
    except OpsError as error:
        print(f"other machines are not told that the plan is aborted: {error}", file=sys.stderr)
        return
    mark(nodes, plan_id, PlanState.ABORTED, now)
