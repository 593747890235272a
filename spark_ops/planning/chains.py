"""Several promotions at once help where one alone does not: a large queue can come only if another one leaves.

Only for small fleets: there single queues are a large part of a node. They are legal one after the other, and together
they make the goal better and none before it worse. Where masters can be placed in few ways all of these are compared;
else chains are tried, in which each queue goes where the next one leaves. Source: spark §1 (swaps),
§6.17.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Final, TypeAlias

import numpy as np

from spark_ops.planning.balance import BENEFIT_MIN, Bounds, goal_reason, tolerated
from spark_ops.planning.state import SLACK, Done, State

QUEUES_MAX: Final = 2000
TRIED: Final = 16
"""The most queues of a node that are tried, the largest first."""

LENGTHS: Final = ((5, 8), (4, 12), (3, 32))
"""The longest chains (number of promotions) that are tried in fleets of at most so many queues."""

PLACEMENTS_MAX: Final = 1000
"""Up to so many ways to place all masters, each is compared: six queues of three copies, or nine of two."""

CHAINS_MAX: Final = 200
"""The most sets of promotions for one goal in one round."""


Link: TypeAlias = tuple[int, int, int]
"""A promotion: queue, source, target."""


def exchange(state: State, earlier: Sequence[Bounds], bounds: Bounds, take: Callable[..., None]) -> None:
    """Promote queues together while a node is above its level for action: two, in small fleets also more.

    take: records moves that belong together, or raises.
    """
    if not bounds.goal.of_masters or state.fleet.count > QUEUES_MAX:
        return
    for _ in range(CHAINS_MAX):
        hot = _hot(state, bounds)
        together = next(_together(state, earlier, bounds, hot), None) if hot else None
        if together is None:
            return
        take(*together)


def _hot(state: State, bounds: Bounds) -> list[int]:
    """Return the nodes above their level for action, the hottest first."""
    dimension = bounds.goal.dimension
    hot = [
        node
        for node, bad in enumerate(state.is_bad)
        if not bad and state.load[dimension][node] > bounds.act[node] * (1 + SLACK)
    ]
    return sorted(hot, key=lambda node: (-state.share(dimension, node), node))


def _together(
    state: State, earlier: Sequence[Bounds], bounds: Bounds, hot: Sequence[int]
) -> Iterator[list[Done]]:
    """Yield sets of promotions that help and are legal, the preferred ones first."""
    ways = _ways(state)
    found = _chains(state, bounds, hot) if ways is None else _sets(state, bounds, hot[0], ways)
    for links in found:
        if (legal := _legal(state, earlier, bounds, links)) is not None:
            yield legal


def _ways(state: State) -> list[list[Link | None]] | None:
    """Return for each queue its options: to stay, or a mirror to promote; None if there are too many combinations."""
    found: list[list[Link | None]] = []
    for queue in np.flatnonzero(state.fleet.movable & (state.master >= 0)).tolist():
        master = int(state.master[queue])
        if not state.is_bad[master] and (targets := _targets(state, queue)):
            found.append([None, *((queue, master, target) for target in targets)])
            if prod(map(len, found)) > PLACEMENTS_MAX:
                return None
    return found


def _sets(
    state: State, bounds: Bounds, hottest: int, ways: Sequence[Sequence[Link | None]]
) -> list[list[Link]]:
    """Return all sets of promotions that help, the best gain in whole steps first; among equals the smallest set."""
    step = _step(state, bounds, hottest)
    found = []
    for choice in product(*ways):
        links = [link for link in choice if link is not None]
        if (steps := int(_gain(state, bounds, links) / step)) > 0:
            found.append((-steps, len(links), links))
    return [links for _, _, links in sorted(found)]


def _chains(state: State, bounds: Bounds, hot: Sequence[int]) -> Iterator[list[Link]]:
    """Yield chains that help, the last link first: from the hottest node on, short ones and large queues first."""
    dimension = bounds.goal.dimension
    longest = next((length for length, most in LENGTHS if state.fleet.count <= most), 2)
    for length in range(2, longest + 1):
        for source in hot:
            for links in _linked(state, dimension, source, length):
                if _gain(state, bounds, links) > _step(state, bounds, source):
                    yield links[::-1]


def _linked(state: State, dimension: int, source: int, length: int) -> Iterator[list[Link]]:
    """Yield chains from a node in which each queue goes where the next one leaves."""
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


def _step(state: State, bounds: Bounds, node: int) -> float:
    """Return the least gain that counts as an improvement where that node is the hottest."""
    return max(BENEFIT_MIN * bounds.mean[node] ** 2 / state.capacity[bounds.goal.dimension][node], 1e-12)


def _gain(state: State, bounds: Bounds, links: Sequence[Link]) -> float:
    """Return by how much the squared loads above limits shrink by all promotions together."""
    dimension = bounds.goal.dimension
    load, capacity, limit = state.load[dimension], state.capacity[dimension], bounds.limit
    change: dict[int, float] = {}
    for queue, source, target in links:
        amount = state.vector("promote", queue)[dimension]
        change[source] = change.get(source, 0.0) - amount
        change[target] = change.get(target, 0.0) + amount
    return sum(
        (max(0.0, load[node] - limit[node]) ** 2 - max(0.0, load[node] + by - limit[node]) ** 2)
        / capacity[node]
        for node, by in change.items()
    )


def _legal(
    state: State, earlier: Sequence[Bounds], bounds: Bounds, links: Sequence[Link]
) -> list[Done] | None:
    """Return all links as moves, in an order in which each is legal after those before it; None if there is none."""
    trial = state.copy()
    hottest = max(
        (source for _, source, _ in links), key=lambda node: state.share(bounds.goal.dimension, node)
    )
    name = state.fleet.nodes[hottest].node
    why = f"one of {len(links)} queues that together bring {bounds.goal.id} off {name}"
    left = list(links)
    while left:
        link = next((each for each in left if _may(trial, earlier, each)), None)
        if link is None:
            return None
        left.remove(link)
        trial.make(Done("promote", *link, goal_reason(bounds.goal), why))
    return trial.done[len(state.done) :]


def _may(state: State, earlier: Sequence[Bounds], link: Link) -> bool:
    queue, source, target = link
    vector = state.vector("promote", queue)
    return (
        tolerated(state, earlier, source, target, vector)
        and state.has_room(source, target, vector)
        and state.survives("promote", queue, source, target)
    )
