"""Runs many seeds of the simulation of everything, on all cores, and says how each that fails is replayed.

    python -m tests.sim.world_runner --safety 20000 --liveness 5000 [--first N] [--jobs N]
    FLUFFLE_SIM=safety:7 python -m pytest tests/sim/test_world.py

`--first` is by default the number of this run (`tests.kit.seeds`), so each run tries others; it is printed, and kept
in `var/seeds`. A seed that fails is never run again by itself.
"""

import logging
import os
import sys
import traceback
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from time import process_time
from typing import Final, NamedTuple

from tests.kit import seeds
from tests.sim.world_faults import MODES, run_seed

CHUNK: Final = 50
"""Seeds that one process runs at a time."""


class Outcome(NamedTuple):
    """Sums up some seeds.   wrong: a line for each that failed."""

    seeds: int
    counts: Counter[str]
    wrong: list[str]
    cpu_s: float


def run_seeds(mode: str, first: int, count: int) -> Outcome:
    """Run seeds one after the other."""
    logging.getLogger("pysyncobj").disabled = True  # it tells of entries that it cuts off
    counts, wrong, began = Counter[str](), list[str](), process_time()
    for seed in range(first, first + count):
        try:
            run = run_seed(mode, seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what is wanted
            text = " ".join(str(error).split())[:600] or traceback.format_tb(error.__traceback__)[-1].strip()
            wrong.append(f"FLUFFLE_SIM={mode}:{seed} {type(error).__name__}: {text}")
        else:
            counts.update(run.counts)
            counts["messages"] += len(run.ledger.messages)
    return Outcome(count, counts, wrong, process_time() - began)


def run_all(mode: str, first: int, count: int, jobs: int) -> Iterator[Outcome]:
    """Run seeds on several cores; gives what came of each part, in order."""
    with ProcessPoolExecutor(jobs) as pool:
        parts = [
            pool.submit(run_seeds, mode, at, min(CHUNK, first + count - at))
            for at in range(first, first + count, CHUNK)
        ]
        for part in parts:
            yield part.result()


def report(mode: str, first: int, count: int, jobs: int) -> int:
    """Run seeds, print each failure as it comes and a summary. Returns: how many failed."""
    total, failed, cpu_s = Counter[str](), 0, 0.0
    for outcome in run_all(mode, first, count, jobs):
        total.update(outcome.counts)
        cpu_s += outcome.cpu_s
        failed += len(outcome.wrong)
        for line in outcome.wrong:
            print(line, flush=True)
    print(
        f"{mode}: {count} seeds from {first} on, {failed} failed, {cpu_s / max(count, 1):.3f} CPU s a seed, "
        f"{dict(sorted(total.items()))}",
        flush=True,
    )
    return failed


def main() -> int:
    """The command."""
    parser = ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    for mode in MODES:
        parser.add_argument(f"--{mode}", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--first", type=int, help="the first seed; by default fresh ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.first is None:
        seeds.keep()
        print(f"fresh seeds: FLUFFLE_SEED={seeds.BASE}", flush=True)
    first = seeds.fresh_seeds() if arguments.first is None else arguments.first
    failed = sum(report(mode, first, getattr(arguments, mode), arguments.jobs) for mode in MODES)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
