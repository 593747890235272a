"""Clients and nodes that went leave nothing in the brokers of others that Python would have to look for.

Whatever is in a circle of references stays until then, and with it the broker that it refers to.
"""

from collections.abc import Callable

import pytest

from node.amqp.methods import (
    BasicCancel,
    BasicConsume,
    BasicQos,
    ChannelClose,
    ChannelOpen,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
)
from node.catalogue.commands import ClearPolicy, SetPolicy
from tests.kit import disk_cluster
from tests.kit.cluster import RingCluster, RingNode
from tests.kit.memory import no_circles
from tests.kit.world import Client

NAMES = ("n1", "n2", "n3")
QUEUES = tuple(f"{kind}{name}" for kind in "mo" for name in NAMES)
"""On each node one that is mirrored and one on its own."""


def clients_of(cluster: RingCluster) -> list[Client]:
    """One at each node, which consumes from all queues and has published to them."""
    clients = [node.client(1, 2) for node in cluster]
    for client in clients:
        client.send(1, BasicQos(prefetch_count=3))
        client.send(1, ConfirmSelect())
        for queue in QUEUES:
            client.send(1, BasicConsume(queue=queue, consumer_tag=queue))
            client.publish(1, queue, b"1", b"2")
        client.received()
        assert len(client.channel(1).consumers) == len(QUEUES)
    return clients


@pytest.fixture(params=[RingCluster, disk_cluster.DiskCluster], ids=["in-memory", "on-disk"])
def cluster(request: pytest.FixtureRequest) -> RingCluster:
    cluster: RingCluster = request.param(*NAMES)
    ha = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-promote-on-shutdown": "always"}
    cluster["n1"].submit(SetPolicy("/", "ha", "^m", ha))
    for node in cluster:
        client = node.client()
        for kind in "mo":
            client.ask(1, QueueDeclare(queue=f"{kind}{node.name}", durable=True))
        client.lose()
    cluster.settle()
    return cluster


def lose_clients(cluster: RingCluster, clients: list[Client]) -> None:
    for client in clients:
        client.lose()


def close_channels(cluster: RingCluster, clients: list[Client]) -> None:
    for client in clients:
        client.send(1, ChannelClose(200, "", 0, 0))
        client.send(2, ChannelClose(200, "", 0, 0))
        client.received()
        client.send(1, ChannelOpen())
        client.received()


def cancel(cluster: RingCluster, clients: list[Client]) -> None:
    for client in clients:
        for queue in QUEUES:
            client.send(1, BasicCancel(consumer_tag=queue))
        client.received()


def crash(cluster: RingCluster, clients: list[Client]) -> None:
    cluster.crash("n3")
    cluster.settle()
    assert any(node.broker.vhosts["/"].queues["mn3"].is_local for node in cluster), "it has another master"


def crash_and_restart(cluster: RingCluster, clients: list[Client]) -> None:
    for _ in range(2):
        crash(cluster, clients)
        cluster.start("n3")
        cluster.settle()


def delete(cluster: RingCluster, clients: list[Client]) -> None:
    for client in clients:
        for queue in QUEUES:
            client.send(1, QueueDelete(queue=queue))
            client.received()
    cluster.settle()
    assert not any(node.broker.vhosts["/"].queues for node in cluster)


def lose_the_policy(cluster: RingCluster, clients: list[Client]) -> None:
    cluster["n1"].submit(ClearPolicy("/", "ha"))
    cluster.settle()


def lose_a_mirror(cluster: RingCluster, clients: list[Client]) -> None:
    cluster["n1"].submit(SetPolicy("/", "ha", "^m", {"ha-mode": "exactly", "ha-params": 2}))
    cluster.settle()


@pytest.mark.parametrize(
    "happen",
    [
        lose_clients,
        close_channels,
        cancel,
        crash,
        crash_and_restart,
        delete,
        lose_the_policy,
        lose_a_mirror,
    ],
)
def test_nothing_stays_in_circles(
    cluster: RingCluster, happen: Callable[[RingCluster, list[Client]], None]
) -> None:
    """While its broker lives; whoever died is kept here, as it is in another process."""
    died: list[RingNode] = []
    crash = cluster.crash
    cluster.crash = lambda name, **how: (died.append(cluster[name]), crash(name, **how))[1]  # type: ignore[method-assign]
    clients = clients_of(cluster)
    with no_circles():
        happen(cluster, clients)
        cluster.settle()
        del clients
        for node in cluster:
            node.advance(60)
        cluster.settle()
