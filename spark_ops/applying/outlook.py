"""The outlook of each step of a plan if it were carried out now, by a fresh topology. Pure.

A dry run shows it, and a stale plan is refused by it before its first step. It promises nothing: the cluster
checks again at each step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_ops.applying.work import ADD, DROP, PROMOTE, Work
from spark_ops.planning.placement import Placement
from spark_ops.planning.rows import ClusterRows, QueueRow
from spark_ops.planning.topology import members_of


@dataclass(frozen=True, slots=True)
class Outlook:
    """The outlook of one step.

    do: it would be done.   skip: nothing has to be done.   stale: it would be refused, why gives the reason.
    drop: it needs a step that would be refused.
    """

    step: Work
    what: Literal["do", "skip", "stale", "drop"]
    why: str | None = None


def outlooks(steps: Sequence[Work], current: ClusterRows) -> list[Outlook]:
    """Return the outlooks of the steps, which are those of a plan that are not done yet."""
    rows = {(row.vhost, row.queue): row for row in current.queues}
    plays: dict[tuple[str, str, str], _Play] = {}
    found = []
    for step in steps:
        key = step.vhost, step.queue, step.uid
        if key not in plays:
            row = rows.get(key[:2])
            plays[key] = _Play(row)
        found.append(plays[key].next(step))
    return found


class _Play:
    """The simulation of one queue's steps."""

    def __init__(self, row: QueueRow | None) -> None:
        self._row = row
        self._broken = False
        self._placement = None if row is None else _placement(row)

    def next(self, step: Work) -> Outlook:
        """Return the outlook of the next step, and apply its effect."""
        if self._broken:
            return Outlook(step, "drop", "a step that it needs would be refused")
        row, placement = self._row, self._placement
        why = None
        if row is None or row.uid != step.uid:
            why = f"there is no queue {step.queue!r} in vhost {step.vhost!r} as the plan knows it"
        elif placement is None:
            why = f"queue {step.queue!r} has no master now"
        elif _is_so(step, placement):
            return Outlook(step, "skip")
        else:
            why = self._why_stale(step, row, placement)
        if why is None and placement is not None:
            try:
                self._placement = _after(step, placement)
            except ValueError as error:
                why = str(error)
        if why is not None:
            self._broken = True
            return Outlook(step, "stale", why)
        return Outlook(step, "do")

    def _why_stale(self, step: Work, row: QueueRow, placement: Placement) -> str | None:
        pre: Mapping[str, object] = step.pre
        queue = f"queue {step.queue!r} in vhost {step.vhost!r}"
        if pre["master"] != placement.master:
            return f"the master of {queue} is on {placement.master}, not on {pre['master']}"
        if pre["epoch"] not in (None, row.epoch):
            return f"{queue} has had another master since the plan was made"
        missing = [node for node in step.pre["synced"] if node not in placement.synced]
        if missing:
            return f"{queue} is not synchronised on {', '.join(missing)}"
        left = placement.synced - ({step.source} if step.action == DROP else set())
        if len(left) < step.pre["min_synced"]:
            return f"{queue} has {len(left)} synchronised copies, {step.pre['min_synced']} are needed"
        return None


def _is_so(step: Work, placement: Placement) -> bool:
    if step.action == PROMOTE:
        return placement.master == step.target
    if step.action == DROP:
        return step.source not in placement.members
    return step.target in (placement.members if step.action == ADD else placement.synced)


def is_so_now(step: Work, row: QueueRow | None) -> bool:
    """True if a step's effect is already there.   row: its queue now; None: it is gone."""
    placement = None if row is None or row.uid != step.uid else _placement(row)
    return placement is not None and _is_so(step, placement)


def _placement(row: QueueRow) -> Placement | None:
    return Placement(members_of(row), row.master, frozenset(row.synced)) if row.master else None


def _after(step: Work, placement: Placement) -> Placement:
    """Return the placement after a step. Raises: ValueError if the step is impossible."""
    if step.action == DROP:
        assert step.source is not None
        return placement.dropped(step.source)
    assert step.target is not None
    if step.action == PROMOTE:
        return placement.promoted(step.target)
    return placement.added(step.target) if step.action == ADD else placement.filled(step.target)


def reason_to_refuse(found: Sequence[Outlook], *, on_stale: Literal["skip", "stop"]) -> str | None:
    """Return why a plan should not even begin; None if it may."""
    stale = [each for each in found if each.what == "stale"]
    if not stale or (on_stale == "skip" and any(each.what == "do" for each in found)):
        return None
    more = f" (and {len(stale) - 1} more)" if len(stale) > 1 else ""
    advice = "plan anew" if on_stale == "skip" else "plan anew, or --on-stale skip"
    return f"the plan is stale: step {stale[0].step.id}: {stale[0].why}{more}; {advice}"
