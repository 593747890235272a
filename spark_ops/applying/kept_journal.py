"""The journal of a plan as the cluster keeps it, so that another machine can resume the plan or undo it. Pure.

It is shorter than the journal on the disk: the state of each step that was begun, in the order in which they were sent,
and the epochs that promotions made. A machine without the journal makes one of it; a machine whose journal is older,
because another one went on in the meantime, adds what it lacks.

    {"format":"spark-ops-journal/1","plan":"sha256:…","cluster":"c","owner":"me@host#1f2e","state":"paused","why":null,
     "begun_at":…,"changed_at":…,"steps":[["s1","done"],["s2","sent"]],"epochs":{"s1":18}}

Source: spark §3.4.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_ops.applying.history import History, Record
from spark_ops.applying.states import EDGES, ENDED, PlanState, StepState

FORMAT: Final = "spark-ops-journal/1"
STEPS_MAX: Final = 1000
"""A plan with more steps is not kept: each transition writes the states of all steps into the metadata, some 16 bytes
each."""
PLAN_BYTES_MAX: Final = 256 << 10
"""The largest plan that is kept, compressed and encoded; a larger one is not."""
_PLAN_RAW_MAX: Final = 16 << 20


class NotKept(ValueError):
    """A document of the cluster is no journal or no plan; the error's text is one line."""


@dataclass(frozen=True, slots=True)
class KeptJournal:
    """The journal of a plan. All fields are as in `history.History`.

    steps: the state of each step that was begun, in order.   epochs: by step, the epoch that the cluster reported.
    """

    plan: str
    cluster: str
    owner: str
    state: PlanState
    why: str | None
    begun_at: float
    changed_at: float
    steps: dict[str, StepState] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The journal as JSON."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "cluster": self.cluster,
            "owner": self.owner,
            "state": str(self.state),
            "why": self.why,
            "begun_at": self.begun_at,
            "changed_at": self.changed_at,
            "steps": [[step, str(state)] for step, state in self.steps.items()],
            "epochs": self.epochs,
        }

    @property
    def is_over(self) -> bool:
        """True if the plan is not carried out any more: the first ones to be forgotten."""
        return PlanState.RUNNING not in EDGES[self.state]


def kept_of(history: History, cluster: str) -> KeptJournal:
    """Return the journal to keep of a history that was begun."""
    assert history.plan
    assert history.begun_at is not None
    assert history.changed_at is not None
    epochs = {
        step: observed["epoch"]
        for step, observed in history.observed.items()
        if isinstance(observed.get("epoch"), int)
    }
    return KeptJournal(
        history.plan,
        cluster,
        history.owner,
        history.state,
        history.why,
        history.begun_at,
        history.changed_at,
        dict(history.steps),
        epochs,
    )


def kept_from(document: Any) -> KeptJournal:
    """Return the journal in a document. Raises: NotKept."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise NotKept(f"its format is not {FORMAT}")
    steps, epochs = document.get("steps"), document.get("epochs")
    if not isinstance(steps, list) or len(steps) > STEPS_MAX or not isinstance(epochs, Mapping):
        raise NotKept("it has no list of steps, or too many")
    why = document.get("why")
    try:
        return KeptJournal(
            str(document["plan"]),
            str(document["cluster"]),
            str(document["owner"]),
            PlanState(document["state"]),
            None if why is None else str(why),
            float(document["begun_at"]),
            float(document["changed_at"]),
            {str(step): StepState(state) for step, state in steps},
            {str(step): int(epoch) for step, epoch in epochs.items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise NotKept(f"{type(error).__name__}: {error}") from None


def records_of(kept: KeptJournal, owner: str) -> list[Record]:
    """Return the records of a new journal for a machine that has none.

    owner: its name for the lock. It is another one than the machine's before: if that one is still at work, the lock
    keeps both apart.
    """
    plan = {"plan": kept.plan, "to": kept.state, "owner": owner, "why": kept.why}
    return [{"at": kept.begun_at, **plan}, *(_step(kept, step) for step in kept.steps)]


def lacking(history: History, kept: KeptJournal) -> list[Record]:
    """Return the records that a machine's journal lacks because another machine went on with the plan.

    A step with an outcome keeps it. The plan's state is the later one, if it can follow.
    """
    found: list[Record] = []
    for step, state in kept.steps.items():
        own = history.state_of(step)
        if own is not state and own not in ENDED and (state in ENDED or own is StepState.WAITING):
            found.append(_step(kept, step))
    if kept.changed_at > (history.changed_at or 0.0) and kept.state is not history.state:
        plan = {"at": kept.changed_at, "plan": kept.plan, "why": kept.why}
        if kept.state in EDGES[history.state]:
            found.append({**plan, "to": kept.state})
        elif PlanState.RUNNING in EDGES[history.state] and kept.state in EDGES[PlanState.RUNNING]:
            found += [{**plan, "to": PlanState.RUNNING}, {**plan, "to": kept.state}]
    return found


def _step(kept: KeptJournal, step: str) -> Record:
    record: dict[str, Any] = {"at": kept.changed_at, "step": step, "to": kept.steps[step]}
    if step in kept.epochs:
        record["observed"] = {"epoch": kept.epochs[step]}
    return record


def packed(data: bytes) -> str | None:
    """Return a plan's file as the text that the cluster keeps; None if it is too large."""
    if len(data) > _PLAN_RAW_MAX:
        return None
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return text if len(text) <= PLAN_BYTES_MAX else None


def unpacked(text: Any) -> bytes:
    """Return the plan's file of which `packed` made a text. Raises: NotKept."""
    if not isinstance(text, str) or len(text) > PLAN_BYTES_MAX:
        raise NotKept("it is no plan, or too large")
    try:
        raw = base64.b64decode(text, validate=True)
        inflater = zlib.decompressobj()
        data = inflater.decompress(raw, _PLAN_RAW_MAX)
    except (binascii.Error, ValueError, zlib.error):
        raise NotKept("it is no compressed plan") from None
    if not inflater.eof:
        raise NotKept("it is torn, or too large")
    return data
