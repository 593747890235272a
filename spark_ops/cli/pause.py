"""`spark-ops pause` has the process that carries out a plan finish its current steps and begin no others."""

import argparse
import sys

from spark_ops.applying.journal import is_busy, order
from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import OpsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    common.add_place_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the order into the control file of the process. Raises: OpsError."""
    place = common.place_of(arguments, arguments.plan)
    found = common.begun(place)
    if not is_busy(place.journal):
        raise OpsError(
            f"no process on this machine is carrying out this plan; it is {found.state}: {common.verbs(found)}"
        )
    try:
        order(place.control, "pause")
    except OSError as error:
        raise OpsError(f"{place.control}: {error.strerror}") from None
    print(f"plan {common.short(found.plan)} pauses after its current steps", file=sys.stderr)
    return 0
