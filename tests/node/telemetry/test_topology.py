"""Snapshots of the topology: parts, hash, how often."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from node.amqp.methods import QueueDeclare
from node.statistics.topology_document import topology_document
from node.telemetry import topology
from node.telemetry.rows import Rows
from node.telemetry.topology import AFTER_CHANGE_S, COST_SHARE, EVERY_S, TopologyRows
from spark_ops.documents import content_hash
from tests.kit.world import World
from tests.node.telemetry.schema_check import Row, parse

OWN = "rabbit@localhost"
ZONES = {OWN: "z1"}
LABELS: Mapping[str, Mapping[str, str]] = {OWN: {"rack": "r1"}}


class Snapshots:
    def __init__(self) -> None:
        self.world = World()
        self.client = self.world.client(1)
        node = SimpleNamespace(broker=self.world.broker, config=SimpleNamespace(node_name=OWN))
        surroundings = SimpleNamespace(places=lambda: (ZONES, LABELS))
        self.rows = Rows("c", OWN, "boot", wall=lambda: 1.0, monotonic=lambda: 1.0)
        self.topology = TopologyRows(node, surroundings, self.rows)  # type: ignore[arg-type]

    def take(self, now: float = 0.0) -> list[Row]:
        return parse(line for lines in self.topology.take(self.rows.now(), now) for line in lines)

    @property
    def document(self) -> dict[str, Any]:
        return topology_document(self.world.broker.catalogue, "c", OWN, ZONES, LABELS)


@pytest.fixture
def snapshots() -> Snapshots:
    return Snapshots()


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_parts_make_up_the_document(
    snapshots: Snapshots, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark §2.6: with the hash of the whole, as planners reckon it."""
    monkeypatch.setattr(topology, "PART_QUEUES", 3)
    for number in range(count):
        snapshots.client.ask(1, QueueDeclare(queue=f"q{number}ü"))
    rows = snapshots.take()
    assert [row["part"] for row in rows] == list(range(max(1, -(-count // 3))))
    assert {row["parts"] for row in rows} == {len(rows)}
    documents = [json.loads(row["document"]) for row in rows]
    whole = {**documents[0], "queues": [queue for each in documents for queue in each["queues"]]}
    assert whole == snapshots.document
    assert {row["topology_hash"] for row in rows} == {content_hash(whole)}
    assert whole["nodes"][0]["zone"] == "z1"
    (name,) = {row["snapshot"] for row in rows}
    assert name != snapshots.take()[0]["snapshot"]


def test_how_often(snapshots: Snapshots) -> None:
    """At the start, each five minutes, after changes; and never so often that it costs more than its share."""
    due = snapshots.topology.is_due
    assert due(0.0, is_new=False)
    snapshots.take(100.0)
    assert not due(100.0 + AFTER_CHANGE_S - 1, is_new=True)
    assert due(100.0 + AFTER_CHANGE_S, is_new=True)
    assert not due(100.0 + EVERY_S - 1, is_new=False)
    assert due(100.0 + EVERY_S, is_new=False)
    snapshots.topology._cost_s = 1.0
    assert not due(100.0 + AFTER_CHANGE_S, is_new=True)
    assert due(100.0 + 1 / COST_SHARE, is_new=True)
