"""A plan moves each queue at most once, and none to where it was: for made-up clusters of three sizes, and for any."""

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from spark_ops.planning.plan import Plan
from spark_ops.planning.planner import Planner, objective
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.state import State
from tests.spark_ops.planning.clusters import FREE, after, cluster, clusters, node, outcome, plan, queue

MANY = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def _made_up(nodes: int, queues: int, seed: int, *, zones: str = "", crowded: bool = False) -> ClusterRows:
    """A cluster whose queues have two or three copies and loads with a heavy tail.

    zones: a letter for each node.   crowded: all masters are on the first node.
    """
    dice = random.Random(seed)
    names = [f"n{number}" for number in range(1, nodes + 1)]
    rows = []
    for number in range(queues):
        ring = dice.sample(names, k=dice.choice((2, 3)))
        if crowded:
            ring = ["n1", *(name for name in ring if name != "n1")][: len(ring)]
        cpu = round(dice.lognormvariate(0, 1) * 0.15 * nodes / queues, 4)
        size = round(dice.lognormvariate(14, 2))
        rows.append(
            queue(
                f"q{number:03d}",
                *ring,
                cpu=cpu,
                mirror_cpu=round(cpu * 0.3, 4),
                in_bytes=round(cpu * 3e7),
                out_bytes=round(cpu * 4e7),
                memory=float(size),
                size=float(size),
                clients={dice.choice(names): 3} if number % 4 == 0 else {},
            )
        )
    places = [node(name, cores=1.0, zone=zones[at] if zones else None) for at, name in enumerate(names)]
    return cluster(places, rows)


def _moved_once(rows: ClusterRows, found: Plan) -> None:
    """Check that no queue is promoted, no copy made and none dropped twice, and that nothing comes back."""
    steps = [step for step in found.steps if step.action in ("promote", "add_mirror", "drop_mirror")]
    promotions = Counter(step.queue for step in steps if step.action == "promote")
    assert max(promotions.values(), default=0) <= 1
    copies = Counter((step.queue, step.target or step.source) for step in steps if step.action != "promote")
    assert max(copies.values(), default=0) <= 1
    changed = after(rows, found)
    moved = {
        new.queue
        for old, new in zip(rows.queues, changed.queues, strict=True)
        if new.master != old.master or set(new.ring) != set(old.ring)
    }
    assert moved == {step.queue for step in steps}


SIZES = {
    "3x12, all masters on n1": {"nodes": 3, "queues": 12, "crowded": True},
    "3x30, two nodes in one zone": {"nodes": 3, "queues": 30, "zones": "aab"},
    "6x100": {"nodes": 6, "queues": 100},
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_a_queue_moves_once(name: str, seed: int) -> None:
    """spark §6.25: without a planner's moves joined, most of these plans move some queue twice."""
    rows = _made_up(seed=seed, **SIZES[name])  # type: ignore[arg-type]
    found = plan(rows)
    assert found.waves
    _moved_once(rows, found)
    assert plan(after(rows, found)).waves == ()


def test_the_goals_are_served_as_well_as_by_moves_that_are_not_joined() -> None:
    """The state after the plan is the planner's own: joining saves moves, and costs nothing of what they are for."""
    saved = 0
    for seed in range(4):
        rows = _made_up(3, 30, seed, zones="aab")
        found = outcome(rows)
        alone = Planner(found.state.fleet, FREE).run()
        assert objective(found.state, alone.bounds) <= objective(alone.state, alone.bounds)
        assert found.left == 0
        saved += len(alone.state.done) - len(found.moves)
    assert saved > 0


@MANY
@given(clusters())
def test_a_queue_of_any_cluster_moves_once(rows: ClusterRows) -> None:
    """spark §6.25."""
    _moved_once(rows, plan(rows))


@MANY
@given(clusters())
def test_the_state_is_that_of_the_last_placements(rows: ClusterRows) -> None:
    """Loads, heirs and what their masters' loss would bring are those that a state of these placements has."""
    found = outcome(rows)
    from spark_ops.planning.net_moves import placed

    fresh = State(placed(found.state.fleet, found.state), FREE)
    for mine, theirs in zip(found.state.load, fresh.load, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert found.state.worst == pytest.approx(fresh.worst, abs=1e-6)
