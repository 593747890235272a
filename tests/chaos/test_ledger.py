"""The checker finds what it is there to find."""

from random import Random
from typing import Any, cast

import pytest

from node.amqp import methods
from tests.chaos.check import FinalCheck
from tests.chaos.ledger import MUST_BE_0, Ledger, Session
from tests.kit.ledger import CONFIRMED, DELIVERED, RETURNED, SENT, SETTLED, SPARED, Kind, Value
from tests.kit.load_client import Delivery

KIND = Kind()


def delivery(number: int, *, redelivered: bool = False, publisher: str = "p") -> Delivery:
    value = Value(publisher, number)
    method = methods.BasicDeliver(delivery_tag=number, redelivered=redelivered)
    return Delivery(method, KIND.properties(value), KIND.body(value))


@pytest.fixture
def ledger() -> Ledger:
    made = Ledger()
    made.kinds["p"] = KIND
    queue = made.add("q", 0)
    for number in range(1, 6):
        queue.mark(Value("p", number), SENT)
    return made


def bad(ledger: Ledger) -> dict[str, int]:
    """Return the counts that must be 0 and aren't."""
    return {name: found for name in MUST_BE_0 if (found := getattr(ledger.count, name))}


def test_a_session_without_fault(ledger: Ledger) -> None:
    session = Session(ledger, ledger.queues["q"], "s")
    for number in (1, 3):
        assert session.take(delivery(number)) == Value("p", number)
    session.take(delivery(1, redelivered=True))
    session.settled(Value("p", 1))
    assert bad(ledger) == {}
    assert (ledger.count.delivered, ledger.count.redelivered) == (3, 1)


@pytest.mark.parametrize(
    ("deliveries", "found"),
    [
        ([delivery(3), delivery(2)], {"disorder": 1}),
        ([delivery(9)], {"unexpected": 1}),
        ([delivery(2), delivery(2)], {"duplicates": 1, "disorder": 1}),
        ([delivery(1)._replace(body=b"p:1|other")], {"wrong": 1}),
        ([delivery(1, publisher="nobody")], {"wrong": 1}),
    ],
    ids=["disorder", "unexpected", "duplicate", "wrong", "nobody"],
)
def test_what_a_session_must_not_get(
    ledger: Ledger, deliveries: list[Delivery], found: dict[str, int]
) -> None:
    session = Session(ledger, ledger.queues["q"], "s")
    for each in deliveries:
        session.take(each)
    assert bad(ledger) == found


def test_what_was_acknowledged_must_not_come_again_to_the_same_session(ledger: Ledger) -> None:
    session = Session(ledger, ledger.queues["q"], "s")
    session.take(delivery(1))
    session.settled(Value("p", 1))
    session.take(delivery(1, redelivered=True))
    assert bad(ledger) == {"duplicates": 1}


def test_only_a_later_session_must_be_told_of_redelivery(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1.0]
    monkeypatch.setattr("tests.chaos.ledger.time.monotonic", lambda: now[0])
    first, at_the_same_time = (Session(ledger, ledger.queues["q"], name) for name in "ab")
    now[0] = 2.0
    first.take(delivery(1))
    at_the_same_time.take(delivery(1))
    assert bad(ledger) == {}
    now[0] = 3.0
    Session(ledger, ledger.queues["q"], "c").take(delivery(1))
    assert bad(ledger) == {"unmarked": 1}


@pytest.mark.parametrize(
    ("marks", "present", "found"),
    [
        (SENT | CONFIRMED, [1], {}),
        (SENT | CONFIRMED | DELIVERED | SETTLED, [], {}),
        (SENT | CONFIRMED, [], {"lost": 1}),
        (SENT | CONFIRMED | DELIVERED, [], {"lost": 1}),
        (SENT | CONFIRMED | SPARED, [], {}),
        (SENT, [], {}),
        (SENT, [1], {}),
        (SENT | RETURNED, [], {}),
        (SENT | RETURNED, [1], {"other": 1}),
        (SENT | CONFIRMED, [1, 1], {"twice": 1}),
    ],
)
def test_what_is_left_at_the_end(marks: int, present: list[int], found: dict[str, int]) -> None:
    ledger = Ledger()
    queue = ledger.add("q", 0)
    queue.mark(Value("p", 1), marks)
    workload = type("Workload", (), {"ledger": ledger})()
    check = FinalCheck(cast(Any, None), cast(Any, workload), Random(0))
    check.compare(queue, [Value("p", number) for number in present])
    assert bad(ledger) == found
