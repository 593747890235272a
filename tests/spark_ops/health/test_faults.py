"""Each fault, put into clean telemetry, gives exactly its finding; what is harmless gives none (spark §6.18)."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from spark_ops.documents import canonical
from spark_ops.health.catalogue import CATALOGUE
from spark_ops.health.document import health_document
from spark_ops.health.facts import EventFact
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings, from_tables
from tests.kit.synthetic.faults import FAULTS, drop, duplicate, inject, setup_for, shuffle
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.health.reference import evidence

SETUP = Setup(hours=1.0, queues=12, interval_s=20.0)


def judged(made: Iterable[dict[str, Any]], setup: Setup = SETUP, **others: Any) -> Judged:
    """Return how rows of a setup are judged."""
    start = setup.start_s // 60
    return judge(evidence(made, start, start + round(setup.hours * 60), **others), Settings())


def found(result: Judged) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity) for finding in result.findings]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_gives_its_finding_and_no_other(name: str) -> None:
    """spark §6.18, by rules alone."""
    fault = FAULTS[name]
    setup = setup_for(SETUP, name)
    result = judged(inject(SETUP, name), setup)
    kinds = {kind for kind, _ in found(result)}
    assert kinds == ({fault.finding} if fault.finding else set()), [f.text for f in result.findings]
    if fault.finding:
        assert (fault.finding, fault.severity) in found(result)
    assert (
        result.verdict
        == {None: "healthy", "warn": "findings", "crit": "critical"}[
            fault.severity if fault.finding else None
        ]
    )


def test_of_the_disk_the_free_space_is_told() -> None:
    """Free disk space has to stay above its limit, so a share of the limit would be read the wrong way round."""
    setup = Setup(hours=0.2, queues=2)
    made = [{**row, "disk_free": 1_200_000_000} if "disk_free" in row else row for row in rows(setup)]
    (finding, *_) = [each for each in judged(made, setup).findings if each.kind == "resource-near-limit"]
    assert "1.20 GB of disk space is free, and at least 1.00 GB must be" in finding.text
    assert finding.severity == "warn"
    full = [{**row, "disk_free": 900_000_000} if "disk_free" in row else row for row in rows(setup)]
    (finding, *_) = [each for each in judged(full, setup).findings if each.kind == "resource-near-limit"]
    assert finding.severity == "crit"


def test_every_kind_has_a_fault() -> None:
    """Torn files have one of their own, since no row shows them."""
    assert {fault.finding for fault in FAULTS.values() if fault.finding} | {"torn-files"} == set(CATALOGUE)


def test_clean_telemetry_is_healthy() -> None:
    result = judged(rows(SETUP))
    assert (found(result), result.verdict, result.score) == ([], "healthy", 100)
    assert result.coverage.share == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runaway-queue", "node-restart", "conn-churn", "unstable-failover"])
def test_order_and_duplicates_change_nothing(name: str) -> None:
    """spark §6.18."""
    setup = setup_for(SETUP, name)
    once = judged(inject(SETUP, name), setup)
    again = judged(shuffle(duplicate(inject(SETUP, name), 0.2)), setup)
    assert again.findings == once.findings
    assert again.coverage.seen == once.coverage.seen
    assert again.coverage.duplicates > 0 == once.coverage.duplicates


def test_mirrors_that_lag_are_told_of_by_their_master() -> None:
    """Only the master's node knows what its mirrors have not confirmed."""

    def late(row: dict[str, Any]) -> dict[str, Any]:
        is_meant = row["kind"] == "queue" and row["queue"] == "queue-00003" and row["role"] == "master"
        return {**row, "mirror_lag_ms": 1800} if is_meant else row

    result = judged(map(late, rows(SETUP)))
    assert found(result) == [("mirror-lagging", "warn")]
    assert "mirrors of" in result.findings[0].text


def test_a_tenth_lost_is_unknown() -> None:
    """spark §6.18: not healthy."""
    result = judged(drop(rows(SETUP), 0.1))
    assert (result.verdict, result.score) == ("unknown", None)
    assert 0.88 < result.coverage.share < 0.92


@pytest.mark.slow
def test_little_lost_is_no_finding() -> None:
    result = judged(drop(rows(SETUP), 0.01))
    assert (found(result), result.verdict) == ([], "healthy")


def between(made: Iterable[dict[str, Any]], first: int, end: int) -> Iterable[dict[str, Any]]:
    start = SETUP.start_s // 60
    return (row for row in made if first <= row["ts"] // 60_000 - start < end)


@pytest.mark.parametrize(
    ("first", "end", "verdict"),
    [(0, 0, "unknown"), (0, 3, "critical"), (0, 30, "critical"), (30, 60, "unknown"), (0, 58, "healthy")],
)
def test_missing_time_is_not_healthy(first: int, end: int, verdict: str) -> None:
    """The window has an hour; what is not there was not seen. Rows of the last minutes may be on their way, but a
    cluster that has not reported for longer is down."""
    assert judged(between(rows(SETUP), first, end)).verdict == verdict


def test_a_young_cluster_is_judged_by_what_there_is() -> None:
    """A cluster whose nodes started in the window lacks nothing before, but less than five minutes are too little."""
    setup = Setup(hours=0.25, queues=3)
    start = setup.start_s // 60
    result = judge(evidence(rows(setup), start - 345, start + 15), Settings())
    assert (found(result), result.verdict, result.coverage.share) == ([], "healthy", 1.0)
    short = judge(evidence(rows(Setup(hours=0.05, queues=3)), start - 345, start + 3), Settings())
    assert short.verdict == "unknown"


def test_a_silent_node_is_missed() -> None:
    """A node that others tell of, and of which nothing has come."""
    result = judged(row for row in rows(SETUP) if row["node"] != "node3")
    assert result.verdict == "unknown"
    assert ("telemetry-gap", "warn") in found(result)
    assert [hole.node for hole in result.coverage.missing] == ["node3"]


def test_torn_files_are_told() -> None:
    """spark §2.7: not silently passed over."""
    assert found(judged(rows(SETUP), torn=("a.parquet",))) == [("torn-files", "info")]
    many = judged(rows(SETUP), torn=tuple(f"{at}.parquet" for at in range(9)))
    assert (found(many), many.verdict) == ([("torn-files", "warn")], "findings")


def test_settings_change_what_is_found() -> None:
    """Thresholds, severities and what is switched off."""
    start = SETUP.start_s // 60
    made = evidence(inject(SETUP, "conn-churn"), start, start + 60)
    kinds = {
        "crit": judge(made, from_tables({"conn-churn": {"severity": "crit"}})),
        "off": judge(made, from_tables({"conn-churn": {"enabled": False}})),
        "high": judge(made, from_tables({"conn-churn": {"share_per_s": 0.9}})),
    }
    assert found(kinds["crit"]) == [("conn-churn", "crit")]
    assert kinds["crit"].verdict == "critical"
    assert kinds["crit"].score is not None
    assert kinds["crit"].score <= 40
    assert found(kinds["off"]) == found(kinds["high"]) == []


def test_the_document_is_plain_json() -> None:
    """The document can be written canonically, has at most 300 points a series, and its findings have their own ids."""
    result = judged(inject(SETUP, "runaway-queue"))
    document = health_document(result, 1e9)
    assert json.loads(canonical(document)) == document
    assert document["format"] == "spark-ops-health/1"
    assert document["window"] == ["2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z"]
    assert all(len(series["ts"]) <= 300 for series in document["series"]["nodes"].values())
    ids = [finding["id"] for finding in document["findings"]]
    assert ids == ["runaway-queue///queue-00000"]
    memory = [each for each in document["forecasts"] if each["resource"] == "memory"]
    assert [each["eta_s"] is not None for each in memory] == [True, True, True]
    assert all(each["queues"][0]["queue"] == "queue-00000" for each in memory)
    assert all(each["why_not"] for each in document["forecasts"] if each["eta_s"] is None)


def test_a_queue_that_was_as_large_before_does_not_run_away() -> None:
    """Nightly peaks: the p95 of the days before is what counts as usual (spark §3.2)."""
    usual = {("/", "queue-00000"): 1e9}
    assert found(judged(inject(SETUP, "runaway-queue"), before=usual)) == []


def test_consequences_are_told_with_their_cause() -> None:
    """A queue without consumers that grows is one finding, which tells of both."""

    def unattended(row: dict[str, Any]) -> dict[str, Any]:
        is_it = row["kind"] == "queue" and row["queue"] == "queue-00000" and row["role"] == "master"
        return {**row, "consumers": 0, "consumer_util": 0.0} if is_it else row

    result = judged(unattended(row) for row in inject(SETUP, "runaway-queue"))
    assert found(result) == [("consumer-starvation", "warn")]
    assert "grows by 0.9" in result.findings[0].evidence["also"][0]


def test_a_queue_that_fills_its_node_soon_is_critical() -> None:
    """Growth of 1 MB a minute, and 60 MB of memory left: told beside its cause."""

    def tight(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "mem_limit": row["mem_rss"] + 60_000_000} if row["kind"] == "node" else row

    result = judged(tight(row) for row in inject(SETUP, "runaway-queue"))
    assert ("runaway-queue", "crit") in found(result)
    assert result.verdict == "critical"


@pytest.mark.slow
def test_a_rolling_restart_is_not_instability() -> None:
    """Clean stops and the starts after them are somebody's will; crashes are not."""
    start = SETUP.start_s // 60
    made = evidence(rows(SETUP), start, start + 60)

    def with_views(*events: tuple[str, int]) -> Judged:
        nodes = {
            node: [
                replace(fact, view_id=7 + sum(fact.minute >= start + at for _, at in events), view_first=7)
                for fact in facts
            ]
            for node, facts in made.nodes.items()
        }
        told = tuple(EventFact((start + at) * 60_000, event, "node2") for event, at in events if event)
        return judge(replace(made, nodes=nodes, events=told), Settings())

    assert (
        found(with_views(("node_stop", 20), ("node_start", 24), ("node_stop", 27), ("node_start", 29))) == []
    )
    crashed = with_views(("", 20), ("node_start", 22), ("", 25), ("node_start", 28))
    assert [kind for kind, _ in found(crashed)] == ["unstable-failover"]


@pytest.mark.slow
def test_a_step_of_a_plan_may_leave_a_queue_short_for_a_while() -> None:
    """spark §3.2: outside a plan step; but not for ever."""
    start = SETUP.start_s // 60
    made = evidence(inject(SETUP, "under-replicated"), start, start + 60)
    step = EventFact((start + 9) * 60_000, "plan_step_start", "node1", "/", "queue-00000", cause="plan:x:s1")
    done = replace(step, ts=(start + 20) * 60_000, event="plan_step_done")
    assert found(judge(replace(made, events=(step,)), Settings())) == []
    assert found(judge(replace(made, events=(step, done)), Settings())) == [("under-replicated", "warn")]


@pytest.mark.slow
def test_a_change_that_all_nodes_tell_of_is_one() -> None:
    """Each node writes an event of each change, not always in the same minute."""
    start = SETUP.start_s // 60
    made = evidence(rows(SETUP), start, start + 60)
    members = [
        EventFact((start + 30) * 60_000 + at * 4000 - 5000, "view_change", f"node{at}") for at in (1, 2, 3)
    ]
    master = [
        EventFact(
            (start + 30) * 60_000 + at * 4000, "failover", f"node{at}", "/", "queue-00000", epoch_after=9
        )
        for at in (1, 2, 3)
    ]
    assert found(judge(replace(made, events=(*members, *master)), Settings())) == []
