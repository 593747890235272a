"""`spark-ops resume` continues a paused plan, or one whose `apply` died, here or on another machine."""

import argparse
import sys

from spark_ops.applying.journal import is_busy, order
from spark_ops.cli import carrying_out as common
from spark_ops.cli.apply import add_run_arguments, apply, owner
from spark_ops.cli.elsewhere import brought
from spark_ops.cli.errors import OpsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Order the process that carries out the plan to continue; without one, carry it out here. Raises: OpsError."""
    place = brought(arguments, arguments.plan, owner())
    common.begun(place)
    if is_busy(place.journal):
        try:
            order(place.control, "resume")
        except OSError as error:
            raise OpsError(f"{place.control}: {error.strerror}") from None
        print("the process that carries out the plan was told to continue", file=sys.stderr)
        return 0
    plan = common.read_plan(place.plan)
    return apply(plan, arguments, place.plan.read_bytes(), is_resuming=True)
