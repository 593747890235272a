"""Made-up telemetry as files."""

from collections import Counter
from pathlib import Path

import pytest

pq = pytest.importorskip("pyarrow.parquet")

from spark_ops.telemetry import arrow  # noqa: E402
from spark_ops.telemetry.manifest import live_files  # noqa: E402
from spark_ops.telemetry.schema import FIELDS, KEY, KINDS, Kind  # noqa: E402
from spark_ops.telemetry.segments import Row, wrong_field  # noqa: E402
from tests.kit.synthetic import files  # noqa: E402
from tests.kit.synthetic.files import tear, write_fleet, write_parquet  # noqa: E402
from tests.kit.synthetic.telemetry import Setup, rows  # noqa: E402

SETUP = Setup(queues=5, hours=1.1, interval_s=60, idle_share=0.4)


def read(root: Path, kind: Kind) -> list[Row]:
    """All rows of a kind, in their order; maps as such."""
    found = []
    for path in live_files(root, kind):
        for row in pq.ParquetFile(path).read().to_pylist():
            for name, of in FIELDS[kind].items():
                if of in ("counts", "texts") and row[name] is not None:
                    row[name] = dict(row[name])
            found.append(row)
    return sorted(found, key=lambda row: tuple(row[name] for name in KEY))


def test_rows_become_files(tmp_path: Path) -> None:
    """All of them, unmarked unless somebody says that each is there once."""
    made = list(rows(SETUP))
    paths = write_parquet(made, tmp_path)
    assert sum(pq.read_metadata(path).num_rows for path in paths) == len(made)
    assert all(arrow.UNIQUE not in pq.read_metadata(path).metadata for path in paths)
    with pytest.raises(ValueError, match="fd_used"):
        write_parquet([made[0] | {"fd_used": "x"}], tmp_path)
    tear(paths[0])
    with pytest.raises(ValueError, match="footer"):
        pq.read_metadata(paths[0])


@pytest.mark.slow
def test_a_fleet_is_as_row_by_row(tmp_path: Path) -> None:
    """The quick way writes the same rows but for noise: subjects, times, states, and counters that rise as fast."""
    count = write_fleet(SETUP, tmp_path)
    made = sorted(rows(SETUP), key=lambda row: tuple(row[name] for name in KEY))
    for kind in KINDS:
        mine, theirs = [row for row in made if row["kind"] == kind], read(tmp_path, kind)
        if kind in ("topology", "event"):
            continue
        assert len(mine) == len(theirs)
        assert all(wrong_field(row) is None for row in theirs)
        subjects = [
            Counter(
                (
                    row["node"],
                    row["boot_id"],
                    row.get("vhost"),
                    row.get("queue"),
                    row["ts"],
                    row["interval_ms"],
                )
                for row in each
            )
            for each in (mine, theirs)
        ]
        assert subjects[0] == subjects[1]
        assert [set(row) - {name for name in row if row[name] is None} for row in mine[:40]] == [
            {name for name in row if row[name] is not None} for row in theirs[:40]
        ]
    queues = read(tmp_path, "queue")
    assert count == len(queues)
    for name in ("pub_total", "cpu_us_total", "pub_bytes_total"):
        one = sum(row.get(name) or 0 for row in made if row["kind"] == "queue")
        other = sum(row[name] or 0 for row in queues)
        assert one == pytest.approx(other, rel=0.02)
    last: dict[tuple[str, str], Row] = {}
    for row in queues:
        before = last.get((row["node"], row["queue"]))
        if before is not None:
            assert row["cpu_us_total"] >= before["cpu_us_total"]
            if row["confirm_us"] is not None:
                assert all(
                    new >= old for new, old in zip(row["confirm_us"], before["confirm_us"], strict=True)
                )
        last[row["node"], row["queue"]] = row
    assert [row["seq"] for row in queues if row["node"] == "node1"] == list(
        range(sum(row["node"] == "node1" for row in queues))
    )
    assert len({row["topology_hash"] for row in read(tmp_path, "topology")}) == 1


def test_nodes_cost_what_their_queues_cost(tmp_path: Path) -> None:
    """The figures of nodes include those of queues, as with real ones."""
    write_fleet(SETUP, tmp_path)
    nodes = [row for row in read(tmp_path, "node") if row["node"] == "node1"]
    spent_ms = sum(nodes[-1][name] - nodes[0][name] for name in ("cpu_user_ms_total", "cpu_sys_ms_total"))
    queues = [row for row in read(tmp_path, "queue") if row["node"] == "node1"]
    first, last = {}, {}
    for row in queues:
        first.setdefault(row["queue"], row["cpu_us_total"])
        last[row["queue"]] = row["cpu_us_total"]
    assert spent_ms > 0.95 * sum(last[queue] - first[queue] for queue in last) / 1000
    assert nodes[0]["queues_master"] + nodes[0]["queues_mirror"] == len(last)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a benchmark calls it."""
    arguments = [str(tmp_path), "--queues", "2", "--hours", "0.1", "--interval-s", "30"]
    assert files.main(arguments) == 0
    assert capsys.readouterr().out == f"72 rows of queues in {tmp_path}\n"
