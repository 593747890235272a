"""A sent step without an outcome: the request to repeat, and the meaning of an answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from spark_ops.applying.asking import Answer, Silence
from spark_ops.applying.states import StepState
from spark_ops.applying.work import WAIT, Work

RETRY_FIRST_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
PROGRESS_MIN: Final = 0.001
"""A smaller rise of the progress does not count."""


class Verdict(Enum):
    """The meaning of an answer that is no outcome.

    AGAIN: the state of the step is unknown.   GOES_ON: the cluster still works on it.   LOCKED: we do not hold the
    lock.
    FORBIDDEN: the user may not do that.
    """

    AGAIN = auto()
    GOES_ON = auto()
    LOCKED = auto()
    FORBIDDEN = auto()


Meaning: TypeAlias = "Verdict | StepState"


@dataclass(slots=True)
class Sent:
    """One step.

    progressed_at: time of its last progress.   is_again: an earlier run may have sent it.
    is_asked: a request is under way.   next_at: when to ask again.   is_going_on: the cluster said that it works on
    it.
    """

    step: Work
    progressed_at: float
    is_again: bool = False
    is_asked: bool = False
    is_going_on: bool = False
    attempts: int = 0
    next_at: float = 0.0
    progress: float = 0.0
    retry_s: float = RETRY_FIRST_S

    @property
    def may_be_ours(self) -> bool:
        """True if a result that an answer finds done may come from an earlier request."""
        return self.is_again or self.attempts > 1

    def body(self, plan_id: str, epochs: Mapping[str, int]) -> dict[str, Any]:
        """Return the request's body.   epochs: by uid, those made by this plan's promotions."""
        step = self.step
        pre = dict(step.pre)
        if pre["epoch"] is None:
            pre["epoch"] = epochs[step.uid]
        return {
            "plan": plan_id,
            "step": step.id,
            "action": step.action,
            "vhost": step.vhost,
            "queue": step.queue,
            "uid": step.uid,
            "from": step.source,
            "to": step.target,
            "pre": pre,
        }

    def goes_on(self, answer: Answer, now: float, poll_s: float) -> bool:
        """Note that the cluster works on the step, or holds it back. Returns: True if it said so for the first time."""
        progress = answer.field("progress")
        if answer.field("state") == "waiting" and self.step.action != WAIT:
            self.attempts -= 1  # it was held back, so that request has changed nothing
        if isinstance(progress, int | float) and progress >= self.progress + PROGRESS_MIN:
            self.progress, self.progressed_at = float(progress), now
        self.next_at = now + poll_s
        self.retry_s = RETRY_FIRST_S
        is_news, self.is_going_on = not self.is_going_on, True
        return is_news

    def wait_longer(self, now: float) -> None:
        """Wait before the next request, each time longer, since the last one had no definite answer."""
        self.next_at = now + self.retry_s
        self.retry_s = min(self.retry_s * 2, RETRY_MAX_S)


def verdict(sent: Sent, answer: Answer | Silence) -> Meaning:
    """Return the meaning of an answer about a step.

    A step that the cluster refuses was not begun (`stale`), unless it was requested before: then its state is unknown,
    and
    it counts as something that may have been done (`failed`).
    """
    if isinstance(answer, Silence) or answer.is_unsure:
        return Verdict.AGAIN
    match answer.status, answer.field("state"):
        case 200, "done":
            return StepState.DONE
        case 200, "skipped":
            return StepState.DONE if sent.may_be_ours else StepState.SKIPPED
        case 200, "started" | "waiting":
            return Verdict.GOES_ON
        case 404 | 409, _:
            return StepState.FAILED if sent.may_be_ours else StepState.STALE
        case 423, _:
            return Verdict.LOCKED
        case 401 | 403, _:
            return Verdict.FORBIDDEN
    return StepState.FAILED
