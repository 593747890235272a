"""Mirrored queues with `x-message-deduplication`: a next master knows all ids, also of messages that are paged out."""

import pytest

from node.amqp.field_table import Table, boolean, longstr
from node.amqp.methods import BasicAck, BasicGet, BasicGetOk, BasicNack, ConfirmSelect, ConfirmSelectOk
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.records import Json
from node.queue.deduplicating_queue import DeduplicatingQueue
from tests.kit.cluster import client_of
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
ARGUMENTS: Table = {"x-message-deduplication": boolean(True)}
COUNT = 40


def mirrored(*, is_by_policy: bool = False, **policy: Json) -> DiskCluster:
    """A queue q with its master on n1 and copies on all nodes.

    is_by_policy: it deduplicates by policy, not by its argument.   policy: what else holds for it.
    """
    cluster = DiskCluster(*NODES)
    definition: dict[str, Json] = {"ha-mode": "all", "ha-sync-mode": "automatic", **policy}
    cluster.submit(SetPolicy("/", "ha", "^q", definition))
    cluster.declare_mirrored("q", *NODES, arguments={} if is_by_policy else ARGUMENTS)
    if is_by_policy:
        cluster.submit(SetPolicy("/", "ha", "^q", {**definition, "message-deduplication": True}))
    return cluster


def publisher(cluster: DiskCluster, node: str) -> Client:
    client = client_of(cluster[node], 1)
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def publish(cluster: DiskCluster, client: Client, *ids: int) -> None:
    """Publish messages and see that all are confirmed."""
    for number in ids:
        headers = {"x-deduplication-header": longstr(str(number))}
        client.publish(1, "q", b"%d" % number, properties=Properties(delivery_mode=2, headers=headers))
    cluster.settle()
    acks = [item for item in client.methods() if isinstance(item, BasicAck)]
    assert acks, "nothing was confirmed"


def master(cluster: DiskCluster) -> DeduplicatingQueue:
    queue = cluster.queue(cluster.view("q").master_node or "")
    assert isinstance(queue, DeduplicatingQueue)
    return queue


@pytest.mark.parametrize("is_by_policy", [False, True])
@pytest.mark.parametrize("is_paged", [False, True])
def test_the_next_master_knows_the_ids(is_paged: bool, is_by_policy: bool) -> None:
    cluster = mirrored(is_by_policy=is_by_policy)
    client = publisher(cluster, "n2")
    publish(cluster, client, *range(COUNT))
    publish(cluster, client, *range(COUNT))
    assert (master(cluster).backlog.count, master(cluster).duplicates) == (COUNT, COUNT)
    out = client_of(cluster["n3"], 1)
    assert isinstance(out.ask(1, BasicGet(queue="q")), BasicGetOk)  # id 0 is with a client
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    assert cluster.view("q").master_node != "n1"
    publish(cluster, client, *range(COUNT), COUNT)
    queue = master(cluster)
    assert (queue.backlog.count, queue.duplicates, queue.ids) == (COUNT + 1, COUNT, COUNT + 1)


def test_a_settled_id_is_free_at_the_next_master_too() -> None:
    cluster = mirrored()
    client = publisher(cluster, "n2")
    publish(cluster, client, 1, 2)
    out = client_of(cluster["n3"], 1)
    answer = out.ask(1, BasicGet(queue="q"))
    assert isinstance(answer, BasicGetOk)
    out.send(1, BasicAck(answer.delivery_tag))
    cluster.settle()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    publish(cluster, client, 1, 2)
    assert master(cluster).backlog.count == 2


@pytest.mark.parametrize("is_by_policy", [False, True])
def test_publishes_that_are_sent_again_at_a_failover_come_once(is_by_policy: bool) -> None:
    """Whether or not the answers were lost with the master, there is one message for each id."""
    for hops in range(12):
        cluster = mirrored(is_by_policy=is_by_policy)
        client = publisher(cluster, "n2")
        cluster.is_held = True
        for number in range(6):
            headers = {"x-deduplication-header": longstr(str(number % 3))}
            client.publish(1, "q", b"%d" % number, properties=Properties(delivery_mode=2, headers=headers))
        cluster["n2"].turn()
        for _ in range(hops):
            for pair in list(cluster.frames):
                cluster.deliver(*pair, 1)
            cluster.settle()
        cluster.crash("n1")
        cluster.is_held = False
        cluster.settle()
        cluster.advance(1.0)
        assert master(cluster).backlog.count == 3, hops


RETRY: dict[str, Json] = {"delayed-retry-type": "all", "delayed-retry-min": 10_000}
RETURNED = 4
"""So many of the messages wait to be retried."""


def retrying() -> tuple[DiskCluster, Client]:
    """A queue of which some messages wait to be retried, and a publisher on n2."""
    cluster = mirrored(**RETRY)
    client = publisher(cluster, "n2")
    publish(cluster, client, *range(COUNT))
    out = client_of(cluster["n3"], 1)
    for tag in range(1, RETURNED + 1):
        assert isinstance(out.ask(1, BasicGet(queue="q")), BasicGetOk)
        out.send(1, BasicNack(tag, requeue=True))
        cluster.settle()
    out.lose()
    cluster.settle()
    return cluster, client


def figures(cluster: DiskCluster) -> tuple[int, int, int]:
    """Return how many messages of the master are ready, how many wait to be retried, and how many ids it has."""
    queue = master(cluster)
    return queue.backlog.count, 0 if queue.retries is None else queue.retries.count, queue.ids


@pytest.mark.parametrize("is_paged", [False, True])
def test_the_next_master_knows_the_ids_of_what_waits_to_be_retried(is_paged: bool) -> None:
    cluster, client = retrying()
    assert figures(cluster) == (COUNT - RETURNED, RETURNED, COUNT)
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.settle()
    cluster.advance(1.0)
    assert cluster.view("q").master_node != "n1"
    publish(cluster, client, *range(COUNT))
    assert figures(cluster) == (COUNT - RETURNED, RETURNED, COUNT)
    cluster.advance(12.0)
    publish(cluster, client, *range(COUNT))
    assert figures(cluster) == (COUNT, 0, COUNT)


@pytest.mark.parametrize("is_paged", [False, True])
def test_a_restart_of_all_nodes_keeps_the_ids_of_what_waits_to_be_retried(is_paged: bool) -> None:
    cluster, client = retrying()
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.advance(1.0)
    for name in NODES:
        cluster.crash(name, is_noticed=False)
    for name in NODES:
        cluster.start(name)
        for other in NODES:
            if other not in cluster.nodes:
                cluster.declare_dead(other)
        cluster.settle()
    cluster.advance(0.1)
    client = publisher(cluster, "n2")
    for seconds in (0.0, 0.5, 12.0):
        cluster.advance(seconds)
        publish(cluster, client, *range(COUNT))
        ready, waiting, ids = figures(cluster)
        assert (ready + waiting, ids) == (COUNT, COUNT)
