"""Rings, and what a rebalancing would do (contract "UI"), from views without nodes."""

from dataclasses import replace
from typing import Any

import pytest

from node.catalogue.mirrors.rebalance import plan
from node.catalogue.mirrors.views import View, created, died
from node.catalogue.records import ClusterMember, QueueRecord
from node.management.resources.mirroring import ring_facts, shown_plan, with_progress
from tests.kit.fake_site import Caller
from tests.kit.monitor_site import MonitorSite

THREE = created(0, [("a", 1), ("b", 2), ("c", 3)])
HOSTS = [
    ClusterMember(name, f"{name}:1", name, node_type)
    for name, node_type in (("a", "disc"), ("b", "disc"), ("c", "ram"))
]  # type: ignore[arg-type]


def record(view: View | None = THREE, name: str = "q", **fields: Any) -> QueueRecord:
    return QueueRecord("/", name, name.rjust(32, "0"), durable=True, home="a", view=view, **fields)


def test_a_ring_in_order() -> None:
    row = ring_facts(record(), "p", 3)
    assert (row["master"], row["mirrors"], row["ring"]) == ("a", ["b", "c"], ["a", "b", "c"])
    assert (row["synchronised"], row["joining"], row["dead"]) == (["b", "c"], [], [])
    assert (row["state"], row["policy"], row["type"]) == ("live", "p", "classic")


@pytest.mark.parametrize(
    ("view", "wanted", "complete", "danger"),
    [
        (THREE, 3, 3, 3),
        (THREE, 2, 3, 3),
        (replace(THREE, synced=THREE.synced[:2]), 2, 2, 2),
        (died(THREE, [3], may_lose=False), 3, 2, 2),
        (replace(THREE, synced=THREE.synced[:1]), 3, 1, 1),
        (died(THREE, [1, 2, 3], may_lose=False), 3, 0, 0),
    ],
)
def test_how_well_a_ring_is(view: View, wanted: int, complete: int, danger: int) -> None:
    row = ring_facts(record(view), None, wanted)
    assert (row["complete"], row["danger"]) == (complete, danger)


def test_places_without_a_copy() -> None:
    two = died(THREE, [3], may_lose=False)
    assert ring_facts(record(two), "p", 3, ("a", "b", "c"))["absent"] == ["c"]
    assert ring_facts(record(), "p", 3, ("a", "b", "c"))["absent"] == []
    assert ring_facts(record(two), "p", 2)["absent"] == []  # nobody says which nodes: any will do


def test_what_the_masters_node_adds() -> None:
    mirrors = [
        {"node": "b", "synced": True, "behind": 0, "lacks": 0, "sync": None},
        {
            "node": "c",
            "synced": False,
            "behind": None,
            "lacks": 4,
            "sync": {"installed": 1, "total": 5, "is_running": True},
        },
    ]
    row = with_progress(ring_facts(record(), None, 3), {"messages": 7, "mirrors": mirrors})
    assert (row["messages"], row["lag"]) == (7, {"b": 0})
    assert row["lacks"] == {"b": 0, "c": 4}
    assert row["sync"] == {"c": {"installed": 1, "total": 5, "is_running": True}}
    assert "id" not in row
    assert with_progress(ring_facts(record(), None, 3), {})["messages"] is None


def test_a_plan() -> None:
    records = [record(name=f"q{number}") for number in range(3)]
    counts = {each.uid: number for number, each in enumerate(records)}
    moves = plan([(each, counts[each.uid]) for each in records], ["a", "b", "c"])
    found = shown_plan(records, moves, ["c", "b", "a"], counts)
    assert found["before"] == {"a": 3, "b": 0, "c": 0}
    assert found["after"] == {"a": 1, "b": 1, "c": 1}
    assert found["moves"] == [
        {"vhost": "/", "name": "q0", "from": "a", "to": "b", "messages": 0},
        {"vhost": "/", "name": "q1", "from": "a", "to": "c", "messages": 1},
    ]


def test_a_node_by_itself_has_no_rings() -> None:
    caller = Caller(MonitorSite())
    assert caller.ask("GET", "/api/mirroring/rings").value == []
    assert caller.ask("GET", "/api/mirroring/summary").value["danger"] == [0, 0, 0, 0]
    assert caller.ask("GET", "/api/mirroring/rings/%2F/q").status == 404
    assert caller.ask("GET", "/api/mirroring/rings?page=0").status == 400
    assert caller.ask("GET", "/api/mirroring/rebalance-plan?vhost_pattern=(").status == 400
