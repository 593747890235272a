"""Reading raw telemetry: what is torn, too new, twice, elsewhere or not there at all."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from spark_ops.jobs import files
from spark_ops.jobs.damaged_files import without_damaged
from spark_ops.jobs.reading import read
from spark_ops.telemetry import damage, manifest
from spark_ops.telemetry.schema import FIELDS, VERSION
from tests.kit.synthetic.model import START_S
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import roots

SETUP = Setup(nodes=2, queues=2, replicas=2, hours=2, interval_s=300)
ROWS: list[Row] = list(rows(SETUP))
NODE_ROWS = [row for row in ROWS if row["kind"] == "node"]


def _seqs(read_rows: Any) -> list[tuple[str, int]]:
    return sorted((row.node, row.seq) for row in read_rows)


WANTED = sorted((row["node"], row["seq"]) for row in NODE_ROWS)


def _hour_of(path: Path) -> Path:
    return path.parent.parent.parent


# --- without Spark: what footers tell ---


def test_an_empty_root(tmp_path: Path) -> None:
    found = files.find(tmp_path, "node", None, None)
    assert (found.hours, found.torn, found.rows) == ((), (), 0)


def test_no_root(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such directory"):
        files.find(tmp_path / "none", "node", None, None)


def test_hours_are_chosen(tmp_path: Path) -> None:
    """Hours are chosen that have something of [since, until)."""
    roots.write(tmp_path, NODE_ROWS)
    for since, until, hours in (
        (None, None, [0, 1]),
        (START_S, START_S + 3600, [0]),
        (START_S + 3599, START_S + 3601, [0, 1]),
        (START_S + 3600, None, [1]),
        (START_S + 7200, None, []),
        (None, START_S, []),
    ):
        found = files.find(tmp_path, "node", since, until)
        assert [(hour.hour_s - START_S) // 3600 for hour in found.hours] == hours, (since, until)


def test_marked_files_need_no_deduplication(tmp_path: Path) -> None:
    """Unless their ranges overlap: then rows may be there twice."""
    path = roots.write(tmp_path, NODE_ROWS, is_unique=True)[0]
    assert all(hour.is_unique for hour in files.find(tmp_path, "node", None, None).hours)
    path.with_name(f"again-{path.name}").write_bytes(path.read_bytes())
    assert [hour.is_unique for hour in files.find(tmp_path, "node", None, None).hours] == [False, True]


def test_unmarked_files_need_it(tmp_path: Path) -> None:
    roots.write(tmp_path, NODE_ROWS)
    assert not any(hour.is_unique for hour in files.find(tmp_path, "node", None, None).hours)


def test_merged_files_are_unique_alone(tmp_path: Path) -> None:
    """A file with rows of several processes says nothing of which: beside another one it needs a look."""
    first = [row for row in NODE_ROWS if row["ts"] < (START_S + 3600) * 1000]
    alone = roots.write(tmp_path, first, is_unique=True)[0]
    folder = _hour_of(alone)
    roots.write_file(folder / "cluster=c" / "node=_all" / "merged-1.parquet", "node", first, is_unique=True)
    manifest.write(folder, manifest.Manifest(("cluster=c/node=_all/merged-1.parquet",), frozenset(), 9))
    assert not files.find(tmp_path, "node", None, None).hours[0].is_unique
    replaced = frozenset(
        str(path.relative_to(folder)) for path in folder.glob("cluster=synthetic/*/*.parquet")
    )
    manifest.write(folder, manifest.Manifest(("cluster=c/node=_all/merged-1.parquet",), replaced, 9))
    found = files.find(tmp_path, "node", None, None)
    assert found.hours[0].is_unique
    assert [path.name for path in found.hours[0].paths] == ["merged-1.parquet"]


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "tail"])
def test_torn_files_are_listed(tmp_path: Path, damage: str) -> None:
    paths = roots.write(tmp_path, NODE_ROWS)
    data = paths[0].read_bytes()
    paths[0].write_bytes(
        {"cut": data[: len(data) // 2], "empty": b"", "text": b"not parquet", "tail": data[:-1]}[damage]
    )
    found = files.find(tmp_path, "node", None, None)
    assert found.torn == (str(paths[0].relative_to(tmp_path)),)
    assert paths[0] not in {path for hour in found.hours for path in hour.paths}


def test_a_column_of_another_type_is_not_read(tmp_path: Path) -> None:
    path = roots.write(tmp_path, NODE_ROWS)[0]
    pq.write_table(pa.table({"v": [1], "conns": ["many"]}), path)
    assert files.find(tmp_path, "node", None, None).torn == (str(path.relative_to(tmp_path)),)


def test_a_damaged_manifest_is_listed(tmp_path: Path) -> None:
    """All files of its hour are read then, each row once."""
    folder = _hour_of(roots.write(tmp_path, NODE_ROWS, is_unique=True)[0])
    (folder / manifest.NAME).write_text("{")
    found = files.find(tmp_path, "node", None, None)
    assert [Path(name).name for name in found.torn] == [manifest.NAME]
    assert not found.hours[0].is_unique
    assert found.rows == len(NODE_ROWS)


# --- with Spark ---


@pytest.mark.spark
def test_each_row_once(spark: Any, tmp_path: Path) -> None:
    """spark §6.18: duplicates and rows out of order change nothing; all fields are there, of all kinds."""
    roots.write(tmp_path, reversed(ROWS))
    again = roots.write(tmp_path / "again", NODE_ROWS)
    for path in again:
        there = tmp_path / path.relative_to(tmp_path / "again")
        (there.parent / "late=1").mkdir()
        (there.parent / "late=1" / there.name).write_bytes(path.read_bytes())
    whole = read(spark, tmp_path, "node")
    assert _seqs(whole.frame.collect()) == WANTED
    assert (whole.torn, whole.unknown_versions, whole.rows) == ([], 0, 2 * len(NODE_ROWS))
    assert whole.frame.columns == list(FIELDS["node"])
    queue = read(spark, tmp_path, "queue").frame.where("role = 'master'").first().asDict(recursive=True)
    wanted = next(
        row
        for row in ROWS
        if row["kind"] == "queue" and (row["node"], row["seq"]) == (queue["node"], queue["seq"])
    )
    assert {name: value for name, value in queue.items() if value is not None} == {
        name: value for name, value in wanted.items() if value is not None
    }


@pytest.mark.spark
def test_time_is_cut(spark: Any, tmp_path: Path) -> None:
    roots.write(tmp_path, NODE_ROWS, is_unique=True)
    since, until = START_S + 1000, START_S + 5000
    cut = read(spark, tmp_path, "node", since=since, until=until).frame.collect()
    assert _seqs(cut) == sorted(
        (row["node"], row["seq"]) for row in NODE_ROWS if since * 1000 <= row["ts"] < until * 1000
    )


@pytest.mark.spark
def test_nothing_there(spark: Any, tmp_path: Path) -> None:
    empty = read(spark, tmp_path, "queue")
    assert (empty.frame.count(), empty.frame.columns, empty.torn) == (0, list(FIELDS["queue"]), [])


@pytest.mark.spark
def test_torn_files_are_skipped(spark: Any, tmp_path: Path) -> None:
    """Torn files are skipped, also one with a damaged middle, which its footer does not show."""
    paths = roots.write(tmp_path, NODE_ROWS)
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    data = bytearray(paths[1].read_bytes())
    data[4 : len(data) // 4] = bytes(len(data) // 4 - 4)
    paths[1].write_bytes(data)
    torn = sorted(str(path.relative_to(tmp_path)) for path in paths[:2])
    assert read(spark, tmp_path, "node").torn == torn[:1]
    times = []

    def job() -> tuple[list[str], int, int]:
        times.append(1)
        got = read(spark, tmp_path, "node")
        return got.torn, got.frame.select("seq").count(), len(got.frame.collect())

    told, seen, whole = without_damaged(tmp_path, ("node",), None, None, job)
    assert (sorted(told), len(times)) == (torn, 2)
    assert 0 < seen == whole < len(NODE_ROWS)
    assert without_damaged(tmp_path, ("node",), None, None, job) == (told, seen, whole)
    assert len(times) == 3


@pytest.mark.spark
def test_an_error_that_no_file_explains_is_raised(spark: Any, tmp_path: Path) -> None:
    """A worker that does not see a file is one: its rows are not left out."""
    from pyspark.errors import PySparkException

    paths = roots.write(tmp_path, NODE_ROWS)

    def job() -> int:
        frame = read(spark, tmp_path, "node").frame
        hidden = paths[0].read_bytes()
        paths[0].unlink()
        try:
            return int(frame.count())
        finally:
            paths[0].write_bytes(hidden)

    with pytest.raises((PySparkException, Py4JError)):
        without_damaged(tmp_path, ("node",), None, None, job)
    assert damage.recorded(tmp_path) == {}


@pytest.mark.spark
def test_versions(spark: Any, tmp_path: Path) -> None:
    """spark §6.22: rows of the version before and after ours are read, those that are too new are counted."""
    versions = (VERSION - 1, VERSION, VERSION + 1, VERSION + 2, None)
    path = roots.write(tmp_path, [{**row, "v": versions[row["seq"] % 5]} for row in NODE_ROWS])[0]
    got = read(spark, tmp_path, "node")
    assert _seqs(got.frame.collect()) == sorted(
        (row["node"], row["seq"]) for row in NODE_ROWS if row["seq"] % 5 < 3
    )
    assert got.unknown_versions == sum(row["seq"] % 5 >= 3 for row in NODE_ROWS)
    # A newer file with a column we do not know, an older one that lacks most and had a narrower type.
    table = pq.read_table(path).select(["v", "kind", "cluster", "node", "boot_id", "seq", "ts"])
    narrow = table.set_column(5, "seq", table["seq"].cast(pa.int32())).append_column("new", table["node"])
    pq.write_table(narrow, path)
    older = read(spark, tmp_path, "node").frame.where("conns is null").orderBy("seq").first()
    assert (older.seq, older.conns) == (table["seq"][0].as_py(), None)


@pytest.mark.spark
def test_names_are_not_patterns(spark: Any, tmp_path: Path) -> None:
    """Nodes and clusters may be called what they like, and so may the root."""
    root = tmp_path / "a [root] {with} *, 100% ü"
    root.mkdir()
    odd = [{**row, "node": "n[1]*/%41 ü", "cluster": "c{a,b}"} for row in NODE_ROWS if row["node"] == "node1"]
    roots.write(root, odd)
    assert read(spark, root, "node").frame.count() == len(odd)
