"""The node that runs a shovel is killed: another one goes on with it, and nothing is lost under `on-confirm`.

RabbitMQ does the same with a supervisor of its own; what is counted here is docs/shovels.md's promise.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from node.amqp import methods as m
from node.amqp.properties import Properties
from node.io.control import request
from tests.conformance.shovel.conftest import drain
from tests.kit.amqp_client import Connection
from tests.kit.fluffle_cluster import FluffleNode
from tests.kit.mirror_steps import set_mirroring
from tests.kit.patience import wait_until
from tests.kit.server_cluster import Cluster, ClusterNode, is_rabbitmq, start_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(is_rabbitmq(), reason="this is a promise of Fluffle's"),
]

MESSAGES = 4000
PREFETCH = 100
PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture(autouse=True)
def no_other_connection_notices() -> None:
    """Stand in for the conformance tests' bystander, who has a server of its own."""


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    """A cluster with the plug-in, whose queues are all mirrored on all nodes."""
    cluster = start_cluster()
    cluster[0].admin.enable_plugin("rabbitmq_shovel")  # type: ignore[attr-defined]
    set_mirroring(cluster[0], "shovel-", "all", ha_sync_mode="automatic")
    yield cluster
    cluster.stop()


def _ask(node: ClusterNode, operation: str, **arguments: Any) -> Any:
    return request(cast(FluffleNode, node).data, operation, arguments, timeout_s=30.0)


def _owners(nodes: list[ClusterNode]) -> list[ClusterNode]:
    """Return the nodes on which the shovel runs."""
    return [
        node
        for node in nodes
        if any(row["state"] == "running" for row in _ask(node, "shovel_status")["rows"])
    ]


def _fill(connection: Connection, queue: str) -> None:
    channel = connection.channel()
    channel.call(m.QueueDeclare, queue=queue, durable=True)
    channel.call(m.ConfirmSelect)
    for number in range(MESSAGES):
        channel.publish("", queue, b"%d" % number, PERSISTENT)
    confirmed = 0
    while confirmed < MESSAGES:
        ack = channel.expect(m.BasicAck, 60.0)
        confirmed = ack.delivery_tag if ack.multiple else confirmed + 1


def test_a_killed_owner_loses_nothing(nodes: Cluster) -> None:
    connection = Connection(nodes[0])
    _fill(connection, "shovel-source")
    connection.abandon()
    value = {
        "src-uri": "amqp://",
        "src-queue": "shovel-source",
        "src-prefetch-count": PREFETCH,
        "dest-uri": "amqp://",
        "dest-queue": "shovel-destination",
    }
    _ask(nodes[1], "set_parameter", vhost="/", component="shovel", name="mover", value=json.dumps(value))
    everyone = list(nodes.nodes)
    (owner,) = wait_until(lambda: _owners(everyone), "the shovel runs somewhere")
    owner.kill()
    left = [node for node in everyone if node is not owner]
    (successor,) = wait_until(lambda: _owners(left), "the shovel runs on another node")
    assert successor is not owner

    reader = Connection(left[0])
    channel = reader.channel()
    seen: Counter[bytes] = Counter()
    while len(seen) < MESSAGES:
        seen.update(drain(channel, "shovel-destination", 1))
    assert set(seen) == {b"%d" % number for number in range(MESSAGES)}
    twice = sum(seen.values()) - MESSAGES
    assert twice <= PREFETCH * 2, "only what was under way can come twice"
    reader.abandon()
