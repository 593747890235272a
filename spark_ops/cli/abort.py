"""`spark-ops abort` ends a plan, which cannot be resumed. Nothing is undone: `rollback` makes the plan for that."""

import argparse
import sys
import time

from spark_ops.applying.history import JournalDamaged
from spark_ops.applying.journal import Journal, JournalBusy, is_busy, order
from spark_ops.applying.states import EDGES, PlanState
from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import OpsError

WHY = "aborted by the operator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    common.add_place_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Order the plan's process to abort; without one, record the abort in the journal. Raises: OpsError."""
    place = common.place_of(arguments, arguments.plan)
    common.begun(place)
    try:
        if is_busy(place.journal):
            order(place.control, "abort")
            print("the process that carries out the plan was told to abort it", file=sys.stderr)
            return 0
        journal = Journal(place.journal)
    except (OSError, JournalDamaged) as error:
        raise OpsError(f"{place.journal}: {error}") from None
    except JournalBusy:
        raise OpsError("a process has just resumed this plan: try again") from None
    try:
        found = journal.past
        if PlanState.ABORTED not in EDGES[found.state]:
            raise OpsError(f"this plan is {found.state}: {common.verbs(found)}")
        record = {"at": time.time(), "plan": found.plan, "to": PlanState.ABORTED, "why": WHY}
        journal.write([record])
    finally:
        journal.close()
    print(f"plan {common.short(found.plan)} is aborted: {common.summary(found)}")
    return 0
