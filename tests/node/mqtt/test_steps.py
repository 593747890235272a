"""Work that waits for the node: answers come at once or later, and what it raises is told."""

from collections.abc import Callable
from typing import Any

import pytest

from node.mqtt.errors import protocol_error
from node.mqtt.reason_codes import ReasonCode
from node.mqtt.steps import Steps, Work, granted
from node.plugins import Refusal


class Told:
    """The end of work.   answers: the callbacks that it waits for."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.answers: list[Callable[[Any], None]] = []

    def begin(self, steps: Steps[None]) -> Work:
        work = Work(steps, lambda: self.log.append("done"), lambda error: self.log.append(error.code))
        work.go_on()
        return work

    def later(self, on_done: Callable[[Any], None]) -> None:
        self.answers.append(on_done)


def test_answers_come_at_once_or_later() -> None:
    told = Told()

    def steps() -> Steps[None]:
        for number in range(3):
            found = yield lambda on_done, number=number: on_done(number)
            told.log.append(found)
        found = yield told.later
        told.log.append(found)

    told.begin(steps())
    assert told.log == [0, 1, 2]
    told.answers.pop()("late")
    assert told.log == [0, 1, 2, "late", "done"]


def test_work_without_a_question_is_done() -> None:
    told = Told()

    def steps() -> Steps[None]:
        yield from ()

    told.begin(steps())
    assert told.log == ["done"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (403, ReasonCode.NOT_AUTHORIZED),
        (406, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR),
        (320, ReasonCode.SERVER_SHUTTING_DOWN),
    ],
)
def test_a_refusal_is_told_with_its_reason_code(code: int, reason: ReasonCode) -> None:
    told = Told()
    told.begin(granted(lambda on_done: on_done(Refusal(code, "no"))))
    assert told.log == [reason]


def test_an_error_is_told() -> None:
    told = Told()

    def steps() -> Steps[None]:
        yield told.later
        raise protocol_error("bad")

    told.begin(steps())
    told.answers.pop()(None)
    assert told.log == [ReasonCode.PROTOCOL_ERROR]


def test_work_is_stopped() -> None:
    told, ended = Told(), list[bool]()

    def steps() -> Steps[None]:
        try:
            yield told.later
        finally:
            ended.append(True)

    told.begin(steps()).stop()
    assert (told.log, ended) == ([], [True])
