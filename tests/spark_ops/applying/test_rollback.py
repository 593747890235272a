"""spark §6.12: whatever of a plan was done, the plan that undoes it brings all back to where it was."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ops.applying.history import history
from spark_ops.applying.states import PlanState, StepState
from spark_ops.applying.work import works
from spark_ops.cli.rollback import completed
from spark_ops.planning import plan as plans
from spark_ops.planning.inverse import undone
from spark_ops.planning.topology import rows_of
from tests.spark_ops.applying.fake_cluster import FakeCluster
from tests.spark_ops.applying.world import Killed, World, random_cluster, random_plan


def placement(cluster: FakeCluster) -> dict[tuple[str, str], tuple[str | None, frozenset[str]]]:
    return {key: (queue.master, frozenset(queue.ring)) for key, queue in cluster.queues.items()}


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from(["done", "aborted", "killed"]), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_any_prefix_is_undone(seed: int, end: str, lines: int) -> None:
    """Done, aborted or killed at any line; copies never below what there was, on the way there and back."""
    random = Random(seed)
    cluster = random_cluster(random)
    plan = random_plan(cluster, random)
    before = placement(cluster)
    enough = {key: len(queue.synced) for key, queue in cluster.queues.items()}

    def watch(now: float) -> None:
        for key, queue in cluster.queues.items():
            assert len(queue.synced) >= enough[key]

    def abort(world: World) -> None:
        if end == "aborted" and len(world.journal) >= lines:
            world.runner.told("abort", world.now)

    world = World(cluster, plan.plan_id, works(plan), watch=watch)
    try:
        world.live(kill_at=lines if end == "killed" else None, then=abort)
    except Killed:
        assert world.journal
    world.settle()
    found = history(map(json.loads, world.journal))
    current = rows_of(cluster.topology(), now=world.now)
    document = undone(plan, completed(plan, found, current), current, now=world.now)
    undo = plans.parse(plans.written(document))
    assert not [step.why for step in undo.steps if step.why.startswith("left as it is")]
    cluster.lock = None
    back = World(cluster, undo.plan_id, works(undo), watch=watch)
    back.now = world.now
    runner = back.live()
    assert runner.state is PlanState.DONE
    assert set(runner.states.values()) <= {StepState.DONE, StepState.SKIPPED}
    back.settle()
    assert placement(cluster) == before
