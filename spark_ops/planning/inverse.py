"""The inverse plan undoes a plan, or the part of it that was carried out: queue by queue, the last one first.

It is made from a fresh topology, which gives each step its own conditions, and a queue that is not where the plan left
it is left alone. Copies come back before others are dropped, as in every plan.
The order of a ring depends on the order of joining, so it may differ afterwards; a note then says so.
Source: spark §3.4 (rollback), §6.12.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from spark_ops.planning import plan as plans
from spark_ops.planning.plan import Plan, Step
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.planning.steps import Move, NotPossible, check, placement_of, steps_of, summary_of, waves_of

WAVE_MOVES: Final = 20
WAVE_BYTES: Final = 1 << 30


def undone(plan: Plan, completed: Collection[str], current: ClusterRows, *, now: float) -> dict[str, Any]:
    """Return the document of the plan that undoes the completed steps.

    completed: ids of steps that are done (not: skipped), of any prefix of the plan or of any of its queues.
    current: the cluster as it is now; its loads don't matter.   now: seconds since 1970.
    """
    queues = {(row.vhost, row.queue): row for row in current.queues}
    nodes = {row.node: row for row in current.nodes}
    done: dict[tuple[str, str], list[Step]] = {}
    for step in plan.steps:
        if step.id in completed and step.vhost is not None and step.queue is not None:
            done.setdefault((step.vhost, step.queue), []).append(step)
    moves: list[list[Step]] = []
    notes: list[Step] = []
    count = 0
    for key, steps in reversed(done.items()):
        row = queues.get(key)
        why = _why_not(steps, row)
        made: list[Step] = []
        if row is not None and why is None:
            try:
                move = _move(plan, steps, row)
                made = steps_of(move, count + 1, nodes)
                why = _difference(steps, move)
            except NotPossible as error:
                why = f"left as it is: {error}"
        if made:
            moves.append(made)
            count += len(made)
        if why is not None:
            notes.append(Step("", "note", *key, None, None, "rollback", why))
    all_steps = [step for made in moves for step in made]
    advice = [replace(note, id=f"s{count + n}") for n, note in enumerate(notes, 1)]
    return plans.build(
        cluster=current.cluster,
        now=now,
        mode="rollback",
        inputs={
            "view_id": current.view_id,
            "topology_hash": current.topology_hash,
            "undoes": plan.plan_id,
            "completed": len(completed),
        },
        goals=[],
        summary=summary_of(all_steps),
        nodes=[],
        waves=waves_of(moves, moves_max=WAVE_MOVES, bytes_max=WAVE_BYTES),
        steps=[*all_steps, *advice],
    )


def _net(steps: list[Step]) -> tuple[dict[str, int], str | None, str | None]:
    """Return the net effect of steps: nodes that got (+1) and lost (-1) a copy; the master before the first promotion
    and after the last, None without any."""
    copies: dict[str, int] = {}
    first = last = None
    for step in steps:
        match step.action:
            case "add_mirror" if step.target is not None:
                copies[step.target] = copies.get(step.target, 0) + 1
            case "drop_mirror" if step.source is not None:
                copies[step.source] = copies.get(step.source, 0) - 1
            case "promote":
                first, last = first or step.source, step.target
            case _:
                pass
    return {node: count for node, count in copies.items() if count}, first, last


def _why_not(steps: list[Step], row: QueueRow | None) -> str | None:
    """Return why a queue must not be changed; None if it is where the plan left it."""
    copies, _, last = _net(steps)
    if row is None or any(step.pre is not None and step.pre.uid != row.uid for step in steps):
        return "left as it is: the queue of the plan is not there any more"
    if last is not None and row.master != last:
        return f"left as it is: its master is on {row.master}, the plan brought it to {last}"
    if any((node in row.ring) != (count > 0) for node, count in copies.items()):
        return "left as it is: its copies are not where the plan brought them"
    return None


def _move(plan: Plan, steps: list[Step], row: QueueRow) -> Move:
    copies, first, _ = _net(steps)
    return Move(
        row,
        placement_of(row),
        first or row.master,
        tuple(node for node, count in copies.items() if count < 0),
        tuple(node for node, count in copies.items() if count > 0),
        "rollback",
        f"undoes {', '.join(step.id for step in steps)} of {plan.plan_id[:19]}",
    )


def _difference(steps: list[Step], move: Move) -> str | None:
    """Return a note if the ring will have another order than before the plan, or if that order is unknown."""
    before, ring = _ring_before(steps[0]), check(move).ring
    if before is None:  # a copy was dropped first, and no step says where in the ring it was
        return f"the order of its ring will be {', '.join(ring)}; that may not be what it was"
    if ring == before or set(ring) != set(before):
        return None
    return f"the order of its ring will be {', '.join(ring)}; before the plan it was {', '.join(before)}"


def _ring_before(first: Step) -> tuple[str, ...] | None:
    """Return the ring of a queue before its first step of a plan; None if the step does not tell."""
    if first.post is None or first.pre is None:
        return None
    ring = first.post.ring
    match first.action:
        case "add_mirror":
            return tuple(node for node in ring if node != first.target)
        case "promote" if first.pre.master in ring:
            at = ring.index(first.pre.master)
            return ring[at:] + ring[:at]
        case _:
            return None
