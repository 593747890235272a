"""A small window is judged without Spark, and what is found is the same: the reference is plain Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from spark_ops.health.document import health_document
from spark_ops.health.judge import judge
from spark_ops.health.settings import Settings
from spark_ops.jobs import small_health, small_usual
from spark_ops.jobs.health import Window
from spark_ops.jobs.minute_facts import RAW_KINDS
from spark_ops.jobs.small_facts import reduced, within
from spark_ops.jobs.small_health import forecast_small, judge_small, small_tables
from spark_ops.jobs.small_suspicion import queue_totals
from spark_ops.telemetry import damage
from tests.kit.synthetic.faults import FAULTS, duplicate, inject, setup_for, shuffle
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.health.reference import evidence
from tests.spark_ops.jobs.roots import overwrite_pages, write, write_slices

SETUP = Setup(hours=1.0, queues=4, interval_s=60.0)
START = SETUP.start_s // 60
OF_QUEUES = (
    *("under-replicated", "unsynced-mirror", "mirror-lagging", "runaway-queue", "consumer-starvation"),
    *("consumer-bound", "old-messages", "unacked-stuck", "redelivery-loop", "unstable-failover"),
    *("hot-single-queue", "queue-without-master", "messages-dropped", "dead-letters-lost", "slow-confirms"),
)


def document(root: Path, start: int = START, end: int = START + 60) -> dict[str, Any]:
    judged = judge_small(root, Window("synthetic", start, end, None), Settings())
    assert judged is not None
    return health_document(judged, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean", *FAULTS])
def test_the_document_is_that_of_the_rules(tmp_path: Path, name: str) -> None:
    """With each fault, rows that come twice, and rows in any order: only suspicious queues are judged."""
    setup = SETUP if name == "clean" else setup_for(SETUP, name)
    made = list(rows(setup)) if name == "clean" else list(shuffle(duplicate(inject(setup, name), 0.1)))
    write(tmp_path, made)
    end = START + round(setup.hours * 60)
    wanted = health_document(judge(evidence(made, START, end), Settings()), 0.0)
    assert document(tmp_path, end=end) == wanted


@pytest.mark.slow
def test_a_window_within_the_rows(tmp_path: Path) -> None:
    """Rows before and after it, of other clusters, and in small files; a second judgement is the same."""
    made = list(inject(replace(SETUP, hours=0.6), "consumer-starvation"))
    write_slices(tmp_path, made, 1)
    write(tmp_path, ({**row, "cluster": "other"} for row in made))
    wanted = health_document(judge(evidence(made, START + 5, START + 30), Settings()), 0.0)
    assert document(tmp_path, START + 5, START + 30) == wanted
    assert document(tmp_path, START + 5, START + 30) == wanted
    assert [each["kind"] for each in wanted["findings"]] == ["consumer-starvation"]


def test_values_that_are_missing(tmp_path: Path) -> None:
    """Rows of nodes that do not write all fields, and of versions that are too new."""
    some = ("confirm_us", "ring", "synced", "want_mirrors", "ready", "epoch", "rtt_us", "labels", "mem_bytes")

    def lacking(row: Row) -> Row:
        kept = {name: value for name, value in row.items() if name not in some or row["seq"] % 3}
        return {**kept, "v": 99} if row["seq"] % 7 == 5 else kept

    made = [lacking(row) for row in rows(replace(SETUP, hours=0.5))]
    write(tmp_path, made)
    new = sum(row["v"] == 99 and row["kind"] in RAW_KINDS for row in made)
    old = [row for row in made if row["v"] != 99]
    wanted = judge(evidence(old, START, START + 30, unknown_versions=new), Settings())
    assert document(tmp_path, end=START + 30) == health_document(wanted, 0.0)
    assert new


@pytest.mark.slow
def test_suspicion_lets_through_what_rules_look_for_and_little_more(tmp_path: Path) -> None:
    """Each fault makes its queue suspicious, and no other; all at once, each in a virtual host of its own."""
    made = [row for row in rows(SETUP) if row["kind"] != "queue"]
    for name in (*OF_QUEUES, "clean"):
        some = rows(SETUP) if name == "clean" else inject(setup_for(SETUP, name), name)
        made += [{**row, "vhost": name} for row in some if row["kind"] == "queue"]
    write(tmp_path, made)
    window = Window("synthetic", START, START + 60, None)
    read = small_tables(tmp_path, window, RAW_KINDS)
    assert read is not None
    flat = reduced("queue", *within(read[1]["queue"], "synthetic", START, START + 60))
    zones = {"node1": "zone-1", "node2": "zone-2", "node3": "zone-3"}
    totals = queue_totals(flat, Settings(), START + 60, zones, 1.0, {})
    found = {name for name, is_bad in zip(totals.names, totals.is_suspicious, strict=True) if is_bad}
    assert found == {(name, "queue-00000") for name in OF_QUEUES}


def test_a_damaged_file_is_left_out_and_told(tmp_path: Path) -> None:
    made = write(tmp_path, rows(SETUP))
    path = next(path for path in made if "kind=queue" in str(path))
    overwrite_pages(path)
    told = document(tmp_path)
    assert told["coverage"]["torn"] == [str(path.relative_to(tmp_path))]
    assert told["coverage"]["share"] < 1.0
    assert list(damage.recorded(tmp_path)) == told["coverage"]["torn"]


def test_a_large_window_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, rows(replace(SETUP, hours=0.2)))
    window = Window("synthetic", START, START + 12, None)
    assert judge_small(tmp_path, window, Settings()) is not None
    monkeypatch.setattr(small_health, "ROWS_MAX", 20)
    assert judge_small(tmp_path, window, Settings()) is None


def test_a_window_without_rows(tmp_path: Path) -> None:
    write(tmp_path, rows(replace(SETUP, hours=0.2)))
    told = document(tmp_path, START + 600, START + 660)
    assert (told["verdict"], told["findings"]) == ("unknown", [])


@pytest.mark.slow
def test_forecasts_are_those_of_the_document(tmp_path: Path) -> None:
    made = list(inject(SETUP, "runaway-queue"))
    write(tmp_path, made)
    window = Window("synthetic", START, START + 60, None)
    files = small_health.files_of(tmp_path, window)
    found = forecast_small(tmp_path, window, Settings(), files)
    assert found == document(tmp_path)["forecasts"]
    assert any(each["resource"] == "memory" for each in found)


@pytest.mark.spark
@pytest.mark.slow
def test_the_usual_figures_are_those_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From rollups of two hours, of which one has a queue with slow confirms; an hour is read once."""
    from spark_ops.jobs.files import find
    from spark_ops.jobs.rollup_store import write as roll_up
    from spark_ops.jobs.usual import usual_figures

    setup = replace(SETUP, hours=2.0)
    made = [
        {**row, "confirm_us": [*([0] * 20), row["seq"], 3, *([0] * 10)]}
        if row["kind"] == "queue" and row["queue"] == "queue-00001"
        else row
        for row in rows(setup)
    ]
    write(tmp_path, made)
    list(roll_up(spark, tmp_path, "queue", find(tmp_path, "queue", None, None).hours))
    names = [("/", f"queue-{number:05}") for number in range(3)] + [("/", "none")]
    start_s = float(setup.start_s + 7200)
    wanted = usual_figures(spark, tmp_path, "synthetic", start_s, names)
    monkeypatch.setattr(small_usual, "_KNOWN", small_usual._Known())
    assert small_usual.small_usual(tmp_path, "synthetic", start_s, names) == wanted
    assert wanted.confirms["/", "queue-00001"][20] > 0
    assert wanted.confirms.keys() == wanted.sizes.keys() == set(names[:3])
    monkeypatch.setattr(small_usual, "_Masters", None)  # none is read again
    assert small_usual.small_usual(tmp_path, "synthetic", start_s, names) == wanted
    monkeypatch.setattr(small_usual, "ROWS_MAX", 1)
    assert small_usual.small_usual(tmp_path, "synthetic", start_s, names) is None
