"""The hard goals: draining of nodes, missing copies and zones, and nodes that are too full or would be after a loss.

Copies that cannot move are reported with the reason. Source: spark §3.3, goals 0 to 3; §6.2-6.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from spark_ops.planning.balance import Bounds, fits, units_of
from spark_ops.planning.coldest import Coldest
from spark_ops.planning.goals import COPIES, CPU, DISK, MEMORY, Settings, SoftGoal
from spark_ops.planning.state import SLACK, Done, Kind, State

CAPACITY_GOALS: Final = (
    SoftGoal("capacity-cpu", CPU, True, 0.0, 0.0, 0.0),
    SoftGoal("capacity-memory", MEMORY, False, 0.0, 0.0, 0.0),
    SoftGoal("capacity-disk", DISK, False, 0.0, 0.0, 0.0),
    SoftGoal("capacity-copies", COPIES, False, 0.0, 0.0, 0.0),
)

LOSS_LESS: Final = 1e-4
"""A move is made only if it lowers the excess after a loss by more than this share of a node's capacity."""

NO_NODE: Final = "no other node may have a copy of it"
NO_ROOM: Final = "no node that may have a copy of it has room"


def capacity_bounds(state: State) -> list[Bounds]:
    """Return the hard limits as bounds, so that the balancer can serve them. The mean is that of the usable nodes."""
    found = []
    for goal in CAPACITY_GOALS:
        limit = state.hard[goal.dimension]
        if all(value == float("inf") for value in limit):
            continue
        count = max(1, sum(not bad for bad in state.is_bad))
        load = state.load[goal.dimension]
        mean = sum(value for value, bad in zip(load, state.is_bad, strict=True) if not bad) / count
        means = [mean] * len(limit)
        # Copies have no capacity but their limit.
        unit = limit if goal.dimension == COPIES else units_of(state, goal.dimension, means)
        found.append(Bounds(goal, limit, limit, means, unit))
    return found


class Repairer:
    """Makes the moves for hard goals. `take` records a move and raises `Enough` if the plan is full.

    stuck: by queue and node, why the copy cannot leave the node.
    """

    def __init__(self, state: State, settings: Settings, take: Callable[[Done], None]) -> None:
        self._state = state
        self._settings = settings
        self._take = take
        self.stuck: dict[tuple[int, int], str] = {}
        self._cold = Coldest(
            (node for node, may in enumerate(state.may_receive) if may), lambda node: self._fullness(node)
        )

    def _fullness(self, node: int) -> float:
        """Return a node's largest used share of cpu, memory, disk; of equal nodes one with fewer copies is lower."""
        state = self._state
        worst = max(
            state.share(dimension, node) / self._scale(dimension) for dimension in (CPU, MEMORY, DISK)
        )
        return worst + 1e-6 * state.load[COPIES][node]

    def _scale(self, dimension: int) -> float:
        return {CPU: self._settings.cpu_max, MEMORY: self._settings.memory_max}.get(
            dimension, self._settings.disk_max
        )

    # --- goal 0: copies that have to leave ---

    def drain(self) -> None:
        """Move masters and then copies off nodes that are down, in maintenance, or to be emptied."""
        state = self._state
        self.stuck.clear()
        for queue, node in self._stranded():
            if node == int(state.master[queue]):
                self._lead_away(queue, node, "drain", self._why(node))
        for queue, node in self._stranded():
            self._copy_away(queue, node)

    def _stranded(self) -> Iterator[tuple[int, int]]:
        """Return queue and node of each copy that has to leave, the smallest first."""
        state = self._state
        if not any(state.is_bad):
            return iter(())
        bad = np.array(state.is_bad, np.bool_)
        queues, places = np.nonzero(np.where(state.members >= 0, bad[state.members], False))
        nodes = state.members[queues, places]
        order = np.lexsort((nodes, queues, state.fleet.size[queues]))
        return zip(queues[order].tolist(), nodes[order].tolist(), strict=True)

    def _why(self, node: int) -> str:
        row = self._state.fleet.nodes[node]
        state = "is down" if not row.is_up else "is in maintenance" if row.is_draining else "is to be emptied"
        return f"{row.node} {state}"

    def demote(self, node: int) -> None:
        """Move the masters off a node, the busiest first. Its copies stay."""
        state = self._state
        self.stuck.clear()
        why = f"{state.fleet.nodes[node].node} is to have no masters"
        queues = np.flatnonzero(state.master == node)
        for queue in queues[np.lexsort((queues, -state.fleet.promote_cpu[queues]))].tolist():
            self._lead_away(queue, node, "demote", why)
            if int(state.master[queue]) == node:
                reason = "no other node has a synchronised copy, room for the master, and leave to have it"
                self.stuck[queue, node] = state.fleet.why_not.get(queue, reason)

    def _lead_away(self, queue: int, node: int, reason: str, why: str) -> None:
        state = self._state
        if queue in state.fleet.why_not or not state.fleet.movable[queue]:
            return
        vector = state.vector("promote", queue)
        able = [
            other for other in state.synced_nodes(queue) if other != node and state.may_promote(queue, other)
        ]
        able = [other for other in able if state.has_room(node, other, vector)]
        if able:
            best = min(
                able,
                key=lambda other: (
                    not state.survives("promote", queue, node, other),
                    state.share(CPU, other),
                    other,
                ),
            )
            self._make("promote", queue, node, best, reason, why)

    def _copy_away(self, queue: int, node: int) -> None:
        state = self._state
        fleet = state.fleet
        if not fleet.movable[queue]:
            self.stuck[queue, node] = fleet.why_not.get(queue, "it may not be moved")
        elif not self._settings.with_copies:
            self.stuck[queue, node] = "the plan was to have no copies"
        elif not self._can_spare(queue, node):
            self.stuck[queue, node] = "it has not as many synchronised copies as its policy wants"
        else:
            kind: Kind = "move" if node == int(state.master[queue]) else "copy"
            target, why = self._target(kind, queue, node)
            if target is None:
                self.stuck[queue, node] = why
            else:
                self._make(kind, queue, node, target, "drain", self._why(node))

    def _can_spare(self, queue: int, node: int) -> bool:
        """True if enough synchronised copies remain with one more copy and without that one."""
        state = self._state
        synced = state.synced_nodes(queue)
        return len(synced) + 1 - (node in synced) > int(state.fleet.want[queue])

    def _target(self, kind: Kind, queue: int, source: int) -> tuple[int | None, str]:
        """Return a copy's target, preferably one that loses no zone and bears a node's loss; or why there is none."""
        state = self._state
        ring = state.ring(queue)
        vector = state.vector(kind, queue)
        why = NO_NODE
        second: tuple[bool, bool] | None = None
        best: int | None = None
        for node in self._cold.first(len(state.may_receive)):
            if node in ring or not state.allowed(queue, node):
                continue
            if not state.has_room(source, node, vector) or not fits(state, self._settings, kind, queue):
                why = NO_ROOM
                continue
            rank = (
                not state.keeps_zones(ring, source, node),
                not state.survives(kind, queue, source, node),
            )
            if rank == (False, False):
                return node, ""
            if second is None or rank < second:
                second, best = rank, node
        return best, why

    # --- goals 0 and 1: copies and zones ---

    def complete(self) -> None:
        """Give copies to queues that have fewer than their policy wants, where nodes are available."""
        state = self._state
        if not self._settings.with_copies:
            return
        fleet = state.fleet
        have = (state.members >= 0).sum(axis=1)
        for queue in np.flatnonzero((have <= fleet.want) & fleet.movable & (state.master >= 0)).tolist():
            for _ in range(int(fleet.want[queue]) + 1 - int(have[queue])):
                target = self._missing(queue)
                if target is None:
                    break
                self._make("add", queue, -1, target, "copies", "it has fewer copies than its policy wants")

    def _missing(self, queue: int) -> int | None:
        state = self._state
        ring = state.ring(queue)
        zones = {state.zone[node] for node in ring}
        vector = state.vector("add", queue)
        found = [
            node
            for node in self._cold.first(len(state.may_receive))
            if node not in ring
            and state.allowed(queue, node)
            and state.has_room(-1, node, vector)
            and fits(state, self._settings, "add", queue)
        ]
        return min(found, key=lambda node: state.zone[node] in zones, default=None)

    def trim(self) -> None:
        """Drop copies that the policy does not want, as an aborted plan leaves them."""
        state = self._state
        fleet = state.fleet
        have = (state.members >= 0).sum(axis=1)
        surplus = (have > fleet.want + 1) & fleet.movable & (state.master >= 0)
        for queue in np.flatnonzero(surplus).tolist():
            ring, master = state.ring(queue), int(state.master[queue])
            for _ in range(int(have[queue]) - int(fleet.want[queue]) - 1):
                synced = state.synced_nodes(queue)
                able = [node for node in ring if node != master and self._is_spare(queue, node, synced)]
                # A copy on a node to be left is dropped first, then an unsynchronised one, then one whose loss costs no
                # zone, then the last that joined.
                node = max(
                    able,
                    key=lambda each: (
                        state.is_bad[each],
                        each not in synced,
                        state.keeps_zones(ring, each, master),
                        ring.index(each),
                    ),
                    default=None,
                )
                if node is None:
                    break
                ring.remove(node)
                self._make("drop", queue, node, -1, "copies", "it has more copies than its policy wants")

    def _is_spare(self, queue: int, node: int, synced: list[int]) -> bool:
        return len(synced) - (node in synced) > int(self._state.fleet.want[queue])

    def spread(self) -> None:
        """Move copies into other zones where two are in one zone but could be in two."""
        state = self._state
        if not state.has_zones or not self._settings.with_copies:
            return
        for queue in _zone_deficits(state).tolist():
            if not state.fleet.movable[queue] or not state.may_drop(queue):
                continue
            ring = state.ring(queue)
            zones = [state.zone[node] for node in ring]
            master = int(state.master[queue])
            for source in ring[::-1]:
                if source == master or zones.count(state.zone[source]) < 2:
                    continue
                target = self._in_other_zone(queue, source, ring)
                if target is not None:
                    why = f"two copies are in zone {state.fleet.nodes[source].zone}"
                    self._make("copy", queue, source, target, "zones", why)
                    break

    def _in_other_zone(self, queue: int, source: int, ring: list[int]) -> int | None:
        state = self._state
        zones = {state.zone[node] for node in ring}
        vector = state.vector("copy", queue)
        for node in self._cold.first(len(state.may_receive)):
            if (
                state.zone[node] not in zones
                and state.zone[node] >= 0
                and state.allowed(queue, node)
                and state.has_room(source, node, vector)
                and state.survives("copy", queue, source, node)
                and fits(state, self._settings, "copy", queue)
            ):
                return node
        return None

    # --- goal 2: the loss of a node ---

    def survive(self) -> None:
        """Change heirs, by promotions, where the loss of one node would take another above its limit."""
        state = self._state
        for heir, limit in enumerate(state.loss_limit):
            if state.is_bad[heir] or state.load[CPU][heir] + state.worst[heir] <= limit * (1 + SLACK):
                continue
            lost = int(state.shift[heir].argmax())
            queues = np.flatnonzero((state.master == lost) & (state.heirs() == heir) & state.fleet.movable)
            order = np.lexsort((queues, -state.fleet.promote_cpu[queues]))
            for queue in queues[order].tolist():
                if state.load[CPU][heir] + state.worst[heir] <= limit * (1 + SLACK):
                    break
                self._change_heir(queue, lost, heir)

    def _change_heir(self, queue: int, lost: int, heir: int) -> None:
        state = self._state
        vector = state.vector("promote", queue)
        for node in state.synced_nodes(queue):
            if node == lost or not state.may_promote(queue, node) or not state.has_room(lost, node, vector):
                continue
            if state.loss_change("promote", queue, lost, node) < -LOSS_LESS:
                names = [state.fleet.nodes[each].node for each in (lost, heir)]
                why = f"if {names[0]} were lost, {names[1]} would have more than it can bear"
                self._make("promote", queue, lost, node, "failover", why)
                return

    def _make(self, kind: Kind, queue: int, source: int, target: int, reason: str, why: str) -> None:
        self._take(Done(kind, queue, source, target, reason, why))

    def moved(self, done: Done) -> None:
        """Note a move for any goal: the order of its nodes by fullness has changed."""
        for node in (done.source, done.target):
            if node >= 0:
                self._cold.changed(node)


def _zone_deficits(state: State) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the queues whose copies are in fewer zones than possible."""
    zone = np.array(state.zone)
    there = state.members >= 0
    of_copies = np.where(there, zone[state.members], -1)
    ordered = np.sort(of_copies, axis=1)
    distinct = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1 - (ordered[:, 0] == -1)
    usable = {state.zone[node] for node, may in enumerate(state.may_receive) if may} - {-1}
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.flatnonzero(
        distinct < np.minimum(there.sum(axis=1), len(usable))
    )
    return found


def zone_deficit(state: State) -> int:
    """Return the number of queues whose copies are in fewer zones than possible."""
    return len(_zone_deficits(state)) if state.has_zones else 0
