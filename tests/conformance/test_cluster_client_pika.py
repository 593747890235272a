"""amqp-behaviour §9 with pika, unmodified: what an application of three processes on three nodes does."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    UnroutableError,
)

from tests.conformance.pika_steps import let_happen, parameters, wait_get
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode

Name = Callable[[str], str]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def connect() -> Iterator[Callable[[ClusterNode], Any]]:
    """Make BlockingConnections to a node; they end with the test."""
    made: list[Any] = []

    def make(node: ClusterNode) -> Any:
        made.append(pika.BlockingConnection(parameters(node)))
        return made[-1]

    yield make
    for each in made:
        with contextlib.suppress(AMQPConnectionError):  # its node may have gone
            each.close()


def test_declare_publish_consume_on_three(
    cluster: Cluster, connect: Callable[[ClusterNode], Any], name: Name
) -> None:
    """Declare on one, publish on the second, consume on the third."""
    first, second, third = (connect(node).channel() for node in cluster.nodes)
    queue = name("q")
    first.queue_declare(queue, durable=True)
    second.confirm_delivery()
    for number in range(500):
        second.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)
    bodies = []
    third.basic_qos(prefetch_count=20)
    for method, _, body in third.consume(queue, inactivity_timeout=10):
        assert method is not None
        third.basic_ack(method.delivery_tag)
        bodies.append(body)
        if len(bodies) == 500:
            break
    third.cancel()
    assert bodies == [b"%d" % number for number in range(500)]
    assert first.queue_declare(queue, passive=True).method.message_count == 0


def test_publisher_confirms_tell(cluster: Cluster, connect: Callable[[ClusterNode], Any], name: Name) -> None:
    """§4.2, §5.4: UnroutableError and NackError, of a queue on another node."""
    queue = name("q")
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    connect(cluster[0]).channel().queue_declare(queue, arguments=arguments)
    channel = connect(cluster[1]).channel()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"2")
    with pytest.raises(UnroutableError):
        channel.basic_publish("", name("nowhere"), b"3", mandatory=True)


def test_rpc(cluster: Cluster, connect: Callable[[ClusterNode], Any], name: Name) -> None:
    """§4.12: the client on one node with amq.rabbitmq.reply-to, the server on another."""
    queue = name("rpc")
    server_connection, client_connection = connect(cluster[2]), connect(cluster[0])
    server, client = server_connection.channel(), client_connection.channel()
    server.queue_declare(queue)
    answers: list[bytes] = []

    def serve(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", properties.reply_to, body.upper())
        channel.basic_ack(method.delivery_tag)

    server.basic_consume(queue, serve)
    client.basic_consume("amq.rabbitmq.reply-to", lambda *a: answers.append(a[3]), auto_ack=True)
    for number in range(10):
        client.basic_publish(
            "", queue, b"ask %d" % number, pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        )

    def answered() -> bool:
        server_connection.process_data_events(time_limit=0)
        client_connection.process_data_events(time_limit=0)
        return len(answers) == 10

    wait_until(answered)
    assert answers == [b"ASK %d" % number for number in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stop_app", "kill"])
def test_the_home_goes_and_comes(
    shaken_cluster: Cluster, connect: Callable[[ClusterNode], Any], name: Name, end: str
) -> None:
    """§9.1: what pika makes of it: cancelled consumers, ChannelClosedByBroker with the text, unroutable."""
    cluster, queue = shaken_cluster, name("q")
    home_connection = connect(cluster[1])
    home_connection.channel().queue_declare(queue, durable=True)
    connection = connect(cluster[0])
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"kept", PERSISTENT)
    delivered: list[Any] = []
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(queue, lambda *a: delivered.append(a), consumer_tag="c")
    let_happen(connection, lambda: delivered)
    getattr(cluster[1], end)()
    let_happen(connection, lambda: cancelled)
    assert cancelled[0].method.consumer_tag == "c"
    channel.basic_ack(delivered[0][1].delivery_tag)
    time.sleep(
        0.5
    )  # RabbitMQ tells consumers first, and nacks what comes until it has removed the queue's routes
    with pytest.raises(UnroutableError):
        channel.basic_publish("", queue, b"lost", PERSISTENT, mandatory=True)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, durable=True)
    assert closed.value.reply_code == 404
    assert closed.value.reply_text == (
        f"NOT_FOUND - home node 'n2@localhost' of durable queue '{queue}' in vhost '/' is down or inaccessible"
    )
    with pytest.raises((ConnectionClosedByBroker, AMQPConnectionError)):
        home_connection.process_data_events(time_limit=5)
    with pytest.raises(AMQPConnectionError):
        connect(cluster[1])
    cluster.heal()
    channel = connection.channel()
    method, _, body = wait_get(channel, queue)
    assert (body, method.redelivered) == (b"kept", True)


@pytest.mark.slow
def test_a_client_with_three_addresses(
    shaken_cluster: Cluster, connect: Callable[[ClusterNode], Any], name: Name
) -> None:
    """Stop any one, and pika connects to the next."""
    queue = name("q")
    connect(shaken_cluster[0]).channel().queue_declare(queue, durable=True)
    addresses = [parameters(node) for node in (shaken_cluster[2], shaken_cluster[1], shaken_cluster[0])]
    connection = pika.BlockingConnection(addresses)
    shaken_cluster[2].terminate()
    with pytest.raises((ConnectionClosedByBroker, AMQPConnectionError)):
        connection.process_data_events(time_limit=10)
    connection = pika.BlockingConnection(addresses)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"by the second", PERSISTENT, mandatory=True)
    assert wait_get(channel, queue)[2] == b"by the second"
    connection.close()
