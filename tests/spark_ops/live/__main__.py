"""Break a live cluster in one way after the other, and print how long it took until each was told.

    python -m tests.spark_ops.live                        seven faults, at the default pace of telemetry: half an hour
    python -m tests.spark_ops.live --only partition       those whose name has this word
    python -m tests.spark_ops.live --quick                segments of 5 s, collected and judged every few seconds

Needs gcc. The windows are small, so that `--follow` judges them without Spark. The table is printed as Markdown, and
the load average stands beside each fault.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.spark_ops.live.faults import ALL, Fault, told_of
from tests.spark_ops.live.site import DEFAULTS, QUICK, Site, live_site


def main() -> int:
    """Run all of it. Returns: 0 if each fault was told."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark_ops.live", description="Faults of a live cluster."
    )
    parser.add_argument("--only", default="", metavar="WORD", help="the faults whose name has this word")
    parser.add_argument("--quick", action="store_true", help="with short segments, judged every few seconds")
    arguments = parser.parse_args()
    chosen = [fault for fault in ALL if arguments.only in fault.name]
    if not chosen:
        parser.error(f"no fault has that in its name: {', '.join(fault.name for fault in ALL)}")
    pace = QUICK if arguments.quick else DEFAULTS
    with (
        tempfile.TemporaryDirectory(prefix="fluffle-live-") as directory,
        live_site(Path(directory), pace) as site,
    ):
        tell("fault", "finding", "severity", "told after", "load average", "also raised")
        tell("---", "---", "---", "---:", "---:", "---")
        told = [broken(site, fault) for fault in chosen]
        return int(not all(told))


def broken(site: Site, fault: Fault) -> bool:
    """Inject a fault, print how it was told, and heal it. Returns: whether it was told."""
    load = lambda: f"{os.getloadavg()[0]:.1f}"  # noqa: E731
    try:
        (told,) = told_of(site, [fault])
    except AssertionError as error:
        tell(fault.name, f"not told: {str(error)[:500]}", "", "", load(), "")
        if fault.heal is not None:
            fault.heal(site)
        return False
    found = f"`{fault.finding}`: {told.finding['text']}"
    others = ", ".join(told.others) or "-"
    tell(fault.name, found, fault.severity, f"{told.seconds:.0f} s", load(), others)
    return True


def tell(*cells: str) -> None:
    """Print a row of the table."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
