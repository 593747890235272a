"""A stream finds what a batch does on the same files, however they are cut into batches (spark §6.21)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_ops.health.settings import Settings
from tests.kit.synthetic.faults import duplicate, inject
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.jobs.queue_figures import FINDINGS, with_figures
from tests.spark_ops.jobs.roots import overwrite_pages, write_slices

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETUP = Setup(hours=1.0, queues=4, interval_s=30.0)
WINDOW_S = 3600.0
START = SETUP.start_s // 60


def test_a_stream_that_is_cut_finds_what_a_batch_does(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that breaks off after a batch was written and before Spark knows counts nothing twice."""
    from pyspark.errors import StreamingQueryException

    from spark_ops.health.document import health_document
    from spark_ops.jobs import streaming
    from spark_ops.jobs.health import Window, judge_window

    root = tmp_path / "root"
    made = (with_figures(row, START) for row in inject(SETUP, "consumer-starvation"))
    write_slices(root, list(duplicate(made, 0.1)), 15)
    store = streaming.Store(root, "synthetic")
    write = streaming.Store.write

    def breaks(self: Any, name: str, facts: Any, files: Any) -> None:
        write(self, name, facts, files)
        if name == "batch=1-1" and not (tmp_path / "broken").exists():
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
    assert set(told.raised) == {
        "consumer-starvation///queue-00000",
        *(f"{kind}///{queue}" for kind, queue in FINDINGS.items()),
    }

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


def test_a_finding_that_becomes_more_severe_is_raised_again(tmp_path: Path) -> None:
    """An operator who was warned is told when it is critical, and not when it is a warning again."""
    from spark_ops.jobs.streaming import Store

    store = Store(tmp_path, "c")

    def raised(end: int, severity: str) -> tuple[str, ...]:
        found = [{"id": "under-replicated", "severity": severity}, {"id": "hot-node", "severity": "warn"}]
        return store.judge({"findings": found}, end).raised

    assert raised(10, "warn") == ("under-replicated", "hot-node")
    assert raised(11, "crit") == ("under-replicated",)
    assert raised(12, "crit") == ()
    assert raised(13, "warn") == ()


def test_nothing_is_cleared_by_what_was_not_seen(tmp_path: Path) -> None:
    """The queues of a cluster that is down are not seen, so their findings stand."""
    from spark_ops.jobs.streaming import Store

    store = Store(tmp_path, "c")

    def judged(
        end: int, verdict: str, *ids: str, share: float = 1.0
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = [{"id": each, "kind": each, "text": f"text of {each}"} for each in ids]
        change = store.judge({"findings": found, "verdict": verdict, "coverage": {"share": share}}, end)
        return change.raised, change.cleared

    assert judged(10, "findings", "single-zone") == (("single-zone",), ())
    assert judged(11, "critical", "cluster-down") == (("cluster-down",), ())
    assert judged(12, "unknown") == ((), ())
    assert judged(13, "critical", "partition", share=0.2) == (("partition",), ())
    kept = json.loads((store.judged / f"{13:012d}.json").read_bytes())
    assert kept["standing"] == ["partition", "cluster-down", "single-zone"]
    assert [each["text"] for each in kept["findings"]] == [f"text of {each}" for each in kept["standing"]]
    assert judged(14, "findings", "single-zone") == ((), ("cluster-down", "partition"))


def test_nodes_that_report_again_are_judged_at_once(tmp_path: Path) -> None:
    """A judgement of silence ends now. The next one ends with the newest rows, which is earlier, and it counts: what
    is wrong with one of the nodes is not held back until the rows are as new as that."""
    from spark_ops.jobs.streaming import Store

    store = Store(tmp_path, "c")

    def judged(end: int, *ids: str, is_silent: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = [{"id": each, "kind": each, "text": each} for each in ids]
        change = store.judge({"findings": found, "verdict": "critical"}, end, is_silent=is_silent)
        return change.raised, change.cleared

    assert judged(10) == ((), ())
    assert judged(15, "cluster-down", is_silent=True) == (("cluster-down",), ())
    assert judged(15, "cluster-down", is_silent=True) == ((), ())
    assert judged(12, "node-down/n2") == (("node-down/n2",), ("cluster-down",))
    assert judged(12, "node-down/n2", "other") == ((), ()), "this minute was judged"
    assert judged(11, "other") == ((), ())
    assert judged(13) == ((), ("node-down/n2",))
    assert judged(18, "cluster-down", is_silent=True) == (("cluster-down",), ())
    # Each has a number of its own, in their order: a sink of alerts takes all of them, and knows a repeated one.
    names = sorted(path.stem for path in store.judged.glob("*.json"))
    assert [int(name) for name in names] == [10, 15, 16, 17, 18]
    ends = [json.loads((store.judged / f"{name}.json").read_bytes())["end"] for name in names]
    assert ends == [10, 15, 12, 13, 18]


def test_a_stream_that_is_behind_does_not_take_the_cluster_for_silent(spark: Any, tmp_path: Path) -> None:
    """Files have come, and Spark has not read them yet, as on a busy machine."""
    from spark_ops.jobs import streaming

    made = list(rows(SETUP))
    write_slices(tmp_path, [row for row in made if row["ts"] // 60_000 < START + 45], 15)
    store = streaming.Store(tmp_path, "synthetic")
    streaming.start(spark, tmp_path, store, "synthetic", is_once=True).awaitTermination()
    write_slices(tmp_path, [row for row in made if row["ts"] // 60_000 >= START + 45], 15)
    # The new files are newer than those that the stream has read, so that it will still read them.
    settings, now_s = Settings(), (START + 60) * 60.0
    told = streaming.judge_store(
        spark, tmp_path, store, "synthetic", window_s=WINDOW_S, settings=settings, now_s=now_s
    )
    assert told is not None
    assert (told.raised, told.document["verdict"]) == ((), "healthy")
    assert store.last() is not None
    assert store.last()["end"] == START + 45 - streaming.WATERMARK_S // 60


def test_merged_files_that_the_stream_has_read_are_known(tmp_path: Path) -> None:
    """By what the manifest replaces, later by the name of the merged file."""
    from spark_ops.jobs import compact, streaming
    from spark_ops.telemetry import manifest

    write_slices(tmp_path, list(rows(SETUP)), 15)
    raw = manifest.live_files(tmp_path, "node")
    names = {str(path.relative_to(tmp_path)) for path in raw}
    made_compact(tmp_path, grace_s=3600)
    folder = raw[0].parent.parent.parent
    (merged,) = streaming._live_of(folder, "synthetic")
    some = set(sorted(names)[1:])
    assert streaming._state_of(tmp_path, folder, merged, names, 0) == "read"
    assert streaming._state_of(tmp_path, folder, merged, some, 0) == "coming"
    made_compact(tmp_path, grace_s=0)
    assert not any(path.exists() for path in raw)
    assert streaming._state_of(tmp_path, folder, merged, names, 0) == "read"
    assert streaming._state_of(tmp_path, folder, merged, some, 0) == "passed"
    assert streaming._state_of(tmp_path, folder, merged, set(), 0) == "passed"
    assert compact.name_of_files([]) not in merged.name


def made_compact(root: Path, *, grace_s: float) -> None:
    """Merge the hours of the setup, and remove what was replaced so long ago."""
    from spark_ops.jobs import compact

    def none(_: int) -> Any:
        raise AssertionError("the hours are small")

    compact.compact(
        root,
        now=datetime.now(UTC) + timedelta(seconds=1),
        older_than=timedelta(minutes=20),
        grace=timedelta(seconds=grace_s),
        spark=none,
    )


def test_rows_that_were_merged_while_nothing_followed_are_read(spark: Any, tmp_path: Path) -> None:
    """The stream was stopped for hours, and compact has removed the files that it had not read."""
    from spark_ops.jobs import streaming

    made = list(inject(SETUP, "consumer-starvation"))
    before = [row for row in made if row["ts"] // 60_000 < START + 20]
    write_slices(tmp_path, before, 15)
    store = streaming.Store(tmp_path, "synthetic")
    streaming.start(spark, tmp_path, store, "synthetic", is_once=True).awaitTermination()
    write_slices(tmp_path, [row for row in made if row["ts"] // 60_000 >= START + 20], 15)
    made_compact(tmp_path, grace_s=0)
    streaming.start(spark, tmp_path, store, "synthetic", is_once=True).awaitTermination()
    told = streaming.judge_store(
        spark, tmp_path, store, "synthetic", window_s=WINDOW_S, settings=Settings(), now_s=(START + 60) * 60.0
    )
    assert told is not None
    assert told.document["coverage"]["share"] == 1.0
    assert told.raised == ("consumer-starvation///queue-00000",)
    assert streaming.catch_up(spark, tmp_path, store, "synthetic", since_s=0.0) == []


def test_damaged_pages_in_a_stream_are_told(spark: Any, tmp_path: Path) -> None:
    """The file is left out whole, and its rows are missing."""
    from spark_ops.jobs import streaming
    from spark_ops.telemetry import damage

    write_slices(tmp_path, list(rows(SETUP)), 60)
    path = next((tmp_path / "v1/kind=queue").rglob("cluster=synthetic/node=node2/*.parquet"))
    overwrite_pages(path)
    store = streaming.Store(tmp_path, "synthetic")
    streaming.start(spark, tmp_path, store, "synthetic", is_once=True).awaitTermination()
    told = streaming.judge_store(
        spark, tmp_path, store, "synthetic", window_s=WINDOW_S, settings=Settings(), now_s=(START + 60) * 60.0
    )
    assert told is not None
    name = str(path.relative_to(tmp_path))
    assert list(damage.recorded(tmp_path)) == told.document["coverage"]["torn"] == [name]
    assert {each.split("/")[0] for each in told.raised} == {"telemetry-gap", "torn-files"}
    assert name not in store.files()


def test_a_store_that_spark_does_not_share_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker writes facts on a disk of its own: the batch does not count as read."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrameWriter

    from spark_ops.jobs import streaming

    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    write_slices(root, list(rows(SETUP)), 60)
    store = streaming.Store(root, "synthetic")
    write = DataFrameWriter.parquet

    def on_own_disk(self: Any, path: str) -> None:
        write(self, path.replace(str(root), str(elsewhere)))

    monkeypatch.setattr(DataFrameWriter, "parquet", on_own_disk)
    with pytest.raises(StreamingQueryException, match="is not shared"):
        streaming.start(spark, root, store, "synthetic", is_once=True).awaitTermination()
    assert store.parts() == []


def test_a_part_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    """A part that is not finished is not read, nor one that is within a merged one."""
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
        if change.document["verdict"] == "critical":
            assert (change.raised, change.cleared) == (("cluster-down",), ())
            break
    changes.close()
    assert not spark.streams.active
