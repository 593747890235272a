"""The composition root: what a process is set to before its broker runs."""

import gc
from collections.abc import Iterator

import pytest

from node.app import GC_THRESHOLDS

LOOKED_AT_MAX = 50_000
"""Objects that Python's search for cycles may look at in one go: some 10 ms, for which nobody is served."""
KEPT = 1_200_000


@pytest.fixture
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("_thresholds")
def test_a_flood_that_stays_does_not_make_the_search_for_cycles_long() -> None:
    """A message for very many queues leaves a run in each: a million of them, made in a moment."""
    looked_at: list[int] = []

    def begun(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"]:
            looked_at.append(sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1)))

    gc.callbacks.append(begun)
    try:
        kept = [[number] for number in range(KEPT)]
    finally:
        gc.callbacks.remove(begun)
    assert len(kept) == KEPT
    assert 0 < max(looked_at) <= LOOKED_AT_MAX
