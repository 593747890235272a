"""The history of a plan: the records of its journal, and the states that they add up to. Pure.

A record is a JSON object of one line: the time (`at`, seconds since 1970), the subject (`plan` or `step`), and its
next state (`to`). Unknown fields are kept and ignored, so that an older program reads a newer journal.

    {"at":…,"plan":"sha256:…","to":"running","owner":"me@host#1f2e","why":null}
    {"at":…,"step":"s1","to":"sent"}
    {"at":…,"step":"s1","to":"done","observed":{"epoch":18}}

Source: spark §3.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from spark_ops.applying.states import EDGES, PlanState, StepState

Record: TypeAlias = Mapping[str, Any]


class JournalDamaged(ValueError):
    """A journal has a line that no run of `apply` can have written."""


@dataclass(slots=True)
class History:
    """The state that a journal describes.

    plan: its id; "": nothing was begun.   owner: the name by which the lock was held.
    steps: the state of each by id; missing ones wait.
    sent: ids of steps that were ever requested.   observed: by ids, the cluster's last answer about each.
    begun_at, changed_at: seconds since 1970 of the first and the last record.
    """

    plan: str = ""
    owner: str = ""
    state: PlanState = PlanState.DRAFTED
    why: str | None = None
    steps: dict[str, StepState] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    observed: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    begun_at: float | None = None
    changed_at: float | None = None

    def add(self, record: Record) -> None:
        """Apply one record. Raises: JournalDamaged."""
        try:
            at = float(record["at"])
            if "step" in record:
                self._add_step(str(record["step"]), StepState(record["to"]), record)
            else:
                self._add_plan(str(record["plan"]), PlanState(record["to"]), record)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalDamaged(f"{type(error).__name__}: {error}") from None
        self.begun_at = at if self.begun_at is None else self.begun_at
        self.changed_at = at

    def _add_plan(self, plan: str, state: PlanState, record: Record) -> None:
        if self.plan and plan != self.plan:
            raise ValueError("it is of two plans")
        if self.plan and state not in EDGES[self.state]:
            raise ValueError(f"{state} does not follow {self.state}")
        self.plan, self.state, self.why = plan, state, record.get("why")
        self.owner = str(record.get("owner") or self.owner)

    def _add_step(self, step: str, state: StepState, record: Record) -> None:
        if not self.plan:
            raise ValueError("a step before its plan")
        self.steps[step] = state
        if state is StepState.SENT:
            self.sent.add(step)
        if isinstance(record.get("observed"), Mapping):
            self.observed[step] = record["observed"]

    def state_of(self, step: str) -> StepState:
        """Return the state of a step."""
        return self.steps.get(step, StepState.WAITING)

    def changed(self) -> list[str]:
        """Return the ids of the steps that changed the cluster, or may have, in the order in which they were sent."""
        own = {StepState.DONE, StepState.SENT, StepState.LEFT, StepState.FAILED}
        return [step for step, state in self.steps.items() if state in own]


def history(records: Iterable[Record]) -> History:
    """Return the history that records add up to. Raises: JournalDamaged."""
    found = History()
    for record in records:
        found.add(record)
    return found
