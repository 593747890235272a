"""One soft goal at a time: bring nodes that have too much of a load down, each move accepted by all goals before.

Mastership first, since that is nearly free, largest queues first; then copies, those that help most for what they
cost. A queue below the floor of shares waits until nothing else helps. Where single moves don't help, two at a time
are tried in small fleets. Source: reference spark.md §3.3.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spark_ops.planning.coldest import Coldest
from spark_ops.planning.fleet import Bools, Floats, Longs
from spark_ops.planning.goals import MASTERS, Settings, SoftGoal
from spark_ops.planning.state import SLACK, Done, Kind, State, Vector

BENEFIT_MIN: Final = 1e-4
"""Of the square of a mean share: what improves less is no improvement."""

COLD_TRIED: Final = 16
"""Nodes that are tried for a copy."""

FAILURES_MAX: Final = 300
"""Copies of a node that find no place before the node is given up for now."""

RING_PREFERENCE: Final = 0.05
"""Of the mean: who comes next in the ring is taken although another node has that much less."""


class Enough(Exception):
    """The plan has as many moves as it may have."""


@dataclass(slots=True)
class Bounds:
    """What a goal means for this fleet: by node, what it may have at most, and from where on there is to be acted.

    Measured anew only after moves that had to be; so no move for a goal can make it easier.
    """

    goal: SoftGoal
    limit: list[float]
    act: list[float]
    mean: list[float]

    def excess(self, state: State, node: int) -> float:
        """What a node has above its limit."""
        return max(0.0, state.load[self.goal.dimension][node] - self.limit[node])

    def is_active(self, state: State) -> bool:
        """Whether any node has so much that there is to be acted."""
        load = state.load[self.goal.dimension]
        return any(
            load[node] > self.act[node] * (1 + SLACK) for node, bad in enumerate(state.is_bad) if not bad
        )

    def objective(self, state: State) -> float:
        """What there is above limits: squares, so that one node far above is worse than two a little."""
        capacity = state.capacity[self.goal.dimension]
        return sum(
            self.excess(state, node) ** 2 / capacity[node] for node, bad in enumerate(state.is_bad) if not bad
        )


def bounds_of(goal: SoftGoal, state: State) -> Bounds:
    """The bounds, by the means of groups of nodes that may have anything."""
    count = len(state.is_bad)
    groups = state.fleet.groups.tolist()
    load, capacity = state.load[goal.dimension], state.capacity[goal.dimension]
    limit, act, means = [float("inf")] * count, [float("inf")] * count, [0.0] * count
    for group in sorted(set(groups)):
        nodes = [node for node in range(count) if groups[node] == group and not state.is_bad[node]]
        if not nodes:
            continue
        mean = sum(load[node] for node in nodes) / sum(capacity[node] for node in nodes)
        least = (
            float(-(-sum(load[node] for node in nodes) // len(nodes))) if goal.dimension == MASTERS else 0.0
        )
        for node in nodes:
            means[node] = mean * capacity[node]
            limit[node] = max(goal.stop_at * mean, goal.floor) * capacity[node]
            act[node] = max(goal.act_above * mean, goal.floor) * capacity[node]
            if goal.dimension == MASTERS:
                limit[node] = max(goal.stop_at * mean, least)
                act[node] = max(goal.act_above * mean, least, goal.floor)
    return Bounds(goal, limit, act, means)


class Balancer:
    """Carries a goal out. `take` records a move and raises `Enough` where there may be no more."""

    def __init__(
        self, state: State, settings: Settings, earlier: Sequence[Bounds], take: Callable[[Done], None]
    ) -> None:
        self._state = state
        self._settings = settings
        self._earlier = earlier
        self._take = take
        self._tie = _tie_order(state.fleet.count, settings.seed)

    def run(self, bounds: Bounds) -> None:
        """Bring all nodes below their limits, as far as that can be done."""
        if not bounds.is_active(self._state):
            return
        settings = self._settings
        # With the floor at first; below it only for nodes that are still where there is to be acted.
        for level, factor in ((bounds.limit, 1.0), (bounds.act, 0.0)):
            if bounds.goal.of_masters:
                self._promote(bounds, level, settings.promote_share * factor)
            if settings.with_copies:
                self._copy(bounds, level, settings.copy_share * factor)

    # --- candidates ---

    def _hot(self, bounds: Bounds, level: Sequence[float]) -> Bools:
        load = self._state.load[bounds.goal.dimension]
        return np.array(
            [
                load[node] > level[node] * (1 + SLACK) and not bad
                for node, bad in enumerate(self._state.is_bad)
            ],
            np.bool_,
        )

    def _masters_on(self, hot: Bools, amount: Floats, bounds: Bounds, share: float) -> Longs:
        """Queues with their master on such nodes, of so much of the load of their node."""
        state = self._state
        if not hot.any():
            return np.zeros(0, np.int64)
        load = np.array(state.load[bounds.goal.dimension])
        there = state.fleet.movable & (state.master >= 0)
        there[there] = hot[state.master[there]]
        queues = np.flatnonzero(there)
        enough = amount[queues] >= np.maximum(share * load[state.master[queues]], 1e-12)
        return queues[enough]

    def _amount(self, bounds: Bounds) -> Floats:
        fleet = self._state.fleet
        columns = (
            fleet.promote_cpu,
            fleet.in_bytes,
            fleet.out_bytes,
            fleet.memory,
            fleet.disk,
            # The least busy ones go: they are noticed least.
            1.0 / (1.0 + fleet.promote_cpu.clip(0)),
            np.ones(fleet.count),
        )
        return columns[bounds.goal.dimension]

    def _promote(self, bounds: Bounds, level: Sequence[float], share: float) -> None:
        state = self._state
        dimension = bounds.goal.dimension
        amount = self._amount(bounds)
        queues = self._masters_on(
            self._hot(bounds, level), amount, bounds, 0.0 if dimension == MASTERS else share
        )
        queues = queues[np.lexsort((self._tie[queues], -amount[queues]))]
        for queue in queues.tolist():
            source = int(state.master[queue])
            if state.load[dimension][source] <= level[source] * (1 + SLACK):
                continue
            vector = state.vector("promote", queue)
            target = self._heir_for(bounds, queue, source, vector)
            if target is not None:
                self._do("promote", queue, source, target, bounds, vector)

    def _heir_for(self, bounds: Bounds, queue: int, source: int, vector: Vector) -> int | None:
        """Who gets the mastership: the coldest, but the next one in the ring if it is about as cold."""
        state = self._state
        dimension = bounds.goal.dimension
        ring = state.ring(queue)
        at = ring.index(source)
        synced = state.synced_nodes(queue)
        step = max(RING_PREFERENCE * bounds.mean[source] / state.capacity[dimension][source], 1e-12)
        found = []
        for distance, node in enumerate(ring[at + 1 :] + ring[:at]):
            if node in synced and state.may_promote(queue, node):
                share = (state.load[dimension][node] + vector[dimension]) / state.capacity[dimension][node]
                found.append((int(share / step), distance, node))
        for _, _, node in sorted(found):
            if self.accepts("promote", queue, source, node, bounds, vector):
                return node
        return None

    def _copy(self, bounds: Bounds, level: Sequence[float], share: float) -> None:
        state, dimension = self._state, bounds.goal.dimension
        hot = self._hot(bounds, level)
        if not hot.any():
            return
        cold = self._coldest(dimension)
        failed = [0] * len(hot)
        for queue, source in self._copies_on(hot, bounds, share):
            if (
                failed[source] >= FAILURES_MAX
                or state.load[dimension][source] <= level[source] * (1 + SLACK)
                or not state.may_drop(queue)
            ):
                continue
            is_master = source == int(state.master[queue])
            if bounds.goal.of_masters and not is_master:
                continue
            kind: Kind = "move" if is_master else "copy"
            vector = state.vector(kind, queue)
            target = self._place_for(bounds, kind, queue, source, vector, cold)
            if target is None:
                failed[source] += 1
                continue
            self._do(kind, queue, source, target, bounds, vector)
            for node in (source, target):
                cold[state.zone[node]].changed(node)

    def _coldest(self, dimension: int) -> dict[int, Coldest]:
        """By zone."""
        state = self._state
        return {
            zone: Coldest(
                (node for node, may in enumerate(state.may_receive) if may and state.zone[node] == zone),
                lambda node: state.share(dimension, node),
            )
            for zone in sorted(set(state.zone))
        }

    def _copies_on(self, hot: Bools, bounds: Bounds, share: float) -> Iterator[tuple[int, int]]:
        """Queue and node of copies on such nodes: those first whose leaving helps most for what copying costs."""
        state = self._state
        amount = self._amount(bounds)
        if bounds.goal.of_masters:
            queues = self._masters_on(hot, amount, bounds, 0.0 if bounds.goal.dimension == MASTERS else share)
            nodes = state.master[queues].astype(np.int64)
        else:
            load = np.array(state.load[bounds.goal.dimension])
            usable = state.synced & state.fleet.movable[:, None]
            usable &= np.where(state.members >= 0, hot[state.members], False)
            queues, places = np.nonzero(usable)
            nodes = state.members[queues, places].astype(np.int64)
            enough = amount[queues] >= np.maximum(share * load[nodes], 1e-12)
            queues, nodes = queues[enough], nodes[enough]
        gain = amount[queues] / (1 + state.fleet.size[queues] / (1 << 20))
        order = np.lexsort((nodes, self._tie[queues], -gain))
        return zip(queues[order].tolist(), nodes[order].tolist(), strict=True)

    def _place_for(
        self,
        bounds: Bounds,
        kind: Kind,
        queue: int,
        source: int,
        vector: Vector,
        cold: dict[int, Coldest],
    ) -> int | None:
        """The coldest node that may have the copy, so that no zone is lost."""
        state = self._state
        dimension = bounds.goal.dimension
        ring = state.ring(queue)
        for node in _merged(state, [cold[zone] for zone in state.zones_for(ring, source)], dimension):
            if not self._improves(bounds, source, node, vector[dimension]):
                return None  # nor will it with one that has more
            if (
                node not in ring
                and state.allowed(queue, node)
                and (kind != "move" or state.may_promote(queue, node))
                and self.accepts(kind, queue, source, node, bounds, vector)
            ):
                return node
        return None

    # --- what is accepted ---

    def accepts(
        self, kind: Kind, queue: int, source: int, target: int, bounds: Bounds, vector: Vector
    ) -> bool:
        """Whether the goal gets better, and no goal before it worse."""
        state = self._state
        if not self._improves(bounds, source, target, vector[bounds.goal.dimension]):
            return False
        if not tolerated(state, self._earlier, source, target, vector):
            return False
        return (
            fits(state, self._settings, kind, queue)
            and state.has_room(source, target, vector)
            and state.survives(kind, queue, source, target)
        )

    def _improves(self, bounds: Bounds, source: int, target: int, amount: float) -> bool:
        dimension = bounds.goal.dimension
        load, capacity, limit = (
            self._state.load[dimension],
            self._state.capacity[dimension],
            bounds.limit,
        )
        there, here = load[target], load[source]
        less = max(0.0, here - limit[source]) ** 2 - max(0.0, here - amount - limit[source]) ** 2
        more = max(0.0, there + amount - limit[target]) ** 2 - max(0.0, there - limit[target]) ** 2
        mean = bounds.mean[source] / capacity[source]
        return (
            less / capacity[source] - more / capacity[target] > BENEFIT_MIN * mean * mean * capacity[source]
        )

    def _do(self, kind: Kind, queue: int, source: int, target: int, bounds: Bounds, vector: Vector) -> None:
        state, dimension = self._state, bounds.goal.dimension
        name = state.fleet.nodes[source].node
        ratio = state.load[dimension][source] / bounds.mean[source] if bounds.mean[source] > 0 else 0.0
        part = vector[dimension] / state.load[dimension][source]
        reason = goal_reason(bounds.goal)
        why = f"{name} has {ratio:.0%} of the mean {bounds.goal.id}; the queue is {part:.1%} of it"
        self._take(Done(kind, queue, source, target, reason, why))


def _merged(state: State, cold: Sequence[Coldest], dimension: int) -> Iterator[int]:
    """The first nodes of some zones, the coldest first."""
    if len(cold) == 1:
        return cold[0].first(COLD_TRIED)
    found = [node for each in cold for node in each.first(COLD_TRIED)]
    return iter(sorted(found, key=lambda node: (state.share(dimension, node), node))[:COLD_TRIED])


def goal_reason(goal: SoftGoal) -> str:
    """What a step of it gives as its reason."""
    return "capacity" if goal.id.startswith("capacity") else f"{goal.id}-balance"


def fits(state: State, settings: Settings, kind: Kind, queue: int) -> bool:
    """Whether the plan may copy what such a move copies."""
    if kind in ("promote", "drop") or settings.max_bytes is None:
        return True
    return state.copied + int(state.fleet.size[queue]) <= settings.max_bytes


def tolerated(state: State, bounds: Sequence[Bounds], source: int, target: int, vector: Vector) -> bool:
    """Whether no node comes above a limit of these goals by a move, nor further above it."""
    for each in bounds:
        amount = vector[each.goal.dimension]
        gaining = target if amount > 0 else source
        if amount and gaining >= 0:
            after = state.load[each.goal.dimension][gaining] + abs(amount)
            if after > each.limit[gaining] * (1 + SLACK):
                return False
    return True


def _tie_order(count: int, seed: int) -> Longs:
    """Who is first among equals: by name, or with a seed by chance that is the same each time."""
    order: Longs = np.arange(count, dtype=np.int64)
    return np.random.default_rng(seed).permutation(order) if seed else order
