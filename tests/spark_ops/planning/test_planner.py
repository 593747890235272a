"""The objective of a plan: loads of all kinds are shares of capacities, so that they can be compared and added."""

from dataclasses import replace
from typing import Any

import pytest

from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.planner import objective
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.state import State
from tests.spark_ops.planning.clusters import FREE, NOW, cluster, node, outcome, plan, queue


def _hard(rows: ClusterRows) -> float:
    return objective(State(fleet_of(rows, FREE, now=NOW), FREE), [])[3]


def test_a_core_above_the_limit_weighs_more_than_a_megabyte() -> None:
    """spark §3.3: with 8 cores and 8 GB, limits of 70 % and 80 %."""
    fine = cluster([node("a"), node("b")], [])
    hot = replace(fine, nodes=(node("a", base_cpu=6.6), node("b")))
    full = replace(fine, nodes=(node("a", base_memory=6.401e9), node("b")))
    assert _hard(fine) == 0.0
    assert _hard(hot) == pytest.approx((1 / 8) ** 2)
    assert 0 < _hard(full) < _hard(hot) / 100


@pytest.mark.parametrize("load", ["base_cpu", "base_memory", "base_disk"])
def test_the_same_share_weighs_the_same(load: str) -> None:
    """Half of the capacity above the limit, of whatever kind it is."""
    whole = {"base_cpu": (8.0, 0.7), "base_memory": (8e9, 0.8), "base_disk": (1e11, 0.8)}
    capacity, limit = whole[load]
    rows = cluster([node("a", **{load: (limit + 0.5) * capacity}), node("b")], [])
    assert _hard(rows) == pytest.approx(0.25)
    goal = next(goal for goal in plan(rows).goals if goal["id"] == "capacity")
    assert goal["before"] == pytest.approx(0.5)


def test_what_a_loss_leaves_is_a_share_of_cores() -> None:
    """b has 4 of 8 cores, and 3.2 more if a is lost: 20 % above the limit of 70 %."""
    rows = cluster([node("a"), node("b", base_cpu=4.0)], [queue("q", "a", "b", cpu=3.2, mirror_cpu=0.0)])
    found = outcome(rows, replace(FREE, mode="repair"))
    assert found.state.loss_excess() == pytest.approx(0.2)


def test_loads_without_a_capacity_are_shares_of_the_mean() -> None:
    """Bytes per second: a has 40 MB/s, the mean is 20, so the limit is 22."""
    rows = cluster([node("a"), node("b")], [queue("q", "a", in_bytes=40e6), queue("r", "b", in_bytes=0.0)])
    found = outcome(rows, replace(FREE, goals=("in",)))
    (bounds,) = found.bounds
    assert bounds.objective(found.state) == pytest.approx(0.9**2)


def test_a_goal_that_is_met_as_there_is_too_little_load_says_so() -> None:
    """Bytes per second: a has 0.4 MB/s, twice the mean, and below 1 MB/s no master moves for them."""

    def goal(in_bytes: float) -> dict[str, Any]:
        rows = cluster(
            [node("a"), node("b")],
            [
                queue("q", "a", in_bytes=in_bytes),
                queue("r", "a", in_bytes=0.0),
                queue("s", "b", in_bytes=0.0),
            ],
        )
        return next(each for each in plan(rows, replace(FREE, goals=("in",))).goals if each["id"] == "in")

    little, much = goal(0.4e6), goal(40e6)
    assert (little["met"], little["after"], little["is_below_floor"]) == (True, 2.0, True)
    assert "is_below_floor" not in much
