"""The planner runs the chain of goals over a fleet, until nothing gets better or the plan has its most moves.

The order of moves does not depend on the limit of moves, and each makes its goal better and none before it worse:
so a longer plan begins with the shorter one and is never worse. Same fleet and settings, same moves.
Source: spark §3.3, §6.3, §6.7-10.
"""

from dataclasses import dataclass, field
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
    Settings,
    SoftGoal,
)
from spark_ops.planning.locality import localize
from spark_ops.planning.repair import Repairer, capacity_bounds, zone_deficit
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


@dataclass(slots=True)
class Outcome:
    """The result of a planner's run.

    state: after all moves.   moves: in order.   wave: of each, from 0.   bounds: of the soft goals, for figures.
    stuck: by queue and node: why the copy cannot leave a node that it has to leave.
    """

    state: State
    moves: list[Done]
    wave: list[int]
    bounds: list[Bounds]
    stuck: dict[tuple[int, int], str] = field(default_factory=dict)


class Planner:
    """One run of the planner; `run` returns its outcome."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self.state = State(fleet, settings)
        self._settings = settings
        self._wave: list[int] = []
        self._wave_moves = self._wave_bytes = 0
        self._number = 0
        self._repairer = Repairer(self.state, settings, self.take)
        self._bounds: list[Bounds] = []
        self._capacity: list[Bounds] = []

    def take(self, *moves: Done) -> None:
        """Record moves that belong together. Raises: Enough, and records none, if the plan would have too many."""
        settings, state = self._settings, self.state
        if settings.max_moves is not None and len(state.done) + len(moves) > settings.max_moves:
            raise Enough
        for done in moves:
            size = 0 if done.kind in ("promote", "drop") else int(state.fleet.size[done.queue])
            if self._wave_moves >= settings.wave_moves or (
                self._wave_moves and self._wave_bytes + size > settings.wave_bytes
            ):
                self._next_wave()
            state.make(done)
            self._repairer.moved(done)
            self._wave.append(self._number)
            self._wave_moves += 1
            self._wave_bytes += size

    def _next_wave(self) -> bool:
        self._number += bool(self._wave_moves)
        self._wave_moves = self._wave_bytes = 0
        return self.state.begin_wave()

    def run(self) -> Outcome:
        """Serve all goals of the mode, again and again until a round changes nothing. Returns: the outcome."""
        try:
            for _ in range(ROUNDS_MAX):
                before = len(self.state.done)
                self._round()
                # The next move may need room that was freed; it may be used in another wave.
                if len(self.state.done) == before and not self._next_wave():
                    break
        except Enough:
            pass
        if not self._bounds:
            self._bounds = self._soft_bounds()
        return Outcome(self.state, self.state.done, self._wave, self._bounds, dict(self._repairer.stuck))

    def _round(self) -> None:
        mode = self._settings.mode
        if mode == "add-node":
            self._fill()
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
        if LOCALITY in self._settings.goals:
            localize(self.state, earlier, self.take)

    def _soft_bounds(self) -> list[Bounds]:
        goals = self._settings.soft_goals() if self._settings.mode == "full" else SOFT_GOALS
        return [bounds_of(goal, self.state) for goal in goals]

    def _fill(self) -> None:
        """Move a share of every load to the new node, and nothing anywhere else."""
        state = self.state
        at = next(place for place, row in enumerate(state.fleet.nodes) if row.node == self._settings.node)
        state.may_receive = [may and node == at for node, may in enumerate(state.may_receive)]
        state.may_lead = [may and node == at for node, may in enumerate(state.may_lead)]
        if not self._bounds:
            self._bounds = [bounds_of(goal, state) for goal in FILL_GOALS]
        earlier: list[Bounds] = []
        for bounds in self._bounds:
            if state.load[bounds.goal.dimension][at] < FILLED * bounds.mean[at]:
                Balancer(state, self._settings, earlier, self.take).run(bounds)
            earlier.append(bounds)


def planned(fleet: Fleet, settings: Settings) -> Outcome:
    """Plan the moves of a fleet."""
    return Planner(fleet, settings).run()


def objective(state: State, bounds: list[Bounds]) -> tuple[float, ...]:
    """Return the values that a plan makes smaller, the most important first: compared from left to right, rounded.

    In order: copies on nodes that have to be left, missing and surplus copies, missing zones, loads above hard limits,
    loads above them after a loss, and each soft goal.
    """
    fleet = state.fleet
    there = state.members >= 0
    bad = [node for node, is_bad in enumerate(state.is_bad) if is_bad]
    stranded = float(sum(state.load[COPIES][node] for node in bad))
    has_more = (there.sum(axis=1) - fleet.want - 1) * (fleet.want > 0)
    lacking = float(np.where(has_more > 0, has_more, -has_more)[state.master >= 0].sum())
    hard = sum(each.objective(state) for each in capacity_bounds(state))
    found = (
        stranded,
        lacking,
        float(zone_deficit(state)),
        hard,
        state.loss_excess(),
        *(each.objective(state) for each in bounds),
    )
    return tuple(round(value, 6) for value in found)
