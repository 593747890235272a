"""The simulator of whole brokers with mirrored queues: seeds of faults, and the bugs that it must find.

FLUFFLE_SIM=mirrors:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N on all cores, however long it takes; else
some that are always the same, and fresh ones while there is time.
Source: reliability §4, §5.2; amqp-behaviour §9.4.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import monotonic

import pytest

from tests.cluster.mirror import (
    test_clocks,
    test_giving_up,
    test_mirrors_frames,
    test_replica,
    test_ring_watch,
    test_total_restart,
)
from tests.cluster.mirror.test_follower import two_origins_wait
from tests.kit.seeds import fresh_seeds
from tests.sim.audit import finding_seed
from tests.sim.mirror_bugs import AUDIT, OF_STORIES, bug
from tests.sim.mirror_faults import run_seed
from tests.sim.mirror_world import Violation

FIXED_SEEDS = 12
"""So many seeds are run each time."""

TIME_BOX_S = 10.0
"""Fresh seeds are run for this long in a usual test run."""

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
    seed = fresh_seeds()
    while monotonic() < end and not wrong:
        counts, wrong = _run(seed, seed + 1)
        total.update(counts)
        seed += 1
    assert not wrong
    assert total["masters"], total
    assert total["messages"], total


@pytest.mark.slow
def test_seed_is_determined() -> None:
    """A seed does the same when it is run again."""
    assert list(run_seed(5).world.traces) == list(run_seed(5).world.traces)


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIT)
def test_bugs_are_found(name: str) -> None:
    """Each of the known bugs, put back, is found by its seed or another, which is well without it."""
    kept, faults, kinds = AUDIT[name]
    run = partial(run_seed, seconds=4.0, faults=faults, kinds=kinds)
    with bug(name):
        seed = finding_seed(run, kept, Violation)
    run(seed)


def test_waits_that_are_joined_are_found() -> None:
    """Joined waits are found by a history, as seeds find them too seldom."""
    with bug("waits are joined"), pytest.raises(AssertionError):
        two_origins_wait()
    two_origins_wait()


def _patched(story: Callable[[pytest.MonkeyPatch], None]) -> None:
    """Run a story that makes bounds small."""
    with pytest.MonkeyPatch.context() as patch:
        story(patch)


HISTORIES: dict[str, Callable[[], None]] = {
    "own writes forgotten": test_replica.test_what_a_former_master_has_not_written_is_waited_for,
    "lost joins again": partial(test_giving_up.test_a_mirror_that_left_the_ring_gets_another_copy, "n2"),
    "damaged says nothing": test_giving_up.test_a_master_that_lacks_messages_hands_over_all_the_same,
    "idle unwatched": partial(test_ring_watch.test_a_cut_link_of_a_queue_that_is_idle, ("n2", "n3"), 100.0),
    "flush unwatched": partial(test_ring_watch.test_a_cut_link_when_the_master_dies, ("n1", "n2", "n3"), 0),
    "last word awaited for ever": partial(
        test_ring_watch.test_a_master_moves_while_a_link_is_cut, ("n2", "n3"), "n3", "n1"
    ),
    "declines and begins": test_ring_watch.test_who_declines_does_not_begin_when_the_last_word_comes_after_all,
    "disks unwatched": partial(test_ring_watch.test_a_mirror_whose_disk_hangs_goes, "n3"),
    "other copies go at once": test_total_restart.test_the_other_copies_stay_until_a_mirror_is_synchronised,
    "missing ends unnoticed": partial(test_total_restart.test_it_is_waited_for, "the end of the journal"),
    "own clock trusted": partial(test_clocks.test_messages_live_as_long_on_another_master, 120.0, False),
    "frames without bound": partial(_patched, test_mirrors_frames.test_no_frame_is_too_large),
    "node without bound": partial(
        _patched, test_mirrors_frames.test_too_much_under_way_at_a_node_holds_up_its_publishers
    ),
    "neighbour blamed": test_mirrors_frames.test_who_passes_on_nonsense_is_not_to_blame_for_it,
}
"""Bugs that are found by a story of their own: seeds heal what they break, and have no damage."""


@pytest.mark.parametrize("name", HISTORIES)
def test_bugs_with_a_history_are_found(name: str) -> None:
    """The story, which goes well without the bug, does not with it."""
    HISTORIES[name]()
    with bug(name), pytest.raises(AssertionError):
        HISTORIES[name]()


def test_each_bug_of_a_story_has_one() -> None:
    assert OF_STORIES.keys() <= HISTORIES.keys()
