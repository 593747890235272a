"""`spark-ops show` prints a plan, one step of it, or how it differs from another. Without Spark or cluster."""

import argparse
import sys
import time
from pathlib import Path

from spark_ops.applying.states import VERBS, PlanState
from spark_ops.cli import carrying_out as common
from spark_ops.cli import plan_text
from spark_ops.cli.diff import lines
from spark_ops.cli.errors import OpsError
from spark_ops.planning.diff import difference
from spark_ops.planning.plan import Plan, PlanError, refuse_unless_valid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the file of a plan")
    parser.add_argument("--why", metavar="STEP", help="print all details of one step, such as s12")
    parser.add_argument(
        "--diff", type=Path, metavar="OTHER", help="print how another plan differs from this one"
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=plan_text.STEPS_SHOWN,
        metavar="N",
        help="the most steps to print (default: 200)",
    )
    parser.add_argument("--json", action="store_true", help="print the plan's document")


def run(arguments: argparse.Namespace) -> int:
    """Print the plan. An expired plan is printed too, with a note. Raises: OpsError."""
    plan = common.read_plan(arguments.plan)
    if arguments.json:
        sys.stdout.write(arguments.plan.read_text())
    elif arguments.diff is not None:
        print("\n".join(lines(difference(plan, common.read_plan(arguments.diff)))))
    elif arguments.why is not None:
        found = list(plan_text.details(plan, arguments.why))
        if not found:
            raise OpsError(f"the plan has no step {plan_text.plain(arguments.why)!r}")
        print("\n".join(found))
    else:
        print("\n".join(plan_text.text(plan, steps_shown=max(0, arguments.steps))))
        print(f"\n{_standing(plan)}")
    return 0


def _standing(plan: Plan) -> str:
    """Return whether the plan may still be carried out, and which commands are useful now."""
    try:
        refuse_unless_valid(plan, cluster=None, now=time.time())
    except PlanError as error:
        return plan_text.plain(error)
    return f"drafted; next steps: {', '.join(VERBS[PlanState.DRAFTED])}"
