"""Queues, messages and connections of a cluster, asked of any of its nodes. Only of Fluffle."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.http.steps import bad_request, eventually, get, is_missing, path, publish, succeeds
from tests.conformance.http.test_connections import name_of
from tests.kit.amqp_client import Channel
from tests.kit.http_api import HttpApi
from tests.kit.server_cluster import Cluster

pytestmark = pytest.mark.slow  # three processes

Apis = list[HttpApi]


@pytest.fixture
def queue(managed_cluster: Cluster, cluster_api: Apis, name: Callable[[str], str]) -> str:
    """A durable queue that lives on the second node."""
    made = name("q")
    body = {"durable": True, "node": managed_cluster[1].name}
    assert cluster_api[0].put(path("queues", "/", made), body).status == 201
    return made


def test_a_queue_is_made_where_it_is_wished(managed_cluster: Cluster, cluster_api: Apis, queue: str) -> None:
    """PUT body `node`."""
    for api in cluster_api:
        assert succeeds(api.get(path("queues", "/", queue)))["node"] == managed_cluster[1].name
    again = {"durable": True, "node": managed_cluster[2].name}
    assert cluster_api[0].put(path("queues", "/", queue), again).status == 204


def test_what_another_node_refuses(
    managed_cluster: Cluster, cluster_api: Apis, name: Callable[[str], str]
) -> None:
    refused = name("q")
    body = {"node": managed_cluster[1].name, "arguments": {"x-max-length": -1}}
    bad_request(
        cluster_api[0].put(path("queues", "/", refused), body),
        f"invalid arg 'x-max-length' for queue '{refused}' in vhost '/': {{value_negative,-1}}",
    )
    bad_request(
        cluster_api[0].put(path("queues", "/", refused), {"node": "nope@localhost"}),
        "Node nope@localhost could not be contacted",
    )
    is_missing(cluster_api[1].get(path("queues", "/", refused)))


def test_messages_of_queues_elsewhere(cluster_api: Apis, queue: str) -> None:
    """publish, get, purge, delete by way of any node."""
    for number, api in enumerate(cluster_api):
        publish(api, "/", queue, f"m{number}")
    for api in cluster_api:
        eventually(lambda api=api: succeeds(api.get(path("queues", "/", queue)))["messages"] == 3)
        assert [each["payload"] for each in get(api, "/", queue, 5)] == ["m0", "m1", "m2"]
    (taken,) = get(cluster_api[2], "/", queue, ackmode="ack_requeue_false")
    assert taken["payload"] == "m0"
    assert cluster_api[0].delete(path("queues", "/", queue, "contents")).status == 204
    assert get(cluster_api[1], "/", queue) == []
    assert cluster_api[2].delete(path("queues", "/", queue)).status == 204
    is_missing(cluster_api[1].get(path("queues", "/", queue)))


def test_lists_are_the_same_everywhere(cluster_api: Apis, queue: str) -> None:
    publish(cluster_api[0], "/", queue)

    def same() -> Any:
        parameters = f"?page=1&name={queue}&columns=name,node,messages,state"
        found = [succeeds(api.get("/queues/%2F" + parameters))["items"] for api in cluster_api]
        return found[0] == found[1] == found[2] and found[0][0].get("messages") == 1 and found[0]

    (row,) = eventually(same)
    assert row["state"] == "running"


def test_connections_are_seen_and_closed_from_anywhere(
    managed_cluster: Cluster, cluster_api: Apis, on_node: Callable[..., Channel]
) -> None:
    channels = [on_node(node) for node in managed_cluster.nodes]
    names = [name_of(channel.connection) for channel in channels]

    def all_seen() -> bool:
        seen = [{row["name"] for row in succeeds(api.get("/connections"))} for api in cluster_api]
        return all(each >= set(names) for each in seen)

    eventually(all_seen)
    for number, api in enumerate(cluster_api):
        row = succeeds(api.get(path("connections", names[number - 1])))
        assert row["node"] == managed_cluster[number - 1].name
        of_connection = path("connections", names[number - 1], "channels")
        eventually(lambda api=api, where=of_connection: len(succeeds(api.get(where))) == 1)
    answer = cluster_api[0].delete(path("connections", names[2]), headers={"X-Reason": "from afar"})
    assert answer.status == 204
    channels[2].connection.expect_connection_close(320, "CONNECTION_FORCED - from afar", None)


def test_consumers_on_other_nodes(
    managed_cluster: Cluster, cluster_api: Apis, queue: str, on_node: Callable[..., Channel]
) -> None:
    """consumer_details, and /consumers, of a queue whose consumers are clients of several nodes."""
    for node in managed_cluster.nodes:
        on_node(node).consume(queue, consumer_tag=f"at-{node.name}")
    tags = {f"at-{node.name}" for node in managed_cluster.nodes}
    for api in cluster_api:

        def shown(api: HttpApi = api) -> bool:
            single = succeeds(api.get(path("queues", "/", queue)))
            listed = [row for row in succeeds(api.get("/consumers")) if row["queue"]["name"] == queue]
            return (
                {each["consumer_tag"] for each in single["consumer_details"]} == tags
                and {each["consumer_tag"] for each in listed} == tags
                and single.get("consumers") == 3
            )

        eventually(shown)


def test_mirrors_and_synchronisation(
    managed_cluster: Cluster, cluster_api: Apis, name: Callable[[str], str]
) -> None:
    """slave_nodes, synchronised_slave_nodes; the action sync."""
    made = name("mirrored")
    assert cluster_api[0].put(path("queues", "/", made), {"durable": True}).status == 201
    publish(cluster_api[0], "/", made)
    managed_cluster[0].admin.set_policy("/", made, f"^{made}$", {"ha-mode": "all", "ha-sync-mode": "manual"})

    def mirrored() -> Any:
        found = succeeds(cluster_api[2].get(path("queues", "/", made)))
        return len(found.get("slave_nodes", ())) == 2 and found

    found = eventually(mirrored)
    assert found["synchronised_slave_nodes"] == []
    assert found["policy"] == made
    answer = cluster_api[1].post(path("queues", "/", made, "actions"), {"action": "sync"})
    assert answer.status == 204

    def synchronised() -> bool:
        queue = succeeds(cluster_api[2].get(path("queues", "/", made)))
        return len(queue["synchronised_slave_nodes"]) == 2

    eventually(synchronised)
    managed_cluster[0].admin.clear_policy("/", made)


def test_a_queue_whose_node_is_down(managed_cluster: Cluster, cluster_api: Apis, queue: str) -> None:
    """A node that is down: its queues are shown from the metadata, with the state "down"."""
    publish(cluster_api[1], "/", queue, delivery_mode=2)
    managed_cluster[1].kill()
    for api in (cluster_api[0], cluster_api[2]):

        def down(api: HttpApi = api) -> Any:
            row = succeeds(api.get(path("queues", "/", queue)))
            return row.get("state") == "down" and row

        row = eventually(down)
        assert row["node"] == managed_cluster[1].name
        assert "messages" not in row
        (listed,) = succeeds(api.get(f"/queues/%2F?page=1&name={queue}"))["items"]
        assert listed["state"] == "down"
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    answer = cluster_api[0].post(path("queues", "/", queue, "get"), asked)
    assert answer.status == 404
    assert "is down or inaccessible" in answer.json["reason"]
    managed_cluster.heal()
    eventually(lambda: len(get(cluster_api[0], "/", queue)) == 1)
