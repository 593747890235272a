"""The answers of auth backends that are remembered for some seconds, so that not every login and method asks again."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

ANSWERS_MAX: Final = 16384
"""The most answers that a node remembers, at some 500 bytes each; the one that was used longest ago makes room."""

AnswerT = TypeVar("AnswerT")


class AnswerCache(Generic[AnswerT]):
    """Answers by question, each with the time at which it is too old.

    kept_s: how long an answer may be used.   most: how many there may be.
    """

    def __init__(self, kept_s: float, most: int = ANSWERS_MAX) -> None:
        self.kept_s = kept_s
        self._most = most
        self._answers: OrderedDict[Hashable, tuple[float, AnswerT]] = OrderedDict()

    def find(self, question: Hashable, now: float) -> AnswerT | None:
        """Return the answer if it is remembered; None if it has to be asked for."""
        found = self._answers.get(question)
        if found is None:
            return None
        until, answer = found
        if now >= until:
            del self._answers[question]
            return None
        self._answers.move_to_end(question)
        return answer

    def keep(self, question: Hashable, answer: AnswerT, now: float) -> None:
        """Remember an answer."""
        self._answers[question] = now + self.kept_s, answer
        self._answers.move_to_end(question)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def clear(self) -> None:
        """Forget all answers."""
        self._answers.clear()

    def __len__(self) -> int:
        return len(self._answers)
