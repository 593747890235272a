"""Proposals that come late in the simulator of whole brokers: seeds, and the bugs that only they find.

FLUFFLE_SIM=late:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N; else some that are always the same, and
fresh ones while there is time. Source: reliability §4.1, §5.2.
"""

import pytest

from tests.sim.audit import count_seeds, finding_seed
from tests.sim.mirror_late import run_late
from tests.sim.ring_rules import bug

FIXED_SEEDS = 8
TIME_BOX_S = 5.0

FOUND_BY = {"transfer to the dead": 44, "took over late": 26}
"""These seeds end badly with the bug. They are well without; the bugs have their stories in `test_rings`, too."""


@pytest.mark.slow
def test_seeds() -> None:
    """Nothing that is proposed too late does any harm."""
    total = count_seeds("late", lambda seed: run_late(seed).counts, fixed=FIXED_SEEDS, box_s=TIME_BOX_S)
    if total is not None:
        assert total["TransferMaster"], total
        assert total["DropMirror"], total


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_BY)
def test_bugs_are_found(name: str) -> None:
    """The seed, or another, ends badly with the bug, and well without."""
    with bug(name):
        seed = finding_seed(run_late, FOUND_BY[name], AssertionError)
    run_late(seed)
