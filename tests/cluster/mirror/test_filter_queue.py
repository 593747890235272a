"""Deduplicating and recent-history exchanges of a cluster: what they know outlives the loss of a node.

The rings, the disks and the brokers are the real ones; time and links are the test's.
"""

from collections import Counter

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicAck,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.exchange_queues import exchange_queue
from node.catalogue.recent_history import HISTORY_TYPE
from node.queue.filter_queue import FilterQueue
from node.queue.history_queue import HistoryQueue
from tests.kit.cluster import client_of
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
PASSING = exchange_queue(DEDUPLICATION_TYPE, "x") or ""
HISTORY = exchange_queue(HISTORY_TYPE, "x") or ""
COUNT = 40


def cluster_with(type_: str, own: str, arguments: Table, *, is_bound: bool = True) -> DiskCluster:
    """A durable exchange x, declared on n1, and a queue q with three copies and its master on n2."""
    cluster = DiskCluster(*NODES)
    client = cluster["n1"].client()
    declare = ExchangeDeclare(exchange="x", type=type_, durable=True, arguments=arguments)
    assert client.ask(1, declare) == ExchangeDeclareOk()
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.declare_mirrored("q", "n2", "n1", "n3")
    if is_bound:
        assert client.ask(1, QueueBind(queue="q", exchange="x")) == QueueBindOk()
    client.lose()
    cluster.advance(2.0)
    assert cluster.view(own).master_node == "n1"
    assert len(cluster.view(own).synced) == 3
    return cluster


def deduplicating(**arguments: int) -> DiskCluster:
    given: Table = {"x-cache-size": long(arguments.pop("size", 1000))}
    return cluster_with(DEDUPLICATION_TYPE, PASSING, given)


def publisher(cluster: DiskCluster, node: str) -> Client:
    client = client_of(cluster[node], 1)
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def send(client: Client, *ids: int) -> None:
    for number in ids:
        headers = {"x-deduplication-header": longstr(str(number))}
        properties = Properties(delivery_mode=2, headers=headers)
        client.publish(1, "k", b"%d" % number, exchange="x", properties=properties)


def publish(cluster: DiskCluster, client: Client, *ids: int) -> None:
    """Publish messages; some confirm has come."""
    send(client, *ids)
    cluster.settle()
    assert any(isinstance(method, BasicAck) for method in client.methods())


def passing(cluster: DiskCluster) -> FilterQueue:
    queue = cluster.queue(cluster.view(PASSING).master_node or "", PASSING)
    assert isinstance(queue, FilterQueue)
    return queue


def numbers(cluster: DiskCluster, node: str = "n3") -> list[int]:
    return [int(body) for body, _ in cluster.contents(node)]


@pytest.mark.parametrize("is_paged", [False, True])
def test_the_next_master_knows_all_ids(is_paged: bool) -> None:
    """Publishers of all nodes share one cache; the messages are gone when the node dies."""
    cluster = deduplicating()
    for number, node in enumerate(NODES):
        publish(cluster, publisher(cluster, node), *range(number * 5, number * 5 + 15))
    assert numbers(cluster) == list(range(25))
    cluster.advance(1.0)  # the mirrors hear that all messages have gone
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    publish(cluster, publisher(cluster, "n3"), *range(30))
    cluster.advance(2.0)
    assert numbers(cluster) == list(range(25, 30))
    assert (passing(cluster).ids, passing(cluster).duplicates) == (30, 25)


def test_a_full_cache_is_alike_at_the_next_master() -> None:
    cluster = deduplicating(size=10)
    client = publisher(cluster, "n2")
    for number in range(COUNT):
        publish(cluster, client, number)
    numbers(cluster)
    cluster.advance(1.0)
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    assert passing(cluster).ids == 10
    publish(cluster, client, *range(COUNT - 10, COUNT), 0)
    cluster.advance(2.0)
    assert numbers(cluster) == [0]


@pytest.mark.parametrize("hops", range(0, 14, 2))
def test_the_loss_of_the_master_while_messages_pass(hops: int) -> None:
    """Each id comes, at most twice, and none that has gone comes with a later message."""
    cluster = deduplicating()
    client = publisher(cluster, "n3")
    publish(cluster, client, *range(5))
    cluster.advance(1.0)
    cluster.is_held = True
    send(client, *range(10), *range(10))
    for _ in range(hops):
        for pair in list(cluster.frames):
            cluster.deliver(*pair, 1)
        cluster.settle()
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    cluster.advance(2.0)
    cluster.advance(2.0)
    found = Counter(numbers(cluster))
    assert sorted(found) == list(range(10))
    assert max(found.values()) <= 2
    assert all(found[number] == 1 for number in range(5))
    publish(cluster, client, *range(11))
    cluster.advance(2.0)
    assert numbers(cluster) == [10]


def test_the_history_outlives_a_node() -> None:
    cluster = cluster_with(HISTORY_TYPE, HISTORY, {"x-recent-history-length": long(7)}, is_bound=False)
    client = publisher(cluster, "n3")
    publish(cluster, client, *range(COUNT))
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    queue = cluster.queue(cluster.view(HISTORY).master_node or "", HISTORY)
    assert isinstance(queue, HistoryQueue)
    assert queue.backlog.count == 7
    client.received()
    assert client.ask(1, QueueBind(queue="q", exchange="x")) == QueueBindOk()
    cluster.settle()
    assert numbers(cluster) == list(range(COUNT - 7, COUNT))
    publish(cluster, client, COUNT)
    assert numbers(cluster) == [COUNT]
