"""Rules about the traffic of a queue: their texts, and the one of several that is told."""

from collections.abc import Iterable
from typing import Any

from spark_ops.health.finding import Finding
from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings
from spark_ops.telemetry.schema import LOST_CAUSES
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.health.reference import evidence

SETUP = Setup(hours=0.5, queues=3, interval_s=30.0)
START = SETUP.start_s // 60
MINUTES = 30


def findings(made: Iterable[dict[str, Any]]) -> list[Finding]:
    return list(judge(evidence(made, START, START + MINUTES), Settings()).findings)


def losing(last: dict[str, int], ago: int = 5, **others: Any) -> Iterable[dict[str, Any]]:
    """Rows of a queue that lost dead letters some minutes before the end.   last: how many, by cause."""
    for row in rows(SETUP):
        is_it = row["kind"] == "queue" and row["queue"] == "queue-00000" and row["role"] == "master"
        if not is_it:
            yield row
            continue
        is_late = row["ts"] // 60_000 - START >= MINUTES - ago
        by_cause = last if is_late else {}
        counted = {
            "dead_letters_lost_total": sum(by_cause.values()),
            "dead_letters_lost_by": by_cause or None,
        }
        yield row | counted | (others if is_late else {})


# --- dead letters that are lost ---


def test_lost_dead_letters_say_how_many_and_why() -> None:
    (finding,) = findings(losing({"no-route": 7}))
    assert (finding.kind, finding.severity) == ("dead-letters-lost", "warn")
    assert finding.text == (
        "7 dead letters of queue 'queue-00000' in '/' were lost in 10 min: "
        "the dead-letter exchange has no queue for them"
    )
    assert finding.advice.startswith("Bind a queue")
    assert (finding.subject.vhost, finding.subject.queue) == ("/", "queue-00000")


def test_several_causes_are_told_apart_and_the_most_frequent_is_advised() -> None:
    (finding,) = findings(losing({"refused": 2, "no-exchange": 40}))
    assert "42 dead letters" in finding.text
    assert (
        "40 because the dead-letter exchange does not exist; 2 because the dead-letter queues" in finding.text
    )
    assert finding.advice.startswith("Declare the exchange")
    assert (finding.evidence["lost_no_exchange"], finding.evidence["lost_refused"]) == (40, 2)


def test_each_cause_has_an_advice_of_its_own() -> None:
    told = [findings(losing({cause: 1})) for cause in LOST_CAUSES]
    assert [len(each) for each in told] == [1] * len(LOST_CAUSES)
    assert len({each[0].advice for each in told}) == len({each[0].text for each in told}) == len(LOST_CAUSES)


def test_a_cause_of_a_later_version_is_counted() -> None:
    (finding,) = findings(losing({"no-luck": 3}))
    assert finding.text.endswith("3 dead letters of queue 'queue-00000' in '/' were lost in 10 min")


def test_a_full_queue_whose_dead_letters_are_lost_is_one_finding() -> None:
    """The dead-letter exchange has to be mended, so `messages-dropped` is not told, too."""
    (finding,) = findings(losing({"no-exchange": 500}, dropped_total=500, dead_lettered_total=500))
    assert finding.kind == "dead-letters-lost"


def test_files_of_nodes_that_do_not_count_losses_are_read() -> None:
    old = (
        {name: value for name, value in row.items() if not name.startswith("dead_letters_lost")}
        for row in losing({"no-route": 7})
    )
    assert findings(old) == []


def test_losses_are_over_after_ten_minutes() -> None:
    assert [each.kind for each in findings(losing({"no-route": 7}, ago=9))] == ["dead-letters-lost"]
    assert findings(losing({"no-route": 7}, ago=12)) == []
