"""Plans in the simulator of whole brokers (spark §6.1, §6.14).

FLUFFLE_SIM=plans:N runs one seed; MIRROR_SEEDS=N runs the seeds from 0 to N; else some that are always the same, and
fresh ones while there is time.
"""

from typing import Any

import pytest

from node.catalogue.mirrors import mirrored_queues, plan_steps, views
from tests.sim.audit import count_seeds, finding_seed
from tests.sim.mirror_plans import NeededCopyTaken, run_plans

FIXED_SEEDS = 6
TIME_BOX_S = 8.0


@pytest.mark.slow
def test_seeds() -> None:
    """Nothing confirmed is lost, no copy goes that is needed, and all is well once it is healed."""
    total = count_seeds("plans", lambda seed: run_plans(seed).counts, fixed=FIXED_SEEDS, box_s=TIME_BOX_S)
    if total is not None:
        assert total["plans: steps"], total
        assert total["plans: drop_mirror done"], total


def _drops_are_believed(patch: pytest.MonkeyPatch) -> None:
    """A step that drops a copy is judged by what its plan believes."""
    whole = plan_steps.judged

    def judged(record: Any, command: Any, *others: Any) -> plan_steps.Verdict:
        verdict = whole(record, command, *others)
        member = record.view.member_on(command.source) if record.view is not None else None
        if command.action != "drop_mirror" or member is None or member.id == record.view.master:
            return verdict
        change = views.DropMirror(member.id)
        return plan_steps.Verdict(plan_steps.StepOutcome("done"), change, verdict.placement)

    patch.setattr(mirrored_queues, "judged", judged)


@pytest.mark.slow
def test_a_bug_is_found() -> None:
    """With it a seed ends badly, and well without."""
    with pytest.MonkeyPatch.context() as patch:
        _drops_are_believed(patch)
        seed = finding_seed(lambda seed: run_plans(seed, seconds=6.0), 1, NeededCopyTaken)
    run_plans(seed, seconds=6.0)
