"""Rows that the driver reads are those that Spark reads, and each file is read once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from spark_ops.health.document import health_document
from spark_ops.health.settings import Settings
from spark_ops.jobs import small_files
from spark_ops.jobs.small_files import tables_of
from spark_ops.telemetry import arrow
from tests.kit.synthetic.faults import duplicate, inject, shuffle
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.jobs.queue_figures import FINDINGS, with_figures
from tests.spark_ops.jobs.roots import overwrite_pages, write

SETUP = Setup(hours=1.0, queues=6, interval_s=30.0)
START = SETUP.start_s // 60
NAMES = ("node", "ts", "seq", "cores")


def test_rows_are_concatenated_with_the_named_columns(tmp_path: Path) -> None:
    made = write(tmp_path, rows(SETUP))
    paths = [path for path in made if "kind=node" in str(path)]
    found = tables_of({"node": paths, "link": []}, {"node": NAMES, "link": ("ts",)})
    assert found is not None
    assert found["node"].schema.names == list(NAMES)
    assert found["node"].num_rows == sum(pq.read_metadata(path).num_rows for path in paths)
    assert found["link"].num_rows == 0
    assert found["link"].schema.names == ["ts"]


def test_columns_of_other_versions(tmp_path: Path) -> None:
    """A column that a file lacks is null, a wider integer that fits is read, and one that does not fit is not."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"node": ["n"], "ts": [1], "cores": pa.array([4], pa.int64())}), path)
    found = tables_of({"node": [path]}, {"node": NAMES})
    assert found is not None
    assert found["node"].to_pylist() == [{"node": "n", "ts": 1, "seq": None, "cores": 4}]
    assert found["node"].schema.field("cores").type == arrow.SCHEMAS["node"].field("cores").type
    pq.write_table(pa.table({"cores": pa.array([1 << 40], pa.int64())}), path)
    assert tables_of({"node": [path]}, {"node": NAMES}) is None


def test_what_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    made = write(tmp_path, rows(SETUP))
    path = next(path for path in made if "kind=queue" in str(path))
    columns = {"queue": ("node", "vhost", "queue", "ts")}
    assert tables_of({"queue": [path]}, columns) is not None
    overwrite_pages(path)
    assert tables_of({"queue": [path]}, {"queue": tuple(arrow.SCHEMAS["queue"].names)}) is None
    path.unlink()
    assert tables_of({"queue": [path]}, columns) is None


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [path for path in write(tmp_path, rows(SETUP)) if "kind=node" in str(path)]
    read = small_files._read
    times: Counter[Path] = Counter()

    def counted(path: Path, wanted: Any) -> Any:
        times[path] += 1
        return read(path, wanted)

    monkeypatch.setattr(small_files, "_read", counted)
    first = tables_of({"node": made}, {"node": NAMES})
    assert tables_of({"node": made}, {"node": NAMES}) == first
    assert set(times.values()) == {1}
    pq.write_table(pq.read_table(made[0]).slice(1), made[0])
    changed = tables_of({"node": made}, {"node": NAMES})
    assert first is not None
    assert changed is not None
    assert changed["node"].num_rows == first["node"].num_rows - 1


def test_what_a_process_remembers_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [path for path in write(tmp_path, rows(SETUP)) if "kind=queue" in str(path)]
    known = small_files._Known()
    monkeypatch.setattr(small_files, "_KNOWN", known)
    monkeypatch.setattr(small_files, "KNOWN_BYTES", 20_000)
    names = tuple(arrow.SCHEMAS["queue"].names)
    one = tables_of({"queue": made[:1]}, {"queue": names})
    assert one is not None
    assert one["queue"].nbytes > 20_000
    assert tables_of({"queue": made}, {"queue": names}) is not None
    assert known.size_bytes <= max(20_000, *(pq.read_table(path).nbytes for path in made))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["consumer-starvation", "slow-link", "node-restart"])
def test_a_judgement_is_the_same_in_each_way(
    spark: Any, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads the files, gets their rows, or is not asked: the document is the same, with duplicates and rows in
    any order."""
    from spark_ops.jobs import health
    from spark_ops.jobs.health import Window, judge_window
    from spark_ops.jobs.small_health import judge_small

    made = inject(SETUP, fault)
    wanted: set[str] = set()
    if fault == "consumer-starvation":
        made = (with_figures(row, START) for row in made)
        wanted = {fault, *FINDINGS}
    write(tmp_path, shuffle(duplicate(made, 0.1)))
    window = Window("synthetic", START + 5, START + 60, None)
    local = health_document(judge_window(spark, tmp_path, window, Settings()), 0.0)
    small = judge_small(tmp_path, window, Settings())
    assert small is not None
    assert health_document(small, 0.0) == local
    monkeypatch.setattr(health, "LOCAL_ROWS", 0)
    assert health_document(judge_window(spark, tmp_path, window, Settings()), 0.0) == local
    assert local["verdict"] != "unknown"
    assert {finding["kind"] for finding in local["findings"]} >= wanted


@pytest.mark.spark
@pytest.mark.slow
def test_a_damaged_page_in_a_small_window_is_told(spark: Any, tmp_path: Path) -> None:
    from spark_ops.jobs.health import Window, judge_window

    made = write(tmp_path, rows(SETUP))
    path = next(path for path in made if "kind=queue" in str(path))
    overwrite_pages(path)
    judged = judge_window(spark, tmp_path, Window("synthetic", START, START + 60, None), Settings())
    document = health_document(judged, 0.0)
    assert document["coverage"]["torn"] == [str(path.relative_to(tmp_path))]
    assert document["coverage"]["share"] < 1.0
