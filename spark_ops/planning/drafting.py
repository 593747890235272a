"""This module runs the planner for a cluster and writes the document of the plan: moves, figures and advice.

Figures before and after are made of the same placements that the steps begin and end with, so they can be checked.
Source: spark §3.4, §6.11.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from spark_ops.planning import plan as plans
from spark_ops.planning.balance import Bounds
from spark_ops.planning.capacities import table_of
from spark_ops.planning.fleet import Fleet, fleet_of
from spark_ops.planning.goals import (
    COPIES,
    CPU,
    DISK,
    IN,
    LOCALITY,
    MASTERS,
    MEMORY,
    OUT,
    SPREAD,
    Settings,
    checked,
)
from spark_ops.planning.locality import remote_share
from spark_ops.planning.milp import polished
from spark_ops.planning.net_moves import NetMove
from spark_ops.planning.outcomes import Learned
from spark_ops.planning.plan import Step
from spark_ops.planning.planner import Outcome, objective, planned
from spark_ops.planning.repair import capacity_bounds
from spark_ops.planning.rows import ClusterRows, NodeRow
from spark_ops.planning.spare import Shortage, shortages
from spark_ops.planning.spread import crowded_tenants
from spark_ops.planning.state import State
from spark_ops.planning.steps import Move, NotPossible, steps_of, summary_of
from spark_ops.planning.times import iso

TOOL: Final = "1"
Note: TypeAlias = tuple[str, str | None, str | None, str | None, str]
"""A piece of advice: reason, vhost, queue, node, text."""

HARD_GOALS: Final = ("drain", "copies", "zones", "capacity", "failover")

NOTES_MAX: Final = 50
"""The most notes about single queues; one more note gives the number of the others."""


def draft(
    cluster: ClusterRows,
    settings: Settings,
    *,
    now: float,
    came_from: str | None = None,
    earlier: Learned | None = None,
) -> dict[str, Any]:
    """Return the document of the best plan that was found.

    now: seconds since 1970.   came_from: URL of the node that reported the cluster, without credentials.
    earlier: what earlier plans teach; its margin counts unless the settings have one.
    Raises: SettingsError.
    """
    if earlier is not None and not settings.cpu_margin:
        settings = replace(settings, cpu_margin=earlier.margin)
    inputs = inputs_of(cluster, settings)
    if earlier is not None:
        inputs["earlier"] = {**earlier.document, "margin": settings.cpu_margin}
    if came_from is not None:
        inputs["url"] = came_from
    return draft_of(fleet_of(cluster, checked(settings), now=now), settings, inputs, now=now)


def inputs_of(cluster: ClusterRows, settings: Settings) -> dict[str, Any]:
    """Return the inputs that a plan names: the placement, the window of loads and the settings."""
    return {
        "view_id": cluster.view_id,
        "topology_hash": cluster.topology_hash,
        "window": [iso(cluster.window[0]), iso(cluster.window[1])],
        "coverage": round(cluster.coverage, 4),
        "cpu_known": cluster.facts.get("cpu_known"),
        "config_hash": settings.config_hash,
        **({"capacity": table_of(settings.capacity)} if settings.capacity else {}),
        "seed": settings.seed,
        "tool": TOOL,
    }


def draft_of(fleet: Fleet, settings: Settings, inputs: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """Return the document of the best plan for a fleet."""
    outcome = planned(fleet, settings)
    if settings.optimize == "milp":
        outcome = polished(fleet, settings, outcome)
    nodes = {row.node: row for row in fleet.nodes}
    by_move = _steps(fleet, outcome, nodes)
    steps = [step for made in by_move for step in made]
    before = State(fleet, settings)
    notes = _notes(fleet, settings, outcome)
    summary = summary_of(steps)
    summary["score_before"] = score(before, outcome.bounds)
    summary["score_after"] = score(outcome.state, outcome.bounds)
    return plans.build(
        cluster=fleet.cluster,
        now=now,
        mode=settings.mode,
        inputs=inputs,
        goals=_goals(before, outcome, settings),
        summary=summary,
        nodes=_node_rows(before, outcome.state),
        waves=_waves(by_move, outcome.wave),
        steps=[
            *steps,
            *(
                Step(f"s{len(steps) + n}", "note", vhost, queue, node, None, reason, why)
                for n, (reason, vhost, queue, node, why) in enumerate(notes, 1)
            ),
        ],
        expires_s=settings.expires_s,
    )


def _steps(fleet: Fleet, outcome: Outcome, nodes: Mapping[str, NodeRow]) -> list[list[Step]]:
    found: list[list[Step]] = []
    count = 0
    for each in outcome.moves:
        try:
            made = steps_of(_move(fleet, each), count + 1, nodes)
        except NotPossible as error:  # the planner only makes possible moves
            raise AssertionError(f"{each}: {error}") from error
        found.append(made)
        count += len(made)
    return found


def _move(fleet: Fleet, move: NetMove) -> Move:
    def names(places: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(fleet.nodes[node].node for node in places)

    return Move(
        fleet.row(move.queue),
        fleet.placement(move.queue),
        fleet.nodes[move.target].node,
        names(move.adds),
        names(move.drops),
        move.reason,
        move.why,
    )


def _waves(by_move: list[list[Step]], wave: list[int]) -> list[list[str]]:
    """Return the ids of the steps by wave; waves are the planner's: later ones use room that earlier ones free."""
    found: dict[int, list[str]] = {}
    for steps, number in zip(by_move, wave, strict=True):
        found.setdefault(number, []).extend(step.id for step in steps)
    return list(found.values())


# --- figures ---


def _ratio(state: State, bounds: Bounds) -> float:
    """Return the largest load of a node, divided by its share of the mean."""
    load = state.load[bounds.goal.dimension]
    return max(
        (load[node] / mean for node, mean in enumerate(bounds.mean) if mean > 0 and not state.is_bad[node]),
        default=0.0,
    )


def score(state: State, bounds: list[Bounds]) -> int:
    """Return 0 to 100: how near loads are to their means; at most 40 where a hard goal is violated."""
    parts = []
    for each in bounds:
        is_idle = all(
            state.load[each.goal.dimension][node] <= each.limit[node] or bad
            for node, bad in enumerate(state.is_bad)
        )
        parts.append(1.0 if is_idle else min(1.0, each.goal.stop_at / max(_ratio(state, each), 1e-9)))
    found = 100 * sum(parts) / len(parts) if parts else 100.0
    return round(min(found, 40.0) if any(objective(state, [])) else found)


def _hard_figures(state: State) -> tuple[float, ...]:
    """Return copies to be moved, missing or surplus ones, queues without a zone, and shares of capacities above limits.

    The shares of all nodes are added: 0.5 is half of a node's cores, or of its memory; now, and after a loss.
    """
    stranded, lacking, zones, _, lost = objective(state, [])
    return stranded, lacking, zones, round(sum(each.above(state) for each in capacity_bounds(state)), 6), lost


def _goals(before: State, outcome: Outcome, settings: Settings) -> list[dict[str, Any]]:
    after = outcome.state
    found: list[dict[str, Any]] = [
        {"id": name, "kind": "hard", "before": old, "after": new, "met": new == 0}
        for name, old, new in zip(HARD_GOALS, _hard_figures(before), _hard_figures(after), strict=True)
    ]
    if settings.mode == "demote":
        at = next(place for place, row in enumerate(before.fleet.nodes) if row.node == settings.node)
        old_count, left = before.load[MASTERS][at], after.load[MASTERS][at]
        found.append({"id": "demote", "kind": "hard", "before": old_count, "after": left, "met": left == 0})
    for each in outcome.bounds:
        is_met = all(
            after.load[each.goal.dimension][node] <= each.act[node] * (1 + 1e-9) or bad
            for node, bad in enumerate(after.is_bad)
        )
        old_ratio, new_ratio = _ratio(before, each), _ratio(after, each)
        row: dict[str, Any] = {
            "id": each.goal.id,
            "kind": "soft",
            "before": round(old_ratio, 4),
            "after": round(new_ratio, 4),
            "met": is_met,
        }
        if is_met and new_ratio > each.goal.act_above * (1 + 1e-9):
            row["is_below_floor"] = True  # the loads are uneven, and too small to act
        found.append(row)
    if settings.mode == "full" and SPREAD in settings.goals and len(before.fleet.tenants):
        crowded, left = crowded_tenants(before), crowded_tenants(after)
        found.append({"id": SPREAD, "kind": "soft", "before": crowded, "after": left, "met": left == 0})
    if settings.mode == "full" and LOCALITY in settings.goals and before.fleet.clients:
        old, new = remote_share(before), remote_share(after)
        found.append(
            {
                "id": LOCALITY,
                "kind": "soft",
                "before": round(old, 4),
                "after": round(new, 4),
                "met": new <= 0.5,
            }
        )
    return found


def _node_rows(before: State, after: State) -> list[dict[str, Any]]:
    """Return the figures of each node; CPU, memory and disk as shares of its capacity, or null if that is not known."""
    found = []
    for node, row in enumerate(before.fleet.nodes):
        figures: dict[str, Any] = {"node": row.node, "zone": row.zone}
        for name, dimension, whole in (
            ("cpu", CPU, row.cores),
            ("memory", MEMORY, row.memory),
            ("disk", DISK, row.disk),
        ):
            for when, state in (("before", before), ("after", after)):
                figures[f"{name}_{when}"] = (
                    round(state.load[dimension][node] / whole, 4) if whole > 0 else None
                )
        for name, dimension in (
            ("in_bytes", IN),
            ("out_bytes", OUT),
            ("masters", MASTERS),
            ("copies", COPIES),
        ):
            figures[f"{name}_before"] = round(before.load[dimension][node])
            figures[f"{name}_after"] = round(after.load[dimension][node])
        for when, state in (("before", before), ("after", after)):
            lost = state.load[CPU][node] + state.worst[node]
            figures[f"cpu_after_loss_{when}"] = round(lost / row.cores, 4) if row.cores > 0 else None
        found.append(figures)
    return found


# --- advice ---


def _notes(fleet: Fleet, settings: Settings, outcome: Outcome) -> list[Note]:
    """Return advice for the operator that no step carries out."""
    found: list[Note] = []
    stuck = sorted(outcome.stuck.items())
    for (queue, node), why in stuck[:NOTES_MAX]:
        row, name = fleet.row(queue), fleet.nodes[node].node
        what = "master" if settings.mode == "demote" else "copy"
        found.append(("cannot-move", row.vhost, row.queue, name, f"its {what} stays on {name}: {why}"))
    if len(stuck) > NOTES_MAX:
        text = f"{len(stuck) - NOTES_MAX} more queues cannot be moved"
        found.append(("cannot-move", None, None, None, text))
    if outcome.left:
        text = (
            f"{outcome.left} queues could go to a better place only by way of a third node, so they stay; "
            "after this plan another one may move them"
        )
        found.append(("left-out", None, None, None, text))
    found += _large_queues(fleet, settings, outcome.state)
    found += _size(fleet, settings, outcome.state)
    found += [
        ("no-spare", None, None, each.node, _shortage(each)) for each in shortages(outcome.state, settings)
    ]
    return found


def _shortage(found: Shortage) -> str:
    return (
        f"if {found.node} were lost, the other nodes would use {found.used:.0%} of their {found.resource}, "
        f"more than {found.limit:.0%}: no placement helps; add nodes, or room on the nodes"
    )


def _large_queues(fleet: Fleet, settings: Settings, state: State) -> list[Note]:
    """Return notes on queues that are too large for any node: those of nodes that stay above their limit."""
    found: list[Note] = []
    for node, row in enumerate(fleet.nodes):
        limit = state.hard[CPU][node]
        if row.cores <= 0 or not len(fleet.want) or state.is_bad[node]:
            continue
        on_it = (state.master == node).nonzero()[0]
        if not len(on_it):
            continue
        queue = int(on_it[fleet.promote_cpu[on_it].argmax()])
        cpu = float(fleet.promote_cpu[queue] + fleet.mirror_cpu[queue])
        if cpu > limit or cpu > 0.5 * row.cores:
            shards = int(-(-cpu // (0.25 * row.cores)))
            text = (
                f"it uses {cpu:.2f} of the {row.cores:g} cores of {row.node}: moving it will not help; "
                f"divide it into {shards} queues, for instance by a consistent hash exchange"
            )
            queue_row = fleet.row(queue)
            found.append(("hot-single-queue", queue_row.vhost, queue_row.queue, row.node, text))
    return found[:NOTES_MAX]


def _size(fleet: Fleet, settings: Settings, state: State) -> list[Note]:
    """Return a note if there are too few nodes for the load."""
    good = [node for node, bad in enumerate(state.is_bad) if not bad]
    whole = sum(fleet.nodes[node].cores for node in good)
    used = sum(state.load[CPU][node] for node in good)
    if whole <= 0 or used <= settings.cpu_max * whole:
        return []
    more = int(-(-(used / settings.cpu_max - whole) // (whole / len(good))))
    text = (
        f"the nodes use {used:.1f} of {whole:g} cores, more than {settings.cpu_max:.0%}: no placement helps; "
        f"add {more} nodes like these"
    )
    return [("add-nodes", None, None, None, text)]
