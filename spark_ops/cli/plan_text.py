"""A plan as text: its goals and figures, node by node and step by step. Names are made safe for terminals."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from spark_ops.planning.outcomes import sentence
from spark_ops.planning.plan import Plan, Step
from spark_ops.planning.times import iso

STEPS_SHOWN: Final = 200
NAME_SHOWN: Final = 60


def plain(text: object) -> str:
    """Return text on one line, without characters that a terminal would obey or could not show."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(text))
    return shown.encode("utf-8", "replace").decode()


def size(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, its columns as wide as needed."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def verdict(plan: Plan) -> str:
    """Return the plan in one line."""
    summary = plan.summary
    moves = f"{summary.get('promotions', 0)} promotions and {summary.get('copies', 0)} copies"
    if not plan.waves:
        unmet = [plain(goal.get("id")) for goal in plan.goals if goal.get("met") is not True]
        if not unmet:
            return "Nothing to do: all goals are met."
        return f"Nothing helps: {', '.join(unmet)} not met, and no move that is allowed would change that."
    waves = len(plan.waves)
    if summary.get("copies") and plan.inputs.get("coverage") == 0:
        return f"{moves} (of unknown size) in {waves} wave{'s' * (waves != 1)}, whose time is not known"
    return (
        f"{moves} ({size(_number(summary.get('bytes')))}) in {waves} wave{'s' * (waves != 1)}, "
        f"about {_number(summary.get('eta_s')):.0f} s one after the other"
    )


def _met(goal: dict[str, Any]) -> str:
    if goal.get("met") is not True:
        return "not met"
    return "met: too little load to act" if goal.get("is_below_floor") is True else "met"


def text(plan: Plan, *, steps_shown: int = STEPS_SHOWN) -> Iterator[str]:
    """Yield the lines of a plan."""
    yield f"plan     {plan.plan_id}"
    yield f"cluster  {plain(plan.cluster)}   mode {plan.mode}"
    yield f"made     {iso(plan.created)}   good until {iso(plan.expires)}"
    yield verdict(plan)
    if (told := sentence(plan.inputs.get("earlier"))) is not None:
        yield told
    if plan.goals:
        yield ""
        yield from table(
            ("goal", "kind", "before", "after", ""),
            (
                (
                    plain(goal.get("id")),
                    plain(goal.get("kind")),
                    _figure(goal.get("before")),
                    _figure(goal.get("after")),
                    _met(goal),
                )
                for goal in plan.goals
            ),
        )
    if plan.nodes:
        yield ""
        yield from table(
            ("node", "cpu", "memory", "masters", "copies", "cpu after a loss"),
            (
                (
                    plain(node.get("node")),
                    *(_pair(node, name, share=True) for name in ("cpu", "memory")),
                    *(_pair(node, name, share=False) for name in ("masters", "copies")),
                    _pair(node, "cpu_after_loss", share=True),
                )
                for node in plan.nodes
            ),
        )
    yield from _steps(plan, steps_shown)
    notes = [step for step in plan.steps if step.action == "note"]
    if notes:
        yield ""
        for note in notes[:steps_shown]:
            yield f"note: {note_text(note)}"


def _steps(plan: Plan, shown: int) -> Iterator[str]:
    by_id = plan.by_id
    rows = []
    for n, wave in enumerate(plan.waves, 1):
        for id_ in wave:
            step = by_id[id_]
            route = " → ".join(plain(node) for node in (step.source, step.target) if node is not None)
            rows.append((str(n), id_, step.action, plain(step.queue)[:NAME_SHOWN], route, plain(step.reason)))
    if rows:
        yield ""
        yield from table(("wave", "step", "action", "queue", "nodes", "reason"), rows[:shown])
    if len(rows) > shown:
        yield f"… and {len(rows) - shown} steps more"


def note_text(note: Step) -> str:
    """Return a note in one line."""
    about = "" if note.queue is None else f"queue {plain(note.queue)[:NAME_SHOWN]} ({plain(note.vhost)}): "
    return plain(f"{about}{note.why}")


def details(plan: Plan, id_: str) -> Iterator[str]:
    """Yield all details of one step; nothing if there is no such step."""
    step = plan.by_id.get(id_)
    if step is None:
        return
    yield f"{step.id}: {step.action} of queue {plain(step.queue)} in virtual host {plain(step.vhost)}"
    yield f"  why       {plain(step.why)} ({plain(step.reason)})"
    if step.source or step.target:
        yield f"  nodes     {plain(step.source or '-')} → {plain(step.target or '-')}"
    yield f"  cost      {step.cost.units:g} units, {size(step.cost.bytes)}, about {step.cost.est_s:g} s"
    for key, value in step.effect.items():
        yield f"  effect    {plain(key)} {value:+.2%}"
    if step.pre is not None:
        epoch = "as the step before leaves it" if step.pre.epoch is None else step.pre.epoch
        synced = ", ".join(map(plain, step.pre.synced)) or "-"
        yield f"  before    master {plain(step.pre.master)}, epoch {epoch}, synchronised: {synced}"
        least, most = step.pre.min_synced, step.pre.max_lag_ops
        yield f"            at least {least} synchronised, at most {most} operations behind"
    if step.post is not None:
        yield f"  after     {' → '.join(map(plain, step.post.ring))}"
    if step.inverse is not None:
        yield f"  undone by {plain(step.inverse[0])} {plain(step.inverse[2] or step.inverse[1] or '')}"
    if step.depends:
        yield f"  follows   {', '.join(step.depends)}"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _figure(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "-"


def _pair(node: dict[str, Any], name: str, *, share: bool) -> str:
    before, after = node.get(f"{name}_before"), node.get(f"{name}_after")
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return "-"
    return f"{before:.0%} → {after:.0%}" if share else f"{before:g} → {after:g}"
