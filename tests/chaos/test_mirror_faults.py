"""A short form of `make mirror-faults`. Times don't decide anything here."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.mirror_faults import KILL, Episode
from tests.chaos.mirror_ledger import MUST_BE_0, Ledger, PublisherStory, QueueStory, Session, Trace
from tests.chaos.mirror_nemesis import MirrorNemesis, mirror_kinds
from tests.kit.ledger import CONFIRMED, DELIVERED, NACKED, RETURNED, SETTLED, SPARED, Kind, Value
from tests.kit.network import LoopbackNetwork

KIND = Kind((20,))


@pytest.mark.slow
def test_the_master_is_killed_again_and_again(tmp_path: Path) -> None:
    """No confirmed message is lost, all mirrors come back (reliability §5.3, §4.6)."""
    kinds = KILL * 8
    network = LoopbackNetwork()
    episode = Episode(tmp_path, network, "short", kinds, is_plain=True)
    try:
        outcome = asyncio.run(episode.run(0, load=0.5, calm_s=0.2))
    finally:
        episode.close()
        network.close()
    assert not outcome.count.problems, "\n".join(outcome.count.problems)
    assert outcome.count.acknowledged > 500
    assert len(outcome.rows) == len(kinds)


# --- the instruments themselves ---


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """With the queues `hot` and `other`, and a publisher of `hot` that has sent 1 to 5."""
    made = Ledger(Trace(tmp_path / "trace"))
    for name in ("hot", "other"):
        made.queues[name] = QueueStory(name)
    story = made.publishers["p"] = PublisherStory("p", 0, KIND, ("hot",))
    for _ in range(5):
        made.sent(story)
    return made


def bad(ledger: Ledger) -> dict[str, int]:
    """Return the counts that must be 0 and are not."""
    return {name: number for name in MUST_BE_0 if (number := getattr(ledger.count, name))}


def delivery(number: int, *, redelivered: bool = False, publisher: str = "p") -> tuple[Any, Any, bytes]:
    """As pika gives them."""
    method = SimpleNamespace(redelivered=redelivered, delivery_tag=number)
    properties = SimpleNamespace(delivery_mode=2)
    return method, properties, KIND.body(Value(publisher, number))


@pytest.mark.parametrize(
    ("deliveries", "found"),
    [
        ([delivery(1), delivery(2)], {}),
        ([delivery(1), delivery(1, redelivered=True)], {}),
        ([delivery(2), delivery(1, redelivered=True)], {}),
        ([delivery(1), delivery(1)], {"duplicates": 1, "disorder": 1}),
        ([delivery(2), delivery(1)], {"disorder": 1}),
        ([delivery(6)], {"wrong": 1}),
        ([delivery(1, publisher="nobody")], {"wrong": 1}),
        ([(*delivery(1)[:2], b"p:1|other")], {"wrong": 1}),
        ([(delivery(1)[0], SimpleNamespace(delivery_mode=1), delivery(1)[2])], {"wrong": 1}),
    ],
)
def test_what_a_session_must_not_get(
    ledger: Ledger, deliveries: list[tuple[Any, Any, bytes]], found: dict[str, int]
) -> None:
    session = Session(ledger, ledger.queues["hot"], 1, "s")
    for each in deliveries:
        session.take(*each)
    assert bad(ledger) == found


def test_what_was_published_to_another_queue_is_unexpected(ledger: Ledger) -> None:
    Session(ledger, ledger.queues["other"], 1, "s").take(*delivery(1))
    assert bad(ledger) == {"unexpected": 1}


def test_only_the_first_delivery_is_not_marked(ledger: Ledger) -> None:
    one, other = (Session(ledger, ledger.queues["hot"], 1, name) for name in "ab")
    one.take(*delivery(1))
    other.take(*delivery(1, redelivered=True))
    assert bad(ledger) == {}
    other.take(*delivery(2))
    one.take(*delivery(2))
    assert bad(ledger) == {"unmarked": 1}


def test_the_first_delivery_may_be_heard_of_late(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr("tests.chaos.mirror_ledger.time.monotonic", lambda: now[0])
    first, at_the_same_time = (Session(ledger, ledger.queues["hot"], 1, name) for name in "ab")
    now[0] = 2.0
    for number in (1, 2):
        first.take(*delivery(number, redelivered=True))
    at_the_same_time.take(*delivery(1))
    assert bad(ledger) == {}
    now[0] = 3.0
    Session(ledger, ledger.queues["hot"], 1, "c").take(*delivery(2))
    assert bad(ledger) == {"unmarked": 1}


def test_an_ack_that_was_lost_is_no_fault(ledger: Ledger) -> None:
    session = Session(ledger, ledger.queues["hot"], 1, "s")
    value = session.take(*delivery(1))
    assert value == Value("p", 1)
    session.settled(value)
    session.take(*delivery(1, redelivered=True))
    assert bad(ledger) == {}
    assert (ledger.count.redelivered, ledger.count.again) == (1, 1)


@pytest.mark.parametrize(
    ("marks", "found", "told"),
    [
        (CONFIRMED | DELIVERED | SETTLED, {}, {"dequeued": 1}),
        (CONFIRMED, {"lost": 1}, {}),
        (CONFIRMED | DELIVERED, {"lost": 1}, {}),
        (CONFIRMED | SPARED, {}, {"spared": 1}),
        (0, {}, {}),
        (DELIVERED | SETTLED, {}, {"dequeued": 1, "recovered": 1}),
        (NACKED | DELIVERED | SETTLED, {}, {"dequeued": 1, "nacked_delivered": 1}),
        (RETURNED, {}, {}),
        (RETURNED | DELIVERED, {"other": 1}, {}),
    ],
)
def test_what_is_missing_at_the_end(
    ledger: Ledger, marks: int, found: dict[str, int], told: dict[str, int]
) -> None:
    ledger.publishers["p"].marks[3] |= marks
    ledger.compare([])
    assert bad(ledger) == found
    for name in ("dequeued", "recovered", "nacked_delivered", "spared", "vanished"):
        assert getattr(ledger.count, name) == told.get(name, 0)


@pytest.mark.parametrize(
    ("is_whole", "deaths", "lost"),
    [
        (True, [], 5),
        (True, [(1, 10.0, 20.0)], 5),
        (True, [(0, 10.0, 20.0)], 0),
        (True, [(0, 60.0, 70.0)], 5),
        (False, [], 0),
    ],
)
def test_what_is_missing_without_confirms(
    ledger: Ledger, is_whole: bool, deaths: Sequence[tuple[int, float, float]], lost: int
) -> None:
    """Messages without confirms may be lost only when the publisher's node dies (reliability §4.11, A5)."""
    story = ledger.publishers["p"]
    story.is_confirmed, story.is_whole, story.began, story.ended = False, is_whole, 15.0, 25.0
    ledger.compare(deaths)
    assert bad(ledger) == ({"unconfirmed_lost": lost} if lost else {})
    assert ledger.count.vanished == 5 - lost


def test_a_lost_message_has_a_history(ledger: Ledger) -> None:
    story = ledger.publishers["p"]
    ledger.outcome(story, 2, CONFIRMED, 0.5)
    ledger.compare([])
    (problem,) = ledger.count.problems
    told = [line.split(" ", 1)[1] for line in problem.splitlines()[1:]]
    assert told == ["sent hot p:2 on n1", "confirmed hot p:2 after 0.500 s"]


def test_the_gap_is_that_of_the_worst_survivor() -> None:
    times = {0: [1.0, 4.0], 1: [1.0, 2.0, 3.0, 4.0], 2: [1.0, 3.0, 4.0]}
    assert Ledger.longest_gap(times, (1, 2), 1.0, 4.0) == 2.0


def test_each_kind_is_there_once() -> None:
    kinds = mirror_kinds()
    assert len(set(kinds)) == len(kinds)
    assert {"kill-master", "kill-mirror", "kill-all", "policies", "pair", "rolling"} <= set(kinds)
    assert all(hasattr(MirrorNemesis, "_kind_" + kind.replace("-", "_")) for kind in kinds)
