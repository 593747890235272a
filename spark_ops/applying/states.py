"""The states of a plan and of its steps: which may follow which, and the operator's commands in each.

Source: spark §3.4.
"""

from enum import StrEnum
from typing import Final


class PlanState(StrEnum):
    """The state of a plan. It is `drafted` until an operator approves it; one that was never begun has no journal."""

    DRAFTED = "drafted"
    APPROVED = "approved"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"
    STALE = "stale"
    EXPIRED = "expired"
    ROLLED_BACK = "rolled-back"


class StepState(StrEnum):
    """The state of a step.

    sent: requested, without an outcome yet; after a crash it is requested again.   skipped: nothing had to be done.
    stale: the cluster is not as the plan expects.   failed: it cannot be completed.
    dropped: a step that it needs did not succeed.   left: abandoned without an outcome: the cluster may still do it.
    """

    WAITING = "waiting"
    SENT = "sent"
    DONE = "done"
    SKIPPED = "skipped"
    STALE = "stale"
    FAILED = "failed"
    DROPPED = "dropped"
    LEFT = "left"


EDGES: Final[dict[PlanState, frozenset[PlanState]]] = {
    PlanState.DRAFTED: frozenset({PlanState.APPROVED, PlanState.EXPIRED, PlanState.STALE}),
    PlanState.APPROVED: frozenset({PlanState.RUNNING, PlanState.EXPIRED, PlanState.STALE}),
    PlanState.RUNNING: frozenset(
        {PlanState.RUNNING, PlanState.PAUSED, PlanState.DONE, PlanState.ABORTED, PlanState.STALE}
    ),
    PlanState.PAUSED: frozenset(
        {PlanState.RUNNING, PlanState.ABORTED, PlanState.EXPIRED, PlanState.ROLLED_BACK}
    ),
    PlanState.DONE: frozenset({PlanState.ROLLED_BACK}),
    PlanState.ABORTED: frozenset({PlanState.ROLLED_BACK}),
    PlanState.STALE: frozenset({PlanState.RUNNING, PlanState.ROLLED_BACK}),
    PlanState.EXPIRED: frozenset({PlanState.ROLLED_BACK}),
    PlanState.ROLLED_BACK: frozenset(),
}
"""The states that may follow each. Running follows running after a crash, and stale by `--on-stale skip`."""

VERBS: Final[dict[PlanState, tuple[str, ...]]] = {
    PlanState.DRAFTED: ("show", "diff", "simulate", "apply"),
    PlanState.APPROVED: ("show", "apply"),
    PlanState.RUNNING: ("show", "pause", "abort", "resume"),
    PlanState.PAUSED: ("show", "resume", "abort", "rollback"),
    PlanState.DONE: ("show", "report --after", "rollback"),
    PlanState.ABORTED: ("show", "rollback"),
    PlanState.STALE: ("show", "apply --on-stale skip", "rollback", "plan"),
    PlanState.EXPIRED: ("show", "plan", "rollback"),
    PlanState.ROLLED_BACK: ("show", "plan"),
}
"""The commands that make sense in each state; `resume` of a running plan is for one whose `apply` was killed."""

SUCCEEDED: Final = frozenset({StepState.DONE, StepState.SKIPPED})
ENDED: Final = frozenset(
    {StepState.DONE, StepState.SKIPPED, StepState.STALE, StepState.FAILED, StepState.DROPPED}
)
"""The states with an outcome. `left` has none: the next run requests the step again."""
