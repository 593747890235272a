"""An observation of a cluster while a plan is carried out, and the changes that end the plan at once. Pure.

Source: spark §3.4 (abort rules).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

Queue: TypeAlias = tuple[str, str]
"""The vhost and the name of a queue."""

SCORE_DROP_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a cluster.

    running: names of the nodes that are up.   view_id: of the membership; None: not told.
    alarms: the alarms that are set, in words, e.g. "memory on rabbit@n1".
    unsafe: mirrored queues that have no synchronised mirror now.
    answer_ms: time that a node took to answer the first request.
    confirm_p99_ms, mirror_lag_ops: of the worst known queue.   score: of health.   None: not known.
    """

    running: frozenset[str]
    alarms: frozenset[str] = frozenset()
    unsafe: frozenset[Queue] = frozenset()
    view_id: int | None = None
    answer_ms: float | None = None
    confirm_p99_ms: float | None = None
    mirror_lag_ops: int | None = None
    score: float | None = None


def reason_to_abort(first: Observation, seen: Observation, safe: Collection[Queue]) -> str | None:
    """Return why a plan must end now; None if it may continue.

    first: the observation before the first step of this run.   safe: queues that had a synchronised mirror then.
    """
    if set_now := sorted(seen.alarms - first.alarms):
        return f"an alarm was set: {', '.join(set_now)}"
    if gone := sorted(first.running - seen.running):
        return f"a node went down: {', '.join(gone)}"
    if come := sorted(seen.running - first.running):
        return f"the membership has changed: {', '.join(come)} came up"
    if None not in (first.view_id, seen.view_id) and first.view_id != seen.view_id:
        return f"the membership has changed: view {first.view_id} became {seen.view_id}"
    lost = sorted(queue for queue in seen.unsafe - first.unsafe if queue in safe)
    if lost:
        vhost, name = lost[0]
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        return f"queue {name!r} in vhost {vhost!r}{more} lost its last synchronised mirror"
    if first.score is not None and seen.score is not None and first.score - seen.score > SCORE_DROP_MAX:
        return f"the health score fell from {first.score:.0f} to {seen.score:.0f}"
    return None
