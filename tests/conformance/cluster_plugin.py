"""Run the tests of a single node against the second node of a cluster, with their queues on the first.

    .venv/bin/python -m pytest -p tests.conformance.cluster_plugin tests/conformance/test_section_4_*.py

Every rule of amqp-behaviour must hold on a node of a cluster, and for a queue whose home is another one. So the
`server` of all tests becomes a node of three here, and `Channel.declare(exclusive=True)`, the queue that most tests
use, makes a queue on the first node instead, declared again by the test's own channel. Tests about exclusiveness
say so by `call(QueueDeclare, exclusive=True)` and are left alone. FLUFFLE_TEST_QUEUES=local leaves all alone.
"""

import os
from collections.abc import Mapping
from typing import Any

from node.amqp import methods
from tests.kit import amqp_client, servers
from tests.kit.server_cluster import Cluster, ClusterNode, start_cluster


class _Node:
    """A node of a cluster as a `Server`, whose end is the cluster's."""

    def __init__(self, cluster: Cluster, node: ClusterNode) -> None:
        self._cluster = cluster
        self._node = node
        self.host, self.port = node.host, node.port
        self.admin = node.admin

    def stop(self) -> None:
        self._cluster.stop()


_homes: dict[int, ClusterNode] = {}
"""By the port of the node that tests talk to: where their queues are to live."""


def _start_server(settings: Mapping[str, str] | None = None) -> Any:
    cluster = start_cluster(settings)
    _homes[cluster[1].port] = cluster[0]
    return _Node(cluster, cluster[1])


_declare = amqp_client.Channel.declare
_makers: dict[tuple[int, str, str], amqp_client.Channel] = {}


def _declare_elsewhere(self: amqp_client.Channel, queue: str = "", **fields: Any) -> str:
    port = self.connection.socket.getpeername()[1]
    home = _homes.get(port)
    if home is None or not fields.pop("exclusive", False):
        return _declare(self, queue, **fields)
    # By the user and in the vhost of the test, who may not be allowed to: then it fails as it would have.
    key = (port, self.connection.user, self.connection.vhost)
    if key not in _makers:
        connection = amqp_client.Connection(
            home, self.connection.user, self.connection.password, self.connection.vhost
        )
        _makers[key] = connection.channel(1)
    try:
        made: str = _makers[key].call(methods.QueueDeclare, queue=queue, **fields).queue
    except AssertionError:
        del _makers[key]
        raise
    return _declare(self, made, passive=True)


# At once: conftest.py takes the names from there when it is imported, which is before any hook.
servers.start_server = _start_server
if os.environ.get("FLUFFLE_TEST_QUEUES") != "local":
    amqp_client.Channel.declare = _declare_elsewhere  # type: ignore[method-assign]
