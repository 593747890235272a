"""Delayed messages are mirrored like any other: they outlive nodes, none goes out early, none is lost.

The rings, the disks and the brokers are the real ones; time and links are the test's.
"""

from collections import Counter

import pytest

from node.amqp.field_table import long, longstr
from node.amqp.methods import (
    BasicAck,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    QueueBind,
    QueueBindOk,
)
from node.amqp.properties import Properties
from node.catalogue.commands import SetPolicy
from node.catalogue.delayed import DELAYED_TYPE, waiting_queue
from node.queue.delay_backlog import ROUNDING_S
from node.queue.delayed_queue import DelayedQueue
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
WAITING = waiting_queue("x")
COUNT = 60


def delayed() -> DiskCluster:
    """A durable delayed exchange x, declared on n1, and a queue q with three copies and its master on n2."""
    cluster = DiskCluster(*NODES)
    client = cluster["n1"].client()
    arguments = {"x-delayed-type": longstr("direct")}
    declare = ExchangeDeclare(exchange="x", type=DELAYED_TYPE, durable=True, arguments=arguments)
    assert client.ask(1, declare) == ExchangeDeclareOk()
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"}))
    cluster.declare_mirrored("q", "n2", "n1", "n3")
    assert client.ask(1, QueueBind(queue="q", exchange="x", routing_key="k")) == QueueBindOk()
    client.lose()
    cluster.advance(2.0)
    assert cluster.view(WAITING).master_node == "n1"
    assert len(cluster.view(WAITING).synced) == 3
    return cluster


def publisher(cluster: DiskCluster, node: str) -> Client:
    client = cluster[node].client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def publish(
    cluster: DiskCluster, client: Client, count: int = COUNT, *, first: int = 0, mode: int = 2
) -> None:
    """Publish numbered messages, one each 100 ms from 10 s on, in another order; wait until all are confirmed."""
    for number in sorted(range(first, first + count), key=lambda each: (each * 37) % count):
        headers = {"x-delay": long(10_000 + number * 100)}
        properties = Properties(delivery_mode=mode, headers=headers)
        client.publish(1, "k", b"%d" % number, exchange="x", properties=properties)
    cluster.settle()
    confirmed = sum(isinstance(method, BasicAck) for method in client.methods())
    assert confirmed > 0


def waiting(cluster: DiskCluster) -> int:
    """The number of messages at the master of the waiting queue."""
    queue = cluster.queue(cluster.view(WAITING).master_node or "", WAITING)
    assert isinstance(queue, DelayedQueue)
    return queue.backlog.count


def ready(cluster: DiskCluster) -> int:
    return cluster.queue(cluster.view("q").master_node or "").backlog.count


def numbers(cluster: DiskCluster, node: str = "n3") -> list[int]:
    return [int(body) for body, _ in cluster.contents(node)]


def test_a_delayed_exchange_has_three_copies_without_a_policy() -> None:
    """All nodes see it, and any of them may be published to."""
    cluster = delayed()
    for number, node in enumerate(NODES):
        publish(cluster, publisher(cluster, node), 1, first=number)
    assert (waiting(cluster), ready(cluster)) == (3, 0)
    assert cluster.copy("n2", WAITING) == cluster.copy("n3", WAITING) == [range(1, 4)]
    cluster.advance(10.5)
    assert (waiting(cluster), numbers(cluster)) == (0, [0, 1, 2])
    assert cluster.copy("n2", WAITING) == cluster.copy("n3", WAITING) == []
    cluster.check_idle()


@pytest.mark.parametrize("is_paged", [False, True])
def test_the_loss_of_the_master_loses_none_and_makes_none_early(is_paged: bool) -> None:
    """Each message goes out at its time, at the next master."""
    cluster = delayed()
    publish(cluster, publisher(cluster, "n3"))
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.crash("n1")
    cluster.advance(5.0 + 5 * ROUNDING_S)
    assert (waiting(cluster), ready(cluster)) == (COUNT, 0)
    assert cluster.view(WAITING).master_node != "n1"
    for seconds in range(1, 6):
        cluster.advance(1.0)
        due = max(0, (seconds - 5) * 10 + 1)
        assert ready(cluster) == due, seconds
    cluster.advance(6.0)
    assert (waiting(cluster), numbers(cluster)) == (0, list(range(COUNT)))


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("hops", range(8))
def test_the_loss_of_the_master_while_messages_go_out_loses_none(hops: int, is_cut: bool) -> None:
    """A message may come twice, and nothing is left behind, also where its target's node got nothing before."""
    cluster = delayed()
    assert [member.node for member in cluster.view(WAITING).ring] == ["n1", "n3", "n2"]
    publish(cluster, publisher(cluster, "n3"))
    cluster.is_held = True
    cluster.advance(12.0)
    for _ in range(hops):
        for pair in list(cluster.frames):
            if not is_cut or pair != ("n1", "n2"):
                cluster.deliver(*pair, 1)
        cluster.settle()
    cluster.crash("n1")
    cluster.is_held = False
    cluster.settle()
    cluster.advance(6.0)
    cluster.advance(2.0)
    found = Counter(numbers(cluster))
    assert sorted(found) == list(range(COUNT))
    assert max(found.values()) <= 2
    assert waiting(cluster) == 0


def test_a_planned_move_of_the_master_keeps_the_order() -> None:
    cluster = delayed()
    publish(cluster, publisher(cluster, "n3"))
    cluster.advance(11.0)
    cluster.transfer(WAITING, "n3")
    cluster.advance(6.0)
    assert cluster.view(WAITING).master_node == "n3"
    assert (waiting(cluster), numbers(cluster)) == (0, list(range(COUNT)))


@pytest.mark.parametrize("is_paged", [False, True])
def test_all_nodes_killed_and_started_again(is_paged: bool) -> None:
    """Persistent messages wait on; those that were due meanwhile go out at once."""
    cluster = delayed()
    publish(cluster, publisher(cluster, "n3"))
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.advance(5.0)
    for name in NODES:
        cluster.crash(name, is_noticed=False)
    for name in NODES:
        cluster.start(name)
        for other in NODES:
            if other not in cluster.nodes:
                cluster.declare_dead(other)
        cluster.settle()
    cluster.advance(1.0)
    assert waiting(cluster) + ready(cluster) == COUNT
    cluster.advance(20.0)
    assert (waiting(cluster), sorted(numbers(cluster))) == (0, list(range(COUNT)))


@pytest.mark.parametrize("is_paged", [False, True])
def test_a_node_that_comes_back_gets_all_and_can_take_over(is_paged: bool) -> None:
    """Synchronisation reads them wherever they are."""
    cluster = delayed()
    cluster.crash("n2")
    cluster.advance(1.0)
    publish(cluster, publisher(cluster, "n3"))
    if is_paged:
        for node in cluster:
            node.page_out()
    cluster.start("n2")
    cluster.advance(3.0)
    assert len(cluster.view(WAITING).synced) == 3
    for name in ("n1", "n3"):
        cluster.crash(name)
        cluster.advance(1.0)
    assert cluster.view(WAITING).master_node == "n2"
    assert waiting(cluster) == COUNT
    cluster.advance(12.0)
    assert (waiting(cluster), numbers(cluster, "n2")) == (0, list(range(COUNT)))


def test_a_target_without_a_master_gets_its_messages_later() -> None:
    """Nothing is dropped meanwhile."""
    cluster = delayed()
    publish(cluster, publisher(cluster, "n3"), mode=1)
    cluster.is_held = True
    cluster.crash("n2")
    cluster.is_held = False
    cluster.advance(17.0)
    cluster.advance(3.0)
    assert (waiting(cluster), sorted(set(numbers(cluster)))) == (0, list(range(COUNT)))


def test_deleting_the_exchange_deletes_all_copies() -> None:
    cluster = delayed()
    client = cluster["n2"].client()
    publish(cluster, publisher(cluster, "n3"))
    client.ask(1, ExchangeDelete(exchange="x"))
    cluster.settle()
    for node in cluster:
        assert node.queue_names == {"q"}
    cluster.advance(20.0)
    assert ready(cluster) == 0
