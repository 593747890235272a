"""The clusters that the conformance tests run against: three processes of Fluffle, or three nodes of a real RabbitMQ.

Both are nodes named n1@localhost, n2@localhost, n3@localhost, each in a directory of its own, private to the test
run, behind one interface: what an operator can do to a node, and what can happen to its process.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tests.kit.patience import wait_until
from tests.kit.servers import Admin, Settings

NAMES: Final = ("n1", "n2", "n3")

SETTINGS: Final[Settings] = {"cluster_partition_handling": "pause_minority"}
"""Fluffle knows no other way; RabbitMQ's default is to ignore partitions."""


class Ctl(NamedTuple):
    """The result of a run of `rabbitmqctl` or `fluffle ctl`."""

    code: int
    output: str
    errors: str


class Replicas(NamedTuple):
    """The copies of a queue, by the names of their nodes.

    master: "" while there is none, or the queue is unknown.   mirrors: its others that are there.
    synced: those mirrors that have all that the master has.
    """

    master: str
    mirrors: frozenset[str]
    synced: frozenset[str]


NO_REPLICAS: Final = Replicas("", frozenset(), frozenset())


class ClusterNode(Protocol):
    """A node and its process, which keeps data, address and settings from one life to the next. Is a `Server`."""

    name: str
    host: str
    port: int

    @property
    def admin(self) -> Admin: ...
    @property
    def is_alive(self) -> bool:
        """Return whether the process runs."""

    def ctl(self, *arguments: str, timeout_s: float = 60.0) -> Ctl:
        """Run the command line tool against this node, as an operator would."""

    def stop_app(self) -> None: ...
    def start_app(self) -> None: ...
    def launch(self) -> None:
        """Start the process, without waiting for anything."""

    def await_ready(self) -> None:
        """Wait until clients are accepted."""

    def terminate(self) -> None:
        """Send SIGTERM, and wait until the process has ended."""

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP)."""

    def thaw(self) -> None:
        """Let the process run again (SIGCONT)."""

    def home(self, queue: str, vhost: str = "/") -> str:
        """Return the name of the queue's home, "" if this node knows no such queue."""

    def homes(self) -> list[str]:
        """The names of the nodes where the queues of all vhosts live, one for each queue."""

    def replicas(self, queue: str, vhost: str = "/") -> Replicas:
        """Return the copies of the queue as this node sees them."""

    def sync(self, queue: str) -> None:
        """Run `sync_queue`, and wait for its end."""

    def cancel_sync(self, queue: str) -> None:
        """Run `cancel_sync_queue`."""

    def rebalance(self) -> None:
        """`rabbitmq-queues rebalance all`; returns when it has ended. Raises: RuntimeError, as for all refusals."""

    def drain(self) -> None:
        """Put the node into maintenance mode."""

    def revive(self) -> None: ...

    def running(self) -> set[str]:
        """The members that run and serve clients as this node sees it; empty while itself does not."""

    def stop(self) -> None:
        """End the process for good, whatever its state, and remove the directory."""


class Cluster:
    """A cluster of nodes, all of which are meant to run."""

    def __init__(self, nodes: Sequence[ClusterNode], close: Callable[[], None] = lambda: None) -> None:
        self.nodes = list(nodes)
        self._close = close
        self._cut: Callable[[Sequence[tuple[str, str]]], None] | None = None
        self._mend: Callable[[], None] | None = None

    def use_network(self, cut: Callable[[Sequence[tuple[str, str]]], None], mend: Callable[[], None]) -> None:
        """Set the functions that do `cut` and `mend`."""
        self._cut, self._mend = cut, mend

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Break the links between these pairs of nodes, by name. Only of `start_cluster(can_be_cut=True)`."""
        assert self._cut is not None
        self._cut(pairs)

    def mend(self) -> None:
        """Undo all cuts."""
        assert self._mend is not None
        self._mend()

    def node(self, name: str) -> ClusterNode:
        """Return the node of that name."""
        return next(node for node in self.nodes if node.name == name)

    def __getitem__(self, index: int) -> ClusterNode:
        return self.nodes[index]

    @property
    def host(self) -> str:
        return self.nodes[0].host

    def await_members(self, *names: str, seen_by: Sequence[ClusterNode] | None = None) -> None:
        """Wait until these nodes (all) see exactly these members running (all)."""
        expected = set(names) or {node.name for node in self.nodes}
        for node in self.nodes if seen_by is None else seen_by:
            _await_running(node, expected)

    def heal(self) -> None:
        """Bring back every node that a test stopped; return when all see all."""
        launched = [node for node in self.nodes if not node.is_alive]
        for node in self.nodes:
            node.thaw()
        for node in launched:
            node.launch()
        for node in launched:
            node.await_ready()
        for node in self.nodes:
            if node.name not in node.running():
                node.start_app()
                node.await_ready()
        self.await_members()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self._close()


def _await_running(node: ClusterNode, expected: set[str]) -> None:
    wait_until(lambda: node.running() == expected, f"{node.name} sees {expected} running")


def start_cluster(
    settings: Mapping[str, str] | None = None, names: Sequence[str] = NAMES, *, can_be_cut: bool = False
) -> Cluster:
    """Start a cluster of what FLUFFLE_TEST_AGAINST names.

    settings: keys that differ from the defaults.   can_be_cut: so that `Cluster.cut` works.
    """
    return _kind().form({**SETTINGS, **(settings or {})}, names, can_be_cut=can_be_cut)


def start_nodes(settings: Mapping[str, str] | None = None, names: Sequence[str] = NAMES) -> Cluster:
    """Start the nodes of a cluster without joining them."""
    return _kind().separate({**SETTINGS, **(settings or {})}, names)


class _Kind(Protocol):
    @staticmethod
    def form(settings: Mapping[str, str], names: Sequence[str], *, can_be_cut: bool) -> Cluster: ...
    @staticmethod
    def separate(settings: Mapping[str, str], names: Sequence[str]) -> Cluster: ...


def is_rabbitmq() -> bool:
    return os.environ.get("FLUFFLE_TEST_AGAINST", "fluffle") == "rabbitmq"


def _kind() -> type[_Kind]:
    # Late: they import this module.
    if is_rabbitmq():
        from tests.kit.rabbit_cluster import RabbitCluster

        return RabbitCluster
    from tests.kit.fluffle_cluster import FluffleCluster

    return FluffleCluster
