"""Exchange types of plug-ins in a cluster of three processes: enabled on one node, used on all, kept over restarts.

RabbitMQ enables a plug-in on each node by itself, and sorts the ring anew after a restart: docs/plugins.md.
"""

from collections.abc import Callable

import pytest

from node.amqp.methods import ConfirmSelect, ExchangeDeclare, QueueBind, QueueDelete
from node.plugins.exchanges.erlang_hash import jump, phash2
from tests.conformance.queue_steps import drain
from tests.kit.amqp_client import Channel
from tests.kit.server_cluster import Cluster, is_rabbitmq

On = Callable[..., Channel]
Name = Callable[[str], str]

KEYS = [f"key.{number}" for number in range(60)]

pytestmark = pytest.mark.skipif(is_rabbitmq(), reason="RabbitMQ's plug-ins are a matter of single nodes")


def test_all_nodes_route_alike_before_and_after_a_restart(
    shaken_cluster: Cluster, on: On, name: Name
) -> None:
    """Queues live on different nodes, and were bound in an order that is not that of their names."""
    cluster = shaken_cluster
    cluster[0].admin.enable_plugin("rabbitmq_consistent_hash_exchange")
    exchange, queues = name("h"), [name(prefix) for prefix in ("c", "a", "b")]
    for number, queue in enumerate(queues):
        channel = on(cluster[number])
        if not number:
            channel.call(ExchangeDeclare, exchange=exchange, type="x-consistent-hash", durable=True)
        channel.declare(queue, durable=True)
        channel.call(QueueBind, queue=queue, exchange=exchange, routing_key="1")
    due = {queue: [] for queue in queues}
    for key in KEYS:
        due[queues[jump(phash2(key.encode()), len(queues))]].append(key.encode())

    def check(publishing: int) -> None:
        publisher, getter = on(cluster[publishing]), on(cluster[0])
        publisher.call(ConfirmSelect)
        for key in KEYS:
            publisher.publish(exchange, key, key.encode())
            publisher.connection.next_frame(1)
        assert {queue: drain(getter, queue) for queue in queues} == due

    for number in range(3):
        check(number)
    cluster[1].kill()
    cluster[1].launch()
    cluster[1].await_ready()
    for number in range(3):
        check(number)
    for queue in queues:
        on(cluster[0]).call(QueueDelete, queue=queue)
