"""The state of a fleet during planning: copies and loads after the moves so far, and which moves are legal.

A move brings something of a queue from one node to another: its mastership, its copy, or both; so it is one vector of
loads that leaves a node and arrives at another. The target needs room for a copy before the source's is free again,
and within a wave no freed room is counted: steps of a wave may run in any order.
A legal move takes no node over a hard limit, nor further over it; it does not make the effect of a node's death
worse; and it gives up no zone. Source: spark §3.3, §6.1-5.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from spark_ops.planning.fleet import Fleet, Floats, Ints, Longs
from spark_ops.planning.goals import (
    COPIES,
    CPU,
    DIMENSIONS,
    DISK,
    IN,
    MASTERS,
    MEMORY,
    OUT,
    Settings,
    SettingsError,
)

NODES_MAX: Final = 4096
SLACK: Final = 1e-9
"""The relative difference that sums of floats may have."""

Kind: TypeAlias = Literal["promote", "copy", "move", "add", "drop"]
Vector: TypeAlias = tuple[float, float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Done:
    """A move: of the master (promote), a mirror (copy), the master's copy (move); a mirror comes (add) or goes (drop).

    source: -1 for add.   target: -1 for drop.
    """

    kind: Kind
    queue: int
    source: int
    target: int
    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a change of one queue's placement.

    order: nodes with a copy after it, in order of members.   synced: those of them with all messages.   master, heir:
    after it.   changes: loads by node and dimension.   gains: the part of them that comes before anything goes.
    """

    queue: int
    order: tuple[int, ...]
    synced: frozenset[int]
    master: int
    heir: int
    changes: dict[int, list[float]]
    gains: dict[int, list[float]]


class State:
    """Loads by [dimension][node], and placements."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        count = len(fleet.nodes)
        if count > NODES_MAX:
            raise SettingsError(f"{count} nodes are more than can be planned for at once")
        self.fleet = fleet
        self.members = fleet.members.copy()
        self.synced = fleet.synced.copy()
        self.master_at = fleet.master_at.copy()
        self.master = masters_of(fleet)
        drained = settings.node if settings.mode == "drain-node" else None
        self.is_bad = [not row.is_up or row.is_draining or row.node == drained for row in fleet.nodes]
        demoted = settings.node if settings.mode == "demote" else None
        self.may_lead = [
            not bad and row.node != demoted for bad, row in zip(self.is_bad, fleet.nodes, strict=True)
        ]
        self.may_receive = [
            not bad and (row.fds <= 0 or row.base_fds < settings.fds_max * row.fds)
            for bad, row in zip(self.is_bad, fleet.nodes, strict=True)
        ]
        self.has_zones = len({int(zone) for zone in fleet.zones if zone >= 0}) > 1
        self.zone = fleet.zones.tolist()
        self.capacity, self.has_capacity = _capacities(fleet)
        self.hard = _hard_limits(fleet, settings)
        self.load = _loads(fleet, self.master)
        self.peak = [column.copy() for column in self.load]
        self.loss_limit = self.hard[CPU]
        self.shift = _shifts(fleet, self.master, self.heirs())
        self.worst: list[float] = self.shift.max(axis=1).tolist() if count else []
        self.done: list[Done] = []
        self.copied = 0

    # --- reading ---

    def ring(self, queue: int) -> list[int]:
        """Return the nodes with a copy, in order of members."""
        return [node for node in self.members[queue].tolist() if node >= 0]

    def synced_nodes(self, queue: int) -> list[int]:
        """Return the nodes with a synchronised copy, in order of members."""
        row = self.members[queue].tolist()
        return [node for node, has_all in zip(row, self.synced[queue].tolist(), strict=True) if has_all]

    def heirs(self) -> Longs:
        """Return by queue the heir, the node that becomes master if the master dies; -1: none."""
        able = self.synced.copy()
        places = np.arange(len(able))
        has_master = self.master_at >= 0
        able[places[has_master], self.master_at[has_master]] = False
        first = able.argmax(axis=1) if able.size else np.zeros(len(able), np.int64)
        found: Longs = self.members[places, first].astype(np.int64)
        found[~able.any(axis=1)] = -1
        return found

    def heir(self, queue: int, master: int) -> int:
        """Return the heir of a queue if its master were on a node; -1: none."""
        return next((node for node in self.synced_nodes(queue) if node != master), -1)

    def share(self, dimension: int, node: int) -> float:
        """Return a node's load as a share of its capacity."""
        return self.load[dimension][node] / self.capacity[dimension][node]

    def vector(self, kind: Kind, queue: int) -> Vector:
        """Return the loads that a move of that kind takes from the source to the target."""
        fleet = self.fleet
        lead = float(fleet.promote_cpu[queue])
        mirror = float(fleet.mirror_cpu[queue])
        in_, out = float(fleet.in_bytes[queue]), float(fleet.out_bytes[queue])
        if kind == "promote":
            return (lead, in_, out, 0.0, 0.0, 1.0, 0.0)
        memory, disk = float(fleet.memory[queue]), float(fleet.disk[queue])
        if kind == "move":
            return (lead + mirror, in_, out, memory, disk, 1.0, 1.0)
        return (mirror, 0.0, 0.0, memory, disk, 0.0, 1.0)

    # --- what is legal ---

    def allowed(self, queue: int, node: int) -> bool:
        """True if the node may get a copy of the queue."""
        fixed = self.fleet.fixed.get(queue)
        return (
            self.may_receive[node]
            and (fixed is None or node in fixed)
            and not (node in self.fleet.ram and self.fleet.is_quorum[queue])
        )

    def may_promote(self, queue: int, node: int) -> bool:
        """True if a synchronised copy on the node may become the master."""
        fixed = self.fleet.fixed.get(queue)
        return self.may_lead[node] and (fixed is None or node in fixed)

    def keeps_zones(self, ring: Sequence[int], source: int, target: int) -> bool:
        """True if the copies are in at least as many zones as before after one moves from source to target."""
        if not self.has_zones:
            return True
        after = {self.zone[node] for node in ring if node != source} | {self.zone[target]}
        return len(after) >= len({self.zone[node] for node in ring})

    def zones_for(self, ring: Sequence[int], source: int) -> list[int]:
        """Return the zones in which a copy may replace the source's without the loss of a zone."""
        others = {self.zone[node] for node in ring if node != source}
        every = sorted(set(self.zone))
        if not self.has_zones or self.zone[source] in others:
            return every
        return [zone for zone in every if zone not in others]

    def may_drop(self, queue: int) -> bool:
        """True if there are enough synchronised copies, so that one may go when another has come."""
        return int(self.synced[queue].sum()) > int(self.fleet.want[queue])

    def has_room(self, source: int, target: int, vector: Vector) -> bool:
        """True if a move breaks no hard limit, and none further, even while both nodes have the copy."""
        for dimension, amount in enumerate(vector):
            # Where a mirror costs more than its master the source gains load.
            gaining = target if amount > 0 else source
            if amount and gaining >= 0:
                limit = self.hard[dimension][gaining] * (1 + SLACK)
                if self.peak[dimension][gaining] + abs(amount) > limit:
                    return False
        return True

    def survives(self, kind: Kind, queue: int, source: int, target: int) -> bool:
        """True if a move does not raise the load above limits that heirs would have after the death of a node.

        Source: spark §3.3, goal 2 (N+1).
        """
        cpu = self.vector(kind, queue)[CPU]
        lead = float(self.fleet.promote_cpu[queue])
        load, limit, worst = self.load[CPU], self.loss_limit, self.worst
        _, heir = self._led(kind, queue, source, target)
        # Most nodes are far from their limits; then the exact sum is not needed.
        for node, gain in ((target, cpu), (source, -cpu), (heir, 0.0)):
            extra = max(gain, 0.0) + (max(lead, 0.0) if node == heir else 0.0)
            if node >= 0 and load[node] + worst[node] + extra > limit[node]:
                return self.loss_change(kind, queue, source, target) <= SLACK
        return True

    def loss_change(self, kind: Kind, queue: int, source: int, target: int) -> float:
        """Return by which share of a node's capacity a move would raise `loss_excess`."""
        cpu = self.vector(kind, queue)[CPU]
        return self._loss_change(queue, *self._led(kind, queue, source, target), {target: cpu, source: -cpu})

    def effect_of(self, queue: int, master: int, adds: Sequence[int], drops: Sequence[int]) -> Effect:
        """Return the effect of new copies, another master, and the loss of other copies, in this order."""
        old_master = int(self.master[queue])
        order = self.ring(queue)
        changes: dict[int, list[float]] = {}
        gains: dict[int, list[float]] = {}

        def change(node: int, vector: Vector, sign: float) -> None:
            total = changes.setdefault(node, [0.0] * len(vector))
            gain = gains.setdefault(node, [0.0] * len(vector))
            for dimension, amount in enumerate(vector):
                total[dimension] += sign * amount
                # Where a mirror costs more than its master, the old master's node gains load.
                gain[dimension] += max(0.0, sign * amount)

        for node in adds:
            order.insert(order.index(old_master) or len(order), node)
            change(node, self.vector("add", queue), 1.0)
        if master != old_master:
            change(master, self.vector("promote", queue), 1.0)
            change(old_master, self.vector("promote", queue), -1.0)
        for node in drops:
            order.remove(node)
            change(node, self.vector("drop", queue), -1.0)
        synced = frozenset({*self.synced_nodes(queue), *adds}.difference(drops))
        heir = next((node for node in order if node in synced and node != master), -1)
        return Effect(queue, tuple(order), synced, master, heir, changes, gains)

    def has_room_for(self, effect: Effect) -> bool:
        """True if what comes breaks no hard limit, and none further, before anything goes."""
        return all(
            amount <= 0 or self.peak[dimension][node] + amount <= self.hard[dimension][node] * (1 + SLACK)
            for node, gain in effect.gains.items()
            for dimension, amount in enumerate(gain)
        )

    def loss_change_of(self, effect: Effect) -> float:
        """Return by which share of a node's capacity a change would raise `loss_excess`."""
        cpu = {node: change[CPU] for node, change in effect.changes.items()}
        return self._loss_change(effect.queue, effect.master, effect.heir, cpu)

    def _loss_change(self, queue: int, master: int, heir: int, cpu: Mapping[int, float]) -> float:
        """Return the change of `loss_excess` if a queue gets that master and heir, and nodes so many cores more."""
        lead = float(self.fleet.promote_cpu[queue])
        old_master = int(self.master[queue])
        old_heir = self.heir(queue, old_master)
        touched = [node for node in {*cpu, heir, old_heir} if node >= 0 and not self.is_bad[node]]
        before = sum(self._lacks(node, self.worst[node]) for node in touched)
        self._shifted(old_heir, old_master, -lead)
        self._shifted(heir, master, lead)
        most = {node: float(self.shift[node].max()) for node in touched}
        self._shifted(heir, master, -lead)
        self._shifted(old_heir, old_master, lead)
        return sum(self._lacks(node, most[node] + cpu.get(node, 0.0)) for node in touched) - before

    def _lacks(self, node: int, more: float) -> float:
        """Return the load above the limit that a node would have with so many cores more, as a share of its cores."""
        return max(0.0, self.load[CPU][node] + more - self.loss_limit[node]) / self.capacity[CPU][node]

    def loss_excess(self) -> float:
        """Return the loads above limits of all nodes, each after the loss that is worst for it, as shares of cores."""
        found = sum(self._lacks(node, most) for node, most in enumerate(self.worst) if not self.is_bad[node])
        return round(found, 6)

    def _led(self, kind: Kind, queue: int, source: int, target: int) -> tuple[int, int]:
        """Return master and heir after a move."""
        master = int(self.master[queue])
        order, _ = self._after(kind, queue, source, target)
        if kind in ("promote", "move"):
            master = target
        synced = {*self.synced_nodes(queue), target}
        return master, next((node for node in order if node != master and node in synced), -1)

    def _after(self, kind: Kind, queue: int, source: int, target: int) -> tuple[list[int], int]:
        """Return the members after a move, and the place of the master."""
        order = self.ring(queue)
        master = int(self.master[queue])
        if kind in ("copy", "move", "add"):
            order.insert(order.index(master) or len(order), target)
        if kind in ("copy", "move", "drop"):
            order.remove(source)
        return order, order.index(target if kind in ("promote", "move") else master)

    def _shifted(self, heir: int, master: int, amount: float) -> None:
        if heir >= 0:
            self.shift[heir, master] += amount

    # --- moving ---

    def make(self, done: Done) -> None:
        """Apply a move to placements and loads."""
        kind, queue, source, target = done.kind, done.queue, done.source, done.target
        for dimension, amount in enumerate(self.vector(kind, queue)):
            if amount:
                if target >= 0:
                    self.load[dimension][target] += amount
                if source >= 0:
                    self.load[dimension][source] -= amount
                gaining = target if amount > 0 else source
                if gaining >= 0:
                    self.peak[dimension][gaining] += abs(amount)
        order, at = self._after(kind, queue, source, target)
        self._place(queue, order, order[at], {*self.synced_nodes(queue), target})
        if kind in ("copy", "move", "add"):
            self.copied += int(self.fleet.size[queue])
        self.done.append(done)

    def apply(self, effect: Effect) -> None:
        """Apply a change to placements and loads."""
        for node, change in effect.changes.items():
            for dimension, amount in enumerate(change):
                self.load[dimension][node] += amount
                self.peak[dimension][node] += effect.gains[node][dimension]
        self._place(effect.queue, effect.order, effect.master, effect.synced)

    def _place(self, queue: int, order: Sequence[int], master: int, synced: Collection[int]) -> None:
        """Give a queue its copies and its master, and its heir what would come to it."""
        lead = float(self.fleet.promote_cpu[queue])
        old_master = int(self.master[queue])
        old_heir = self.heir(queue, old_master)
        rest = self.members.shape[1] - len(order)
        self.members[queue] = [*order, *[-1] * rest]
        self.synced[queue] = [*(node in synced for node in order), *[False] * rest]
        self.master_at[queue] = order.index(master)
        self.master[queue] = master
        heir = self.heir(queue, master)
        if (old_master, old_heir) != (master, heir):
            self._shifted(old_heir, old_master, -lead)
            self._shifted(heir, master, lead)
            for node in {old_heir, heir} - {-1}:
                self.worst[node] = float(self.shift[node].max())

    def copy(self) -> "State":
        """Return an independent copy of the state, to try moves on."""
        other = copy(self)
        other.members, other.synced = self.members.copy(), self.synced.copy()
        other.master_at, other.master = self.master_at.copy(), self.master.copy()
        other.load = [column.copy() for column in self.load]
        other.peak = [column.copy() for column in self.peak]
        other.shift, other.worst = self.shift.copy(), self.worst.copy()
        other.done = self.done.copy()
        return other

    def begin_wave(self) -> bool:
        """Begin a wave, in which room freed so far may be used. Returns: True if any was freed."""
        before = self.peak
        self.peak = [column.copy() for column in self.load]
        return before != self.peak


def masters_of(fleet: Fleet) -> Ints:
    """Return the node of each queue's master; -1: none."""
    places = np.arange(fleet.count)
    return np.where(fleet.master_at >= 0, fleet.members[places, fleet.master_at], -1).astype(np.int32)


def _capacities(fleet: Fleet) -> tuple[list[list[float]], list[bool]]:
    """Return the capacities by dimension, 1 where they are not known, and whether they are known."""
    found = []
    known = []
    for dimension in range(len(DIMENSIONS)):
        match dimension:
            case 0:
                column = [row.cores for row in fleet.nodes]
            case 3:
                column = [row.memory for row in fleet.nodes]
            case 4:
                column = [row.disk for row in fleet.nodes]
            case _:
                column = []
        most = max(column, default=0.0)
        found.append(
            [value if value > 0 else most for value in column] if most > 0 else [1.0] * len(fleet.nodes)
        )
        known.append(most > 0)
    return found, known


def _hard_limits(fleet: Fleet, settings: Settings) -> list[list[float]]:
    infinite = [math.inf] * len(fleet.nodes)
    limits = [infinite] * len(DIMENSIONS)
    limits[CPU] = [settings.cpu_max * row.cores if row.cores > 0 else math.inf for row in fleet.nodes]
    limits[MEMORY] = [settings.memory_max * row.memory if row.memory > 0 else math.inf for row in fleet.nodes]
    limits[DISK] = [settings.disk_max * row.disk if row.disk > 0 else math.inf for row in fleet.nodes]
    if settings.copies_max:
        limits[COPIES] = [float(settings.copies_max)] * len(fleet.nodes)
    return limits


def _loads(fleet: Fleet, master: Ints) -> list[list[float]]:
    count = len(fleet.nodes)
    loads = np.zeros((len(DIMENSIONS), count))
    loads[CPU] = [row.base_cpu for row in fleet.nodes]
    loads[MEMORY] = [row.base_memory for row in fleet.nodes]
    loads[DISK] = [row.base_disk for row in fleet.nodes]
    for place in range(fleet.members.shape[1]):
        column = fleet.members[:, place]
        there = column >= 0
        nodes = column[there]
        loads[CPU] += np.bincount(nodes, fleet.mirror_cpu[there], count)
        loads[MEMORY] += np.bincount(nodes, fleet.memory[there], count)
        loads[DISK] += np.bincount(nodes, fleet.disk[there], count)
        loads[COPIES] += np.bincount(nodes, minlength=count)
    there = master >= 0
    nodes = master[there]
    loads[CPU] += np.bincount(nodes, fleet.promote_cpu[there], count)
    loads[IN] += np.bincount(nodes, fleet.in_bytes[there], count)
    loads[OUT] += np.bincount(nodes, fleet.out_bytes[there], count)
    loads[MASTERS] += np.bincount(nodes, minlength=count)
    result: list[list[float]] = loads.tolist()
    return result


def _shifts(
    fleet: Fleet,
    master: Ints,
    heirs: Longs,
) -> Floats:
    """Return by [heir, master] the cores that come to the heir if the master's node dies."""
    count = len(fleet.nodes)
    there = (heirs >= 0) & (master >= 0)
    flat = heirs[there] * count + master[there]
    shifts: Floats = np.bincount(flat, fleet.promote_cpu[there], count * count).astype(np.float64)
    return shifts.reshape(count, count)
