"""Facts about what came in."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spark_ops.telemetry import checkpoint
from spark_ops.telemetry.checkpoint import Checkpoint
from spark_ops.telemetry.quality import CHECKPOINTS, HourFacts, Ranges, Watch, doubled, read_facts
from spark_ops.telemetry.segments import Problem

HOUR_MS = 1_793_491_200_000
HOUR = datetime(2026, 11, 1, tzinfo=UTC)


def row(seq: int, ts: int = HOUR_MS, **changes: Any) -> dict[str, Any]:
    """A row of a node, as far as a watch looks at it."""
    envelope = {"kind": "node", "cluster": "c", "node": "n", "boot_id": "b", "seq": seq, "ts": ts}
    return {**envelope, "skew_ms": None, **changes}


@given(st.lists(st.integers(0, 60)))
def test_ranges_are_a_set(numbers: list[int]) -> None:
    """Whatever the order: a number is new once; ranges neither touch nor overlap."""
    ranges, seen = Ranges(), set()
    for number in numbers:
        assert ranges.add(number) == (number not in seen)
        seen.add(number)
    assert {number for first, last in ranges.ranges for number in range(first, last + 1)} == seen
    assert all(one[1] + 1 < other[0] for one, other in zip(ranges.ranges, ranges.ranges[1:], strict=False))


def test_ranges_are_bounded() -> None:
    """Ranges are bounded: with too many holes the oldest ones count as filled."""
    ranges = Ranges()
    for number in range(0, 5000, 2):
        assert ranges.add(number)
    assert len(ranges.ranges) == 1000
    assert not ranges.add(1)
    assert ranges.add(4997)


@given(st.permutations(list(range(12))), st.lists(st.integers(0, 11), max_size=6))
def test_order_and_duplicates_change_nothing(order: list[int], again: list[int]) -> None:
    """spark §6.18: each row counts once, and nothing was lost in the end, whatever the order of arrival is."""
    watch = Watch()
    kept = [seq for seq in [*order, *again] if watch.row(row(seq)) is not None]
    facts = watch.hours["c", "n", HOUR_MS // 1000]
    assert sorted(kept) == list(range(12))
    assert (facts.rows, facts.duplicates) == (12, len(again))
    assert facts.lost == -order[0]  # a watch cannot know what came before the first row


def test_lost_late_and_skewed() -> None:
    """Each is counted in its hour."""
    watch = Watch()
    assert watch.row(row(0, skew_ms=-7)) is False
    assert watch.row(row(3, HOUR_MS + 90_000)) is False
    facts = watch.hours["c", "n", HOUR_MS // 1000]
    assert (facts.lost, facts.skew_max_ms, facts.gap_max_ms) == (2, 7, 90_000)
    assert watch.row(row(4, HOUR_MS + 3_600_000 + 900_000)) is False
    assert watch.row(row(1, HOUR_MS + 10_000)) is False  # a quarter of an hour is not yet late
    assert watch.row(row(5, HOUR_MS + 3_600_000 + 900_001)) is False
    assert watch.row(row(2, HOUR_MS + 20_000)) is True
    assert (facts.lost, facts.late) == (0, 1)


def test_lines_without_rows() -> None:
    """Lines without rows count for the latest hour of their node; if there is no row at all for the source, now."""
    watch = Watch()
    watch.of_source("", "n9", HOUR_MS)
    watch.rejected(Problem.TORN)
    assert watch.hours["", "n9", HOUR_MS // 1000].torn == 1
    watch.row(row(0, HOUR_MS + 3_600_000))
    watch.rejected(Problem.BAD)
    watch.rejected(Problem.UNKNOWN_VERSION, 2)
    facts = watch.hours["c", "n", HOUR_MS // 1000 + 3600]
    assert (facts.bad, facts.unknown_versions) == (1, 2)


def test_two_nodes_of_one_name() -> None:
    """Processes one after the other are restarts; at the same time they are two nodes."""

    def hour(**boots: list[int]) -> HourFacts:
        return HourFacts("c", "n", HOUR, boots=boots)

    assert doubled([hour(a=[0, 100_000], b=[100_500, 200_000]), hour(b=[200_000, 300_000])]) == []
    assert doubled([hour(a=[0, 100_000], b=[90_000, 200_000])]) == []
    assert doubled([hour(a=[0, 100_000]), hour(b=[60_000, 200_000])]) == [("c", "n")]
    assert doubled([hour(a=[0, 500_000], b=[100_000, 140_000])]) == [("c", "n")]


def test_facts_of_several_collectors(tmp_path: Path) -> None:
    """Facts of one node are added up; a damaged file is passed over; limits are of hours."""
    for source in ("one", "two"):
        state = Checkpoint()
        for seq in range(3):
            state.watch.row(row(seq, HOUR_MS + seq * 1_800_000, boot_id=source, skew_ms=seq))
        checkpoint.save(checkpoint.path_of(tmp_path, Path("/x") / source / "n"), state)
    (tmp_path / CHECKPOINTS / "bad.json").write_text("{")
    (tmp_path / CHECKPOINTS / "other.json").write_text(json.dumps({"hours": [1]}))
    found = read_facts(tmp_path)
    assert [(facts.hour.hour, facts.rows, facts.skew_max_ms) for facts in found] == [(0, 4, 1), (1, 2, 2)]
    assert set(found[0].boots) == {"one", "two"}
    assert doubled(found) == [("c", "n")]
    assert len(read_facts(tmp_path, since=HOUR + timedelta(hours=1))) == 1
    assert len(read_facts(tmp_path, until=HOUR + timedelta(hours=1))) == 1
    assert read_facts(tmp_path / "none") == []


def test_a_watch_forgets() -> None:
    """The oldest hours, and the processes of long ago."""
    watch = Watch()
    for number in range(10):
        watch.row(row(0, HOUR_MS + number * 3_600_000, boot_id=f"b{number}"))
    watch.forget(3, 4)
    assert [key[2] for key in watch.hours] == [HOUR_MS // 1000 + 3600 * number for number in (7, 8, 9)]
    assert [name[0] for name in watch.seen] == ["b6", "b7", "b8", "b9"]
