"""A tenant's masters are not all on one node: virtual hosts, patterns, small tenants, and what earlier goals forbid."""

from collections import Counter
from dataclasses import replace

import pytest

from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.goals import SettingsError, checked
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.planning.spread import ACT_ABOVE, Spread
from spark_ops.planning.state import State
from tests.spark_ops.planning.clusters import FREE, NOW, after, cluster, node, plan, queue

NAMES = ("a", "b", "c")


def _ring(first: int) -> tuple[str, ...]:
    return NAMES[first:] + NAMES[:first]


def _tenants(count: int) -> ClusterRows:
    """Three virtual hosts, each with all of its masters on a node of its own: even by numbers, and fragile."""
    queues = [
        queue(f"q{number:02d}", *_ring(at), vhost=f"v{at}", cpu=0.1)
        for at in range(3)
        for number in range(count)
    ]
    return cluster([node(name) for name in NAMES], queues)


def _masters(queues: tuple[QueueRow, ...]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for row in queues:
        found.setdefault(row.vhost, Counter())[row.master] += 1
    return found


def test_the_masters_of_each_virtual_host_are_spread() -> None:
    """The other goals have nothing to do here, and stay met."""
    rows = _tenants(10)
    found = plan(rows)
    assert {step.reason for step in found.steps} == {"spread"}
    for masters in _masters(after(rows, found).queues).values():
        assert max(masters.values()) <= ACT_ABOVE * 10
    figures = {goal["id"]: (goal["before"], goal["after"], goal["met"]) for goal in found.goals}
    assert figures["spread"] == (3, 0, True)
    assert all(met for _, _, met in figures.values())
    assert plan(rows, replace(FREE, goals=("cpu", "masters"))).waves == ()


def test_small_tenants_are_left_alone() -> None:
    assert plan(_tenants(3)).waves == ()


def test_a_pattern_names_the_tenants() -> None:
    """The shards of a hash exchange, with all masters on a, which no goal by numbers would move: they are exchanged."""
    shards = [queue(f"orders.{n}", "a", "b", "c", cpu=0.1) for n in range(4)]
    others = [queue(f"x{n}", *_ring(1 + n % 2), cpu=0.1) for n in range(8)]
    rows = cluster([node(name) for name in NAMES], [*shards, *others])
    assert plan(rows).waves == ()
    found = plan(rows, replace(FREE, tenant_pattern=r"/(orders)\."))
    changed = [row.master for row in after(rows, found).queues if row.queue.startswith("orders")]
    assert max(Counter(changed).values()) == 2
    assert sorted(Counter(row.master for row in after(rows, found).queues).values()) == [4, 4, 4]
    with pytest.raises(SettingsError):
        checked(replace(FREE, tenant_pattern="("))


def test_no_goal_before_it_gets_worse() -> None:
    """All other nodes are as full of cpu as they should be, with no queue to exchange: the crowded tenant stays."""
    queues = [queue(f"q{n}", "a", "b", "c", vhost="v", cpu=0.5) for n in range(4)]
    queues += [queue(f"{ring}{n}", *ring, cpu=0.55) for ring in ("bc", "cb") for n in range(4)]
    rows = cluster([node(name) for name in NAMES], queues)
    found = plan(rows)
    assert found.waves == ()
    assert next(goal for goal in found.goals if goal["id"] == "spread")["met"] is False


def test_locality_crowds_no_tenant() -> None:
    """All clients are at a, but half of the masters stay elsewhere."""
    queues = [queue(f"q{n}", *_ring(n % 3), cpu=0.1, clients={"a": 9}) for n in range(9)]
    rows = cluster([node(name) for name in NAMES], queues)
    found = plan(rows, replace(FREE, goals=("spread", "locality")))
    (masters,) = _masters(after(rows, found).queues).values()
    assert masters["a"] == 5
    assert plan(after(rows, found), replace(FREE, goals=("spread", "locality"))).waves == ()


def test_numbers_follow_the_promotions() -> None:
    fleet = fleet_of(_tenants(4), FREE, now=NOW)
    spread = Spread(State(fleet, FREE))
    assert [spread.count(tenant, at) for tenant in range(3) for at in range(3)] == [4, 0, 0, 0, 4, 0, 0, 0, 4]
    spread.moved(0, 0, 1)
    assert [spread.count(0, at) for at in range(3)] == [3, 1, 0]
    assert spread.allows(0, 1)
