"""The simulator of whole brokers with mirrored queues: seeds of faults, and the bugs that it must find.

FLUFFLE_SIM=mirrors:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N on all cores, however long it takes; else
some that are always the same, and fresh ones while there is time.
Source: reliability §4, §5.2; amqp-behaviour §9.4.
"""

import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from time import monotonic, time

import pytest

from tests.cluster.mirror.test_follower import two_origins_wait
from tests.sim.mirror_bugs import AUDIT, bug
from tests.sim.mirror_faults import run_seed

FIXED_SEEDS = 12
"""How many seeds are run each time."""

TIME_BOX_S = 10.0
"""How long fresh seeds are run in a usual test run."""

CHUNK = 10
"""Seeds that one process runs at a time."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


def _run(first: int, end: int) -> tuple[Counter[str], list[str]]:
    """Run seeds. Returns: what happened, and what was wrong."""
    counts, wrong = Counter[str](), []
    for seed in range(first, end):
        try:
            run = run_seed(seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what is wanted
            wrong.append(f"FLUFFLE_SIM=mirrors:{seed} {type(error).__name__}: {str(error)[:500]}")
        else:
            counts.update(run.counts)
            counts["messages"] += len(run.ledger.messages)
            counts["deliveries"] += run.ledger.deliveries
            counts["seeds"] += 1
    return counts, wrong


def _run_all(count: int) -> None:
    total, wrong = Counter[str](), list[str]()
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(_run, first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
        for job in jobs:
            counts, errors = job.result()
            total.update(counts)
            for error in errors:
                print(error)
            wrong += errors
    print(f"mirrors: {dict(total)}; {len(wrong)} violations")
    assert not wrong


@pytest.mark.slow
def test_a_queue_declared_for_nodes_that_start_again() -> None:
    """All nodes lose power while it is declared: nobody has a copy, which somebody has to say."""
    run_seed(1795314218)


@pytest.mark.slow
def test_seeds() -> None:
    """Whatever goes wrong, nothing confirmed is lost, and all is well once it is healed."""
    if KIND == "mirrors":
        print(run_seed(int(NUMBER)).counts)
        return
    if count := int(os.environ.get("MIRROR_SEEDS", "0")):
        _run_all(count)
        return
    total, wrong = _run(0, FIXED_SEEDS)
    end = monotonic() + TIME_BOX_S
    seed = int(time())
    while monotonic() < end and not wrong:
        counts, wrong = _run(seed, seed + 1)
        total.update(counts)
        seed += 1
    assert not wrong
    assert total["masters"], total
    assert total["messages"], total


@pytest.mark.slow
def test_seed_is_determined() -> None:
    """The same seed does the same again."""
    assert list(run_seed(5).world.traces) == list(run_seed(5).world.traces)


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIT)
def test_bugs_are_found(name: str) -> None:
    """Each of the known bugs, put back, is found by its seed, which is well without it."""
    seed, faults, kinds = AUDIT[name]
    with bug(name), pytest.raises(Exception):  # noqa: B017, PT011 - by whatever notices first
        run_seed(seed, seconds=4.0, faults=faults, kinds=kinds)
    run_seed(seed, seconds=4.0, faults=faults, kinds=kinds)


def test_waits_that_are_joined_are_found() -> None:
    """See `AUDIT`."""
    with bug("waits are joined"), pytest.raises(AssertionError):
        two_origins_wait()
    two_origins_wait()
