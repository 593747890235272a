"""Queues count at home, channels and exchanges where the clients are, also on other nodes (management §1.12).

The firehose is where the clients are, too.
"""

from dataclasses import asdict

import pytest

from node.amqp.methods import BasicAck, BasicConsume, BasicDeliver, BasicGet, BasicNack, QueueBind
from node.broker.tracing import TRACE_EXCHANGE
from node.catalogue.commands import PutVhost
from node.client.counters import ExchangeCounters
from tests.kit.cluster import Cluster, Node, client_of


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster("n1", "n2")
    cluster.declare("n2", "q")
    return cluster


def counted(node: Node) -> dict[str, int]:
    """Return what the queue q has counted at its home, without zeros."""
    return {name: value for name, value in asdict(node.home_queue("q").counters).items() if value}


def test_publishes(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1", b"2", b"3")
    client.received()
    assert counted(cluster["n2"]) == {"publish": 3}
    assert client.channel().counters.publish == 3
    assert cluster["n1"].broker.vhosts["/"].exchange_counters == {"": ExchangeCounters(3, 3)}
    assert cluster["n2"].broker.vhosts["/"].exchange_counters == {}


def test_deliveries(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1", b"2", b"3")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    client.send(1, BasicAck(1))
    client.send(1, BasicNack(2, False, True))
    client.received()
    expected = {"publish": 3, "deliver": 4, "redeliver": 1, "ack": 1}
    assert counted(cluster["n2"]) == expected
    counters = client.channel().counters
    assert {name: getattr(counters, name) for name in expected} == expected


def test_deliveries_that_need_no_acknowledgement(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.publish(1, "q", b"1", b"2")
    client.received()
    assert counted(cluster["n2"]) == {"publish": 2, "deliver_no_ack": 2}
    assert client.channel().counters.deliver_no_ack == 2


def test_gets(cluster: Cluster) -> None:
    client = client_of(cluster["n1"])
    client.publish(1, "q", b"1")
    client.send(1, BasicGet(queue="q"))
    client.received()
    client.send(1, BasicAck(1))
    client.send(1, BasicGet(queue="q"))
    client.received()
    expected = {"publish": 1, "get": 1, "get_empty": 1, "ack": 1}
    assert counted(cluster["n2"]) == expected


def test_what_goes_back_on_its_way_was_not_delivered_twice(cluster: Cluster) -> None:
    """A consumer that needs no acknowledgements is gone before its messages reached it."""
    client = client_of(cluster["n1"])
    client.send(1, BasicConsume(queue="q", consumer_tag="t", no_ack=True))
    client.received()
    cluster.is_held = True
    client.publish(1, "q", b"1")
    cluster["n1"].turn()
    cluster.deliver("n1", "n2")
    client.lose()
    cluster.is_held = False
    cluster.settle()
    assert counted(cluster["n2"]) == {"publish": 1, "deliver_no_ack": 1}
    assert cluster["n2"].home_queue("q").backlog.count == 1


def test_a_queue_of_copies_on_another_node(cluster: Cluster) -> None:
    """The node with the client makes the copies, and the home of their queue gets them."""
    cluster.declare("n2", "copies")
    client, watcher = client_of(cluster["n1"]), client_of(cluster["n2"])
    watcher.send(1, QueueBind(queue="copies", exchange=TRACE_EXCHANGE, routing_key="#"))
    watcher.send(1, BasicConsume(queue="copies", consumer_tag="w", no_ack=True))
    watcher.received()
    cluster.submit(PutVhost("/", metadata={"tracing": True}))
    client.publish(1, "q", b"1")
    client.send(1, BasicConsume(queue="q", consumer_tag="t"))
    client.received()
    copies = watcher.received()
    keys = [each.method.routing_key for each in copies if isinstance(each.method, BasicDeliver)]
    assert keys == ["publish.", "deliver.q"]
    assert {each.body for each in copies} == {b"1"}
