"""A few seeds of each simulator, always the same ones: stores, rings, brokers and whole clusters without a socket.

Many more are run by `tests/sim`, `tests/node/store/test_crashes.py` and `tests/durable_world/test_story.py`.
"""

import logging

import pytest

from tests.durable_world.story import Story
from tests.kit.ring import drive
from tests.node.store.store_world import World
from tests.sim import mirror_faults, raft_faults, world_faults

CRASHES = 10
STORIES = 2
RINGS = 20
SEEDS = (1, 2)
"""Brokers with mirrors, groups of Raft and whole clusters run with these seeds."""


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySyncObj tells of entries that it cuts off."""
    monkeypatch.setattr(logging.getLogger("pysyncobj"), "disabled", True)


def test_a_store_whose_disk_loses_what_was_not_synced() -> None:
    for seed in range(CRASHES):
        World(seed).run(40)


def test_a_broker_over_such_a_disk() -> None:
    for seed in range(STORIES):
        Story(seed).tell(150)


def test_rings_in_any_order_of_events() -> None:
    for seed in range(RINGS):
        drive(seed, 400, trouble=0.04 + seed % 4 * 0.04)


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_with_mirrors(seed: int) -> None:
    assert mirror_faults.run_seed(seed).ledger.messages


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_of_raft(seed: int) -> None:
    assert raft_faults.run_seed(seed).checks.answered_names


@pytest.mark.parametrize("mode", world_faults.MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_whole_clusters(mode: str, seed: int) -> None:
    world_faults.run_seed(mode, seed)
