"""Rows as Parquet."""

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from spark_ops.telemetry import arrow  # noqa: E402
from spark_ops.telemetry.schema import FIELDS, KINDS  # noqa: E402
from spark_ops.telemetry.segments import fits, wrong_field  # noqa: E402
from tests.kit.synthetic.telemetry import Setup, rows  # noqa: E402

ROWS = list(rows(Setup(hours=0.02)))


def whole(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a table gives it back: with all fields, maps as pairs in order."""
    return {
        name: sorted(value.items()) if isinstance(value := row.get(name), dict) else value
        for name in FIELDS[row["kind"]]
    }


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back(tmp_path: Path, kind: Any) -> None:
    """Each value as it was; the file is sorted, and no other is left."""
    mine = [row for row in ROWS if row["kind"] == kind]
    path = tmp_path / "a" / "x.parquet"
    converted = arrow.convert(kind, mine)
    arrow.write(converted.table, path, unique=True)
    assert [file.name for file in path.parent.iterdir()] == ["x.parquet"]
    read = pq.read_table(path, partitioning=None)
    assert read.schema.metadata[b"fluffle.unique"] == b"1"
    found = read.to_pylist()
    keys = [tuple(row[name] for name in arrow.ORDER[kind]) for row in found]
    assert keys == sorted(keys)
    assert sorted(found, key=lambda row: (row["node"], row["seq"])) == sorted(
        map(whole, mine), key=lambda row: (row["node"], row["seq"])
    )


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    """Whatever order they come in, also in their maps."""
    mine = [row for row in ROWS if row["kind"] == "node"]
    turned = [row | {"mem_by": dict(reversed(row["mem_by"].items()))} for row in reversed(mine)]
    for name, some in (("a", mine), ("b", turned)):
        arrow.write(arrow.convert("node", some).table, tmp_path / name, unique=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_numbers_of_plugins_are_kept_whatever_their_names(tmp_path: Path) -> None:
    """Rows of nodes have other columns of plug-ins each, or none."""
    mine = [row for row in ROWS if row["kind"] == "node"][:3]
    mine[0] = mine[0] | {"plugins": {"tides.height": -2, "ships.in_port": 3}}
    mine[1] = mine[1] | {"plugins": {"other.column": 2**60}}
    converted = arrow.convert("node", mine)
    assert converted.bad == []
    arrow.write(converted.table, tmp_path / "x.parquet", unique=True)
    found = pq.read_table(tmp_path / "x.parquet", partitioning=None).to_pylist()
    assert sorted(found, key=lambda row: (row["node"], row["seq"])) == sorted(
        map(whole, mine), key=lambda row: (row["node"], row["seq"])
    )


BAD: list[tuple[str, Any]] = [
    ("fd_used", "7"),
    ("fd_used", 1.5),
    ("fd_used", True),
    ("fd_used", 2**63),
    ("conns", 2**31),
    ("loop_lag_ms_max", "fast"),
    ("zone", 5),
    ("zone", "\ud800"),
    ("alarms", "memory"),
    ("mem_by", [1]),
    ("mem_by", {"a": 1.5}),
    ("labels", {"a": 1}),
    ("loop_lag_us", [1, None]),
    ("maintenance", 1),
    ("plugins", {"a.b": "c"}),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_wrong_value_costs_its_row_only(name: str, value: Any) -> None:
    """A wrong value in the middle of three rows costs its row only."""
    mine = [row for row in ROWS if row["kind"] == "node"][:3]
    assert not fits(value, FIELDS["node"][name])
    mine[1] = mine[1] | {name: value}
    converted = arrow.convert("node", mine)
    assert converted.bad == [(mine[1], name)]
    assert converted.table.num_rows == 2
    assert wrong_field(mine[0]) is None


def test_no_rows() -> None:
    """An empty table has all columns."""
    assert arrow.convert("queue", []).table.schema.names == list(FIELDS["queue"])
