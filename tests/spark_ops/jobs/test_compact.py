"""Compaction: fewer files, the same rows, whenever it ends."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from spark_ops.jobs import compact as module  # noqa: E402
from spark_ops.jobs.compact import Compacted, CompactError, compact, held  # noqa: E402
from spark_ops.jobs.files import find  # noqa: E402
from spark_ops.telemetry import arrow, damage, manifest  # noqa: E402
from spark_ops.telemetry.layout import hour_directory  # noqa: E402
from spark_ops.telemetry.manifest import live_files  # noqa: E402
from spark_ops.telemetry.schema import KINDS, VERSION  # noqa: E402
from tests.kit.synthetic.files import tear, write_parquet  # noqa: E402
from tests.kit.synthetic.telemetry import Row, Setup, rows  # noqa: E402
from tests.spark_ops.jobs.roots import overwrite_pages  # noqa: E402

SETUP = Setup(queues=3, hours=1.2, interval_s=120)
ROWS = list(rows(SETUP))
AT_ONCE = timedelta(days=-36500)
"""A grace that is over at once, though `NOW` is long before the files' real time."""
NOW = datetime.fromtimestamp(SETUP.start_s, UTC) + timedelta(hours=2)


@contextmanager
def no_spark(_rows: int) -> Iterator[Any]:
    """Nothing here is large."""
    pytest.fail("a session was started")
    yield


def run(root: Path, **options: Any) -> Compacted:
    """With what a command would give, unless something else is asked for."""
    given = {"now": NOW, "older_than": timedelta(minutes=20), "grace": timedelta(hours=1), "spark": no_spark}
    return compact(root, **(given | options))


def written(root: Path, made: list[Row], pieces: int = 4) -> None:
    """Rows as files of a collector that looks now and then."""
    ordered = sorted(made, key=lambda row: row["ts"])
    size = -(-len(ordered) // pieces)
    for at in range(0, len(ordered), size):
        write_parquet(ordered[at : at + size], root, unique=True)


def found(root: Path) -> Counter[tuple[Any, ...]]:
    """Keys of all rows that count, and how often they do."""
    keys: Counter[tuple[Any, ...]] = Counter()
    for kind in KINDS:
        for path in live_files(root, kind):
            read = pq.ParquetFile(path).read(["node", "boot_id", "kind", "seq"])
            keys.update(tuple(row.values()) for row in read.to_pylist())
    return keys


EXPECTED = Counter((row["node"], row["boot_id"], row["kind"], row["seq"]) for row in ROWS)


@pytest.mark.slow
def test_many_files_become_one(tmp_path: Path) -> None:
    """Many files of an hour that is over become one; replaced ones go when nobody can be reading them any more."""
    written(tmp_path, ROWS)
    before = {path: path.read_bytes() for path in live_files(tmp_path, "queue")}
    done = run(tmp_path)
    assert found(tmp_path) == EXPECTED
    assert done.files_after == done.hours == 4
    (path,) = live_files(tmp_path, "queue", until=NOW - timedelta(hours=1))
    read = pq.read_table(path, partitioning=None)
    assert read.schema.metadata[arrow.UNIQUE] == b"1"
    assert manifest.read(hour_directory(tmp_path, "queue", NOW - timedelta(hours=2))).rows == read.num_rows
    keys = [tuple(row[name] for name in arrow.ORDER["queue"]) for row in read.to_pylist()]
    assert keys == sorted(keys)
    assert all(old.exists() for old in before)
    assert run(tmp_path).hours == 0
    assert run(tmp_path, grace=AT_ONCE).removed > 0
    assert sum(old.exists() for old in before) < len(before)
    assert found(tmp_path) == EXPECTED
    assert len(live_files(tmp_path, "queue")) > 3  # the second hour is not over


def test_all_values_stay(tmp_path: Path) -> None:
    """All values of a merged hour stay."""
    written(tmp_path, ROWS)

    def values() -> list[dict[str, Any]]:
        until = NOW - timedelta(hours=1)
        made = [
            row
            for path in live_files(tmp_path, "queue", until=until)
            for row in pq.ParquetFile(path).read().to_pylist()
        ]
        return sorted(made, key=lambda row: (row["node"], row["seq"]))

    before = values()
    run(tmp_path)
    assert values() == before


@pytest.mark.slow
def test_late_rows_and_duplicates(tmp_path: Path) -> None:
    """Rows that come after a compaction count at once, and go in with the next one; duplicates count once."""
    chance = random.Random(1)
    late = chance.sample(ROWS, 60)
    keys = {id(row) for row in late}
    written(tmp_path, [row for row in ROWS if id(row) not in keys])
    run(tmp_path)
    write_parquet(late, tmp_path)
    write_parquet(chance.sample(ROWS, 50), tmp_path)
    assert set(found(tmp_path)) == set(EXPECTED)
    done = run(tmp_path, now=NOW + timedelta(days=1))
    assert done.files_after == done.hours
    assert found(tmp_path) == EXPECTED
    run(tmp_path, now=NOW + timedelta(days=1), grace=AT_ONCE)
    assert found(tmp_path) == EXPECTED
    assert len(list(tmp_path.rglob("*.parquet"))) == sum(len(live_files(tmp_path, kind)) for kind in KINDS)


class Killed(Exception):
    """The process is gone."""


@pytest.mark.slow
def test_a_crash_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each moment all rows count once, also in the middle of it; the next run ends what was begun."""
    steps = 0

    def step(real: Any) -> Any:
        def stepped(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps -= 1
            if steps == 0:
                raise Killed
            return real(*arguments, **options)

        return stepped

    for home, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(home, name, step(getattr(home, name)))
    mine = [row for row in ROWS if row["kind"] == "node"]
    keys = Counter((row["node"], row["boot_id"], row["kind"], row["seq"]) for row in mine)
    for number in itertools.count(1):
        root = tmp_path / str(number)
        steps = 0
        written(root, mine, 2)
        steps = number
        try:
            run(root, grace=AT_ONCE)
        except Killed:
            assert found(root) == keys, number
        else:
            break
        steps = 0
        run(root, grace=AT_ONCE)
        assert found(root) == keys, number
    assert number > 10


def test_what_cannot_be_merged_stays(tmp_path: Path) -> None:
    """Torn files, those of a newer schema, and those with columns that we do not know: they are told."""
    written(tmp_path, ROWS)
    nodes = live_files(tmp_path, "node", until=NOW - timedelta(hours=1))
    tear(nodes[0])
    table = pq.ParquetFile(nodes[1]).read()
    pq.write_table(table.append_column("new", pa.nulls(table.num_rows, pa.int8())), nodes[1])
    table = pq.ParquetFile(nodes[2]).read()
    newer = pa.repeat(pa.scalar(VERSION + 1, pa.int32()), table.num_rows)
    pq.write_table(table.set_column(0, "v", newer), nodes[2])
    table = pq.ParquetFile(nodes[3]).read()
    pq.write_table(
        table.set_column(table.schema.get_field_index("zone"), "zone", table.column("v")), nodes[3]
    )
    kept = {path: path.read_bytes() for path in nodes[:4]}
    done = run(tmp_path, grace=AT_ONCE)
    assert sorted(done.passed) == sorted(str(path.relative_to(tmp_path)) for path in nodes[:4])
    assert {path: path.read_bytes() for path in kept} == kept
    assert set(kept) <= set(live_files(tmp_path, "node"))


def damaged_keys(path: Path) -> set[tuple[Any, ...]]:
    """Damage the pages of a file. Returns: the keys of its rows."""
    read = pq.ParquetFile(path).read(["node", "boot_id", "kind", "seq"])
    overwrite_pages(path)
    return {tuple(row.values()) for row in read.to_pylist()}


def test_an_hour_with_a_damaged_file_is_merged_without_it(tmp_path: Path) -> None:
    """The other files and hours are merged, the damaged file is told each time, and no run fails for it."""
    written(tmp_path, ROWS)
    until = NOW - timedelta(hours=1)
    path = live_files(tmp_path, "node", until=until)[0]
    gone = damaged_keys(path)
    name, kept = str(path.relative_to(tmp_path)), path.read_bytes()
    done = run(tmp_path)
    assert done.passed == [name]
    assert done.hours == 4
    assert set(damage.recorded(tmp_path)) == {name}
    assert set(find(tmp_path, "node", None, None).torn) == {name}
    again = run(tmp_path, grace=AT_ONCE)
    assert (again.hours, again.passed) == (0, [name])
    assert path.read_bytes() == kept
    assert set(live_files(tmp_path, "node", until=until)) > {path}
    path.unlink()
    assert found(tmp_path) == Counter({key: 1 for key in EXPECTED if key not in gone})


def test_an_hour_with_one_file_that_is_whole_stays(tmp_path: Path) -> None:
    written(tmp_path, [row for row in ROWS if row["kind"] == "node" and row["node"] == "node1"], 2)
    paths = live_files(tmp_path, "node", until=NOW - timedelta(hours=1))
    for path in paths[1:]:
        damaged_keys(path)
    done = run(tmp_path)
    assert (done.hours, len(done.passed)) == (0, len(paths) - 1)
    assert live_files(tmp_path, "node", until=NOW - timedelta(hours=1)) == paths


def test_an_error_that_no_file_explains_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is not taken for a damaged file."""
    written(tmp_path, ROWS)

    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrow, "write", full)
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path)
    assert damage.recorded(tmp_path) == {}


@pytest.mark.spark
@pytest.mark.slow
def test_spark_leaves_a_damaged_file_out_too(tmp_path: Path, spark: Any) -> None:
    """A large hour with a damaged file, and another one."""

    @contextmanager
    def shared(_rows: int) -> Iterator[Any]:
        yield spark

    written(tmp_path, [row for row in ROWS if row["kind"] == "node"])
    path = live_files(tmp_path, "node", until=NOW - timedelta(hours=1))[0]
    gone = damaged_keys(path)
    done = run(tmp_path, spark=shared, spark_rows=1)
    assert done.passed == [str(path.relative_to(tmp_path))]
    assert done.hours == 1
    path.unlink()
    keys = {(row["node"], row["boot_id"], row["kind"], row["seq"]) for row in ROWS if row["kind"] == "node"}
    assert found(tmp_path) == Counter({key: 1 for key in keys if key not in gone})
    assert run(tmp_path, spark=shared, spark_rows=1).hours == 0


def test_older_files_are_filled_up(tmp_path: Path) -> None:
    """A column that a file lacks is null, a narrow integer becomes a wide one (spark §6.22)."""
    written(tmp_path, ROWS)
    path = live_files(tmp_path, "node")[0]
    table = pq.ParquetFile(path).read().drop_columns(["cores"])
    at = table.schema.get_field_index("fd_limit")
    pq.write_table(table.set_column(at, "fd_limit", table.column(at).cast(pa.int32())), path)
    assert run(tmp_path).passed == []
    (merged,) = live_files(tmp_path, "node", until=NOW - timedelta(hours=1))
    read = pq.ParquetFile(merged).read()
    assert read.column("cores").null_count == table.num_rows
    assert read.schema.field("fd_limit").type == pa.int64()
    assert found(tmp_path) == EXPECTED


@pytest.mark.slow
def test_clusters_stay_apart(tmp_path: Path) -> None:
    """Each has a merged file of its own."""
    written(tmp_path, ROWS)
    written(tmp_path, [row | {"cluster": "other", "boot_id": "0" + row["boot_id"]} for row in ROWS])
    run(tmp_path)
    until = NOW - timedelta(hours=1)
    assert [path.parts[-3] for path in live_files(tmp_path, "queue", until=until)] == [
        "cluster=other",
        "cluster=synthetic",
    ]


def test_one_at_a_time(tmp_path: Path) -> None:
    """A second one says so."""
    with held(tmp_path), pytest.raises(CompactError, match="another compaction"):
        run(tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_large_hours_go_through_spark(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several sorted files in the end; rows, values and the mark are as without Spark."""
    monkeypatch.setattr(module, "ROWS_A_FILE", 100)

    @contextmanager
    def shared(_rows: int) -> Iterator[Any]:
        yield spark

    for root in (tmp_path / "a", tmp_path / "b"):
        written(root, ROWS)
        write_parquet(random.Random(2).sample(ROWS, 50), root)
    done = run(tmp_path / "a", spark=shared, spark_rows=100)
    run(tmp_path / "b")
    assert done.files_after > done.hours
    assert found(tmp_path / "a") == found(tmp_path / "b")
    until = NOW - timedelta(hours=1)
    values = []
    for root in (tmp_path / "a", tmp_path / "b"):
        read = [pq.ParquetFile(path).read() for path in live_files(root, "queue", until=until)]
        assert all(table.schema.metadata[arrow.UNIQUE] == b"1" for table in read)
        assert all(table.schema.equals(arrow.SCHEMAS["queue"]) for table in read)
        values.append(
            sorted(
                (row for table in read for row in table.to_pylist()),
                key=lambda row: (row["node"], row["seq"]),
            )
        )
    assert values[0] == values[1]
    assert not list((tmp_path / "a").rglob(".compact-*"))
