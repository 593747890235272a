"""Queues with the same broken policy or dead-letter exchange are one finding."""

from dataclasses import replace
from typing import Any

import pytest

from spark_ops.health.common_causes import NAMED_MAX, joined, of_policy
from spark_ops.health.document import finding_document
from spark_ops.health.finding import Cause, Finding, Subject
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings
from spark_ops.reports.parts import subject
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.health.reference import evidence

SETUP = Setup(hours=1.0, queues=6, interval_s=30.0)
START = SETUP.start_s // 60


def finding(queue: str, *, policy: str | None = "ha", share: float = 0.1, **given: Any) -> Finding:
    cause = of_policy("/", policy, "have fewer mirrors than it wants")
    made = Finding("under-replicated", "warn", Subject(vhost="/", queue=queue), f"{queue} has", "Add.", share)
    return replace(made, cause=cause, **given)


def judged(change: Any) -> Judged:
    of_one = ({**row, "vhost": "/"} if row["kind"] == "queue" else row for row in rows(SETUP))
    return judge(evidence(map(change, of_one), START, START + 60), Settings())


def test_three_queues_of_a_policy_are_one_finding() -> None:
    found = joined([finding("a", share=0.2, since=60.0), finding("b", share=0.3), finding("c", since=30.0)])
    (one,) = found
    assert one.text == "3 queues of policy 'ha' in '/' have fewer mirrors than it wants: 'b', 'a', 'c'"
    assert one.id == "under-replicated///policy 'ha'"
    assert (one.share, one.since) == (0.6, 30.0)
    assert one.evidence == {"count": 3, "queues": ["b", "a", "c"], "such_as": "b has"}
    assert finding_document(one)["subject"]["cause"] == "policy 'ha'"


def test_what_has_no_cause_in_common_stays() -> None:
    """Two queues, other policies, no policy, another severity."""
    apart = [
        *(finding(name) for name in ("a", "b")),
        *(finding(name, policy="other") for name in ("c", "d")),
        *(finding(name, policy=None) for name in ("e", "f", "g", "h")),
        *(finding(name, severity="crit") for name in ("i", "j")),
    ]
    assert sorted(each.id for each in joined(apart)) == sorted(each.id for each in apart)


def test_ids_are_unique_and_do_not_depend_on_the_order() -> None:
    some = [finding(name) for name in "abc"] + [finding(name, severity="crit") for name in "def"]
    found = joined(some)
    assert len({each.id for each in found}) == 2
    assert [each.id for each in joined(some[::-1])] == [each.id for each in found]


def test_names_and_consequences_have_a_bound() -> None:
    some = [finding(f"q{number:03}", evidence={"also": ["x"]}) for number in range(100)]
    (one,) = joined(some)
    assert one.evidence["count"] == 100
    assert len(one.evidence["queues"]) == len(one.evidence["also"]) == NAMED_MAX
    assert one.share == 1.0
    assert one.text.endswith("'q000', 'q001', 'q002', …")


def test_copies_on_one_node_name_the_node() -> None:
    some = [
        replace(finding(name), kind="unsynced-mirror", subject=Subject("n1", "/", name)) for name in "abc"
    ]
    (one,) = joined(some)
    assert one.subject.node == "n1"


def test_a_policy_that_wants_more_mirrors_than_there_are_nodes() -> None:
    """Each of the six queues lacks one mirror of three."""

    def short(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "want_mirrors": 3} if row["kind"] == "queue" else row

    result = judged(short)
    (one,) = result.findings
    assert (one.kind, one.evidence["count"], one.share) == ("under-replicated", 6, 1.0)
    assert result.score == 60


@pytest.mark.parametrize(("exchange", "count"), [("dead", 1), (None, 6)])
def test_a_dead_letter_exchange_that_is_missing(exchange: str | None, count: int) -> None:
    def lossy(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] != "queue" or row["role"] != "master":
            return row
        lost = max(0, row["ts"] // 60_000 - START)
        told = {"dead_letters_lost_total": lost, "dead_letters_lost_by": {"no-exchange": lost}}
        return {**row, **told, "dead_letter_exchange": exchange}

    found = judged(lossy).findings
    assert {each.kind for each in found} == {"dead-letters-lost"}
    assert len(found) == count
    if exchange is not None:
        assert found[0].text.startswith(
            "6 queues of dead-letter exchange 'dead' in '/' lose their dead letters because the dead-letter exchange "
            "does not exist: "
        )
        assert found[0].advice.startswith("Declare the exchange")


def test_the_report_names_the_cause() -> None:
    of = finding_document(joined([finding(name) for name in "abc"])[0])["subject"]
    assert "".join(map(str, subject(of))).startswith("queues of ")
    assert Cause("/", "policy 'ha'", "x") == of_policy("/", "ha", "x")
