"""The regression finds the costs of which CPU time was made, and says when it cannot."""

import random
from collections.abc import Sequence

import pytest

from spark_ops.planning.load_model import CAUSES, MINUTES_MIN, NodeSums, fitted

COSTS = (40.0, 0.01, 15.0, 0.004, 300.0)
BASE_US = 500_000.0


def sums(
    node: str, minutes: Sequence[Sequence[float]], *, noise: float = 0.0, seed: int = 1, told: float = 1.0
) -> NodeSums:
    """The sums of a node whose CPU time is made of its work.   told: part of it that the node attributes."""
    chance = random.Random(seed)
    pairs = []
    for x in minutes:
        of_work = sum(cost * amount for cost, amount in zip(COSTS, x, strict=True))
        pairs.append((x, BASE_US + of_work * (1 + chance.gauss(0, noise)), of_work))
    xs, ys = [x for x, _, _ in pairs], [y for _, y, _ in pairs]
    return NodeSums(
        node,
        len(pairs),
        tuple(sum(x[at] for x in xs) for at in range(5)),
        tuple(tuple(sum(x[a] * x[b] for x in xs) for b in range(5)) for a in range(5)),
        tuple(sum(x[at] * y for x, y in zip(xs, ys, strict=True)) for at in range(5)),
        sum(ys),
        sum(y * y for y in ys),
        told * sum(of_work for _, _, of_work in pairs),
    )


def varied(count: int, seed: int, factor: float = 1.0) -> list[list[float]]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        ops, mirrored = chance.uniform(0, 60_000) * factor, chance.uniform(0, 60_000) * factor
        sizes = [chance.choice([100, 1000, 5000]) for _ in range(2)]
        made.append([ops, ops * sizes[0], mirrored, mirrored * sizes[1], chance.uniform(0, 3000) * factor])
    return made


def test_costs_come_back() -> None:
    found = fitted([sums(f"n{at}", varied(60, at)) for at in range(3)])
    assert found is not None
    assert found.r2 > 0.99
    for cause, cost in zip(CAUSES, COSTS, strict=True):
        assert found.cost_us[cause] == pytest.approx(cost, rel=0.1)
    assert found.modelled == pytest.approx(found.measured, abs=0.02)
    for modelled, measured in found.nodes.values():
        assert modelled == pytest.approx(measured, abs=0.03)


def test_a_node_that_attributes_half_of_it_is_named() -> None:
    found = fitted([sums("a", varied(60, 1), noise=0.05), sums("b", varied(60, 2), noise=0.05, told=0.5)])
    assert found is not None
    assert found.worst == "b"
    modelled, measured = found.nodes["b"]
    assert modelled == pytest.approx(2 * measured, rel=0.1)
    assert "they differ most for b: " in found.text
    assert found.document["nodes"]["b"]["measured"] == round(measured, 4)


def test_a_steady_load_says_nothing() -> None:
    """Nothing varies, so nothing is explained; and a cause that does not vary has no cost."""
    steady = fitted([sums("a", [[1000.0, 1e6, 0.0, 0.0, 10.0]] * 60)])
    assert steady is not None
    assert not steady.is_sure
    assert set(steady.cost_us.values()) == {0.0}
    assert "too little for a comparison" in steady.text


def test_costs_are_never_negative() -> None:
    """Syncs fall as operations rise: they cost nothing then, rather than less than nothing."""
    chance = random.Random(3)
    minutes = []
    for _ in range(100):
        ops = chance.uniform(0, 60_000)
        minutes.append([ops, ops * 1000, 0.0, 0.0, 60_000 - ops + chance.uniform(0, 10)])
    made = sums("a", minutes)
    without = NodeSums(
        "a",
        made.count,
        made.x,
        made.xx,
        tuple(sum(x[at] * (40.0 * x[0]) for x in minutes) for at in range(5)),
        sum(40.0 * x[0] for x in minutes),
        sum((40.0 * x[0]) ** 2 for x in minutes),
        0.0,
    )
    found = fitted([without])
    assert found is not None
    assert all(cost >= 0 for cost in found.cost_us.values())
    assert found.r2 > 0.9


def test_too_few_minutes() -> None:
    assert fitted([]) is None
    assert fitted([sums("a", varied(MINUTES_MIN - 1, 1))]) is None
    idle = NodeSums("a", 60, (0.0,) * 5, ((0.0,) * 5,) * 5, (0.0,) * 5, 0.0, 0.0, 0.0)
    assert fitted([idle]) is None
