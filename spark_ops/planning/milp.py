"""An exact solver (HiGHS, of scipy) polishes a plan: as even by cpu as the greedy one, with fewer moves.

The solver sees one load, cpu, and each queue's options; its choice is made move by move under all the rules of
the planner, and is taken only if no goal is worse than in the greedy plan and the moves cost less, or a goal is
better.
For small clusters, where operators care about each move. Source: spark §3.3 (step 5), §6.17.
"""

from typing import Final

import numpy as np

from spark_ops.planning.balance import fits
from spark_ops.planning.fleet import Fleet
from spark_ops.planning.goals import CPU, Settings
from spark_ops.planning.planner import Outcome, Planner, joined, objective
from spark_ops.planning.state import Done, Kind, State

CANDIDATES_MAX: Final = 4000
SECONDS_MAX: Final = 20.0
GAP: Final = 0.01
OVERLOAD_COST: Final = 1e4
"""The cost of cpu load above the limit: this many promotions for one mean node load."""


def polished(fleet: Fleet, settings: Settings, greedy: Outcome) -> Outcome:
    """Return the better one of the greedy plan and the solver's."""
    if settings.mode != "full" or not greedy.moves or "cpu" not in settings.goals:
        return greedy
    planner = Planner(fleet, settings)
    state = planner.state
    chosen = _solved(state, greedy, settings)
    for done in sorted(chosen, key=lambda each: (-state.vector(each.kind, each.queue)[CPU], each.queue)):
        vector = state.vector(done.kind, done.queue)
        if not (
            state.has_room(done.source, done.target, vector)
            and state.survives(done.kind, done.queue, done.source, done.target)
            and fits(state, settings, done.kind, done.queue)
        ):
            return greedy  # the solver does not know all rules
        if settings.max_moves is not None and len(state.done) >= settings.max_moves:
            return greedy
        planner.take(done)
    # The planner handles the goals after cpu, and load that the solver left.
    outcome = joined(fleet, settings, planner.run())
    mine = objective(outcome.state, greedy.bounds), _cost(outcome)
    theirs = objective(greedy.state, greedy.bounds), _cost(greedy)
    if mine < theirs:
        outcome.bounds = greedy.bounds
        return outcome
    return greedy


def _cost(outcome: Outcome) -> float:
    fleet = outcome.state.fleet
    return sum(
        1.0 + len(move.adds) * (1.0 + float(fleet.size[move.queue]) / (1 << 20)) for move in outcome.moves
    )


def _solved(state: State, greedy: Outcome, settings: Settings) -> list[Done]:
    """Return the cheapest moves that bring all nodes below their limit of cpu; none, if there is no answer in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    cpu = next((each for each in greedy.bounds if each.goal.dimension == CPU), None)
    options = [] if cpu is None else _options(state, settings)
    if cpu is None or not options:
        return []
    count, nodes = len(options), len(state.fleet.nodes)
    queues = {queue: row for row, queue in enumerate(dict.fromkeys(done.queue for done in options))}
    rows, columns, values = [], [], []
    for column, done in enumerate(options):
        amount = state.vector(done.kind, done.queue)[CPU]
        rows += [done.source, done.target, nodes + queues[done.queue]]
        columns += [column] * 3
        values += [-amount, amount, 1.0]
    for node in range(nodes):
        rows.append(node)
        columns.append(count + node)
        values.append(-1.0)
    matrix = coo_array((values, (rows, columns)), shape=(nodes + len(queues), count + nodes)).tocsr()
    upper = [min(cpu.limit[node], 1e12) - state.load[CPU][node] for node in range(nodes)] + [1.0] * len(
        queues
    )
    mean = max(max(cpu.mean), 1e-9)
    cost = [
        1.0 if done.kind == "promote" else 2.0 + float(state.fleet.size[done.queue]) / (1 << 20)
        for done in options
    ] + [OVERLOAD_COST / mean] * nodes
    answer = milp(
        np.array(cost),
        integrality=np.array([1] * count + [0] * nodes),
        bounds=Bounds(np.zeros(count + nodes), np.array([1.0] * count + [np.inf] * nodes)),
        constraints=LinearConstraint(matrix, -np.inf, np.array(upper)),
        options={"time_limit": SECONDS_MAX, "mip_rel_gap": GAP},
    )
    if answer.x is None:
        return []
    return [done for done, value in zip(options, answer.x[:count].tolist(), strict=True) if value > 0.5]


def _options(state: State, settings: Settings) -> list[Done]:
    """Return the options of the largest queues: promotion of each synchronised mirror, a move to the coldest node."""
    fleet = state.fleet
    order = np.lexsort((np.arange(fleet.count), -fleet.promote_cpu))
    cold = sorted(
        (node for node, may in enumerate(state.may_receive) if may),
        key=lambda node: (state.share(CPU, node), node),
    )
    found: list[Done] = []
    for queue in order.tolist():
        source = int(state.master[queue])
        if not fleet.movable[queue] or source < 0 or fleet.promote_cpu[queue] <= 0:
            continue
        ring = state.ring(queue)
        targets: list[tuple[Kind, int]] = [
            ("promote", node)
            for node in state.synced_nodes(queue)
            if node != source and state.may_promote(queue, node)
        ]
        if settings.with_copies and state.may_drop(queue):
            target = next(
                (
                    node
                    for node in cold
                    if node not in ring
                    and state.allowed(queue, node)
                    and state.keeps_zones(ring, source, node)
                ),
                None,
            )
            targets += [] if target is None else [("move", target)]
        found += [
            Done(kind, queue, source, node, "cpu-balance", "chosen by the solver") for kind, node in targets
        ]
        if len(found) >= CANDIDATES_MAX:
            break
    return found
