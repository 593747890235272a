"""The journals of plans in the metadata of their cluster: two global parameters for each plan.

    spark_ops.plan.DIGITS       the plan's file, compressed; written before the first step
    spark_ops.journal.DIGITS    its journal (`kept_journal`); written before each step is sent, and at each outcome

The journal on the disk of the machine that carries a plan out is the truth, and the cluster has a copy: if the copy
cannot be written, the plan goes on. The lock of plans, and not the copy, keeps two machines apart. Source: spark §3.4.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.client import Client
from spark_ops.applying.history import History, Record
from spark_ops.applying.journal import DIGITS, PREFIX
from spark_ops.applying.kept_journal import (
    STEPS_MAX,
    KeptJournal,
    NotKept,
    kept_from,
    kept_of,
    packed,
    unpacked,
)
from spark_ops.applying.states import PlanState

PATH: Final = "/global-parameters"
PLAN: Final = "spark_ops.plan."
JOURNAL: Final = "spark_ops.journal."
ORDER: Final = "spark_ops.order."
"""Orders to the machine that carries out a plan (`cluster_orders`)."""
PLANS_MAX: Final = 8
"""The number of plans that a cluster keeps. A further one replaces one that has ended, the one that changed least
recently; without any of them, one that has not. Parameters of our names that are no journals go, too."""
FAILURES_MAX: Final = 3
"""After so many failures in a row a run writes no more copies, so that a cluster in trouble is not asked in vain."""


class NoJournals(Exception):
    """The cluster does not give its journals; the error's text is one line."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that the cluster keeps.   digits: the first ones of its id."""

    digits: str
    journal: KeptJournal


def digits_of(plan_id: str) -> str:
    """Return the part of a plan's id that names its parameters."""
    return plan_id.removeprefix(PREFIX)[:DIGITS]


def kept_plans(client: Client) -> list[KeptPlan]:
    """Return the plans that the cluster keeps, with their journals. Raises: NoJournals."""
    found = client.get(PATH)
    if isinstance(found, Silence):
        raise NoJournals(f"the cluster does not answer: {found.why}")
    if found.status != 200 or not isinstance(found.body, list):
        raise NoJournals(f"the cluster refuses: {found.reason}")
    plans = []
    for row in found.body:
        name = row.get("name") if isinstance(row, dict) else None
        if isinstance(name, str) and name.startswith(JOURNAL):
            try:
                plans.append(KeptPlan(name.removeprefix(JOURNAL), kept_from(row.get("value"))))
            except NotKept:
                continue  # of another version, or written by somebody else
    return plans


def plan_file(client: Client, digits: str) -> bytes:
    """Return the file of a kept plan. Raises: NoJournals; NotKept."""
    found = client.get(f"{PATH}/{PLAN}{digits}")
    if isinstance(found, Silence) or found.status != 200:
        why = found.why if isinstance(found, Silence) else found.reason
        raise NoJournals(f"the cluster does not give the plan: {why}")
    return unpacked(found.field("value"))


def set_state(client: Client, plan: KeptPlan, state: PlanState, at: float) -> bool:
    """Change the state of a kept plan that is not being carried out. Returns: whether the cluster did it."""
    changed = {**plan.journal.document, "state": str(state), "changed_at": at}
    return _is_good(client.request("PUT", f"{PATH}/{JOURNAL}{plan.digits}", {"value": changed}))


class Copy:
    """The copy of a journal while its plan is carried out.   why_not: why there is none, or not all of it; None: it is
    whole.

    Nothing is written before the journal has a record, that is, before the plan has the lock.
    """

    def __init__(self, client: Client, cluster: str, past: History, data: bytes, steps: int) -> None:
        """Make a copy.   past: the history in the journal.   data: the plan's file.   steps: their number."""
        self.why_not: str | None = None
        self._client = client
        self._cluster = cluster
        self._history = past
        self._plan = packed(data) if steps <= STEPS_MAX else None
        self._failures = 0
        self._is_begun = self._is_behind = False

    def write(self, records: Iterable[Record]) -> None:
        """Add records, which are on the disk already. The client's patience bounds how long that takes."""
        is_changed = self._is_behind
        for record in records:
            self._history.add(record)
            is_changed |= not record.get("goes_on")
        if not is_changed or not self._history.plan or self._failures >= FAILURES_MAX:
            return
        digits = digits_of(self._history.plan)
        if not self._is_begun:
            self._is_begun = self._begin(digits)
        if self._is_begun:
            body = {"value": kept_of(self._history, self._cluster).document}
            self._is_behind = not self._noted(self._client.request("PUT", f"{PATH}/{JOURNAL}{digits}", body))

    def _begin(self, digits: str) -> bool:
        """Have the cluster keep the plan, in place of old ones if there are too many. Returns: whether it does."""
        if self._plan is None:
            self._failures, self.why_not = FAILURES_MAX, "it is too large for the cluster's metadata"
            return False
        try:
            kept = [each for each in kept_plans(self._client) if each.digits != digits]
            names = _names(self._client)
        except NoJournals as error:
            self._failures, self.why_not = self._failures + 1, str(error)
            return False
        rank = sorted(kept, key=lambda each: (not each.journal.is_over, each.journal.changed_at))
        stays = {each.digits for each in rank[max(0, len(rank) + 1 - PLANS_MAX) :]} | {digits}
        for name in names:
            is_gone = name.startswith((PLAN, JOURNAL, ORDER)) and name.rpartition(".")[2] not in stays
            # An order that was given before this run began was for another one.
            if is_gone or name == f"{ORDER}{digits}":
                self._client.request("DELETE", f"{PATH}/{name}")
        return self._noted(self._client.request("PUT", f"{PATH}/{PLAN}{digits}", {"value": self._plan}))

    def _noted(self, answer: Answer | Silence) -> bool:
        if _is_good(answer):
            self._failures, self.why_not = 0, None
            return True
        self._failures += 1
        self.why_not = answer.why if isinstance(answer, Silence) else answer.reason
        return False


def _names(client: Client) -> list[str]:
    """Return the names of all global parameters. Raises: NoJournals."""
    found = client.get(f"{PATH}?columns=name")
    if isinstance(found, Silence) or not isinstance(found.body, list):
        raise NoJournals(
            f"the cluster does not answer: {found.why if isinstance(found, Silence) else found.reason}"
        )
    return [str(row["name"]) for row in found.body if isinstance(row, dict) and "name" in row]


def _is_good(answer: Answer | Silence) -> bool:
    return isinstance(answer, Answer) and answer.status in (200, 201, 204)


def holder(client: Client) -> tuple[str, str] | None:
    """Return the plan that has the lock and the lock's owner; None if it is free. Raises: NoJournals."""
    found: Any = client.get("/mirroring/plan-lock")
    if isinstance(found, Silence):
        raise NoJournals(f"the cluster does not answer: {found.why}")
    if not found.field("is_held"):
        return None
    return str(found.field("plan")), str(found.field("owner"))
