"""Slow confirms: a queue is compared with its own week, or with a bound where little is known of it."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from spark_ops.health.finding import Finding
from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings, from_tables
from spark_ops.telemetry.schema import HISTOGRAM_BUCKETS
from tests.kit.synthetic.faults import inject
from tests.kit.synthetic.model import spread
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.health.reference import evidence

SETUP = Setup(hours=0.5, queues=3, interval_s=30.0)
START = SETUP.start_s // 60
MINUTES = 30
QUEUE = ("/", "queue-00000")

MS_2, MS_100, MS_300, MS_600, MS_1600, LAST = 9, 20, 23, 25, 28, HISTOGRAM_BUCKETS - 1
"""Buckets of the histogram. Their limits are 2.3, 102, 290, 579 and 1,638 ms, and at least 3.3 s."""


def week(bucket: int, count: int = 100_000) -> dict[tuple[str, str], tuple[int, ...]]:
    """The history of the queue: all of its confirms in one bucket."""
    counts = [0] * HISTOGRAM_BUCKETS
    counts[bucket] = count
    return {QUEUE: tuple(counts)}


def confirming(
    counts: dict[int, int], source: Iterable[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Rows of which the queue's master had these confirms in the last ten minutes, by bucket, and earlier fast ones."""
    made = []
    for row in rows(SETUP) if source is None else source:
        is_it = row["kind"] == "queue" and row["queue"] == QUEUE[1] and row["role"] == "master"
        if is_it:
            minute = row["ts"] // 60_000 - START
            histogram = [0] * HISTOGRAM_BUCKETS
            histogram[MS_2] = 1000 + 100 * min(minute, MINUTES - 11)
            for bucket, count in counts.items():
                histogram[bucket] += count * max(0, minute - MINUTES + 11) // 10
            row = {**row, "confirm_us": histogram}
        made.append(row)
    return made


def findings(
    made: Iterable[dict[str, Any]],
    before: dict[tuple[str, str], tuple[int, ...]] | None = None,
    **health: Any,
) -> list[Finding]:
    settings = from_tables(health) if health else Settings()
    given = evidence(made, START, START + MINUTES, confirms_before=before or {})
    return list(judge(given, settings).findings)


def test_a_queue_is_compared_with_its_own_week() -> None:
    made = confirming({MS_600: 500})
    (finding,) = findings(made, week(MS_2))
    assert (finding.kind, finding.severity) == ("slow-confirms", "warn")
    assert finding.text == (
        "confirms of queue 'queue-00000' in '/' take 579 ms (p99 of 10 min), in the week before it was 2 ms"
    )
    assert (round(finding.evidence["confirm_p99_us"]), round(finding.evidence["usual_p99_us"])) == (
        579262,
        2263,
    )
    assert finding.evidence["confirms"] == 500
    assert findings(made, week(MS_300)) == []


def test_fast_confirms_are_not_slow_however_fast_they_were() -> None:
    """A time of 100 ms hurts no publisher, though it is 45 times the usual one."""
    assert findings(confirming({MS_100: 500}), week(MS_2)) == []
    (finding,) = findings(confirming({MS_100: 500}), week(MS_2), **{"slow-confirms": {"floor_ms": 50}})
    assert finding.kind == "slow-confirms"


def test_a_few_slow_confirms_of_many_are_not_told() -> None:
    assert findings(confirming({MS_2: 10_000, MS_1600: 90}), week(MS_2)) == []
    assert len(findings(confirming({MS_2: 10_000, MS_1600: 110}), week(MS_2))) == 1


@pytest.mark.parametrize("before", [None, week(MS_2, 900)])
def test_with_little_history_there_is_a_bound(before: dict[tuple[str, str], tuple[int, ...]] | None) -> None:
    assert findings(confirming({MS_600: 500}), before) == []
    (finding,) = findings(confirming({MS_600: 400, MS_1600: 100}), before)
    assert finding.severity == "warn"
    assert finding.text.endswith("take 1.6 s (p99 of 10 min), its usual time is not known")
    assert finding.evidence["usual_p99_us"] is None


def test_small_queues_are_quiet() -> None:
    """Some slow confirms, and too few to say that publishers wait."""
    assert findings(confirming({MS_1600: 10}), week(MS_2)) == []
    assert findings(confirming({MS_2: 40, MS_1600: 4}), week(MS_2)) == []
    assert [each.severity for each in findings(confirming({MS_1600: 30}), week(MS_2))] == ["crit"]


@pytest.mark.parametrize("before", [None, week(MS_2), week(MS_1600)])
def test_publishers_that_stand_still_are_critical_whatever_is_usual(
    before: dict[tuple[str, str], tuple[int, ...]] | None,
) -> None:
    (finding,) = findings(confirming({MS_1600: 60, LAST: 5}), before)
    assert finding.severity == "crit"
    assert "half of the confirms take 1.6 s" in finding.text


def test_times_beyond_the_histogram_are_told_by_its_end() -> None:
    (finding,) = findings(confirming({LAST: 60}))
    assert "take 3.3 s (p99 of 10 min)" in finding.text


def test_confirms_before_the_last_minutes_do_not_count() -> None:
    made = inject(SETUP, "confirms-stand-still", at_s=300)
    kinds = {each.kind for each in findings(made)}
    assert kinds == {"slow-confirms"}
    quick: dict[str, list[int]] = {}

    def mended(row: dict[str, Any]) -> dict[str, Any]:
        """The rows of a queue whose confirms are fast again for the last 12 minutes."""
        if row.get("confirm_us") is None or row["ts"] // 60_000 - START < MINUTES - 12:
            return row
        histogram = quick.setdefault(row["queue"], list(row["confirm_us"]))
        spread(histogram, 100, 8)
        return {**row, "confirm_us": list(histogram)}

    assert findings(map(mended, inject(SETUP, "confirms-stand-still", at_s=300))) == []


def test_a_process_that_starts_again_counts_from_zero() -> None:
    """The histogram of the old process is not taken from that of the new one."""

    def again(row: dict[str, Any]) -> dict[str, Any]:
        minute = row["ts"] // 60_000 - START
        if row["kind"] != "queue" or row["node"] != "node1" or minute < MINUTES - 6:
            return row
        histogram = [0] * HISTOGRAM_BUCKETS
        histogram[MS_1600] = 20 * (minute - MINUTES + 7)
        told = {"confirm_us": histogram} if row["queue"] == QUEUE[1] and row["role"] == "master" else {}
        return {
            **row,
            "boot_id": "b" + row["boot_id"][1:],
            "mono_ms": row["ts"] - (START + MINUTES - 6) * 60_000,
            **told,
        }

    (finding,) = [
        each for each in findings(map(again, confirming({})), week(MS_2)) if each.kind == "slow-confirms"
    ]
    assert (finding.severity, finding.evidence["confirms"]) == ("crit", 120)


# --- one cause, one finding ---


def slow_disk(node: str) -> list[dict[str, Any]]:
    """Rows of a cluster in which one node's disk is slow, and so are the confirms of a queue on node1."""

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] != "node" or row["node"] != node:
            return row
        since_s = row["ts"] // 1000 - SETUP.start_s
        return {**row, "fsync_us_total": row["fsync_us_total"] + round(5e6 * since_s)}

    return confirming(
        {MS_600: 500}, [slow(row) for row in rows(Setup(hours=0.5, queues=3, interval_s=30.0, replicas=2))]
    )


def test_a_slow_disk_of_a_node_with_a_copy_explains_slow_confirms() -> None:
    made = slow_disk("node1")
    ring = next(row["ring"] for row in made if row["kind"] == "queue" and row["queue"] == QUEUE[1])
    for node in ring:
        (finding,) = findings(slow_disk(node), week(MS_2))
        assert finding.kind == "slow-syncs"
        assert any("confirms of queue 'queue-00000'" in text for text in finding.evidence["also"])


def synced(by_minute: Callable[[int], tuple[int, int]]) -> list[Finding]:
    """The findings about syncs if node2 makes so many in a minute, and each takes so many ms."""
    totals = [(0, 0)]
    for minute in range(MINUTES):
        count, each_ms = by_minute(minute)
        totals.append((totals[-1][0] + count, totals[-1][1] + count * each_ms * 1000))

    def counted(row: dict[str, Any]) -> dict[str, Any]:
        if row["kind"] != "node" or row["node"] != "node2":
            return row
        count, spent_us = totals[min(MINUTES, 1 + row["ts"] // 60_000 - START)]
        return {**row, "fsync_count_total": count, "fsync_us_total": spent_us}

    source = rows(Setup(hours=0.5, queues=3, interval_s=30.0, replicas=2))
    return [each for each in findings(map(counted, source)) if each.kind == "slow-syncs"]


def test_a_disk_that_becomes_slow_is_told_whatever_it_did_before() -> None:
    """Thousands of fast syncs a minute, then few slow ones: the mean of ten minutes is that of the fast ones."""
    (finding,) = synced(lambda minute: (3000, 2) if minute < MINUTES - 4 else (150, 400))
    assert (finding.severity, finding.subject.node) == ("warn", "node2")
    assert (finding.evidence["sync_ms"], finding.evidence["syncs"]) == (400.0, 600)
    assert finding.since == (START + MINUTES - 4) * 60
    (finding,) = synced(lambda minute: (3000, 2) if minute < MINUTES - 4 else (10, 6000))
    assert finding.severity == "crit"


def test_few_slow_syncs_and_a_slow_minute_are_no_finding() -> None:
    assert synced(lambda minute: (3000, 2) if minute < MINUTES - 4 else (3, 400)) == []
    assert synced(lambda minute: (100, 900) if minute in (12, 20) else (3000, 2)) == []


def test_a_slow_disk_elsewhere_does_not_explain_them() -> None:
    made = slow_disk("node1")
    ring = next(row["ring"] for row in made if row["kind"] == "queue" and row["queue"] == QUEUE[1])
    (other,) = {"node1", "node2", "node3"} - set(ring)
    assert sorted(each.kind for each in findings(slow_disk(other), week(MS_2))) == [
        "slow-confirms",
        "slow-syncs",
    ]
