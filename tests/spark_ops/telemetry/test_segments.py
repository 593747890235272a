"""The lines of a segment become rows, or are rejected with the problem that they have."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_ops.telemetry.schema import FIELDS, VERSION
from spark_ops.telemetry.segments import (
    Problem,
    Rejected,
    Segment,
    fits,
    node_directories,
    parse,
    read_file,
    segments,
    wrong_field,
)
from tests.kit.synthetic.telemetry import Setup, rows

ROW: dict[str, Any] = next(rows(Setup(nodes=1, queues=0, hours=0.01)))


def line(**changes: Any) -> bytes:
    """A row as a line, with some fields changed."""
    return json.dumps(ROW | changes).encode() + b"\n"


@given(st.binary(max_size=200))
@example(b"")
@example(b"[" * 100_000 + b"\n")
@example(b'{"v":1e999}\n')
@example(b'"\\ud800"\n')
def test_any_bytes(data: bytes) -> None:
    """Any bytes give a row or say why not; nothing else happens."""
    found = parse(data)
    assert isinstance(found, (dict, Rejected))


@given(
    st.dictionaries(
        st.sampled_from(list(FIELDS["node"])), st.none() | st.booleans() | st.integers() | st.text()
    )
)
def test_any_values(changes: dict[str, Any]) -> None:
    """A row that `parse` accepts has a right envelope."""
    found = parse(line(**changes))
    if isinstance(found, dict):
        assert type(found["seq"]) is int
        assert 0 <= found["seq"] < 2**63
        assert found["node"]


def test_rows_of_a_cluster() -> None:
    """All that a clean cluster writes is taken as it is."""
    for row in rows(Setup(hours=0.01)):
        assert parse(json.dumps(row).encode() + b"\n") == row
        assert wrong_field(row) is None


def test_versions() -> None:
    """spark §6.22: the version before and the next one are read, later ones are not understood."""
    newer = parse(line(v=VERSION + 1, some_new_field=1))
    assert isinstance(newer, dict)
    assert "some_new_field" not in newer
    for version in (VERSION + 2, 10**30):
        found = parse(line(v=version))
        assert isinstance(found, Rejected)
        assert found.problem is Problem.UNKNOWN_VERSION
    older = dict(ROW)
    del older["fd_used"]
    assert parse(json.dumps(older).encode() + b"\n") == older


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (line()[:-1], Problem.TORN),
        (line()[:50], Problem.TORN),
        (line()[:50] + b"\n", Problem.TORN),
        (line().replace(b'"seq": 0', b'"seq": NaN'), Problem.TORN),
        (b"\x00" * 40 + b"\n", Problem.TORN),
        (b"[1]\n", Problem.BAD),
        (line(kind="bogus"), Problem.BAD),
        (line(kind=["node"]), Problem.BAD),
        (line(v=True), Problem.BAD),
        (line(v=0), Problem.BAD),
        (line(seq=-1), Problem.BAD),
        (line(seq=2**63), Problem.BAD),
        (line(seq=1.5), Problem.BAD),
        (line(ts=10**18), Problem.BAD),
        (line(node=""), Problem.BAD),
        (line(node="é" * 100), Problem.BAD),
        (line(cluster=None), Problem.BAD),
        (line(boot_id="../../etc/passwd"), Problem.BAD),
        (line(boot_id="merged-1"), Problem.BAD),
    ],
)
def test_lines_that_give_no_row(data: bytes, problem: Problem) -> None:
    """Each is counted under what is wrong with it."""
    found = parse(data)
    assert isinstance(found, Rejected)
    assert found.problem is problem
    assert found.line == data


def test_types() -> None:
    """Values fit a type or do not."""
    assert fits(2**31 - 1, "int32")
    assert not fits(2**31, "int32")
    assert not fits(True, "int64")
    assert not fits(1.0, "int64")
    assert fits(1, "double")
    assert not fits("1", "double")
    assert fits(["a"], "strings")
    assert not fits("a", "strings")
    assert not fits([None], "histogram")
    assert fits({"a": 1}, "counts")
    assert not fits({"a": "b"}, "counts")
    assert fits({"a": "b"}, "texts")
    assert not fits("\ud800", "string")
    assert not fits({"\ud800": 1}, "counts")


def test_files(tmp_path: Path) -> None:
    """Segments in the order of their writing; open ones are told apart; empty lines are none."""
    node = tmp_path / "node1"
    node.mkdir()
    names = ["b-20261122T130000-2.ndjson", "b-20261122T130000-10.ndjson", "a-20261122T140000-1.ndjson"]
    for name in reversed(names):
        (node / name).write_bytes(b"\n" + line() + b"\n")
    (node / "a-20261122T150000-2.ndjson.open").write_bytes(line()[:9])
    (node / "notes.txt").touch()
    (tmp_path / ".hidden").mkdir()
    assert node_directories(tmp_path) == [node]
    assert node_directories(node) == [node]
    found = segments(node)
    assert [segment.name for segment in found[:3]] == names
    assert found[3] == Segment(node, "a-20261122T150000-2.ndjson", is_open=True)
    assert found[3].path.name.endswith(".open")
    assert list(read_file(found[0].path)) == [ROW]
    assert [type(item) for item in read_file(found[3].path)] == [Rejected]
