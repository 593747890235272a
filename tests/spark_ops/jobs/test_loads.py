"""A planner is told placement of the newest whole snapshot, loads of the window, and what is unknown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_ops.jobs import topology_snapshots
from spark_ops.jobs.loads import cluster_rows
from spark_ops.planning.rows import ClusterRows
from tests.kit.synthetic.model import MASTER_CPU_US, MIRROR_CPU_US, START_S
from tests.kit.synthetic.telemetry import Row, Setup, rows
from tests.spark_ops.jobs import roots

SETUP = Setup(nodes=3, queues=6, replicas=2, hours=2, interval_s=60, seed=1)
ROWS: list[Row] = list(rows(SETUP))
SNAPSHOTS = [row for row in ROWS if row["kind"] == "topology"]
UNTIL = START_S + 7200


# --- snapshots, without Spark ---


def test_the_newest_snapshot(tmp_path: Path) -> None:
    roots.write(tmp_path, SNAPSHOTS)
    newest = max(row["ts"] for row in SNAPSHOTS)
    assert topology_snapshots.latest(tmp_path).ts == newest
    before = topology_snapshots.latest(tmp_path, until=START_S + 1800)
    assert before.ts == max(row["ts"] for row in SNAPSHOTS if row["ts"] < (START_S + 1800) * 1000)
    assert (before.cluster, before.passed, len(before.document["queues"])) == ("synthetic", 0, SETUP.queues)


def test_a_snapshot_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    """A part is missing, it is no JSON, or it is not what was hashed."""
    broken = [
        {**SNAPSHOTS[-1], "parts": 2},
        {**SNAPSHOTS[-2], "document": "{"},
        {**SNAPSHOTS[-3], "document": SNAPSHOTS[-3]["document"].replace('"is_up":true', '"is_up":false')},
    ]
    roots.write(tmp_path, [*SNAPSHOTS[:-3], *broken])
    got = topology_snapshots.latest(tmp_path)
    assert (got.ts, got.passed) == (SNAPSHOTS[-4]["ts"], 3)


def test_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(topology_snapshots.TopologyMissing, match="has no topology"):
        topology_snapshots.latest(tmp_path)


def test_parts_in_any_order(tmp_path: Path) -> None:
    """More queues than a part has."""
    many = list(rows(Setup(nodes=1, queues=1100, replicas=1, hours=0.01, interval_s=30)))
    parts = [row for row in many if row["kind"] == "topology"]
    assert len(parts) == 3
    roots.write(tmp_path, reversed(parts))
    assert len(topology_snapshots.latest(tmp_path).document["queues"]) == 1100


def test_several_clusters(tmp_path: Path) -> None:
    other = []
    for row in SNAPSHOTS:
        document = {**json.loads(row["document"]), "cluster": "b"}
        from spark_ops.documents import content_hash

        other.append(
            {**row, "cluster": "b", "document": json.dumps(document), "topology_hash": content_hash(document)}
        )
    roots.write(tmp_path, [*SNAPSHOTS, *other])
    with pytest.raises(topology_snapshots.TopologyMissing, match="name one: b, synthetic"):
        topology_snapshots.latest(tmp_path)
    assert topology_snapshots.latest(tmp_path, cluster="b").document["cluster"] == "b"


# --- loads ---


@pytest.fixture(scope="module")
def told(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> ClusterRows:
    """Give the rows of a healthy cluster, in which a plan moved a master half an hour and a copy ten minutes ago."""
    root = tmp_path_factory.mktemp("root")
    moved = {
        **{name: ROWS[0][name] for name in ("v", "cluster", "node", "boot_id", "mono_ms")},
        "kind": "event",
        "seq": 0,
        "ts": (UNTIL - 1800) * 1000,
        "event": "promotion",
        "vhost": "/",
        "queue": "queue-00001",
        "cause": "plan:sha256:1:s2",
    }
    copied = {"seq": 2, "queue": "queue-00004", "event": "plan_step_done", "ts": (UNTIL - 600) * 1000}
    others = [{**moved, "seq": 1, "queue": "queue-00002", "cause": "crash"}, {**moved, **copied}]
    roots.write(root, [*ROWS, moved, *others])
    return cluster_rows(spark, root, since=START_S, until=UNTIL, now=UNTIL)


@pytest.mark.spark
@pytest.mark.slow
def test_loads(told: ClusterRows) -> None:
    """CPU of masters and mirrors, bytes, memory; what is of no queue is the node's; all rounded."""
    assert (told.cluster, len(told.nodes), len(told.queues)) == ("synthetic", 3, SETUP.queues)
    assert told.topology_hash == SNAPSHOTS[-1]["topology_hash"]
    assert told.window == (START_S, UNTIL)
    assert told.coverage >= 0.98
    for queue in told.queues:
        assert queue.cpu == round(queue.cpu, 4)
        assert queue.cpu > 0
        assert queue.mirror_cpu == pytest.approx(queue.cpu * MIRROR_CPU_US / MASTER_CPU_US, abs=2e-4)
        assert queue.cpu_p95 == pytest.approx(queue.cpu, rel=0.05)
        rate = queue.cpu * 1e6 / MASTER_CPU_US
        assert min(abs(queue.in_bytes / rate / size - 1) for size in (200, 1000, 4000)) < 0.05
        assert queue.out_bytes == pytest.approx(queue.in_bytes, rel=0.05)
        assert queue.memory == pytest.approx(queue.disk + 200_000, abs=2)
        assert sum(queue.clients.values()) > 0
        assert set(queue.clients) == {queue.master}
    for node in told.nodes:
        assert (node.cores, node.memory, node.fds) == (1, 4_000_000_000, 65536)
        assert node.base_cpu == pytest.approx(0.02, abs=0.01)
        assert node.base_memory == pytest.approx(200e6, rel=0.05)
        assert node.base_fds == pytest.approx(120, abs=5)
        assert 98e9 < node.disk < 100e9
    assert {queue.queue: queue.moved_at for queue in told.queues if queue.moved_at} == {
        "queue-00001": UNTIL - 1800,
        "queue-00004": UNTIL - 600,
    }


@pytest.mark.spark
@pytest.mark.slow
def test_too_little_is_told(spark: Any, tmp_path: Path, told: ClusterRows) -> None:
    """Missing hours and copies lower the coverage; order, files and duplicates change nothing (spark §6.8, §6.18)."""
    lost = [row for row in ROWS if row["node"] != "node2" or row["ts"] < (START_S + 3600) * 1000]
    lost = [row for row in lost if row.get("queue") != "queue-00003"]
    roots.write(tmp_path, reversed(lost))
    roots.write(tmp_path, [row for row in lost if row["seq"] % 3 == 1])
    got = cluster_rows(spark, tmp_path, since=START_S, until=UNTIL, now=UNTIL)
    assert 0.6 < got.coverage < 0.8
    same = {queue.queue: queue for queue in told.queues}
    for queue in got.queues:
        nodes = {"node2"} & set(queue.ring)
        if not nodes and queue.queue != "queue-00003":
            assert queue == replace(same[queue.queue], moved_at=0.0)
        if queue.queue == "queue-00003":
            assert (queue.cpu, queue.memory) == (0.0, 0.0)


@pytest.mark.spark
@pytest.mark.slow
def test_a_clock_that_is_an_hour_ahead_does_not_blind_a_plan(
    spark: Any, tmp_path: Path, told: ClusterRows
) -> None:
    """The hours of a node are those of its clock: its loads are of an hour before, and none is missing."""
    ahead = {"skew_ms": 3_600_000, "skew_err_ms": 2}
    made = [{**row, **ahead, "ts": row["ts"] + 3_600_000} if row["node"] == "node2" else row for row in ROWS]
    roots.write(tmp_path, made)
    got = cluster_rows(spark, tmp_path, since=START_S + 3600, until=UNTIL, now=UNTIL)
    assert got.coverage >= 0.98
    same = {queue.queue: queue for queue in told.queues}
    for queue in got.queues:
        assert queue.cpu == pytest.approx(same[queue.queue].cpu, rel=0.05)
    assert all(node.base_cpu == pytest.approx(0.02, abs=0.01) for node in got.nodes)


@pytest.mark.spark
@pytest.mark.slow
def test_what_disks_and_clients_cost(spark: Any, tmp_path: Path, told: ClusterRows) -> None:
    """The disk's time is the copy's; that of clients is the node's, and known. Older nodes tell neither."""
    rows = []
    for row in ROWS:
        more = {}
        if row["kind"] == "queue":
            more = {"disk_us_total": row["cpu_us_total"] // 4, "client_us_total": row["cpu_us_total"]}
        elif row["kind"] == "node":
            more = {
                "clients_us_total": 5 * row["mono_ms"],
                "cpu_user_ms_total": row["cpu_user_ms_total"] + row["mono_ms"] // 10,
                "capacity_hints": {"cpu_millicores": 500},
            }
        rows.append({**row, **more})
    roots.write(tmp_path, rows)
    got = cluster_rows(spark, tmp_path, since=START_S, until=UNTIL, now=UNTIL)
    assert told.facts["cpu_known"] is None
    for now, before in zip(got.queues, told.queues, strict=True):
        assert now.cpu == pytest.approx(1.25 * before.cpu, abs=2e-4)
        assert now.mirror_cpu == pytest.approx(1.25 * before.mirror_cpu, abs=2e-4)
    of_queues = sum(queue.cpu + queue.mirror_cpu * (len(queue.ring) - 1) for queue in got.queues)
    whole = of_queues + sum(node.base_cpu for node in got.nodes)
    assert got.facts["cpu_known"] == pytest.approx((of_queues + 3 * 0.005) / whole, abs=0.02)
    assert {node.cores for node in got.nodes} == {0.5}
