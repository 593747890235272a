"""A stream finds what a batch does on the same files, however they are cut into batches (spark §6.21)."""

import json
from pathlib import Path
from typing import Any

import pytest

from spark_ops.health.settings import Settings
from tests.kit.synthetic.faults import duplicate, inject
from tests.kit.synthetic.telemetry import Row, Setup
from tests.spark_ops.jobs.roots import write_file

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(hours=1.0, queues=4, interval_s=30.0)
WINDOW_S = 3600.0
START = SETUP.start_s // 60


def write_slices(root: Path, made: list[Row], minutes: int) -> None:
    """Files as a collector writes them: of some minutes each; the first ones of a node come last of all."""
    from spark_ops.telemetry.layout import DataFile, hour_of

    slices: dict[Any, list[Row]] = {}
    for row in made:
        at = row["ts"] // 60_000 // minutes
        slices.setdefault((row["kind"], row["node"], row["boot_id"], at), []).append(row)
    late = [key for key in sorted(slices) if key[1] == "node3" and key[3] == START // minutes]
    for key in [*(key for key in sorted(slices, key=lambda key: key[3]) if key not in late), *late]:
        some = slices[key]
        seqs = [row["seq"] for row in some]
        hour = hour_of(some[0]["ts"])
        path = DataFile(key[0], hour, "synthetic", key[1], key[2], min(seqs), max(seqs)).path(root)
        write_file(path, key[0], some)


def test_a_stream_that_is_cut_finds_what_a_batch_does(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off after it has written a batch and before Spark knows: nothing is counted twice."""
    from pyspark.errors import StreamingQueryException

    from spark_ops.health.document import health_document
    from spark_ops.jobs import streaming
    from spark_ops.jobs.health import Window, judge_window

    root = tmp_path / "root"
    write_slices(root, list(duplicate(inject(SETUP, "consumer-starvation"), 0.1)), 15)
    store = streaming.Store(root, "synthetic")
    write = streaming.Store.write

    def breaks(self: Any, first: int, last: int, facts: Any) -> None:
        write(self, first, last, facts)
        if first == 1 and not (tmp_path / "broken").exists():
            (tmp_path / "broken").touch()
            raise OSError("no power")

    monkeypatch.setattr(streaming.Store, "write", breaks)
    files = 14
    with pytest.raises(StreamingQueryException):
        streaming.start(spark, root, store, "synthetic", is_once=True, files_max=files).awaitTermination()
    assert len(store.parts()) == 2
    streaming.start(spark, root, store, "synthetic", is_once=True, files_max=files).awaitTermination()
    assert len(store.parts()) > 2

    told = streaming.judge_store(spark, root, store, "synthetic", window_s=WINDOW_S, settings=Settings())
    assert told is not None
    end = START + 60 - streaming.WATERMARK_S // 60
    by_batch = judge_window(spark, root, Window("synthetic", end - 60, end, None), Settings())
    assert told.document == health_document(by_batch, float(end * 60))
    assert told.document["coverage"]["duplicates"] > 0
    assert told.raised == ("consumer-starvation///queue-00000",)

    again = streaming.judge_store(spark, root, store, "synthetic", window_s=WINDOW_S, settings=Settings())
    assert again is not None
    assert (again.raised, again.cleared) == ((), ())

    monkeypatch.setattr(streaming, "PARTS_MAX", 1)
    store.tidy(spark, 0)
    assert len(store.parts()) == 1
    merged = streaming.judge_store(spark, root, store, "synthetic", window_s=WINDOW_S, settings=Settings())
    assert merged is not None
    assert merged.document == told.document


def test_findings_are_raised_and_cleared_once(tmp_path: Path) -> None:
    """Judgements are files: what one has told the next one does not, and a damaged one is passed over."""
    from spark_ops.jobs.streaming import Store

    store = Store(tmp_path, "prod / eu")
    assert store.last() is None

    def judged(end: int, *ids: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        change = Store(tmp_path, "prod / eu").judge({"findings": [{"id": each} for each in ids]}, end)
        return change.raised, change.cleared

    assert judged(10, "a", "b") == (("a", "b"), ())
    assert judged(10, "a", "b") == ((), ())
    assert judged(11, "b", "c") == (("c",), ("a",))
    assert judged(9, "z") == ((), ())
    (store.judged / f"{12:012d}.json").write_text("{")
    assert judged(13, "b", "c") == ((), ())
    assert json.loads((store.judged / f"{13:012d}.json").read_bytes())["standing"] == ["b", "c"]


def test_a_part_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    """Nor one that is within a merged one."""
    from spark_ops.jobs.streaming import Store

    store = Store(tmp_path, "c")
    for name, is_done in (
        ("batch=0-0", True),
        ("batch=0-3", True),
        ("batch=2-2", True),
        ("batch=4-4", True),
        ("batch=5-5", False),
    ):
        (store.facts / name).mkdir()
        if is_done:
            (store.facts / name / "DONE").touch()
    assert [(first, last) for first, last, _ in store.parts()] == [(0, 3), (4, 4)]


def test_following_judges_what_comes_in_and_what_does_not(spark: Any, tmp_path: Path) -> None:
    """A cluster that nobody tells of any more is not taken for healthy."""
    from spark_ops.jobs import streaming

    write_slices(tmp_path, list(inject(SETUP, "clock-skew")), 60)
    clock = [(START + 60) * 60.0]
    changes = streaming.follow(
        spark,
        tmp_path,
        "synthetic",
        window_s=WINDOW_S,
        settings=Settings(),
        every_s=1.0,
        now=lambda: clock[0],
    )
    first = next(changes)
    assert (first.document["verdict"], first.raised) == ("findings", ("clock-skew/node2",))
    clock[0] += 1800.0
    for change in changes:
        if change.document["verdict"] == "unknown":
            assert {each.split("/")[0] for each in change.raised} == {"telemetry-gap"}
            break
    changes.close()
    assert not spark.streams.active
