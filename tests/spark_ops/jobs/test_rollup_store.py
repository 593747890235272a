"""Rollups on disk: made once, made again when rows come, never half there (spark §2.7, §6.20)."""

import json
from pathlib import Path
from typing import Any

import pytest

from spark_ops.cli.errors import EX_UNKNOWN
from spark_ops.cli.main import main
from spark_ops.jobs import rollup_store
from spark_ops.jobs.engine import EngineError
from spark_ops.jobs.files import find
from spark_ops.jobs.rollup import merge
from spark_ops.telemetry import damage
from tests.kit.synthetic.model import START_S
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import roots

SETUP = Setup(nodes=2, queues=2, replicas=2, hours=2, interval_s=120)
LINKS: list[Row] = [row for row in rows(SETUP) if row["kind"] == "link"]
"""Rows of the kind whose rollup has the fewest columns, so that Spark plans its queries the fastest."""


def _files(root: Path) -> dict[str, bytes]:
    folder = root / "v1" / "kind=rollup1h-link"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write(spark: Any, root: Path, again: bool = False) -> list[int]:
    found = find(root, "link", None, None)
    todo = list(found.hours) if again else rollup_store.stale(root, "link", found)
    return [(each.hour_s - START_S) // 3600 for each in rollup_store.write(spark, root, "link", todo)]


def _seen(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((row.node, row.hour, row.n, row.first_ts) for row in frame.collect())


@pytest.mark.spark
@pytest.mark.slow
def test_a_life(spark: Any, tmp_path: Path) -> None:
    """Made, left alone, byte-equal when made again, made again for late rows, read with and without raw rows."""
    late = [row for row in LINKS if row["seq"] == 3]
    roots.write(tmp_path, [row for row in LINKS if row["seq"] != 3], is_unique=True)
    assert _write(spark, tmp_path) == [0, 1]
    first = _files(tmp_path)
    assert {name.split("/")[-1].split("-")[0] for name in first} == {"rollup", "_rollup.json"}
    assert _write(spark, tmp_path) == []
    assert _write(spark, tmp_path, again=True) == [0, 1]
    assert _files(tmp_path) == first
    # Late rows: only their hour, and its old file goes.
    roots.write(tmp_path, late, is_unique=True)
    assert _write(spark, tmp_path) == [0]
    assert len(_files(tmp_path)) == len(first)
    since, until = START_S, START_S + 7200
    whole = rollup_store.hours(spark, tmp_path, "link", since=since, until=until)
    assert (whole.hours, whole.computed) == (2, 0)
    rolled = _seen(whole.frame)
    assert sum(row[2] for row in rolled) == len(LINKS)
    # A window that cuts an hour: of its raw rows.
    cut = rollup_store.hours(spark, tmp_path, "link", since=since + 1800, until=until)
    assert (cut.hours, cut.computed) == (2, 1)
    wanted = sum(row["ts"] >= (since + 1800) * 1000 for row in LINKS)
    assert sum(row[2] for row in _seen(cut.frame)) == wanted
    # A torn rollup is made of raw rows; without them there is none.
    torn = next(
        path for path in (tmp_path / "v1" / "kind=rollup1h-link").rglob("rollup-*") if "hour=01" in str(path)
    )
    torn.write_bytes(torn.read_bytes()[:-9])
    again = rollup_store.hours(spark, tmp_path, "link", since=since, until=until)
    assert (again.hours, again.computed) == (2, 1)
    assert _seen(again.frame) == rolled
    for path in (tmp_path / "v1" / "kind=link").rglob("*.parquet"):
        path.unlink()
    kept = rollup_store.hours(spark, tmp_path, "link", since=since, until=until)
    assert (kept.hours, kept.computed) == (1, 0)
    assert _seen(kept.frame) == [row for row in rolled if row[1] == START_S]


def without(path: Path, names: set[str]) -> None:
    """Rewrite a Parquet file without some columns, and without fields of these names in its structs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def old(field: Any) -> Any:
        if not pa.types.is_struct(field.type):
            return field
        return pa.field(field.name, pa.struct([each for each in field.type if each.name not in names]))

    table = pq.ParquetFile(path).read()
    kept = [
        field for field in table.schema if field.name.removesuffix("_min").removesuffix("_max") not in names
    ]
    schema = pa.schema([old(field) for field in kept], metadata=table.schema.metadata)
    made = [
        {field.name: _cut(row[field.name], field) for field in schema}
        for row in table.select([field.name for field in kept]).to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(made, schema=schema), path)


def _cut(value: Any, field: Any) -> Any:
    """Return a value with the fields that its struct still has."""
    if isinstance(value, dict):
        return {each.name: value[each.name] for each in field.type}
    return value


@pytest.mark.spark
@pytest.mark.slow
def test_files_of_nodes_and_rollups_without_newer_columns_are_read(spark: Any, tmp_path: Path) -> None:
    """Columns that came later are null: in raw rows, in rollups of them, and in rollups that were made before."""
    new = {"dead_letters_lost_total", "dead_letters_lost_by"}
    made = [
        {name: value for name, value in row.items() if name not in new}
        for row in rows(SETUP)
        if row["kind"] == "queue"
    ]
    paths = roots.write(tmp_path, made, is_unique=True)
    for path in paths:
        without(path, new)
    list(rollup_store.write(spark, tmp_path, "queue", find(tmp_path, "queue", None, None).hours))

    def seen() -> list[tuple[Any, ...]]:
        whole = rollup_store.hours(spark, tmp_path, "queue", since=START_S, until=START_S + 7200)
        assert whole.computed == 0
        kept = merge(whole.frame, "queue", since_s=START_S).where("role = 'master'")
        return sorted(
            (
                row.queue,
                row.n,
                row.dead_letters_lost_total_max,
                row.last.dead_letters_lost_by,
                row.pub_total_max,
            )
            for row in kept.collect()
        )

    first = seen()
    assert [row[:2] for row in first] == [("queue-00000", 60), ("queue-00001", 60)]
    assert all(lost is None and by is None and published for _, _, lost, by, published in first)
    for path in paths:
        path.unlink()
    for path in (tmp_path / "v1" / "kind=rollup1h-queue").rglob("rollup-*.parquet"):
        without(path, new)
    assert seen() == first


def test_damaged_records_are_none(tmp_path: Path) -> None:
    """A record that makes no sense: the hour has no rollup."""
    folder = tmp_path / "v1" / "kind=rollup1h-link" / "dt=2026-11-01" / "hour=00"
    folder.mkdir(parents=True)
    for text in ("", "{", "[]", "{}", '{"format": "other"}', json.dumps({"format": rollup_store.FORMAT})):
        (folder / rollup_store.RECORD).write_text(text)
        assert rollup_store.stored(tmp_path, "link", None, None) == {}


def test_an_empty_root_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No telemetry: unknown, before any JVM."""
    assert main(["rollup", str(tmp_path)]) == EX_UNKNOWN
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["rollup", str(tmp_path / "none")]) == 2
    assert "no such directory" in capsys.readouterr().err


def test_times() -> None:
    from spark_ops.cli.rollup import moment

    assert moment("2026-11-01") == moment("2026-11-01T01:00+01:00") == START_S
    with pytest.raises(Exception, match="is not a time"):
        moment("yesterday")


def test_no_java_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code 4, and what to install."""

    def none(*_: Any, **__: Any) -> Any:
        raise EngineError("Spark needs Java, and there is none: install Java 17")

    roots.write(tmp_path, LINKS)
    monkeypatch.setattr("spark_ops.jobs.session.session", none)
    assert main(["rollup", str(tmp_path)]) == 4
    assert (
        capsys.readouterr().err == "spark-ops rollup: Spark needs Java, and there is none: install Java 17\n"
    )


@pytest.mark.spark
@pytest.mark.slow
def test_the_command(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of what was done; figures of rollups are near those of raw rows."""
    mixed = [row for row in rows(SETUP) if row["ts"] < (START_S + 3600) * 1000]
    roots.write(tmp_path, mixed, is_unique=True)
    assert main(["rollup", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted((each["kind"], each["hour"]) for each in told["rolled"]) == [
        (kind, "2026-11-01T00:00Z") for kind in ("link", "node", "queue")
    ]
    assert main(["rollup", str(tmp_path)]) == 0
    assert "queue   1 hours already had a rollup" in capsys.readouterr().out
    answers = []
    for source in ("rollup", "raw"):
        assert main(["rollup", str(tmp_path), "--figures", source, "--json"]) == 0
        answers.append(
            {(each["node"], each["queue"]): each for each in json.loads(capsys.readouterr().out)["replicas"]}
        )
    assert answers[0].keys() == answers[1].keys()
    assert len(answers[0]) == SETUP.queues * SETUP.replicas
    for key, exact in answers[1].items():
        for name in ("slope_per_s", "mean"):
            near = exact[name] if exact[name] is None else pytest.approx(exact[name], rel=1e-9)
            assert answers[0][key][name] == near
    assert main(["rollup", str(tmp_path), "--figures"]) == 0
    assert "queue-00000" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_a_directory_that_workers_do_not_share_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker writes what it was told to, on a disk of its own: no hour counts as rolled up."""
    from pyspark.sql import DataFrameWriter

    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    roots.write(root, LINKS, is_unique=True)
    write = DataFrameWriter.parquet

    def on_own_disk(self: Any, path: str) -> None:
        write(self, path.replace(str(root), str(elsewhere)))

    monkeypatch.setattr(DataFrameWriter, "parquet", on_own_disk)
    with pytest.raises(
        EngineError, match=r"is not shared: Spark's tasks wrote 4 rows there, .* sees 0 of them"
    ):
        _write(spark, root)
    monkeypatch.undo()
    assert _write(spark, root) == [0, 1]


@pytest.mark.spark
@pytest.mark.slow
def test_damaged_pages_are_left_out_and_told(spark: Any, tmp_path: Path) -> None:
    """The footer of the file is intact, so only a read shows the damage."""
    paths = roots.write(tmp_path, LINKS, is_unique=True)
    roots.overwrite_pages(paths[0])
    assert _write(spark, tmp_path) == [0, 1]
    assert list(damage.recorded(tmp_path)) == [str(paths[0].relative_to(tmp_path))]
    assert find(tmp_path, "link", None, None).torn == (str(paths[0].relative_to(tmp_path)),)
    assert _write(spark, tmp_path) == []
    whole = rollup_store.hours(spark, tmp_path, "link", since=START_S, until=START_S + 7200)
    assert whole.computed == 0
    lost = sum(row["node"] == "node1" and row["ts"] < (START_S + 3600) * 1000 for row in LINKS)
    assert sum(row[2] for row in _seen(whole.frame)) == len(LINKS) - lost
