"""Telemetry of real nodes: what they write while clients are at work, and when one of them is killed."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pika
import pytest

from spark_ops.documents import content_hash
from tests.kit.fluffle_cluster import FluffleCluster, FluffleNode
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster
from tests.node.telemetry.schema_check import Row, read

pytestmark = pytest.mark.slow


def rows_of(tmp_path: Path, node: str, kind: str) -> list[Row]:
    directory = tmp_path / f"{node}@localhost"
    return [row for row in read(directory) if row["kind"] == kind]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {
        "telemetry.enabled": "true",
        "telemetry.directory": str(tmp_path),
        "telemetry.interval": "500",
        "telemetry.zone": "here",
        "cluster_name": "testing",
    }
    found = FluffleCluster.form(settings, ("n1", "n2", "n3"), can_be_cut=False, kind=FluffleNode)
    try:
        yield found
    finally:
        found.stop()


def connection(cluster: Cluster, name: str) -> pika.BlockingConnection:
    node = cluster.node(f"{name}@localhost")
    return pika.BlockingConnection(pika.ConnectionParameters(node.host, node.port))


def test_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """Masters and mirrors, links, clocks, one topology, and the failover of a killed master."""
    cluster.node("n1@localhost").ctl(
        "set_policy", "all", "^ha", '{"ha-mode":"all","ha-sync-mode":"automatic"}'
    )
    near, far = connection(cluster, "n1"), connection(cluster, "n2")
    channel, consumer = near.channel(), far.channel()
    channel.queue_declare("ha.q", durable=True)
    channel.queue_declare("plain")
    channel.confirm_delivery()
    consumer.basic_consume("ha.q", lambda *_: None, auto_ack=True)
    for _ in range(50):
        channel.basic_publish("", "ha.q", b"x" * 10, pika.BasicProperties(delivery_mode=2))

    def queue(node: str, role: str) -> list[Row]:
        rows = rows_of(tmp_path, node, "queue")
        return [row for row in rows if row["queue"] == "ha.q" and row["role"] == role]

    wait_until(lambda: any(row["pub_total"] == 50 for row in queue("n1", "master")), "the master's counts")
    master = queue("n1", "master")[-1]
    assert master["pub_bytes_total"] == 500
    assert master["want_mirrors"] == 2
    assert master["ring"][0] == "n1@localhost"
    assert sorted(master["synced"]) == sorted(master["ring"])
    assert master["heir"] in ("n2@localhost", "n3@localhost")
    assert master["cpu_us_total"] > 0
    assert sum(master["confirm_us"]) > 0
    assert master["consumers_on"] == {"n2@localhost": 1}
    away = far.channel()
    away.confirm_delivery()

    def are_publishers_known() -> bool:
        """Publish from both nodes: one turn of five is looked at."""
        for each in (channel, away):
            each.basic_publish("", "ha.q", b"x")
        return queue("n1", "master")[-1].get("publishers_on") == {"n1@localhost": 1, "n2@localhost": 1}

    wait_until(are_publishers_known, "the publishers' nodes")
    wait_until(lambda: all(queue(name, "mirror") for name in ("n2", "n3")), "rows of the mirrors")
    mirror = queue("n2", "mirror")[-1]
    assert mirror["sync_state"] == "synced"
    assert mirror["cpu_us_total"] > 0
    assert "ready" not in mirror
    assert mirror["cluster"] == "testing"

    def links() -> list[Row]:
        return [row for row in rows_of(tmp_path, "n1", "link") if row.get("rtt_us") and row["batches_total"]]

    wait_until(lambda: len({row["to_node"] for row in links()}) >= 1, "links")
    link = links()[-1]
    assert link["batch_msgs_total"] >= link["batches_total"]
    assert link["backpressure_ms_total"] == 0
    wait_until(lambda: any("skew_ms" in row for row in rows_of(tmp_path, "n1", "node")), "the clocks")
    skewed = [row for row in rows_of(tmp_path, "n1", "node") if "skew_ms" in row]
    assert abs(skewed[-1]["skew_ms"]) <= skewed[-1]["skew_err_ms"] + 50

    def topologies() -> list[Row]:
        return [row for name in ("n1", "n2", "n3") for row in rows_of(tmp_path, name, "topology")]

    wait_until(lambda: len(topologies()) >= 1, "a topology")
    near.close()
    heir = queue("n1", "master")[-1]["heir"]
    cluster.node("n1@localhost").kill()

    def failovers() -> list[Row]:
        events = [row for name in ("n2", "n3") for row in rows_of(tmp_path, name, "event")]
        return [row for row in events if row["event"] == "failover" and row["queue"] == "ha.q"]

    def has_gone(name: str) -> bool:
        events = [(row["event"], row.get("from_node")) for row in rows_of(tmp_path, name, "event")]
        return ("view_change", "n1@localhost") in events

    wait_until(lambda: len(failovers()) == 1, "the failover")
    (failover,) = failovers()
    assert failover["from_node"] == "n1@localhost"
    assert failover["to_node"] == heir
    assert failover["cause"] == "crash"
    assert failover["unsynced_promotion"] is False
    assert failover["epoch_after"] > master["epoch"]
    for name in ("n2", "n3"):
        wait_until(partial(has_gone, name), f"{name} sees the other view")
    far.close()


def test_what_a_killed_node_leaves(cluster: Cluster, tmp_path: Path) -> None:
    """An open segment gets its final name at the next start, under another boot_id."""
    directory = tmp_path / "n3@localhost"
    wait_until(lambda: bool(list(directory.glob("*.open"))), "an open segment")
    cluster.node("n3@localhost").kill()
    (left,) = directory.glob("*.open")
    cluster.heal()
    wait_until(lambda: len(list(directory.glob("*.open"))) == 1, "another open segment")
    assert (directory / left.name.removesuffix(".open")).exists()
    cluster.node("n3@localhost").terminate()
    assert not list(directory.glob("*.open"))
    assert len({row["boot_id"] for row in read(directory)}) == 2
    stop = [row for row in read(directory) if row["kind"] == "event"][-1]
    assert stop["event"] == "node_stop"


def test_a_node_that_pauses_was_not_stopped(cluster: Cluster, tmp_path: Path) -> None:
    """A broker that pauses ends as at a stop, and the event says why: the node reaches no majority."""

    def last() -> Row:
        return [row for row in read(tmp_path / "n2@localhost") if row["kind"] == "event"][-1]

    cluster.node("n1@localhost").kill()
    cluster.node("n3@localhost").kill()
    wait_until(lambda: last()["event"] == "node_stop", "n2 has paused")
    assert last()["cause"] == "paused"
    cluster.heal()
    wait_until(lambda: last()["event"] != "node_stop", "n2 runs again")
    cluster.node("n2@localhost").terminate()
    assert last()["event"] == "node_stop"
    assert "cause" not in last()
    cluster.heal()


def test_the_topology_is_whole(cluster: Cluster, tmp_path: Path) -> None:
    """One node writes it, in parts that make up a document with the hash that is told."""

    with connection(cluster, "n2") as client:
        channel = client.channel()
        for number in range(600):
            channel.queue_declare(f"q{number:03}")

        def whole() -> list[Row]:
            rows = [row for name in ("n1", "n2", "n3") for row in rows_of(tmp_path, name, "topology")]
            return [row for row in rows if row["parts"] == 2]

        wait_until(lambda: len(whole()) >= 2, "a topology in two parts", within=30)
        parts = [row for row in whole() if row["snapshot"] == whole()[0]["snapshot"]]
        documents = [json.loads(row["document"]) for row in sorted(parts, key=lambda row: row["part"])]
        document = {**documents[0], "queues": [row for each in documents for row in each["queues"]]}
        assert {row["topology_hash"] for row in parts} == {content_hash(document)}
        assert len({row["node"] for row in whole()}) == 1
        assert {node["zone"] for node in document["nodes"]} == {"here"}
