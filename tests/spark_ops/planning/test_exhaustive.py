"""The planner against the best there is, on clusters small enough to try everything; and against RabbitMQ's way."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_ops.planning.balance import BENEFIT_MIN, Bounds
from spark_ops.planning.fleet import fleet_of
from spark_ops.planning.goals import Settings
from spark_ops.planning.milp import polished
from spark_ops.planning.planner import objective, planned
from spark_ops.planning.rows import ClusterRows, QueueRow
from tests.spark_ops.planning.clusters import FREE, NOW, after, cluster, clusters, node, outcome, plan, queue
from tests.spark_ops.planning.count_only import rebalanced

MANY = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
CPU_ONLY = replace(FREE, goals=("cpu",), cpu_max=1.0, with_copies=False)


@st.composite
def _tiny(draw: st.DrawFn) -> ClusterRows:
    names = [f"n{number}" for number in range(draw(st.integers(2, 4)))]
    queues = []
    for number in range(draw(st.integers(1, 6))):
        copies = draw(st.integers(2, min(3, len(names))))
        ring = tuple(draw(st.permutations(names)))[:copies]
        queues.append(queue(f"q{number}", *ring, cpu=draw(st.integers(25, 100)) / 50))
    # So many cores that neither what a loss leaves nor what a node bears is in the way.
    return cluster([node(name, cores=20.0) for name in names], queues)


def _above(rows: ClusterRows, masters: tuple[str, ...], bounds: Bounds) -> float:
    """Return what the goal makes smaller: load above the nodes' limits, as `Bounds.objective` has it."""
    loads = Counter({row.node: 0.0 for row in rows.nodes})
    for row, master in zip(rows.queues, masters, strict=True):
        loads[master] += row.cpu
    return sum(
        (max(0.0, loads[row.node] - limit) / row.cores) ** 2
        for row, limit in zip(rows.nodes, bounds.limit, strict=True)
    )


FOUR_TOGETHER = cluster(
    [node(f"n{number}", cores=20.0) for number in range(4)],
    [
        queue("q0", "n0", "n1", cpu=0.64),
        queue("q1", "n0", "n2", cpu=0.82),
        queue("q2", "n0", "n1", cpu=0.64),
        queue("q3", "n1", "n2", cpu=0.5),
        queue("q4", "n1", "n2", cpu=1.06),
    ],
)
"""Once some moves are made n0 gets colder only by four more together, of which no chain begins at n0."""


@pytest.mark.slow
@MANY
@given(_tiny())
@example(FOUR_TOGETHER)
def test_as_good_as_trying_everything(rows: ClusterRows) -> None:
    """spark §6.17: what nodes have above their limits is the least that promotions can do, but for what is no
    improvement, unless no node has so much that there is to be acted; a solver's plan is never worse than ours.

    That says nothing of the fullest node alone: one far above its limit may be less, in squares, than two a little.
    """
    asked = replace(CPU_ONLY, promote_share=0.0)
    fleet = fleet_of(rows, asked, now=NOW)
    found = planned(fleet, asked)
    (bounds,) = found.bounds
    if bounds.is_active(found.state):
        best = min(_above(rows, masters, bounds) for masters in product(*(row.ring for row in rows.queues)))
        least = BENEFIT_MIN * (bounds.mean[0] / rows.nodes[0].cores) ** 2
        assert bounds.objective(found.state) <= best + least * (1 + 1e-6) + 1e-9
    better = polished(fleet, replace(asked, optimize="milp"), found)
    assert objective(better.state, found.bounds) <= objective(found.state, found.bounds)


def test_the_solver_needs_fewer_moves() -> None:
    """One large queue in place of many small ones."""
    names = ["a", "b"]
    sizes = [0.5, 0.4, 0.3, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1]
    queues = [queue(f"q{n}", *names, cpu=size) for n, size in enumerate(sizes)]
    rows = cluster([node(name) for name in names], queues)
    asked = replace(FREE, goals=("cpu",))
    fleet = fleet_of(rows, asked, now=NOW)
    greedy = planned(fleet, asked)
    better = polished(fleet, asked, greedy)
    assert len(better.moves) <= len(greedy.moves)
    assert objective(better.state, greedy.bounds) <= objective(greedy.state, greedy.bounds)


def _counts(queues: list[QueueRow], moves: dict[str, str], names: list[str]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0)) + Counter(moves.get(row.queue, row.master) for row in queues)


@MANY
@given(st.integers(2, 5), st.integers(0, 40), st.data())
def test_by_number_alone_as_rabbitmq_does(nodes: int, count: int, data: st.DataObject) -> None:
    """spark §6.24: where mirrors are everywhere no node has more than its share, rounded up; and our goal of
    numbers alone leaves no node with more than that goal allows either.
    """
    names = [f"n{number}" for number in range(nodes)]
    queues = [
        queue(f"q{n:02d}", *data.draw(st.permutations(names)), size=float(data.draw(st.integers(0, 9))))
        for n in range(count)
    ]
    moves = rebalanced(queues, names)
    assert len({move.queue for move in moves}) == len(moves)
    share = -(-count // nodes)
    theirs = _counts(queues, {move.queue: move.target for move in moves}, names)
    assert all(theirs[name] <= share for name in names)
    asked = replace(FREE, goals=("masters",))
    ours = outcome(cluster([node(name) for name in names], queues), asked)
    most = max(ours.state.load[5], default=0)
    assert most <= max(1.35 * count / nodes, share, 2)


@MANY
@given(clusters(with_oddities=False))
def test_by_number_alone_where_mirrors_are_few(rows: ClusterRows) -> None:
    """spark §6.24: queues only go to synchronised mirrors, from nodes above their share, and to nodes with less."""
    names = [row.node for row in rows.nodes]
    counts = Counter(row.master for row in rows.queues)
    share = -(-len(rows.queues) // len(names))
    by_name = {row.queue: row for row in rows.queues}
    for move in rebalanced(rows.queues, names):
        assert move.target in by_name[move.queue].synced
        assert counts[move.source] > share
        assert counts[move.target] + 1 < counts[move.source]
        counts[move.source] -= 1
        counts[move.target] += 1


@pytest.mark.slow
def test_noise_moves_nothing_after_a_while() -> None:
    """spark §6.16: seven days of noisy load that does not change; a plan each hour, and it is carried out."""
    dice = random.Random(7)
    names = [f"n{number}" for number in range(5)]
    base = [dice.lognormvariate(-2, 1) for _ in range(60)]
    rows = cluster(
        [node(name) for name in names],
        [
            queue(
                f"q{n:02d}",
                *dice.sample(names[: 2 + n % 4], k=2),
                cpu=cpu,
                size=cpu * 1e7,
                in_bytes=cpu * 1e7,
            )
            for n, cpu in enumerate(base)
        ],
    )
    asked = Settings()
    moves = []
    for _ in range(7 * 24):
        noisy = replace(
            rows,
            queues=tuple(
                replace(
                    row,
                    cpu=round(cpu * dice.uniform(0.9, 1.1), 4),
                    in_bytes=cpu * 1e7 * dice.uniform(0.9, 1.1),
                )
                for row, cpu in zip(rows.queues, base, strict=True)
            ),
        )
        found = plan(noisy, asked)
        moves.append(sum(len(wave) for wave in found.waves))
        changed = after(noisy, found)
        rows = replace(rows, queues=changed.queues)
    assert moves[0] > 0
    assert sum(moves[24:]) <= 2
