"""The planner's input is computed without Spark, and is that of plain Python and of Spark."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from spark_ops.jobs import array_loads
from spark_ops.jobs.array_loads import array_cluster_rows
from spark_ops.jobs.topology_snapshots import TopologyMissing, latest
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.topology import rows_of
from spark_ops.telemetry import damage
from tests.kit.synthetic.model import START_S
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import reference_loads, roots
from tests.spark_ops.jobs.reference_loads import write_rollups

HOURS = 4
SETUP = Setup(nodes=4, queues=8, replicas=2, hours=HOURS, interval_s=300, seed=3, uneven=0.5)
ROWS: list[Row] = list(rows(SETUP))
UNTIL = START_S + HOURS * 3600


def wanted(root: Path, made: list[Row], since: float, until: float) -> ClusterRows:
    """Return the input by plain Python."""
    placed = rows_of(latest(root, cluster="synthetic").document)
    return reference_loads.cluster_rows(made, placed, since, until)


def found(root: Path, since: float, until: float) -> ClusterRows:
    """Return the input by columns."""
    cluster = array_cluster_rows(root, since=since, until=until, now=until, cluster="synthetic")
    assert cluster is not None
    return cluster


def assert_same(one: ClusterRows, other: ClusterRows) -> None:
    """Compare two inputs, but for the facts about their sources."""
    for own, its in zip(one.queues, other.queues, strict=True):
        assert own == its
        assert list(own.clients) == list(its.clients)
    for node, its_node in zip(one.nodes, other.nodes, strict=True):
        assert node == its_node
    assert replace(one, facts={}) == replace(other, facts={})


def moved_queues(made: list[Row]) -> list[Row]:
    """A queue goes to another node in the middle of the second hour, where it has a copy; another one goes away."""
    moment = (START_S + 5400) * 1000
    found = []
    for row in made:
        if row["kind"] == "queue" and row["queue"] == "queue-00001" and row["ts"] >= moment:
            role = {"master": "mirror", "mirror": "master"}[row["role"]]
            row = {
                **row,
                "role": role,
                "consumers_on": {"node9": 2, "node1": 1} if role == "master" else None,
            }
        if row["kind"] == "queue" and row["queue"] == "queue-00002":
            row = {**row, "node": "node4" if row["ts"] >= moment and row["node"] == "node1" else row["node"]}
        found.append(row)
    return found


def renamed_queues(made: list[Row]) -> list[Row]:
    """Queues that are no longer there, under names that begin and end like others."""
    names = {"queue-00003": "queue-0000", "queue-00004": "queue-00004x", "queue-00000": "ä/ö"}
    early = (START_S + 7200) * 1000
    return [
        {**row, "queue": names[row["queue"]]}
        if row["kind"] == "queue" and row["queue"] in names and row["ts"] < early
        else row
        for row in made
    ]


def gaps(made: list[Row]) -> list[Row]:
    """Hours of a node, of a queue and of everything that are missing, and fields that older nodes do not write."""
    hour = START_S * 1000 + 3_600_000

    def is_there(row: Row) -> bool:
        at = (row["ts"] - START_S * 1000) // 3_600_000
        if row["kind"] == "topology":
            return True
        if row["node"] == "node2" and at in (1, 2):
            return False
        return at != 2 and not (row.get("queue") == "queue-00005" and at != 0)

    some = ("mem_bytes", "disk_bytes", "cpu_us_total", "clients_us_total", "msg_bytes", "fd_used")
    lacking = [
        {name: value for name, value in row.items() if name not in some} if row["seq"] % 5 == 0 else row
        for row in made
        if is_there(row)
    ]
    return [
        {name: value for name, value in row.items() if name != "disk_bytes"}
        if row.get("queue") == "queue-00006" and row["ts"] >= hour
        else row
        for row in lacking
    ]


def unlike_nodes(made: list[Row]) -> list[Row]:
    """Nodes of different sizes; a node that restarts, and one whose rows say what disks and clients cost."""
    found = []
    for row in made:
        if row["node"] == "node3" and row["ts"] >= (START_S + 9000) * 1000:
            row = {**row, "boot_id": "later", "seq": row["seq"] + 100_000, "mono_ms": row["mono_ms"] // 7}
        if row["kind"] == "node":
            more: Row = {"mem_limit": 1 << (30 + int(row["node"][-1]))}
            if row["node"] == "node2":
                more |= {"capacity_hints": {"cpu_millicores": 250}, "disk_limit": 10**12}
            row = {**row, **more, "clients_us_total": row["mono_ms"] * 3}
        elif row["kind"] == "queue" and row["node"] == "node2":
            row = {**row, "disk_us_total": (row.get("cpu_us_total") or 0) // 3}
        found.append(row)
    return found


def late_and_strange(made: list[Row]) -> list[Row]:
    """Rows of another cluster, of versions that are too new, of a role that no node writes, and events of a plan."""
    base = {name: ROWS[0][name] for name in ("v", "cluster", "node", "boot_id", "mono_ms")}
    event = {**base, "kind": "event", "vhost": "/", "event": "promotion", "cause": "plan:sha256:1:s2"}
    events = [
        {**event, "seq": 0, "ts": (UNTIL - 1800) * 1000, "queue": "queue-00001"},
        {**event, "seq": 1, "ts": (UNTIL - 900) * 1000, "queue": "queue-00001", "event": "plan_step_done"},
        {**event, "seq": 2, "ts": (UNTIL - 600) * 1000, "queue": "queue-00002", "cause": "crash"},
        {**event, "seq": 3, "ts": (UNTIL - 600) * 1000, "queue": "queue-00004", "event": "failover"},
    ]
    strange = [
        {**row, "v": 99}
        if row["seq"] % 11 == 3 and row["kind"] != "topology"
        else {**row, "role": None if row["seq"] % 2 else "observer"}
        if row.get("queue") == "queue-00006" and row["seq"] % 4 == 1
        else row
        for row in made
    ]
    other = [
        {**row, "cluster": "other", "boot_id": f"other-{row['boot_id']}", "mem_bytes": 10**9}
        for row in made
        if row["kind"] in ("queue", "node")
    ]
    return [*strange, *other, *events]


CASES: dict[str, Callable[[list[Row]], list[Row]]] = {
    "plain": list,
    "moved": moved_queues,
    "renamed": renamed_queues,
    "gaps": gaps,
    "unlike": unlike_nodes,
    "strange": late_and_strange,
    "all": lambda made: late_and_strange(unlike_nodes(gaps(renamed_queues(moved_queues(made))))),
}


@pytest.mark.parametrize("name", CASES)
def test_raw_rows_only(tmp_path: Path, name: str) -> None:
    made = CASES[name](ROWS)
    roots.write(tmp_path, made)
    assert_same(found(tmp_path, START_S, UNTIL), wanted(tmp_path, made, START_S, UNTIL))


@pytest.mark.parametrize("name", CASES)
def test_rollups_and_hours_that_are_cut(tmp_path: Path, name: str) -> None:
    """The first and the last hour are only partly in the window, so they are computed from their raw rows."""
    made = CASES[name](ROWS)
    roots.write(tmp_path, made)
    assert write_rollups(tmp_path, made) >= 6
    since, until = START_S + 1500.5, UNTIL - 1200.25
    assert_same(found(tmp_path, since, until), wanted(tmp_path, made, since, until))


@pytest.mark.parametrize("name", ["plain", "all"])
def test_rollups_whose_raw_rows_are_gone(tmp_path: Path, name: str) -> None:
    """A rollup is read whole, even if the window begins within one."""
    made = CASES[name](ROWS)
    paths = roots.write(tmp_path, made)
    write_rollups(tmp_path, made)
    for path in paths:
        if "hour=00" in path.parts and {"kind=queue", "kind=node"}.intersection(path.parts):
            path.unlink()
    cluster, whole = found(tmp_path, START_S + 900, UNTIL), wanted(tmp_path, made, START_S, UNTIL)
    assert (cluster.queues, cluster.nodes) == (whole.queues, whole.nodes)


def test_the_order_of_rows_and_files_changes_nothing(tmp_path: Path) -> None:
    """Rows that come twice, in files of some minutes whose rows are in any order, and in merged ones."""
    made = CASES["all"](ROWS)
    chance = random.Random(1)
    twice = [*made, *(row for row in made if row["kind"] != "event" and chance.random() < 0.3)]
    chance.shuffle(twice)
    roots.write_slices(tmp_path / "slices", twice, 10)
    roots.write(tmp_path / "slices", [row for row in made if row["node"] == "node3"])
    roots.write(tmp_path / "merged", made, is_unique=True)
    both = [found(tmp_path / name, START_S, UNTIL) for name in ("slices", "merged")]
    assert_same(both[0], both[1])


def test_facts(tmp_path: Path) -> None:
    made = CASES["strange"](unlike_nodes(ROWS))
    paths = roots.write(tmp_path, made)
    torn = next(path for path in paths if "kind=queue" in str(path))
    torn.write_bytes(torn.read_bytes()[:-9])
    cluster = found(tmp_path, START_S, UNTIL)
    assert cluster.facts["torn"] == [str(torn.relative_to(tmp_path))]
    assert cluster.facts["topology_at"] == latest(tmp_path).ts / 1000
    assert cluster.facts["topologies_passed"] == 0
    assert cluster.facts["unknown_versions"] > 0
    assert 0 < cluster.facts["cpu_known"] < 1
    own = [row for row in made if row["kind"] == "node" and row["v"] != 99 and row["cluster"] == "synthetic"]
    of_nodes = {row["node"]: row["ts"] for row in own}
    assert cluster.facts["rows_at"] == min(of_nodes.values()) / 1000


def test_a_rollup_of_an_earlier_version(tmp_path: Path) -> None:
    """A column that it lacks is unknown in it, as in a raw file."""
    roots.write(tmp_path, ROWS)
    write_rollups(tmp_path, ROWS, without=["disk_us_total_min"])
    assert_same(found(tmp_path, START_S, UNTIL), wanted(tmp_path, ROWS, START_S, UNTIL))


def test_a_damaged_file_is_left_out_and_told(tmp_path: Path) -> None:
    paths = roots.write(tmp_path, ROWS)
    path = next(path for path in paths if "kind=queue" in str(path))
    roots.overwrite_pages(path)
    cluster = found(tmp_path, START_S, UNTIL)
    assert cluster.facts["torn"] == list(damage.recorded(tmp_path)) == [str(path.relative_to(tmp_path))]


def test_what_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours with very many raw rows, and rows that stand in the directory of another hour."""
    paths = roots.write(tmp_path, ROWS)
    monkeypatch.setattr(array_loads, "RAW_ROWS_MAX", 10)
    assert array_cluster_rows(tmp_path, since=START_S, until=UNTIL, now=UNTIL) is None
    write_rollups(tmp_path, ROWS)
    assert array_cluster_rows(tmp_path, since=START_S, until=UNTIL, now=UNTIL) is not None
    monkeypatch.undo()
    own = next(path for path in paths if "kind=node" in str(path) and "hour=01" in str(path))
    other = next(path for path in paths if "kind=node" in str(path) and "hour=02" in str(path))
    other.with_name("other.parquet").write_bytes(own.read_bytes())
    assert array_cluster_rows(tmp_path, since=START_S, until=UNTIL, now=UNTIL) is None


def test_nothing_to_read(tmp_path: Path) -> None:
    """Without telemetry of queues there are no loads, without a topology no plan."""
    roots.write(tmp_path, [row for row in ROWS if row["kind"] == "topology"])
    cluster = found(tmp_path, START_S, UNTIL)
    assert (cluster.coverage, cluster.window) == (0.0, (UNTIL, UNTIL))
    assert {queue.cpu for queue in cluster.queues} == {0.0}
    (tmp_path / "none").mkdir()
    with pytest.raises(TopologyMissing):
        array_cluster_rows(tmp_path / "none", since=START_S, until=UNTIL, now=UNTIL)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ["moved", "all"])
def test_the_loads_are_those_of_spark(spark: Any, tmp_path: Path, name: str) -> None:
    """From raw rows, and from the rollups that Spark writes."""
    from spark_ops.jobs.files import find
    from spark_ops.jobs.loads import cluster_rows
    from spark_ops.jobs.rollup_store import write

    made = CASES[name](ROWS)
    roots.write(tmp_path, made)
    span: dict[str, Any] = {"since": START_S + 1800, "until": UNTIL, "now": UNTIL, "cluster": "synthetic"}
    from_raw = array_cluster_rows(tmp_path, **span)
    assert from_raw is not None
    kinds: tuple[Any, ...] = ("queue", "node")
    for kind in kinds:
        list(write(spark, tmp_path, kind, find(tmp_path, kind, None, None).hours))
    from_rollups = array_cluster_rows(tmp_path, **span)
    by_spark = cluster_rows(spark, tmp_path, **span)
    assert from_rollups == from_raw
    assert from_raw == by_spark
