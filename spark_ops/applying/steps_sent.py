"""A step that was sent and has no outcome yet: what to send again, and what an answer means. Pure."""

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
"""Less than that is none."""


class Verdict(Enum):
    """What an answer means that is no outcome.

    AGAIN: nothing is known.   GOES_ON: the cluster is at it.   LOCKED: the lock is not ours.
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

    progressed_at: when it was last seen to get on.   is_again: an earlier life may have sent it.
    is_asked: a request is on its way.   next_at: when to ask again.   is_going_on: the cluster said that it is at it.
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
        """Whether what an answer finds done may have been done by an earlier request."""
        return self.is_again or self.attempts > 1

    def body(self, plan_id: str, epochs: Mapping[str, int]) -> dict[str, Any]:
        """Of the request.   epochs: by uid, those that this plan's own promotions made: nobody could foretell them."""
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
        """The cluster is at it, or holds it back. Returns: whether that is news."""
        progress = answer.field("progress")
        if answer.field("state") == "waiting" and self.step.action != WAIT:
            self.attempts -= 1  # it was held back, so that request has done nothing
        if isinstance(progress, int | float) and progress >= self.progress + PROGRESS_MIN:
            self.progress, self.progressed_at = float(progress), now
        self.next_at = now + poll_s
        self.retry_s = RETRY_FIRST_S
        is_news, self.is_going_on = not self.is_going_on, True
        return is_news

    def wait_longer(self, now: float) -> None:
        """Nobody could tell: ask again, later each time."""
        self.next_at = now + self.retry_s
        self.retry_s = min(self.retry_s * 2, RETRY_MAX_S)


def verdict(sent: Sent, answer: Answer | Silence) -> Meaning:
    """What an answer says of a step.

    What the cluster refuses was not begun (`stale`), unless it was asked for before: then nobody knows, and it
    counts as something that may have been done (`failed`).
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
