"""Delays, retries, dead letters at least once, deduplication, groups and hashes in the simulator of whole brokers.

FLUFFLE_SIM=features:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N; else some that are always the same,
and fresh ones while there is time. The gate runs few.
"""

from functools import partial

import pytest

from tests.cluster.mirror import test_retries
from tests.node.broker import test_full_routes
from tests.sim.audit import count_seeds, finding_seed
from tests.sim.feature_bugs import AUDIT, BUGS, OF_STORIES, bug
from tests.sim.feature_clients import WAYS_IN
from tests.sim.feature_run import run_features

FIXED_SEEDS = 4
TIME_BOX_S = 8.0


@pytest.mark.slow
def test_seeds() -> None:
    """Nothing is lost, early, or twice without a cause; orders, counts, ids, groups and hashes are kept."""

    def run(seed: int) -> dict[str, int]:
        done = run_features(seed)
        counts = dict(done.counts)
        counts["deliveries"] = done.ledger.deliveries
        return counts

    total = count_seeds("features", run, fixed=FIXED_SEEDS, box_s=TIME_BOX_S)
    if total is not None:
        assert total["masters"], total
        assert total["deliveries"], total


@pytest.mark.slow
@pytest.mark.parametrize("kind", WAYS_IN)
def test_each_kind_is_tried(kind: str) -> None:
    """Each kind alone, with a few faults, each time."""
    run = run_features(1, seconds=3.0, faults=("crash", "transfer", "hang_up"), kinds=(kind,))
    assert any(story.consumed_at for story in run.ledger.messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIT)
def test_bugs_are_found(name: str) -> None:
    """Each of the known bugs, put back, is found by its seed or another, which is well without it."""
    found = AUDIT[name]
    run = partial(run_features, seconds=4.0, faults=found.faults, kinds=found.kinds)
    with bug(name):
        seed = finding_seed(run, found.seed, found.errors)  # type: ignore[arg-type]
    run(seed)


HISTORIES = {
    "absent is nowhere": partial(test_full_routes.test_a_delayed_message_waits_for_the_node_of_its_queue, ()),
    "retries not handed on": test_retries.test_a_new_mirror_gets_what_waits,
}


@pytest.mark.parametrize("name", HISTORIES)
def test_bugs_with_a_history_are_found(name: str) -> None:
    """The story, which goes well without the bug, does not with it."""
    HISTORIES[name]()
    with bug(name), pytest.raises(AssertionError):
        HISTORIES[name]()


def test_each_bug_has_a_run_or_a_story_that_finds_it() -> None:
    assert BUGS.keys() == {*AUDIT, *HISTORIES}
    assert OF_STORIES.keys() == HISTORIES.keys()
