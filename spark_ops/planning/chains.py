"""Several promotions at once, where one alone does not help: a large queue comes only if another one goes.

Only for small fleets: there single queues are a large part of a node. They are legal one after the other, and together
they make the goal better and none before it worse. Source: reference spark.md §1 (swaps), §6.17.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from spark_ops.planning.balance import BENEFIT_MIN, Bounds, goal_reason, tolerated
from spark_ops.planning.state import SLACK, Done, State

QUEUES_MAX: Final = 2000
TRIED: Final = 16
"""Queues of a node that are tried, the largest first."""

LENGTHS: Final = ((5, 8), (4, 12), (3, 32))
"""How many at a time are tried in fleets of so many queues. In the smallest that is nearly everything."""

CHAINS_MAX: Final = 200
"""Of one goal in one round."""


Link: TypeAlias = tuple[int, int, int]
"""Queue, source, target."""


def exchange(state: State, earlier: Sequence[Bounds], bounds: Bounds, take: Callable[..., None]) -> None:
    """Promote two queues at a time while a node has so much that there is to be acted; in tiny fleets also more.

    take: records moves that belong together, or raises.
    """
    if not bounds.goal.of_masters or state.fleet.count > QUEUES_MAX:
        return
    for _ in range(CHAINS_MAX):
        chain = next(_chains(state, earlier, bounds), None)
        if chain is None:
            return
        take(*chain)


def _chains(state: State, earlier: Sequence[Bounds], bounds: Bounds) -> Iterator[list[Done]]:
    """Chains that help: from the hottest node on, short ones and large queues first."""
    dimension = bounds.goal.dimension
    load = state.load[dimension]
    hot = [
        node
        for node, bad in enumerate(state.is_bad)
        if not bad and load[node] > bounds.act[node] * (1 + SLACK)
    ]
    hot.sort(key=lambda node: (-state.share(dimension, node), node))
    longest = next((length for length, most in LENGTHS if state.fleet.count <= most), 2)
    for length in range(2, longest + 1):
        for source in hot:
            for links in _linked(state, dimension, source, length):
                if _helps(state, bounds, links):
                    found = _legal(state, earlier, bounds, links)
                    if found is not None:
                        yield found


def _linked(state: State, dimension: int, source: int, length: int) -> Iterator[list[Link]]:
    """Each queue goes where the next one leaves."""
    for queue in _largest(state, dimension, source):
        for target in _targets(state, queue):
            link = (queue, source, target)
            if length == 1:
                yield [link]
                continue
            for rest in _linked(state, dimension, target, length - 1):
                if all(queue != other for other, _, _ in rest):
                    yield [link, *rest]


def _largest(state: State, dimension: int, node: int) -> list[int]:
    queues = np.flatnonzero((state.master == node) & state.fleet.movable).tolist()
    queues.sort(key=lambda queue: (-state.vector("promote", queue)[dimension], queue))
    return queues[:TRIED]


def _targets(state: State, queue: int) -> list[int]:
    master = int(state.master[queue])
    return [node for node in state.synced_nodes(queue) if node != master and state.may_promote(queue, node)]


def _helps(state: State, bounds: Bounds, links: Sequence[Link]) -> bool:
    """Whether what is above limits gets less by all of them together."""
    dimension = bounds.goal.dimension
    load, capacity, limit = state.load[dimension], state.capacity[dimension], bounds.limit
    change: dict[int, float] = {}
    for queue, source, target in links:
        amount = state.vector("promote", queue)[dimension]
        change[source] = change.get(source, 0.0) - amount
        change[target] = change.get(target, 0.0) + amount
    less = sum(
        (max(0.0, load[node] - limit[node]) ** 2 - max(0.0, load[node] + by - limit[node]) ** 2)
        / capacity[node]
        for node, by in change.items()
    )
    first = links[0][1]
    return less > BENEFIT_MIN * bounds.mean[first] ** 2 / capacity[first]


def _legal(
    state: State, earlier: Sequence[Bounds], bounds: Bounds, links: Sequence[Link]
) -> list[Done] | None:
    """All as moves, if each may be made after those before it: who makes room comes first."""
    trial = state.copy()
    hottest = state.fleet.nodes[links[0][1]].node
    why = f"one of {len(links)} queues that together bring {bounds.goal.id} off {hottest}"
    for queue, source, target in reversed(links):
        vector = trial.vector("promote", queue)
        if not (
            tolerated(trial, earlier, source, target, vector)
            and trial.has_room(source, target, vector)
            and trial.survives("promote", queue, source, target)
        ):
            return None
        trial.make(Done("promote", queue, source, target, goal_reason(bounds.goal), why))
    return trial.done[len(state.done) :]
