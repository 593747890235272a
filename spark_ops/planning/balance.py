"""The balancer serves one soft goal at a time: it relieves overloaded nodes by moves that all earlier goals accept.

It moves masterships first, since that is nearly free, the largest queues first; then copies, in the order of their
benefit per cost. A queue below the floor of shares waits until nothing else helps. Where single moves don't help,
`chains` tries several at once in small fleets. Source: spark §3.3.
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
"""A smaller improvement does not count; unit: the square of a mean share."""

COLD_TRIED: Final = 16
"""The number of nodes that are tried for a copy."""

FAILURES_MAX: Final = 300
"""A node is skipped for the rest of a round after this number of its copies found no place."""

RING_PREFERENCE: Final = 0.05
"""The next node in the ring is preferred if no other has a load lower by this share of the mean."""


class Enough(Exception):
    """The plan has as many moves as it may have."""


@dataclass(slots=True)
class Bounds:
    """The limits of a goal in this fleet: by node, the most load, and the load above which moves are made.

    They are measured anew only after moves for hard goals; so no move for a soft goal can make it easier.
    unit: by node, the load that counts as 1: its capacity, or the mean load where no capacity is known. So loads of
    different kinds can be compared and added.
    """

    goal: SoftGoal
    limit: list[float]
    act: list[float]
    mean: list[float]
    unit: list[float]

    def excess(self, state: State, node: int) -> float:
        """Return a node's load above its limit; 0 if it is below."""
        return max(0.0, state.load[self.goal.dimension][node] - self.limit[node])

    def is_active(self, state: State) -> bool:
        """True if some node has so much load that moves are made."""
        load = state.load[self.goal.dimension]
        return any(
            load[node] > self.act[node] * (1 + SLACK) for node, bad in enumerate(state.is_bad) if not bad
        )

    def above(self, state: State) -> float:
        """Return the sum of loads above limits, each as a share of its node's unit."""
        found = sum(
            self.excess(state, node) / self.unit[node] for node, bad in enumerate(state.is_bad) if not bad
        )
        return round(found, 6)

    def objective(self, state: State) -> float:
        """Return the sum of squared loads above limits, so that one node far above is worse than two a little above.

        Loads are shares of the nodes' units; a node with a unit twice the mean counts twice.
        """
        good = [node for node, bad in enumerate(state.is_bad) if not bad]
        mean = sum(self.unit[node] for node in good) / max(1, len(good))
        return round(sum(self.excess(state, node) ** 2 / (self.unit[node] * mean) for node in good), 9)


def bounds_of(goal: SoftGoal, state: State) -> Bounds:
    """Return the bounds of a goal, by the means over the usable nodes of each group."""
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
    return Bounds(goal, limit, act, means, units_of(state, goal.dimension, means))


def units_of(state: State, dimension: int, means: Sequence[float]) -> list[float]:
    """Return the load of each node that counts as 1: its capacity, or where none is known the mean load, if any."""
    if state.has_capacity[dimension]:
        return state.capacity[dimension]
    return [mean if mean > 0 else 1.0 for mean in means]


class Balancer:
    """Makes moves for one goal at a time. `take` records a move and raises `Enough` if the plan is full."""

    def __init__(
        self, state: State, settings: Settings, earlier: Sequence[Bounds], take: Callable[[Done], None]
    ) -> None:
        self._state = state
        self._settings = settings
        self._earlier = earlier
        self._take = take
        self._tie = _tie_order(state.fleet.count, settings.seed)

    def run(self, bounds: Bounds) -> None:
        """Bring all nodes below their limits, as far as possible."""
        if not bounds.is_active(self._state):
            return
        settings = self._settings
        # At first only queues above the floor; small ones only for nodes that are still above the level for action.
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
        """Return queues with their master on hot nodes that make at least this share of their node's load."""
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
            # The least busy queues move first: fewest clients notice.
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
        """Return the mirror to promote: the coldest, but the next in the ring if about as cold. None: no node."""
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
        """Return the nodes that may receive copies, the coldest first, by zone."""
        state = self._state
        return {
            zone: Coldest(
                (node for node, may in enumerate(state.may_receive) if may and state.zone[node] == zone),
                lambda node: state.share(dimension, node),
            )
            for zone in sorted(set(state.zone))
        }

    def _copies_on(self, hot: Bools, bounds: Bounds, share: float) -> Iterator[tuple[int, int]]:
        """Return queue and node of copies on hot nodes, in the order of benefit per cost of copying."""
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
        """Return the coldest node that may have the copy such that no zone is lost; None: no node."""
        state = self._state
        dimension = bounds.goal.dimension
        ring = state.ring(queue)
        for node in _merged(state, [cold[zone] for zone in state.zones_for(ring, source)], dimension):
            if not self._improves(bounds, source, node, vector[dimension]):
                return None  # a node with more load will not improve it either
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
        """True if a move makes the goal better, and no earlier goal worse."""
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
    """Return the coldest nodes of some zones together, the coldest first."""
    if len(cold) == 1:
        return cold[0].first(COLD_TRIED)
    found = [node for each in cold for node in each.first(COLD_TRIED)]
    return iter(sorted(found, key=lambda node: (state.share(dimension, node), node))[:COLD_TRIED])


def goal_reason(goal: SoftGoal) -> str:
    """Return the reason that steps for a goal name."""
    return "capacity" if goal.id.startswith("capacity") else f"{goal.id}-balance"


def fits(state: State, settings: Settings, kind: Kind, queue: int) -> bool:
    """True if the plan's limit of bytes allows the copy that such a move makes."""
    if kind in ("promote", "drop") or settings.max_bytes is None:
        return True
    return state.copied + int(state.fleet.size[queue]) <= settings.max_bytes


def tolerated(state: State, bounds: Sequence[Bounds], source: int, target: int, vector: Vector) -> bool:
    """True if a move takes no node above a limit of these goals, nor further above it."""
    for each in bounds:
        amount = vector[each.goal.dimension]
        gaining = target if amount > 0 else source
        if amount and gaining >= 0:
            after = state.load[each.goal.dimension][gaining] + abs(amount)
            if after > each.limit[gaining] * (1 + SLACK):
                return False
    return True


def _tie_order(count: int, seed: int) -> Longs:
    """Return the order of queues that are equal otherwise: by name, or with a seed by reproducible chance."""
    order: Longs = np.arange(count, dtype=np.int64)
    return np.random.default_rng(seed).permutation(order) if seed else order
