"""Messages that a broker publishes itself wait for queues whose nodes are down, as nobody could be told of a loss."""

import pytest

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import (
    BasicGet,
    BasicGetOk,
    BasicNack,
    ExchangeBind,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
)
from node.amqp.properties import Properties
from node.broker import delayed_messages
from node.broker.forwarding import RETRY_S
from node.broker.full_routes import FullRoutes
from node.broker.safe_letters import RETRY_MAX_S
from node.catalogue.commands import DeleteQueue, EnablePlugin
from node.queue.delayed_queue import DelayedQueue
from tests.kit.disk_cluster import DiskCluster
from tests.kit.world import Client

NODES = ("n1", "n2", "n3")
DELAYED: Table = {"x-delayed-type": longstr("fanout")}
ALONE = QueueDeclare(queue="alone", durable=True)
"""A queue without mirrors, on the node where it is declared."""


def cluster_of(*methods: Method) -> DiskCluster:
    """Three nodes: `alone` is on n3, and n1 carries out the methods."""
    cluster = DiskCluster(*NODES)
    cluster.submit(EnablePlugin("rabbitmq_consistent_hash_exchange", ("x-consistent-hash",)))
    ask(cluster, "n3", ALONE)
    ask(cluster, "n1", *methods)
    cluster.advance(2.0)
    return cluster


def ask(cluster: DiskCluster, node: str, *methods: Method) -> None:
    client = cluster[node].client()
    for method in methods:
        answer = client.ask(1, method)
        assert type(answer).__name__ == type(method).__name__ + "Ok", answer
    client.lose()
    cluster.settle()


def publish(cluster: DiskCluster, exchange: str, key: str, *bodies: bytes, **headers: int) -> None:
    client: Client = cluster["n1"].client()
    table: Table = {name.replace("_", "-"): long(value) for name, value in headers.items()}
    properties = Properties(delivery_mode=2, headers=table)
    client.publish(1, key, *bodies, exchange=exchange, properties=properties)
    cluster.settle()
    client.lose()


def taken(cluster: DiskCluster, queue: str) -> list[bytes]:
    return [body for body, _ in cluster.contents("n1", queue)]


def later(*keys: str) -> list[Method]:
    """Return what declares a delayed exchange `x` that leads to `alone` and, with an alternate exchange, to `other`."""
    alternate: Table = {**DELAYED, "alternate-exchange": longstr("amq.fanout")}
    return [
        QueueDeclare(queue="other", durable=True),
        QueueBind(queue="other", exchange="amq.fanout"),
        ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=alternate),
        *(QueueBind(queue=queue, exchange="x") for queue in keys),
    ]


@pytest.mark.parametrize("others", [(), ("other",)])
def test_a_delayed_message_waits_for_the_node_of_its_queue(others: tuple[str, ...]) -> None:
    """A message goes to no other queue before, nor by the alternate exchange."""
    cluster = cluster_of(*later("alone", *others))
    publish(cluster, "x", "", b"1", b"2", x_delay=1000)
    cluster.crash("n3")
    cluster.advance(5.0)
    assert taken(cluster, "other") == []
    cluster.start("n3")
    cluster.advance(RETRY_S + 0.1)
    assert taken(cluster, "alone") == [b"1", b"2"]
    assert taken(cluster, "other") == ([b"1", b"2"] if others else [])


def test_many_that_wait_do_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are tried each second; the rest goes back to the exchange for a while, and is not lost there."""
    monkeypatch.setattr(delayed_messages, "DUE_MAX", 8)
    monkeypatch.setattr(delayed_messages, "PARKED_MAX", 4)
    cluster = cluster_of(
        *later("alone"),
        ExchangeDeclare(exchange="y", type="x-delayed-message", durable=True, arguments=DELAYED),
        QueueBind(queue="other", exchange="y"),
    )
    cluster.crash("n3")
    cluster.settle()
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        publish(cluster, "x", "", body, x_delay=1000)
    cluster.advance(3.0)
    publish(cluster, "y", "", b"in time", x_delay=1000)
    cluster.advance(1.1)
    assert taken(cluster, "other") == [b"in time"]
    master = cluster.view("amq.delayed.x").master_node or ""
    assert cluster.queue(master, "amq.delayed.x").backlog.count == len(bodies) - 4
    cluster.start("n3")
    cluster.advance(delayed_messages.PARKED_S)
    cluster.advance(RETRY_S + 0.1)
    assert sorted(taken(cluster, "alone"), key=int) == bodies
    assert cluster.queue(master, "amq.delayed.x").backlog.count == 0


def test_what_was_taken_back_is_tried_by_the_next_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that the new master has taken over may be cancelled before it is tried again, too."""
    monkeypatch.setattr(delayed_messages, "PARKED_MAX", 0)
    cluster = cluster_of(*later("alone"))
    publish(cluster, "x", "", b"1", x_delay=1000)
    publish(cluster, "x", "", b"2", x_delay=1000)
    cluster.crash("n3")
    cluster.advance(2.0)
    queue = cluster.queue(cluster.view("amq.delayed.x").master_node or "", "amq.delayed.x")
    assert isinstance(queue, DelayedQueue)
    answers: list[bool] = []
    assert queue.withdraw(1, answers.append)
    assert answers == [True]
    cluster.start("n3")
    cluster.settle()
    cluster.transfer("amq.delayed.x", next(n for n in ("n1", "n2") if n != queue.record.home))
    cluster.settle()
    cluster.advance(0.1)
    assert taken(cluster, "alone") == [b"2"]


def test_it_waits_no_longer_when_the_queue_is_deleted() -> None:
    cluster = cluster_of(*later("alone", "other"))
    publish(cluster, "x", "", b"1", x_delay=1000)
    cluster.crash("n3")
    cluster.advance(5.0)
    cluster.submit(DeleteQueue("/", "alone"))
    cluster.advance(RETRY_S + 0.1)
    assert taken(cluster, "other") == [b"1"]


def test_a_message_for_other_queues_waits_for_none() -> None:
    cluster = cluster_of(*later("other"))
    publish(cluster, "x", "", b"1", x_delay=1000)
    cluster.crash("n3")
    cluster.advance(2.0)
    assert taken(cluster, "other") == [b"1"]


def test_messages_that_are_each_routed_by_themselves_wait_too() -> None:
    """Behind an exchange of a plug-in that hashes a header."""
    hashed: Table = {"hash-header": longstr("h")}
    cluster = cluster_of(
        ExchangeDeclare(exchange="hash", type="x-consistent-hash", durable=True, arguments=hashed),
        QueueBind(queue="alone", exchange="hash", routing_key="1"),
        ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True, arguments=DELAYED),
        ExchangeBind(destination="hash", source="x"),
    )
    publish(cluster, "x", "", b"1", b"2", x_delay=1000, h=7)
    cluster.crash("n3")
    cluster.advance(5.0)
    cluster.start("n3")
    cluster.advance(RETRY_S + 0.1)
    assert taken(cluster, "alone") == [b"1", b"2"]


@pytest.mark.parametrize("exchange", ["", "amq.fanout"])
def test_a_safe_letter_waits_for_the_node_of_each_of_its_queues(exchange: str) -> None:
    """The queue that is there gets it at once, and once only."""
    safe: Table = {
        "x-queue-type": longstr("quorum"),
        "x-dead-letter-strategy": longstr("at-least-once"),
        "x-overflow": longstr("reject-publish"),
        "x-dead-letter-exchange": longstr(exchange),
        "x-dead-letter-routing-key": longstr("alone"),
    }
    cluster = cluster_of(
        QueueDeclare(queue="q", durable=True, arguments=safe),
        QueueDeclare(queue="other", durable=True),
        QueueBind(queue="other", exchange="amq.fanout"),
        QueueBind(queue="alone", exchange="amq.fanout"),
    )
    cluster.crash("n3")
    cluster.settle()
    publish(cluster, "", "q", b"1")
    client = cluster["n1"].client()
    assert isinstance(client.ask(1, BasicGet(queue="q")), BasicGetOk)
    client.send(1, BasicNack(1, requeue=False))
    cluster.advance(3 * RETRY_MAX_S)
    assert taken(cluster, "other") == ([b"1"] if exchange else [])
    letters = cluster.queue(cluster.view("q").master_node or "", "q").letters
    assert letters.count == 1
    cluster.start("n3")
    cluster.advance(RETRY_MAX_S + 1)
    assert (taken(cluster, "alone"), taken(cluster, "other"), letters.count) == ([b"1"], [], 0)


def test_nothing_is_looked_for_while_all_nodes_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(*later("alone"))

    def find(self: FullRoutes, vhost: str) -> set[str]:
        raise AssertionError(vhost)

    monkeypatch.setattr(FullRoutes, "_find_absent", find)
    publish(cluster, "x", "", b"1", x_delay=1000)
    cluster.advance(2.0)
    assert taken(cluster, "alone") == [b"1"]
