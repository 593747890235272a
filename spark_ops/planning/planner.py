"""The planner runs the chain of goals over a fleet, until nothing gets better or the plan has its most moves.

The order of its moves does not depend on the limit of moves, and each makes its goal better and none before it worse:
so a plan that may have more moves is never worse. At the end the moves of each queue are joined to one.
Same fleet and settings, same moves. Source: spark §3.3, §6.3, §6.7-10, §6.25.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from spark_ops.planning.balance import Balancer, Bounds, Enough, bounds_of
from spark_ops.planning.chains import exchange
from spark_ops.planning.fleet import Fleet
from spark_ops.planning.goals import (
    COPIES,
    CPU,
    LOCALITY,
    MASTERS,
    MEMORY,
    SOFT_GOALS,
    SPREAD,
    Settings,
    SoftGoal,
)
from spark_ops.planning.locality import localize
from spark_ops.planning.net_moves import NetMove, copied_bytes, differing, is_moved, net_moves, placed
from spark_ops.planning.repair import Repairer, capacity_bounds, zone_deficit
from spark_ops.planning.schedule import scheduled
from spark_ops.planning.spread import Spread
from spark_ops.planning.state import Done, State

ROUNDS_MAX: Final = 40

FILL_GOALS: Final = (
    SoftGoal("cpu", CPU, True, 1.0, 1.0, 0.0),
    SoftGoal("memory", MEMORY, False, 1.0, 1.0, 0.0),
    SoftGoal("copies", COPIES, False, 1.0, 1.0, 0.0),
    SoftGoal("masters", MASTERS, True, 1.0, 1.0, 0.0),
)
"""The loads of which a new node gets its share."""

FILLED: Final = 0.9
"""A new node has enough from this share of the mean on."""


PASSES_MAX: Final = 4
"""The most runs of the planner for one plan. A second one finds something to do if moves were left out, or if other
mirrors than expected became heirs."""


@dataclass(slots=True)
class Run:
    """The result of one run of the planner.

    state: after its moves, which `state.done` has in order.   bounds: of the soft goals, for figures.
    stuck: by queue and node: why the copy cannot leave a node that it has to leave.   is_full: the limit of moves ended
    the run.
    """

    state: State
    bounds: list[Bounds]
    stuck: dict[tuple[int, int], str]
    is_full: bool


@dataclass(slots=True)
class Outcome:
    """The moves of a plan.

    state: after all moves.   moves: in order, one for a queue.   wave: of each, from 0.   bounds, stuck: as in `Run`.
    left: the number of queues that would have to move twice, and do not move.
    """

    state: State
    moves: list[NetMove]
    wave: list[int]
    bounds: list[Bounds]
    stuck: dict[tuple[int, int], str] = field(default_factory=dict)
    left: int = 0


class Planner:
    """One run of the planner.

    origin: the fleet before the first run for the same plan; the fleet has its queues.
    """

    def __init__(self, fleet: Fleet, settings: Settings, origin: Fleet | None = None) -> None:
        self.state = State(fleet, settings)
        self._settings = settings
        self._origin = fleet if origin is None else origin
        self._moved = set[int]()
        if origin is not None:
            self._moved = set(np.flatnonzero(differing(origin, self.state)).tolist())
            for queue in self._moved:
                self.state.copied += copied_bytes(origin, self.state, queue)
        self._wave_moves = self._wave_bytes = 0
        self._repairer = Repairer(self.state, settings, self.take)
        self._bounds: list[Bounds] = []
        self._capacity: list[Bounds] = []

    def take(self, *moves: Done) -> None:
        """Record moves that belong together. Raises: Enough, and records none, if the plan would have too many.

        A queue counts as one move, and as none when it is where it was before the plan.
        """
        settings, state = self._settings, self.state
        queues = {done.queue for done in moves}
        if settings.max_moves is not None and len(self._moved | queues) > settings.max_moves:
            raise Enough
        for done in moves:
            size = 0 if done.kind in ("promote", "drop") else int(state.fleet.size[done.queue])
            if self._wave_moves >= settings.wave_moves or (
                self._wave_moves and self._wave_bytes + size > settings.wave_bytes
            ):
                self._next_wave()
            state.make(done)
            self._repairer.moved(done)
            self._wave_moves += 1
            self._wave_bytes += size
        for queue in queues:
            if is_moved(self._origin, state, queue):
                self._moved.add(queue)
            else:
                self._moved.discard(queue)

    def _next_wave(self) -> bool:
        self._wave_moves = self._wave_bytes = 0
        return self.state.begin_wave()

    def run(self) -> Run:
        """Serve all goals of the mode, again and again until a round changes nothing."""
        is_full = False
        try:
            for _ in range(ROUNDS_MAX):
                before = len(self.state.done)
                self._round()
                # The next move may need room that was freed; it may be used in another wave.
                if len(self.state.done) == before and not self._next_wave():
                    break
        except Enough:
            is_full = True
        if not self._bounds:
            self._bounds = self._soft_bounds()
        return Run(self.state, self._bounds, dict(self._repairer.stuck), is_full)

    def _round(self) -> None:
        mode = self._settings.mode
        if mode in ("add-node", "restore"):
            self._fill()
            return
        if mode == "demote":
            self._repairer.demote(self._node())
            return
        before = len(self.state.done)
        self._repairer.drain()
        if mode == "drain-node":
            return
        self._repairer.complete()
        self._repairer.trim()
        self._repairer.spread()
        if len(self.state.done) > before:
            # Moves off nodes to be left, and copies that come or go, change the mean.
            self._capacity, self._bounds = [], []
            return
        self._capacity = self._capacity or capacity_bounds(self.state)
        earlier: list[Bounds] = []
        for bounds in self._capacity:
            Balancer(self.state, self._settings, earlier, self.take).run(bounds)
            earlier.append(bounds)
        self._repairer.survive()
        if mode == "repair":
            return
        if not self._bounds:
            self._bounds = self._soft_bounds()
        for bounds in self._bounds:
            Balancer(self.state, self._settings, earlier, self.take).run(bounds)
            exchange(self.state, earlier, bounds, self.take)
            earlier.append(bounds)
        spread = (
            Spread(self.state) if SPREAD in self._settings.goals and len(self.state.fleet.tenants) else None
        )
        if spread is not None:
            spread.run(earlier, self.take)
        if LOCALITY in self._settings.goals:
            localize(self.state, earlier, spread, self.take)

    def _soft_bounds(self) -> list[Bounds]:
        goals = self._settings.soft_goals() if self._settings.mode == "full" else SOFT_GOALS
        found = [bounds_of(goal, self.state) for goal in goals]
        for bounds in found:
            if bounds.goal.dimension == CPU and self._settings.cpu_margin:
                _demand(bounds, self.state, self._settings.cpu_margin)
        return found

    def _fill(self) -> None:
        """Move a share of every load to the new node, and nothing anywhere else; to restore a node only masters."""
        state, at = self.state, self._node()
        settings = self._settings
        if settings.mode == "restore":
            settings = replace(settings, with_copies=False)
        state.may_receive = [may and node == at for node, may in enumerate(state.may_receive)]
        state.may_lead = [may and node == at for node, may in enumerate(state.may_lead)]
        if not self._bounds:
            self._bounds = [bounds_of(goal, state) for goal in FILL_GOALS]
        earlier: list[Bounds] = []
        for bounds in self._bounds:
            if state.load[bounds.goal.dimension][at] < FILLED * bounds.mean[at]:
                Balancer(state, settings, earlier, self.take).run(bounds)
            earlier.append(bounds)

    def _node(self) -> int:
        """Return the node that the mode is about."""
        nodes = self.state.fleet.nodes
        return next(place for place, row in enumerate(nodes) if row.node == self._settings.node)


def _demand(bounds: Bounds, state: State, margin: float) -> None:
    """Let a goal act only on nodes that are to be relieved of more than a share of their capacity."""
    capacity = state.capacity[bounds.goal.dimension]
    for node, limit in enumerate(bounds.limit):
        bounds.act[node] = max(bounds.act[node], limit + margin * capacity[node])


def planned(fleet: Fleet, settings: Settings) -> Outcome:
    """Plan the moves of a fleet."""
    return joined(fleet, settings, Planner(fleet, settings).run())


def joined(fleet: Fleet, settings: Settings, run: Run) -> Outcome:
    """Return a run's moves with one move for each queue, in an order in which each is legal.

    The planner runs again on what they lead to, until it finds nothing more to do; so a plan of the planned is empty.
    """
    log: list[Done] = []
    best: Outcome | None = None
    rank: tuple[float, ...] = ()
    for _ in range(PASSES_MAX):
        log += run.state.done
        state = State(fleet, settings)
        found = scheduled(state, net_moves(fleet, run.state, log), settings)
        outcome = Outcome(state, found.moves, found.wave, run.bounds, run.stuck, len(found.left))
        if not run.is_full:
            run = Planner(placed(fleet, state), settings, fleet).run()
            if not run.state.done:
                outcome.stuck = run.stuck
                return outcome
        value = objective(state, outcome.bounds if best is None else best.bounds)
        if best is None or value < rank:
            best, rank = outcome, value
        if run.is_full:
            break
    assert best is not None
    return best


def objective(state: State, bounds: list[Bounds]) -> tuple[float, ...]:
    """Return the values that a plan makes smaller, the most important first: compared from left to right.

    In order: copies on nodes that have to be left, missing and surplus copies, missing zones, loads above hard limits,
    loads above them after a loss, and each soft goal. Loads of all kinds are shares of capacities.
    """
    fleet = state.fleet
    there = state.members >= 0
    bad = [node for node, is_bad in enumerate(state.is_bad) if is_bad]
    stranded = float(sum(state.load[COPIES][node] for node in bad))
    has_more = there.sum(axis=1) - fleet.want - 1
    lacking = float(np.where(has_more > 0, has_more, -has_more)[state.master >= 0].sum())
    hard = round(sum(each.objective(state) for each in capacity_bounds(state)), 9)
    return (
        stranded,
        lacking,
        float(zone_deficit(state)),
        hard,
        state.loss_excess(),
        *(each.objective(state) for each in bounds),
    )
