"""One cause is one finding, and a score falls by what an operator would feel, not by how often a cause is seen."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_ops.health.document import health_document
from spark_ops.health.facts import EventFact, Evidence, LinkMinute
from spark_ops.health.judge import Judged, judge
from spark_ops.health.settings import Settings
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS
from tests.kit.synthetic.faults import inject, setup_for
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.health.reference import evidence

SETUP = Setup(hours=1.0, queues=6, interval_s=30.0)
START = SETUP.start_s // 60
NODES = ("node1", "node2", "node3")


def made(source: Iterable[dict[str, Any]], minutes: int = 60) -> Evidence:
    return evidence(source, START, START + minutes)


def kinds(result: Judged) -> list[tuple[str, str]]:
    return [(each.kind, each.severity) for each in result.findings]


def slow(minutes: int = 60) -> list[LinkMinute]:
    """A link that becomes a hundred times slower in the last ten minutes."""
    found, counts = [], [0] * HISTOGRAM_BUCKETS
    for at in range(minutes):
        counts[4 if at < minutes - 12 else 22] += 100
        found.append(LinkMinute(START + at, "b", at * 60_000, 0, tuple(counts)))
    return found


@pytest.fixture(scope="module")
def clean() -> Evidence:
    return made(rows(SETUP))


def test_links_that_share_nodes_are_one_finding(clean: Evidence) -> None:
    """A host without CPU makes each direction of each of its links slow."""
    pairs = [(one, other) for one in NODES for other in NODES if one != other]
    result = judge(replace(clean, links={pair: slow() for pair in pairs}), Settings())
    assert kinds(result) == [("flapping-link", "warn")]
    (finding,) = result.findings
    assert finding.evidence["count"] == 6
    assert finding.subject.node is None
    assert result.score is not None
    assert result.score >= 60


def test_links_of_one_node_name_it(clean: Evidence) -> None:
    pairs = [("node1", "node2"), ("node2", "node1"), ("node3", "node2")]
    (finding,) = judge(replace(clean, links={pair: slow() for pair in pairs}), Settings()).findings
    assert (finding.subject.node, finding.subject.to_node) == ("node2", None)
    assert finding.text.startswith("3 links of node2 are unstable or slow")


def test_both_directions_of_a_link_are_one_finding(clean: Evidence) -> None:
    links = {("node1", "node2"): slow(), ("node2", "node1"): slow()}
    (finding,) = judge(replace(clean, links=links), Settings()).findings
    assert (finding.subject.node, finding.subject.to_node) == ("node1", "node2")


def test_links_are_told_with_the_host_that_makes_them_slow() -> None:
    source = made(inject(SETUP, "host-without-cpu"))
    result = judge(replace(source, links={("node2", "node1"): slow()}), Settings())
    assert kinds(result) == [("host-without-cpu", "warn")]
    assert any("the link from node2" in text for text in result.findings[0].evidence["also"])


def test_a_host_has_waited_before_a_process_began(clean: Evidence) -> None:
    """Counters of a host do not begin with a node: what they say at its start is of all the time before."""
    facts = [
        replace(
            fact,
            boot="old" if fact.minute < START + 55 else "new",
            mono_ms=(fact.minute - START + 1 - (0 if fact.minute < START + 55 else 55)) * 60_000,
            cpu_wait_us_total=30_000_000_000 + (fact.minute - START) * 1_000_000,
            cpu_steal_ms_total=900_000,
        )
        for fact in clean.nodes["node2"]
    ]
    result = judge(replace(clean, nodes={**clean.nodes, "node2": facts}), Settings())
    assert "host-without-cpu" not in {kind for kind, _ in kinds(result)}


def test_blocked_publishers_are_told_with_their_alarm() -> None:
    result = judge(made(inject(SETUP, "alarm")), Settings())
    (finding,) = result.findings
    assert (finding.kind, finding.severity) == ("alarm-active", "crit")
    assert "memory alarm" in finding.text
    assert any("connections are blocked" in text for text in finding.evidence["also"])
    assert result.score is not None
    assert result.score <= 40


def test_many_findings_of_a_kind_count_as_one_that_affects_all(clean: Evidence) -> None:
    """Each queue without consumers is a warning; together they are not worse than a warning about the cluster."""

    def unattended(row: dict[str, Any]) -> dict[str, Any]:
        is_it = row["kind"] == "queue" and row["role"] == "master"
        return {**row, "consumers": 0, "consumer_util": 0.0, "ready": 50} if is_it else row

    result = judge(made(unattended(row) for row in rows(SETUP)), Settings())
    assert kinds(result) == [("consumer-starvation", "warn")] * 6
    assert result.score == 60


def test_messages_that_consumers_hold_explain_those_that_wait() -> None:
    def stuck(row: dict[str, Any]) -> dict[str, Any]:
        is_it = row["kind"] == "queue" and row["queue"] == "queue-00000" and row["role"] == "master"
        return {**row, "head_age_ms": 7_200_000} if is_it else row

    setup = setup_for(SETUP, "unacked-stuck")
    result = judge(made(stuck(row) for row in inject(setup, "unacked-stuck")), Settings())
    assert kinds(result) == [("unacked-stuck", "warn")]


# --- outages ---


def until(source: Iterable[dict[str, Any]], minute: int, *nodes: str) -> Iterator[dict[str, Any]]:
    """Rows without those that some nodes wrote from a minute on."""
    return (row for row in source if row["node"] not in nodes or row["ts"] // 60_000 - START < minute)


def unseen(node: str, minute: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The rows of the others say from a minute on that the node is not up."""

    def seen(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] != "node" or row["ts"] // 60_000 - START < minute:
            return row
        return {**row, "view_members": [each for each in NODES if each != node]}

    return seen


def outages(result: Judged) -> list[tuple[str, str]]:
    return [each for each in kinds(result) if each[0] in ("partition", "node-down", "cluster-down")]


def test_a_cluster_is_down_three_minutes_after_its_last_row() -> None:
    for minute, wanted in ((58, []), (57, [("cluster-down", "crit")])):
        assert kinds(judge(made(until(rows(SETUP), minute, *NODES)), Settings())) == wanted


def test_a_cluster_that_was_stopped_is_a_warning() -> None:
    source = made(until(rows(SETUP), 50, *NODES))
    stops = tuple(EventFact((START + 50) * 60_000, "node_stop", node) for node in NODES)
    assert kinds(judge(replace(source, events=stops), Settings())) == [("cluster-down", "warn")]
    assert kinds(judge(replace(source, events=stops[:2]), Settings())) == [("cluster-down", "crit")]


def test_a_node_of_which_nothing_arrives_but_which_others_see_is_not_down() -> None:
    result = judge(made(until(rows(SETUP), 40, "node2")), Settings())
    assert kinds(result) == [("telemetry-gap", "warn")]
    assert result.verdict == "unknown"


def test_queues_of_a_node_that_is_down_have_no_master() -> None:
    """Queues without mirrors: one finding for the node, that says how many."""
    setup = replace(SETUP, replicas=1)

    def alone(row: dict[str, Any]) -> dict[str, Any]:
        is_late = row["ts"] // 60_000 - START >= 40
        return {**row, "view_members": ["node1", "node3"]} if row["kind"] == "node" and is_late else row

    result = judge(made(map(alone, until(rows(setup), 40, "node2"))), Settings())
    assert kinds(result) == [("queue-without-master", "crit"), ("node-down", "warn")]
    finding = result.findings[0]
    assert finding.text == "2 queues have no master: their last master was on node2"
    assert finding.since == (START + 40) * 60
    assert result.verdict == "critical"


def test_a_queue_that_was_deleted_has_not_lost_its_master() -> None:
    gone = (
        row for row in rows(SETUP) if row.get("queue") != "queue-00001" or row["ts"] // 60_000 - START < 40
    )
    assert "queue-without-master" not in {kind for kind, _ in kinds(judge(made(gone), Settings()))}


def test_a_master_whose_rows_were_not_read_is_not_lost() -> None:
    """The mirrors' rows are there; those of the master's node have holes."""
    gone = (
        row
        for row in rows(SETUP)
        if not (row["kind"] == "queue" and row["node"] == "node2" and row["seq"] % 2 == 0)
    )
    assert "queue-without-master" not in {kind for kind, _ in kinds(judge(made(gone), Settings()))}


def test_a_partition_ends_when_it_heals_or_a_node_starts_again(clean: Evidence) -> None:
    def events(*told: tuple[int, str, str, str | None]) -> list[tuple[str, str]]:
        found = tuple(
            EventFact((START + at) * 60_000, event, node, to_node=to_node)
            for at, event, node, to_node in told
        )
        return kinds(judge(replace(clean, events=found), Settings()))

    begun = (30, "partition_suspected", "node1", "node2")
    back = (30, "partition_suspected", "node2", "node1")
    assert events(begun, back) == [("partition", "crit")]
    assert events(begun, (31, "partition_healed", "node1", "node2")) == []
    assert events(begun, back, (31, "partition_healed", "node1", "node2")) == [("partition", "crit")]
    assert events(begun, (31, "node_start", "node1", None)) == []


def told(at: int, event: str, node: str, cause: str | None = None) -> EventFact:
    return EventFact((START + at) * 60_000, event, node, cause=cause)


def test_a_node_that_has_paused_is_cut_off_and_was_not_stopped() -> None:
    """A broker that pauses ends in good order, as if an operator had stopped it; the cause of the event says why."""
    source = made(map(unseen("node3", 40), until(rows(SETUP), 40, "node3")))

    def judged(*events: EventFact) -> Judged:
        return judge(replace(source, events=events), Settings())

    pause = told(40, "node_stop", "node3", "paused")
    assert outages(judged(pause)) == [("partition", "crit")]
    finding = next(each for each in judged(pause).findings if each.kind == "partition")
    assert "node3 has paused" in finding.text
    assert finding.evidence["paused"] == ["node3"]
    assert finding.since == (START + 40) * 60
    assert outages(judged(told(40, "node_stop", "node3"))) == []
    assert outages(judged(pause, told(41, "node_start", "node3"))) == [("node-down", "warn")]


def test_all_have_paused_is_no_stop() -> None:
    """No node reaches another one. Where the others were stopped, the one that is left has to pause."""
    source = made(until(rows(SETUP), 50, *NODES))
    paused = [told(50, "node_stop", node, "paused") for node in NODES]
    stopped = [told(50, "node_stop", node) for node in NODES]
    assert kinds(judge(replace(source, events=tuple(paused)), Settings())) == [("cluster-down", "crit")]
    last = (*stopped[:2], paused[2])
    assert kinds(judge(replace(source, events=last), Settings())) == [("cluster-down", "warn")]


def test_a_node_that_was_down_and_is_back_lacks_no_telemetry() -> None:
    """The process did not run in that time, as itself or the others say; without that its rows are missing."""

    def again(row: dict[str, Any]) -> dict[str, Any]:
        minute = row["ts"] // 60_000 - START
        if row["node"] != "node3" or minute < 40:
            return row
        return {
            **row,
            "boot_id": "b" + row["boot_id"][1:],
            "mono_ms": row["ts"] - (START + 40) * 60_000,
        }

    there = (
        row for row in rows(SETUP) if row["node"] != "node3" or not 30 <= row["ts"] // 60_000 - START < 40
    )
    source = made(map(again, there))
    start = told(40, "node_start", "node3")

    def judged(*events: EventFact) -> Judged:
        return judge(replace(source, events=(*events, start)), Settings())

    for end in (
        told(30, "node_stop", "node3"),
        told(30, "node_stop", "node3", "paused"),
        replace(told(30, "view_change", "node1"), from_node="node3"),
    ):
        result = judged(end)
        assert "telemetry-gap" not in {kind for kind, _ in kinds(result)}
        assert (result.coverage.share, result.coverage.missing) == (1.0, ())
    assert "telemetry-gap" in {kind for kind, _ in kinds(judged())}
    assert judged().verdict == "unknown"


def test_no_mirror_of_several_is_synchronised() -> None:
    """Two mirrors that both lack messages are as bad as an only one."""

    def unsynced(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] != "queue" or row["queue"] != "queue-00000":
            return row
        progress = {"sync_state": "unsynced", "sync_progress": 0.0} if row["role"] == "mirror" else {}
        return {**row, "synced": row["ring"][:1], **progress}

    result = judge(made(map(unsynced, rows(SETUP))), Settings())
    assert set(kinds(result)) == {("unsynced-mirror", "crit")}


# --- balance ---


def test_imbalance_names_the_node_and_no_ratio_that_was_not_measured() -> None:
    result = judge(evidence(inject(SETUP, "all-masters-on-one"), START + 20, START + 60), Settings())
    (finding,) = result.findings
    assert (finding.kind, finding.severity, finding.evidence["node"]) == ("master-imbalance", "warn", "node1")
    assert "node1 has too many (it has all 6 masters, they have too little load to compare)" in finding.text
    assert "times the mean" not in finding.text


def test_imbalance_by_number_names_the_node_with_the_most() -> None:
    """Another node has the most load: it is not the one with too many masters."""

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        most = {"node1": 20, "node2": 6, "node3": 2}
        return {**row, "queues_master": most[row["node"]]} if row["kind"] == "node" else row

    result = judge(made(map(counted, rows(SETUP))), Settings())
    (finding,) = result.findings
    assert (finding.severity, finding.evidence["node"]) == ("info", "node1")
    assert "node1 has too many (it has 20 of 28 masters)" in finding.text


# --- texts ---


def test_the_lag_of_the_table_is_that_of_the_rule() -> None:
    result = judge(made(inject(SETUP, "hot-node")), Settings())
    document = health_document(result, 0.0)
    (finding,) = (each for each in document["findings"] if each["kind"] == "hot-node")
    (row,) = (each for each in document["nodes"] if each["node"] == finding["subject"]["node"])
    assert row["loop_lag_ms"] == pytest.approx(finding["evidence"]["loop_lag_p95_ms"])
    assert f"a lag of {row['loop_lag_ms']:.0f} ms" in finding["text"]


def test_two_copies_are_both_and_one_consumer_holds() -> None:
    setup = setup_for(SETUP, "single-zone")
    (finding,) = judge(made(inject(SETUP, "single-zone")), Settings()).findings[:1]
    assert setup.replicas == 2
    assert finding.text.startswith("both copies of queue ")

    def single(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "consumers": 1} if row.get("consumers") else row

    result = judge(made(single(row) for row in inject(SETUP, "unacked-stuck")), Settings())
    (finding,) = (each for each in result.findings if each.kind == "unacked-stuck")
    assert finding.text.startswith("1 consumer of queue 'queue-00000' in '/' holds 400 messages")


def test_a_loop_that_ended_is_told_with_what_it_was() -> None:
    """The finding stands for ten more minutes, and does not report 0 %."""

    def ended(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] == "queue" and row["role"] == "master" and row["ts"] // 60_000 - START >= 46:
            return {**row, "redeliver_total": None}
        return row

    result = judge(made(map(ended, inject(SETUP, "redelivery-loop"))), Settings())
    (finding,) = result.findings
    assert finding.text.endswith("redeliveries")
    assert finding.evidence["redelivered_share"] > 0.2
