"""Telemetry of a large fleet, which is made column by column."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from spark_ops.jobs.files import find
from spark_ops.jobs.topology_snapshots import latest
from spark_ops.telemetry.schema import KEY, Kind
from spark_ops.telemetry.segments import Row, wrong_field
from tests.kit.synthetic import fleet
from tests.kit.synthetic.fleet import write_large
from tests.kit.synthetic.telemetry import Setup, rows
from tests.spark_ops.telemetry.test_synthetic_files import read

SETUP = Setup(nodes=4, queues=9, hours=2.0, interval_s=600.0, uneven=0.5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fleet")
    assert write_large(SETUP, made) == 9 * 3 * 12
    return made


@pytest.mark.parametrize("kind", ["node", "queue", "link"])
def test_rows_are_as_those_of_a_model(root: Path, kind: Kind) -> None:
    """The fields, the times and the subjects are those of rows that are made one by one."""
    mine = [row for row in rows(SETUP) if row["kind"] == kind]
    theirs = read(root, kind)
    assert all(wrong_field(row) is None for row in theirs)

    def subjects(some: list[Row]) -> set[Any]:
        return {(row["node"], row["boot_id"], row["ts"], row["mono_ms"], row["interval_ms"]) for row in some}

    def named(some: list[Row]) -> dict[Any, set[str]]:
        return {row.get("role"): {name for name in row if row[name] is not None} for row in some}

    assert subjects(mine) == subjects(theirs)
    wanted = {role: names - {"confirm_us"} for role, names in named(mine).items()}
    assert named(theirs) == wanted
    if kind == "queue":
        queues = {(row["vhost"], row["queue"][-5:], row["ring_size"], row["ring_pos"]) for row in mine}
        assert {(r["vhost"], r["queue"][-5:], r["ring_size"], r["ring_pos"]) for r in theirs} == queues


def test_files_are_those_of_compact(root: Path) -> None:
    """An hour has one file of each kind, without duplicates, as readers see by its footer."""
    for kind in ("node", "queue", "link"):
        found = find(root, kind, None, None)
        assert len(found.hours) == 2
        assert all(len(hour.paths) == 1 and hour.is_unique for hour in found.hours)
        assert not found.torn


def test_sequence_numbers_have_no_holes(root: Path) -> None:
    by_process: dict[Any, list[int]] = defaultdict(list)
    for row in read(root, "queue"):
        by_process[tuple(row[name] for name in KEY if name != "seq")].append(row["seq"])
    assert len(by_process) == SETUP.nodes
    assert all(sorted(own) == list(range(len(own))) for own in by_process.values())


def test_counters_rise_as_fast_as_messages_come(root: Path) -> None:
    """All messages of the cluster together are those of the setup, and nodes use the CPU of their copies."""
    first: dict[Any, Row] = {}
    last: dict[Any, Row] = {}
    for row in sorted(read(root, "queue"), key=lambda row: row["ts"]):
        key = row["node"], row["queue"]
        assert row["cpu_us_total"] >= last.get(key, row)["cpu_us_total"]
        first.setdefault(key, row)
        last[key] = row

    def rise(name: str) -> float:
        return sum((last[key][name] or 0) - (first[key][name] or 0) for key in last)

    elapsed_s = 11 * SETUP.interval_s
    messages = fleet.NODE_MESSAGES * SETUP.nodes * elapsed_s
    assert rise("pub_total") == pytest.approx(messages, rel=0.1)
    nodes = sorted(read(root, "node"), key=lambda row: row["ts"])
    spent = sum(
        row["cpu_user_ms_total"]
        + row["cpu_sys_ms_total"]
        - before["cpu_user_ms_total"]
        - before["cpu_sys_ms_total"]
        for row, before in zip(nodes[-4:], nodes[:4], strict=True)
    )
    assert spent * 1000 == pytest.approx(rise("cpu_us_total") + 0.02e6 * 4 * elapsed_s, rel=0.1)
    assert sum(row["queues_master"] for row in nodes[:4]) == SETUP.queues
    assert sum(row["queues_mirror"] for row in nodes[:4]) == 2 * SETUP.queues


def test_the_topology_is_that_of_the_rows(root: Path) -> None:
    found = latest(root)
    assert (found.cluster, found.passed) == ("synthetic", 0)
    placed = {(each["vhost"], each["queue"]): each["ring"] for each in found.document["queues"]}
    assert placed == {(row["vhost"], row["queue"]): row["ring"] for row in read(root, "queue")}
    assert len(found.document["nodes"]) == SETUP.nodes


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The telemetry ends now, as a plan wants it."""
    arguments = [str(tmp_path), "--queues", "2", "--hours", "0.5", "--interval-s", "600"]
    assert fleet.main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"18 rows of queues in {tmp_path}, in ")
