"""The ring's simulator: seeds of faults against a mirrored queue, and the bugs that it must find.

FLUFFLE_SIM=ring:N runs one seed; RING_SEEDS=N runs the seeds from 0 to N on all cores, however long it takes; else
some that are always the same, and fresh ones while there is time.
Source: reliability §4.12, §4.13, §5.2.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from time import monotonic

import pytest

from tests.seeds import fresh_seeds
from tests.sim.ring_bugs import BUGS, HARMLESS, bug
from tests.sim.ring_checks import Violation
from tests.sim.ring_faults import run_seed
from tests.sim.ring_histories import HISTORIES
from tests.sim.ring_plan import Stats

FIXED_SEEDS = 500
"""How many seeds are run each time."""

TIME_BOX_S = 10.0
"""How long fresh seeds are run in a usual test run."""

TWICE = 20
"""One seed in so many is run twice, and both runs must be the same."""

CHUNK = 500
"""Seeds that one process runs at a time."""

SHOWN = 10_000
"""After how many seeds a long run says how it goes."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


def _check(seed: int, stats: Stats) -> None:
    world = run_seed(seed, stats)
    if seed % TWICE == 0:
        again = run_seed(seed)
        assert (again.checks.trace, again.steps) == (world.checks.trace, world.steps), (
            f"seed {seed} is not determined"
        )


def _run(first: int, end: int) -> tuple[Stats, list[str]]:
    """Run seeds. Returns: what happened, and what was wrong."""
    stats, wrong = Stats(), []
    for seed in range(first, end):
        try:
            _check(seed, stats)
        except AssertionError as error:
            wrong.append(str(error))
    return stats, wrong


def _run_all(count: int) -> None:
    total, wrong = Stats(), list[str]()
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(_run, first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
        for job in jobs:
            stats, errors = job.result()
            total.add(stats)
            for error in errors:
                print(error)
            wrong += errors
            if total.seeds % SHOWN == 0:
                print(f"so far: {total}; {len(wrong)} violations", flush=True)
    print(f"{total}; {len(wrong)} violations")
    assert not wrong


@pytest.mark.slow
def test_seeds() -> None:
    """Whatever goes wrong, the invariants hold, and all is well once it is healed."""
    stats = Stats()
    if KIND == "ring":
        run_seed(int(NUMBER), stats)
        print(stats)
        return
    if count := int(os.environ.get("RING_SEEDS", "0")):
        _run_all(count)
        return
    end = monotonic() + TIME_BOX_S
    for seed in range(FIXED_SEEDS):
        _check(seed, stats)
    seed = fresh_seeds(1000)
    while monotonic() < end:
        _check(seed, stats)
        seed += 1
    print(stats)
    assert stats.full_checks > 0.9 * stats.seeds


def _is_found(name: str, seed: int) -> bool:
    """Whether a rule says that something is wrong, not just an accident in what stands for the bug."""
    try:
        with bug(name):
            run_seed(seed)
    except Violation as error:
        return isinstance(error.__cause__, AssertionError)
    return False


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    """What seeds come upon too seldom goes well, and does not with the bug."""
    HISTORIES[name]()
    with bug(name), pytest.raises(Violation):
        HISTORIES[name]()


@pytest.mark.slow
@pytest.mark.skipif(bool(KIND), reason="one seed is replayed")
@pytest.mark.parametrize("name", [name for name in BUGS if name not in HISTORIES])
def test_known_bugs_are_found(name: str) -> None:
    """A simulator that cannot find them is no evidence."""
    assert any(_is_found(name, seed) for seed in range(BUG_SEEDS)), f"'{name}' was not found"


@pytest.mark.slow
@pytest.mark.skipif(bool(KIND), reason="one seed is replayed")
@pytest.mark.parametrize("name", HARMLESS)
def test_other_ways_are_right(name: str) -> None:
    """What is no bug is not reported as one."""
    assert not any(_is_found(name, seed) for seed in range(HARMLESS_SEEDS))


BUG_SEEDS = 300
"""Each bug without a history is found by one of the first so many seeds: the rarest one needs 108, most a few."""

HARMLESS_SEEDS = 150
