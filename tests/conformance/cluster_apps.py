"""The applications of test_cluster_apps.py are to survive these restarts of nodes.

Each application's queues are durable and unmirrored, one on each node. While a queue's home is away its consumers are
cancelled, it cannot be declared (404) and what is published to it is unroutable (amqp-behaviour §9.1): the
applications try again, as they have to with RabbitMQ. What was confirmed must be done in the end, at least once.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from tests.kit.server_cluster import Cluster, ClusterNode

RESTARTS: Final = (("terminate", 0), ("terminate", 1), ("terminate", 2), ("kill", 0))
"""A rolling restart, and a node that dies: how each ends, and which."""

AWAY_S: Final = 1.0
"""A node stays away at least this long, so that the applications notice."""

PROGRESS_S: Final = 60.0
"""After a restart everything goes on within this time: clients wait some seconds, then workers come back."""


def restart(cluster: Cluster, end: str, which: int) -> None:
    """End a node, start it again; returns when all nodes see all."""
    node: ClusterNode = cluster[which]
    {"terminate": node.terminate, "kill": node.kill}[end]()
    time.sleep(AWAY_S)
    cluster.heal()


@contextlib.contextmanager
def no_faults(cluster: Cluster) -> Iterator[None]:
    """For the time of the block, what restarts and applications do is no surprise to a node: no traceback is logged."""
    lengths = [len(_log(node)) for node in cluster.nodes]
    yield
    for node, length in zip(cluster.nodes, lengths, strict=True):
        _, traceback, text = _log(node)[length:].partition("Traceback")
        assert not traceback, f"{node.name}: {text[:3000]}"


def _log(node: ClusterNode) -> str:
    """Return what Fluffle's node has printed; RabbitMQ's log is its own affair."""
    return getattr(node, "log", "")


def missing(confirmed: set[int], done: set[int]) -> str:
    """Describe the tasks that were confirmed and are not done, for a message."""
    lost = sorted(confirmed - done)
    return f"{len(lost)} of {len(confirmed)} confirmed are not done, first {lost[:10]}"


def await_progress(counts: Callable[[], tuple[int, ...]], what: str, within_s: float = PROGRESS_S) -> None:
    """Wait until each of the counts has grown."""
    begin, deadline = counts(), time.monotonic() + within_s
    while not all(now > before for now, before in zip(counts(), begin, strict=True)):
        if time.monotonic() > deadline:
            raise AssertionError(f"no progress within {within_s} s after {what}: {begin} -> {counts()}")
        time.sleep(0.05)
