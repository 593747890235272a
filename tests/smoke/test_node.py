"""One real node and pika: what was confirmed is there after kill -9, once and in order."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.kit.cluster_processes import HOST, MemberProcess, cluster_processes

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MemberProcess]:
    """A node alone."""
    with cluster_processes(tmp_path, is_forked=False) as processes:
        alone = processes.make("n1", is_plain=True)
        alone.start()
        yield alone


def channel_to(node: MemberProcess) -> "pika.adapters.blocking_connection.BlockingChannel":
    """A channel of a new connection, which ends with the node."""
    channel = pika.BlockingConnection(pika.ConnectionParameters(HOST, node.port)).channel()
    channel.confirm_delivery()
    return channel


def test_confirmed_messages_outlive_the_process(node: MemberProcess) -> None:
    """Routed by a topic; a client had one that it had not acknowledged."""
    channel = channel_to(node)
    channel.exchange_declare("x", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "x", "orders.*")
    for number in range(10):
        channel.basic_publish("x", f"orders.{number}", b"%d" % number, PERSISTENT, mandatory=True)
    assert channel.basic_get("q")[2] == b"0"
    node.kill()
    node.start()
    channel = channel_to(node)
    left = [channel.basic_get("q", auto_ack=True)[2] for _ in range(10)]
    assert left == [b"%d" % number for number in range(10)]
    assert channel.basic_get("q") == (None, None, None)
    assert node.stop() == 0
