"""amqp-behaviour §9.7, reliability §2.2: what is declared on one node routes on the next at once."""

from collections.abc import Callable

import pytest

from node.amqp.field_table import Table, longstr
from node.amqp.methods import BasicAck, BasicCancel, ExchangeDeclare, QueueBind, QueueDelete
from node.amqp.properties import Properties
from tests.conformance.cluster_story import publish
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import Cluster

On = Callable[..., Channel]
Name = Callable[[str], str]


@pytest.fixture
def near(cluster: Cluster, on: On) -> Channel:
    return on(cluster[0])


@pytest.fixture
def there(cluster: Cluster, on: On) -> Channel:
    return on(cluster[1])


@pytest.fixture
def far(cluster: Cluster, on: On) -> Channel:
    return on(cluster[2])


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers"])
def test_declared_here_published_there(
    near: Channel, there: Channel, far: Channel, name: Name, type_: str
) -> None:
    """§9.7: declare and bind on one node, publish on the next at once, 50 times; nothing is unroutable."""
    arguments: Table = {"x-match": longstr("all"), "colour": longstr("red")} if type_ == "headers" else {}
    key = {"topic": "a.*.#"}.get(type_, "a.b.c")
    properties = Properties(headers={"colour": longstr("red")})
    for turn in range(50):
        exchange = name("x")
        near.call(ExchangeDeclare, exchange=exchange, type=type_, auto_delete=True)
        queue = near.declare(name("q"), auto_delete=True)
        near.call(QueueBind, queue=queue, exchange=exchange, routing_key=key, arguments=arguments)
        there.publish(exchange, "a.b.c", b"%d" % turn, properties, mandatory=True)
        there.sync()
        assert far.wait_get(queue).body == b"%d" % turn
        far.call(QueueDelete, queue=queue)


def test_rapid_redeclare(near: Channel, there: Channel, name: Name) -> None:
    """reliability §2.2 simple_ha rapid_redeclare: declared here, deleted there, again and again."""
    queue = name("q")
    for _ in range(50):
        near.declare(queue, durable=True)
        there.call(QueueDelete, queue=queue)


def test_rapid_change(cluster: Cluster, near: Channel, there: Channel, name: Name) -> None:
    """reliability §2.2 rapid_change: declare, publish, consume, delete while policies come and go."""
    queue = name("q")
    for turn in range(30):
        near.declare(queue, durable=True)
        cluster[turn % 3].admin.set_policy("/", queue, f"^{queue}", {"max-length": 100 + turn})
        publish(there, queue, b"x")
        tag = there.consume(queue)
        content = there.deliver()
        there.send(BasicAck, delivery_tag=content.method.delivery_tag)
        there.call(BasicCancel, consumer_tag=tag)
        near.call(QueueDelete, queue=queue)
        cluster[(turn + 1) % 3].admin.clear_policy("/", queue)
