"""`/mirroring`: rings, events, the plan of a rebalancing. Fluffle's own."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance.http.steps import eventually, is_missing, path, put_queue, succeeds
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import Cluster, is_rabbitmq

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="Fluffle's own")

Mirrored = Callable[..., None]


@pytest.fixture
def mirrored(cluster_api: list[HttpApi]) -> Iterator[Mirrored]:
    """Make mirrored queues `mirrored("a", "b", at=1)`, on all nodes, declared at one of them."""
    api = cluster_api[0]
    definition = {"ha-mode": "all", "ha-sync-mode": "automatic"}
    policy = {"pattern": "^ring-", "definition": definition, "apply-to": "queues"}
    assert api.put("/policies/%2F/rings", policy).status in (201, 204)
    made: list[str] = []

    def make(*names: str, at: int = 0) -> None:
        for name in names:
            made.append(name)
            put_queue(cluster_api[at], "/", name, durable=True)
        eventually(lambda: all(_is_whole(ring(cluster_api[at], name)) for name in names))

    yield make
    for name in made:
        api.delete(path("queues", "/", name))
    api.delete("/policies/%2F/rings")


def ring(api: HttpApi, name: str) -> Any:
    answer = api.get(path("mirroring", "rings", "/", name))
    return answer.json if answer.status == 200 else None


def _is_whole(row: Any) -> bool:
    return row is not None and len(row["synchronised"]) == 2


def test_a_ring(cluster_api: list[HttpApi], mirrored: Mirrored, managed_cluster: Cluster) -> None:
    """Every node gives the same description of a ring."""
    mirrored("ring-one")
    names = {node.name for node in managed_cluster.nodes}
    for api in cluster_api:
        row = eventually(lambda api=api: _settled(ring(api, "ring-one")))
        assert row["master"] == managed_cluster.nodes[0].name
        assert set(row["mirrors"]) == set(row["synchronised"]) == names - {row["master"]}
        assert set(row["ring"]) == names
        assert (row["vhost"], row["name"], row["state"], row["policy"]) == ("/", "ring-one", "live", "rings")
        assert (row["joining"], row["dead"], row["recoverable"]) == ([], [], [])
        assert row["version"] >= 1
        assert row["messages"] == 0
        assert set(row["lag"]) == names - {row["master"]}
        assert row["sync"] == {}
        assert (row["complete"], row["wanted"], row["danger"]) == (3, 3, 3)


def _settled(row: Any) -> Any:
    return row if row is not None and row["messages"] is not None and not row["joining"] else None


def test_the_summary(cluster_api: list[HttpApi], mirrored: Mirrored, managed_cluster: Cluster) -> None:
    mirrored("ring-one", "ring-two", at=1)
    found = succeeds(cluster_api[2].get("/mirroring/summary"))
    assert (found["rings"], found["danger"]) == (2, [0, 0, 0, 2])
    names = [node.name for node in managed_cluster.nodes]
    assert found["nodes"][names[1]] == {"masters": 2, "mirrors": 0, "alone": 0}
    assert found["nodes"][names[0]] == {"masters": 0, "mirrors": 2, "alone": 0}


def test_what_is_no_ring(cluster_api: list[HttpApi]) -> None:
    api = cluster_api[0]
    put_queue(api, "/", "plain")
    is_missing(api.get(path("mirroring", "rings", "/", "plain")))
    is_missing(api.get(path("mirroring", "rings", "/", "nope")))
    is_missing(api.get(path("mirroring", "rings", "nope", "nope")))
    assert api.delete(path("queues", "/", "plain")).status == 204


def test_the_list_is_paged_and_sorted(cluster_api: list[HttpApi], mirrored: Mirrored) -> None:
    api = cluster_api[0]
    mirrored("ring-c", "ring-a", "ring-b")
    rows = succeeds(api.get("/mirroring/rings"))
    assert [row["name"] for row in rows] == ["ring-a", "ring-b", "ring-c"]
    page = succeeds(api.get("/mirroring/rings?page=2&page_size=2&sort=name&sort_reverse=true&name=ring"))
    assert [row["name"] for row in page["items"]] == ["ring-a"]
    assert (page["total_count"], page["filtered_count"], page["page_count"]) == (3, 3, 2)
    found = succeeds(api.get("/mirroring/rings/%2F?columns=name,master&sort=messages&page=1"))
    assert all(set(row) == {"name", "master"} for row in found["items"])


def test_who_sees_rings(cluster_api: list[HttpApi], mirrored: Mirrored) -> None:
    api = cluster_api[0]
    mirrored("ring-one")
    assert api.put("/users/ringless", {"password": "ringless", "tags": "management"}).status == 201
    try:
        other = api.as_user("ringless")
        assert succeeds(other.get("/mirroring/rings")) == []
        assert other.get(path("mirroring", "rings", "/", "ring-one")).status == 401
        assert succeeds(other.get("/mirroring/events")) == []
        assert other.get("/mirroring/rebalance-plan").status == 401
    finally:
        api.delete("/users/ringless")


def test_events_of_a_move(cluster_api: list[HttpApi], mirrored: Mirrored, managed_cluster: Cluster) -> None:
    """A master that moves is told once, by whichever node is asked."""
    mirrored("ring-moves")
    before = managed_cluster.nodes[0].name
    managed_cluster.nodes[0].drain()
    try:
        found = eventually(lambda: _moves(cluster_api[1], "ring-moves"))
    finally:
        managed_cluster.nodes[0].revive()
    assert len(found) == 1
    event = found[0]
    assert event["former"] == before
    assert event["node"] == ring(cluster_api[1], "ring-moves")["master"]
    assert (event["vhost"], event["name"], event["level"]) == ("/", "ring-moves", "info")
    assert "Promoting mirror" in event["text"]
    assert event["time"] > 1_700_000_000_000
    for api in cluster_api:
        assert _moves(api, "ring-moves") == found


def test_one_master_is_moved(cluster_api: list[HttpApi], mirrored: Mirrored) -> None:
    """POST /queues/{vhost}/{name}/actions with "move": to a synchronised mirror, by whichever node."""
    mirrored("ring-one")
    shown = ring(cluster_api[0], "ring-one")
    target, where = shown["synchronised"][0], path("queues", "/", "ring-one", "actions")
    assert target != shown["master"]
    for _ in range(2):  # also when it is there already
        assert cluster_api[2].post(where, {"action": "move", "node": target}).status == 204
        assert ring(cluster_api[2], "ring-one")["master"] == target
    answer = cluster_api[0].post(where, {"action": "move", "node": "nobody@nowhere"})
    assert (answer.status, answer.json["reason"]) == (400, "Node nobody@nowhere has no copy of the queue")


def _moves(api: HttpApi, name: str) -> Any:
    events = succeeds(api.get(f"/mirroring/events?vhost=%2F&name={name}"))
    times = [each["time"] for each in events]
    assert times == sorted(times, reverse=True)
    return [each for each in events if each["kind"] in ("transfer", "promotion")]


def test_the_plan_of_a_rebalancing(cluster_api: list[HttpApi], mirrored: Mirrored) -> None:
    """The plan of a rebalancing lists the moves that POST /rebalance/queues then does."""
    names = [f"ring-{number}" for number in range(6)]
    mirrored(*names)
    api = cluster_api[1]
    plan = succeeds(api.get("/mirroring/rebalance-plan"))
    assert sum(plan["before"].values()) == sum(plan["after"].values()) == 6
    assert max(plan["before"].values()) == 6
    assert set(plan["after"].values()) == {2}
    assert len(plan["moves"]) == 4
    assert set(plan["moves"][0]) == {"vhost", "name", "from", "to", "messages"}
    assert succeeds(api.get("/mirroring/rebalance-plan?type=quorum"))["moves"] == []
    assert api.get("/mirroring/rebalance-plan?queue_pattern=(").status == 400
    assert api.post("/rebalance/queues").status == 204
    eventually(lambda: succeeds(api.get("/mirroring/rebalance-plan"))["before"] == plan["after"])
    assert succeeds(api.get("/mirroring/rebalance-plan"))["moves"] == []
