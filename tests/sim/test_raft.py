"""The metadata simulator: seeds of faults against a group of Raft members, and the bugs that it must find.

FLUFFLE_SIM=seed:N runs one seed, FLUFFLE_SIM=live:N one of those whose faults never heal; SEEDS=N runs the seeds from
0 to N, however long it takes; else as many as fit.
Source: reliability §5.2.
"""

import logging
import os
from collections.abc import Callable
from time import monotonic

import pytest

from cluster.metadata.journal_file import JournalUnreadable
from tests.cluster.metadata import test_raft_member
from tests.kit.raft_checks import Violation
from tests.sim.audit import finding_seed
from tests.sim.raft_bugs import BUGS, LIVENESS_BUGS, bug
from tests.sim.raft_faults import run_seed
from tests.sim.raft_liveness import run_liveness_seed

TIME_BOX_S = 15.0
"""The seeds of a usual test run take this long together."""

LIVENESS_BOX_S = 10.0
"""The seeds of the liveness kind take this long together."""

BUG_SEEDS = 120
"""Each bug is found by a few seeds of the first so many."""


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySyncObj tells of entries that it cuts off; the checks tell whether that was right."""
    monkeypatch.setattr(logging.getLogger("pysyncobj"), "disabled", True)


@pytest.mark.slow
def test_seeds() -> None:
    """Whatever goes wrong, the invariants hold, and all is well once it is healed."""
    kind, _, number = os.environ.get("FLUFFLE_SIM", "").partition(":")
    if kind == "live":
        pytest.skip("one seed of the other kind is replayed")
    if kind == "seed":
        run_seed(int(number))
        return
    seeds = int(os.environ.get("SEEDS", "0"))
    end, seed, answered = monotonic() + TIME_BOX_S, 0, 0
    while seed < seeds or (not seeds and monotonic() < end):
        answered += len(run_seed(seed).checks.answered_names)
        seed += 1
    print(f"{seed} seeds, {answered} commands answered")
    assert answered


@pytest.mark.slow
def test_liveness_seeds() -> None:
    """A majority that is well goes on, whatever the others do for ever."""
    kind, _, number = os.environ.get("FLUFFLE_SIM", "").partition(":")
    if kind == "seed":
        pytest.skip("one seed of the other kind is replayed")
    if kind == "live":
        run_liveness_seed(int(number))
        return
    seeds = int(os.environ.get("SEEDS", "0"))
    end, seed = monotonic() + LIVENESS_BOX_S, 0
    while seed < seeds or (not seeds and monotonic() < end):
        run_liveness_seed(seed)
        seed += 1
    print(f"{seed} seeds")
    assert seed


def test_a_seed_says_everything() -> None:
    """Two runs of a seed are the same."""
    one, other = run_seed(4), run_seed(4)
    assert (one.now, one.steps, one.checks.applied_count) == (
        other.now,
        other.steps,
        other.checks.applied_count,
    )


STORIES: dict[str, Callable[[], None]] = {
    "old copy votes": test_raft_member.test_who_comes_back_with_less_than_it_had_does_not_vote,
}
"""The bugs that stories find: no seed puts an old copy of a data directory back."""


@pytest.mark.parametrize("name", STORIES)
def test_bugs_are_found_by_their_stories(name: str) -> None:
    """The story goes well, and does not with the bug."""
    STORIES[name]()
    with bug(name), pytest.raises(Violation):
        STORIES[name]()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUGS.keys() - STORIES.keys()))
def test_known_bugs_are_found(name: str) -> None:
    """A simulator that cannot find them is no evidence. The seed that finds a bug is well without it."""
    if os.environ.get("FLUFFLE_SIM"):
        pytest.skip("one seed is replayed")
    run = run_liveness_seed if name in LIVENESS_BUGS else run_seed
    with bug(name):
        seed = finding_seed(run, _SEEDS_OF_BUGS.get(name, 0), _UNREADABLE.get(name, Violation), BUG_SEEDS)
    run(seed)


_UNREADABLE: dict[str, type[Exception]] = {"hole is damage": JournalUnreadable}
"""The error that finds a bug, where it is no `Violation`: a member that does not start."""

_SEEDS_OF_BUGS = {
    "no barrier": 3,
    "no vote": 8,
    "unsafe count": 10,
    "unsafe learning": 45,
    "hole is damage": 39,
    "no order": 145,
    "resignation waits": 36,
}
"""These seeds have found rare bugs and are tried first."""
