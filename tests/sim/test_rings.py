"""Rings: seeds of members in any order of events, and every rule of rings, views, masters and mirrors taken away.

FLUFFLE_SIM=ring:N runs one seed; RING_SEEDS=N runs the seeds from 0 to N on all cores, however long it takes; else
some that are always the same, and fresh ones while there is time. All of it is the product's own code: `ring.drive`
has members only, stories have whole brokers with disks. Source: reliability §4.12, §4.13, §5.2.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import monotonic

import pytest

from tests.cluster.mirror import test_follower, test_replica, test_total_restart
from tests.cluster.transport import test_stream
from tests.kit.ring import Ring, drive
from tests.kit.seeds import fresh_seeds
from tests.sim import ring_stories as stories
from tests.sim.audit import finding_seed
from tests.sim.mirror_faults import UnwantedPromotion, run_seed
from tests.sim.ring_rules import BUGS, HARMLESS, IN_ANY_ORDER, bug

FIXED_SEEDS = 100
"""So many seeds are run each time."""

TIME_BOX_S = 5.0
"""Fresh seeds are run for this long in a usual test run."""

TWICE = 20
"""One seed in so many is run twice, and both runs must be the same."""

CHUNK = 500
"""Seeds that one process runs at a time."""

BUG_SEEDS = 300
"""Each bug of `IN_ANY_ORDER` is found by one of the first so many: the rarest one needs 67, most a few."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


def _drive(seed: int) -> Ring:
    """A seed's ring. Raises: AssertionError, KeyError or IndexError where something is wrong."""
    return drive(seed, 400, trouble=0.04 + seed % 4 * 0.04)


def _run(first: int, end: int) -> list[str]:
    """Run seeds. Returns: what was wrong."""
    wrong = []
    for seed in range(first, end):
        try:
            notes = _drive(seed).notes
        except (AssertionError, KeyError, IndexError) as error:
            wrong.append(f"FLUFFLE_SIM=ring:{seed} {type(error).__name__}: {str(error)[:500]}")
        else:
            if seed % TWICE == 0 and _drive(seed).notes != notes:
                wrong.append(f"FLUFFLE_SIM=ring:{seed} is not determined")
    return wrong


def _run_all(count: int) -> list[str]:
    wrong: list[str] = []
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(_run, first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
        for job in jobs:
            wrong += job.result()
    print(f"rings: {count:,} seeds; {len(wrong)} violations")
    return wrong


@pytest.mark.slow
def test_seeds() -> None:
    """Whatever the order of events: nothing posthumous, premature, twice or out of order, and all have the same."""
    if KIND == "ring":
        print(*_drive(int(NUMBER)).notes, sep="\n")
        return
    if count := int(os.environ.get("RING_SEEDS", "0")):
        assert not _run_all(count)
        return
    assert not _run(0, FIXED_SEEDS)
    end, seed = monotonic() + TIME_BOX_S, fresh_seeds(1000)
    while monotonic() < end:
        assert not _run(seed, seed + 1)
        seed += 1


def _is_found(name: str, seed: int) -> bool:
    with bug(name):
        return bool(_run(seed, seed + 1))


@pytest.mark.skipif(bool(KIND), reason="one seed is replayed")
@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_bugs_are_found_in_any_order(name: str) -> None:
    """Some seed soon ends badly with the bug, and well without."""
    found = next((seed for seed in range(BUG_SEEDS) if _is_found(name, seed)), None)
    assert found is not None, f"'{name}' was not found"
    assert not _run(found, found + 1)


def _each_mastership_tells() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_replica.test_each_mastership_tells_the_unsynchronised_what_there_is(patch)


STORIES: dict[str, Callable[[], None]] = {
    "hear the dead": partial(test_stream.test_another_incarnation_changes_nothing, (2, 8)),
    "by origin": stories.handed_over_and_back,
    "keep joining": stories.died_while_another_one_joined,
    "newcomer before owner": stories.added_beside_the_dead,
    "promote at once": stories.promoted_before_the_last_word_of_the_dead,
    "promote anybody": test_replica.test_l1_an_unsynchronised_mirror_is_not_promoted,
    "ghosts": stories.added_on_a_node_that_is_no_more,
    "transfer to the dead": stories.transferred_to_the_dead,
    "drop while flushing": stories.dropped_in_a_flush,
    "waits for itself": stories.waits_for_nobody_but_itself,
    "took over late": stories.took_over_in_an_earlier_mastership,
    "confirm unsettled": (
        test_replica.test_nothing_is_confirmed_while_a_dead_synchronised_mirror_is_not_erased
    ),
    "confirm flushing": stories.stable_in_a_flush,
    "copy dropped": test_total_restart.test_where_nothing_is_lost_the_last_master_is_preferred,
    "no new inventory": _each_mastership_tells,
    "took over early": stories.handed_over_twice_at_once,
    "no word unbegun": stories.handed_over_before_it_began,
    "not taken up again": stories.master_again_before_it_began,
    "lossy table": partial(
        test_replica.test_who_lacks_something_believes_no_front_end_that_it_has_a_publish, is_synced=False
    ),
    "duplicate at once": stories.sent_again_and_not_everywhere,
    "no high water": stories.numbers_are_given_once,
    "inventory not awaited": stories.told_after_it_heard_something,
    "counts late": test_follower.test_marks_wait_for_a_disk_before_it_is_waited_for_itself,
    "no senders in inventory": stories.what_came_in_is_known_to_newcomers,
    "no senders": stories.what_came_in_is_known_to_mirrors,
    "mirror takes all": stories.removed_before_it_came,
}


@pytest.mark.parametrize("name", STORIES)
def test_bugs_are_found_by_their_stories(name: str) -> None:
    """The story goes well, and does not with the bug."""
    STORIES[name]()
    with bug(name), pytest.raises(AssertionError):
        STORIES[name]()


@pytest.mark.slow
def test_a_promotion_that_no_policy_wants_is_found() -> None:
    """The simulator of whole brokers excuses what a policy asks for, and nothing else."""
    run = partial(run_seed, seconds=4.0, faults=("crash", "policy"), kinds=("plain",))
    with bug("promote anybody"):
        seed = finding_seed(run, 14, UnwantedPromotion)
    run(seed)


def test_every_bug_is_looked_for() -> None:
    assert BUGS.keys() == IN_ANY_ORDER.keys() | STORIES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_other_ways_are_right(name: str) -> None:
    """A way of doing things that is no bug is not reported as one."""
    with bug(name):
        assert not _run(0, 30)
        for seed in range(8):
            run_seed(seed, seconds=4.0, faults=("crash", "transfer"), kinds=("plain",))
