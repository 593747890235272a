"""The simulation of everything: seeds of faults that stay, and the bugs that it must find.

FLUFFLE_SIM=safety:N or liveness:N runs one seed; many are run by `tests.sim.world_runner` (make sim). A usual test run
tries some that are always the same, and fresh ones while there is time.
Source: reliability §5.2.
"""

import logging
import os
import subprocess
import sys
from functools import partial
from time import monotonic

import pytest

from tests.kit.seeds import fresh_seeds
from tests.sim.audit import finding_seed
from tests.sim.mirror_world import Violation
from tests.sim.world_bugs import AUDIT, BUGS, NOT_FOUND, bug
from tests.sim.world_faults import MODES, run_seed
from tests.sim.world_histories import HISTORIES
from tests.sim.world_runner import run_seeds
from tests.sim.world_story import ALL, SOON_S, Story

FIXED_SEEDS = 15
"""So many seeds of each mode are run each time."""

TIME_BOX_S = 1.0
"""Fresh seeds of each mode are run for this long in a usual test run; `make sim` is for many."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySyncObj tells of entries that it cuts off."""
    monkeypatch.setattr(logging.getLogger("pysyncobj"), "disabled", True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_seeds(mode: str) -> None:
    """Nothing confirmed is lost while an undamaged copy exists; what a majority has is served."""
    if KIND:
        if mode == KIND:
            print(run_seed(mode, int(NUMBER)).counts)
        return
    assert not run_seeds(mode, 0, FIXED_SEEDS).wrong
    end, seed = monotonic() + TIME_BOX_S, fresh_seeds()
    while monotonic() < end:
        assert not run_seeds(mode, seed, 1).wrong
        seed += 1


def test_a_seed_says_everything() -> None:
    """Two runs of a seed are the same."""
    one, other = run_seed("safety", 3), run_seed("safety", 3)
    assert list(one.world.traces) == list(other.world.traces)
    assert (one.world.now, one.world.steps) == (other.world.now, other.world.steps)


HEALED_CUTS = 3002129
"""A seed that heals four links at once: in the order of a set another story came of it in each process."""


@pytest.mark.slow
def test_a_seed_says_everything_in_another_process() -> None:
    """Python hashes text differently in each, so nothing may go through a set of names in the set's order."""
    script = f"""
from tests.sim.world_faults import run_seed
run = run_seed("safety", {HEALED_CUTS})
print(run.world.now, run.world.steps, *run.world.traces, sep="\\n")
"""
    stories = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert stories[0] == stories[1]


def test_an_operator_takes_back_what_was_cancelled() -> None:
    """A mirror whose synchronisation was cancelled goes on lacking messages, as documented: that is healed too."""
    story = Story({**ALL, "ha-sync-batch-size": 3})
    a, b, _ = story.roles()
    story.move_master(a)
    story.end_for_good(b)
    story.wait(lambda: story.view.member_on(b.name) is None)
    story.fill(60)
    story.world.start(b.name)
    story.watch(lambda: _lacks(story, b.name) in range(1, 50))
    story.synchronise(story.record, is_on=False)
    story.world.run(SOON_S)
    assert _lacks(story, b.name)
    story.end()


def _lacks(story: Story, node: str) -> int:
    """Return how many messages the mirror on a node lacks, as its master knows; 0 also where there is none."""
    return dict(story.master.mirrors.status(story.record).lacks).get(node, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIT)
def test_known_bugs_are_found(name: str) -> None:
    """Each bug, put back, is found as something that never may be by its seed, which is well without it.

    What a seed does is another thing after each change of the product: then one of the first few finds it.
    """
    mode, kept, faults = AUDIT[name]
    run = partial(run_seed, mode, faults=faults)
    with bug(name):
        seed = finding_seed(run, kept, Violation)
    run(seed)


@pytest.mark.parametrize("name", HISTORIES)
def test_bugs_with_a_history_are_found(name: str) -> None:
    """Each history, which goes well without the bug, does not with it."""
    HISTORIES[name]()
    with bug(name), pytest.raises(Violation):
        HISTORIES[name]()


def test_no_bug_without_an_audit() -> None:
    """Each bug is found here, or it is said where, or why not."""
    assert AUDIT.keys() | HISTORIES.keys() | NOT_FOUND.keys() == BUGS.keys()
    assert not (AUDIT.keys() | HISTORIES.keys()) & NOT_FOUND.keys()
