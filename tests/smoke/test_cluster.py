"""Three real nodes and pika: a mirrored queue outlives kill -9 of the node that has its master."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.kit.cluster_processes import (
    HOST,
    WAIT_S,
    MemberProcess,
    cluster_processes,
    until,
)

PERSISTENT = pika.BasicProperties(delivery_mode=2)
ALL = '{"ha-mode":"all"}'


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[MemberProcess]]:
    """Three nodes that mirror all queues."""
    with cluster_processes(tmp_path, is_forked=False) as processes:
        formed = processes.formed("n1", "n2", "n3")
        formed[0].ask("set_policy", vhost="/", name="ha", pattern="", definition=ALL, apply_to="queues")
        yield formed


def connected(node: MemberProcess) -> "contextlib.closing[pika.BlockingConnection]":
    """A connection that is closed at the end of a `with`."""
    return contextlib.closing(pika.BlockingConnection(pika.ConnectionParameters(HOST, node.port)))


def consumed(node: MemberProcess, count: int) -> list[bytes]:
    """Consume and acknowledge until there are so many different messages, and return all that came."""
    got: list[bytes] = []
    with connected(node) as connection:
        channel = connection.channel()
        deadline = time.monotonic() + WAIT_S
        for method, _, body in channel.consume("q", inactivity_timeout=0.5):
            if method is not None:
                got.append(body)
                channel.basic_ack(method.delivery_tag)
            if len(set(got)) == count:
                break
            assert time.monotonic() < deadline, got
        channel.cancel()
    return got


def test_a_mirrored_queue_outlives_its_master(nodes: list[MemberProcess]) -> None:
    """Declared on one node, published to on the second; the first is killed; consumed on the third."""
    first, second, third = nodes
    wanted = [b"%d" % number for number in range(20)]
    with connected(first) as connection:
        connection.channel().queue_declare("q", durable=True)
    with connected(second) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in wanted[:10]:
            channel.basic_publish("", "q", body, PERSISTENT, mandatory=True)
        first.kill()
        until(lambda: is_served_without(first, third), "another node has the master")
        for body in wanted[10:]:
            channel.basic_publish("", "q", body, PERSISTENT, mandatory=True)
    assert consumed(third, len(wanted)) == wanted


def is_served_without(gone: MemberProcess, node: MemberProcess) -> bool:
    """Whether the queue's master is on a node that runs, as this one sees it."""
    [ring] = node.ask("list_rings", vhost="/")["rings"]
    return bool(ring["state"] == "live" and ring["master"] != gone.name)
