"""A dry run says what the cluster then does."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_ops.applying.outlook import is_so_now, outlooks, reason_to_refuse
from spark_ops.applying.states import SUCCEEDED
from spark_ops.applying.work import works
from spark_ops.planning.topology import rows_of
from tests.spark_ops.applying.world import World, random_cluster, random_plan

Seeds = st.integers(0, 2**32 - 1)


@given(Seeds)
@settings(max_examples=50, deadline=None)
def test_a_fresh_plan_would_be_done(seed: int) -> None:
    """All of it; and the queues as the plan found them are where no step has been done."""
    random = Random(seed)
    cluster = random_cluster(random)
    plan = random_plan(cluster, random)
    current = rows_of(cluster.topology())
    found = outlooks(works(plan), current)
    assert {each.what for each in found} <= {"do"}
    assert reason_to_refuse(found, on_stale="stop") is None
    rows = {(row.vhost, row.queue): row for row in current.queues}
    assert not any(is_so_now(step, rows[step.vhost, step.queue]) for step in works(plan))


@pytest.mark.slow
@given(Seeds)
@settings(max_examples=15, deadline=None)
def test_an_applied_plan_is_so_already(seed: int) -> None:
    """spark §6.7."""
    random = Random(seed)
    cluster = random_cluster(random)
    plan = random_plan(cluster, random)
    steps = works(plan)
    world = World(cluster, plan.plan_id, steps)
    assert set(world.live().states.values()) <= SUCCEEDED
    world.settle()
    current = rows_of(cluster.topology())
    assert {each.what for each in outlooks(steps, current)} <= {"skip"}
    rows = {(row.vhost, row.queue): row for row in current.queues}
    assert all(is_so_now(step, rows[step.vhost, step.queue]) for step in steps)


@given(Seeds, st.sampled_from(["epoch", "uid", "gone", "down", "unsynced"]))
@settings(max_examples=50, deadline=None)
def test_what_changed_is_stale(seed: int, how: str) -> None:
    """spark §6.13: and it says what, and what to do."""
    random = Random(seed)
    cluster = random_cluster(random)
    plan = random_plan(cluster, random)
    steps = works(plan)
    if not steps:
        return
    current = rows_of(cluster.topology())
    key = random.choice([(step.vhost, step.queue) for step in steps])
    changed = []
    for row in current.queues:
        if (row.vhost, row.queue) != key:
            changed.append(row)
        elif how == "epoch":
            changed.append(replace(row, epoch=row.epoch + 2))
        elif how == "uid":
            changed.append(replace(row, uid="other"))
        elif how == "down":
            changed.append(replace(row, master="", ring=(), members=(), synced=()))
        elif how == "unsynced":
            assume(len(row.synced) > 1)
            changed.append(replace(row, synced=(row.master,)))
    found = outlooks(steps, replace(current, queues=tuple(changed)))
    of_it = [each for each in found if (each.step.vhost, each.step.queue) == key]
    assert of_it[0].what == "stale"
    assert of_it[0].why
    assert all(each.what == "drop" for each in of_it[1:])
    assert all(each.what == "do" for each in found if each not in of_it)
    reason = reason_to_refuse(found, on_stale="stop")
    assert reason is not None
    assert "\n" not in reason
    assert "plan anew, or --on-stale skip" in reason
    is_all = len(of_it) == len(found)
    assert (reason_to_refuse(found, on_stale="skip") is not None) == is_all
