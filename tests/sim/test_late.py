"""Proposals that come late in the simulator of whole brokers: seeds, and the bugs that only they find.

FLUFFLE_SIM=late:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N; else some that are always the same, and
fresh ones while there is time. Source: reliability §4.1, §5.2.
"""

import os
from collections import Counter
from time import monotonic

import pytest

from tests.kit.seeds import fresh_seeds
from tests.sim.audit import finding_seed
from tests.sim.mirror_late import run_late
from tests.sim.ring_rules import bug

FIXED_SEEDS = 8
TIME_BOX_S = 5.0

FOUND_BY = {"transfer to the dead": 37, "took over late": 35}
"""Which seed ends badly with the bug. It is well without; the bugs have their stories in `test_rings`, too."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


def _run(first: int, end: int, total: Counter[str]) -> None:
    for seed in range(first, end):
        try:
            total.update(run_late(seed).counts)
        except Exception as error:
            raise AssertionError(f"FLUFFLE_SIM=late:{seed} {type(error).__name__}: {error}") from error


@pytest.mark.slow
def test_seeds() -> None:
    """Nothing that is proposed too late does any harm."""
    total = Counter[str]()
    if KIND == "late":
        _run(int(NUMBER), int(NUMBER) + 1, total)
        print(total)
        return
    if count := int(os.environ.get("MIRROR_SEEDS", "0")):
        _run(0, count, total)
        print(f"late: {dict(total)}")
        return
    _run(0, FIXED_SEEDS, total)
    end, seed = monotonic() + TIME_BOX_S, fresh_seeds()
    while monotonic() < end:
        _run(seed, seed + 1, total)
        seed += 1
    assert total["TransferMaster"], total
    assert total["DropMirror"], total


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_BY)
def test_bugs_are_found(name: str) -> None:
    """The seed, or another, ends badly with the bug, and well without."""
    with bug(name):
        seed = finding_seed(run_late, FOUND_BY[name], AssertionError)
    run_late(seed)
