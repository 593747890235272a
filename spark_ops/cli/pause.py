"""`spark-ops pause` has the process that carries out a plan finish its current steps and begin no others."""

import argparse
import sys

from spark_ops.applying.journal import is_busy, order
from spark_ops.cli import carrying_out as common
from spark_ops.cli.apply import owner
from spark_ops.cli.elsewhere import known_place, ordered
from spark_ops.cli.errors import OpsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "plan", metavar="PLAN_ID", help="the first digits of the plan's id, or the plan's file"
    )
    common.add_cluster_arguments(parser)
    common.add_place_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Order the process that carries out the plan, here or on another machine, to pause. Raises: OpsError.

    A process of another machine ends when it has paused, so that any machine can resume the plan.
    """
    place, unknown = known_place(arguments, arguments.plan)
    if place is not None and is_busy(place.journal):
        try:
            order(place.control, "pause")
        except OSError as error:
            raise OpsError(f"{place.control}: {error.strerror}") from None
        print(
            f"plan {common.short(common.begun(place).plan)} pauses after its current steps", file=sys.stderr
        )
        return 0
    taker = ordered(arguments, place, unknown, "pause", owner())
    if taker is not None:
        print(f"{taker} pauses the plan after its current steps, and ends then", file=sys.stderr)
        return 0
    if place is None:
        assert unknown is not None
        raise unknown
    found = common.begun(place)
    raise OpsError(f"no process is carrying out this plan; it is {found.state}: {common.verbs(found)}")
