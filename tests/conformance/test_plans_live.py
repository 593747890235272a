"""Plans on three live nodes under load: nothing confirmed is lost, and there are always two synchronised copies.

Fluffle's own. Source: spark §3.4, §6.1, §6.14.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.conformance.http.steps import eventually, succeeds
from tests.kit.http_api import Answer, HttpApi
from tests.kit.managed_fluffle import managed, start_managed_cluster
from tests.kit.mirror_steps import set_mirroring
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq

pytestmark = [pytest.mark.skipif(is_rabbitmq(), reason="Fluffle's own"), pytest.mark.slow]

QUEUE = "moved"
PLAN = {"plan": "sha256:live", "owner": "test"}


class Publisher(threading.Thread):
    """Publishes numbers, one after the other is confirmed.   confirmed: those that were."""

    def __init__(self, node: ClusterNode) -> None:
        super().__init__(daemon=True)
        self.confirmed: list[int] = []
        self.is_over = threading.Event()
        self._parameters = pika.ConnectionParameters(node.host, node.port)

    def run(self) -> None:
        connection = pika.BlockingConnection(self._parameters)
        channel = connection.channel()
        channel.confirm_delivery()
        number = 0
        while not self.is_over.is_set():
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", QUEUE, str(number).encode(), properties, mandatory=True)
            self.confirmed.append(number)
            number += 1
        connection.close()


class Watcher(threading.Thread):
    """Looks at how many synchronised copies there are, again and again.   least: the fewest."""

    def __init__(self, api: HttpApi) -> None:
        super().__init__(daemon=True)
        self.least = 99
        self.looks = 0
        self.is_over = threading.Event()
        self._api = api

    def run(self) -> None:
        while not self.is_over.wait(0.02):
            self.least = min(self.least, len(row_of(self._api)["synced"]))
            self.looks += 1


def row_of(api: HttpApi) -> dict[str, Any]:
    rows = succeeds(api.get("/mirroring/topology"))["queues"]
    return next((row for row in rows if row["queue"] == QUEUE), {"synced": [], "ring": []})


def ask(
    api: HttpApi, action: str, *, source: str | None = None, to: str | None = None, least: int = 2
) -> Answer:
    """Ask for a step once."""
    row = row_of(api)
    pre = {
        "epoch": row["epoch"],
        "master": row["master"],
        "synced": [],
        "min_synced": least,
        "max_lag_ops": 10_000,
    }
    body = {"plan": PLAN["plan"], "step": action, "action": action, "vhost": "/", "queue": QUEUE}
    return api.post("/mirroring/plan-step", {**body, "uid": row["uid"], "from": source, "to": to, "pre": pre})


def until_done(api: HttpApi, action: str, least: int = 2, **nodes: str) -> None:
    def is_done() -> bool:
        return succeeds(ask(api, action, least=least, **nodes))["state"] in ("done", "skipped")

    eventually(is_done, 60.0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = start_managed_cluster()
    yield found
    found.stop()


def test_copies_move_under_load_and_a_node_dies(cluster: Cluster) -> None:
    first = managed(cluster)[0]
    api, names = HttpApi(first), {node.name for node in cluster.nodes}
    set_mirroring(first, QUEUE, "exactly", 2, ha_sync_mode="manual")
    assert api.put(f"/queues/%2F/{QUEUE}", {"durable": True, "node": first.name}).status == 201
    eventually(lambda: len(row_of(api)["synced"]) == 2)
    succeeds(api.put("/mirroring/plan-lock", {**PLAN, "ttl_s": 600}))
    publisher, watcher = Publisher(first), Watcher(api)
    publisher.start()
    eventually(lambda: len(publisher.confirmed) > 100)
    watcher.start()
    for is_promoted in (True, False, True, True):
        master, mirror = row_of(api)["ring"]
        [free] = names - {master, mirror}
        until_done(api, "add_mirror", to=free)
        until_done(api, "wait_synced", to=free)
        if is_promoted:
            until_done(api, "promote", to=free)
            mirror = master
        until_done(api, "drop_mirror", source=mirror)
        assert set(row_of(api)["ring"]) == names - {mirror}
    watcher.is_over.set()
    watcher.join()
    assert watcher.looks > 10
    assert watcher.least == 2
    # The node with a third copy dies. It counts as up for a while, and what is left must not rely on it.
    until_done(api, "promote", to=first.name) if first.name in row_of(api)["ring"] else None
    until_full(api, names)
    row = row_of(api)
    doomed = next(node for node in cluster.nodes if node.name not in (row["master"], first.name))
    other = next(name for name in row["ring"] if name not in (row["master"], doomed.name))
    doomed.kill()
    answer = ask(api, "drop_mirror", source=other)
    assert answer.status == 409 or answer.json["state"] == "waiting", answer
    eventually(lambda: doomed.name not in row_of(api)["ring"])
    assert ask(api, "drop_mirror", source=other).status == 409
    before = len(publisher.confirmed)
    eventually(lambda: len(publisher.confirmed) > before + 50)
    publisher.is_over.set()
    publisher.join(30.0)
    assert not publisher.is_alive()
    assert sorted(bodies_of(first)) == publisher.confirmed


def test_the_only_copy_moves_under_load(cluster: Cluster) -> None:
    """A queue without a policy is mirrored for as long as a plan moves it: to each node, and back."""
    first = managed(cluster)[0]
    api, names = HttpApi(first), sorted(node.name for node in cluster.nodes)
    assert api.put(f"/queues/%2F/{QUEUE}", {"durable": True, "node": first.name}).status == 201
    eventually(lambda: row_of(api)["ring"] == [first.name])
    succeeds(api.put("/mirroring/plan-lock", {**PLAN, "ttl_s": 600}))
    publisher, watcher = Publisher(first), Watcher(api)
    publisher.start()
    eventually(lambda: len(publisher.confirmed) > 100)
    watcher.start()
    for target in (*(name for name in names if name != first.name), first.name):
        [master] = row_of(api)["ring"]
        epoch = row_of(api)["epoch"]
        until_done(api, "add_mirror", 1, to=target)
        assert row_of(api)["epoch"] == epoch
        until_done(api, "wait_synced", 1, to=target)
        until_done(api, "promote", 1, to=target)
        until_done(api, "drop_mirror", 1, source=master)
        eventually(lambda target=target: is_alone(api, target))
    watcher.is_over.set()
    watcher.join()
    assert watcher.looks > 10
    assert watcher.least == 1
    before = len(publisher.confirmed)
    eventually(lambda: len(publisher.confirmed) > before + 50)
    publisher.is_over.set()
    publisher.join(30.0)
    assert not publisher.is_alive()
    assert sorted(bodies_of(first)) == publisher.confirmed


def is_alone(api: HttpApi, node: str) -> bool:
    """True if the queue has one copy, there, and is not mirrored any more."""
    found = succeeds(api.get(f"/queues/%2F/{QUEUE}"))
    return row_of(api)["ring"] == [node] and not found.get("slave_nodes") and found["node"] == node


def until_full(api: HttpApi, names: set[str]) -> None:
    """Have a copy on each node."""
    for name in sorted(names - set(row_of(api)["ring"])):
        until_done(api, "add_mirror", to=name)
        until_done(api, "wait_synced", to=name)


def bodies_of(node: ClusterNode) -> list[int]:
    """All that is in the queue, once each."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(node.host, node.port))
    channel = connection.channel()
    found = set()
    for _, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=3.0):
        if body is None:
            break
        found.add(int(body))
    connection.close()
    return list(found)
