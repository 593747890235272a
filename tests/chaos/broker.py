"""The chaos tests need this of a broker: nodes that come and go, a cluster of them, and somebody who operates it.

Fluffle's are `ChaosNode` and `ChaosCluster` of `tests.chaos.cluster`, and `FluffleOperator`.
Faults, load and checks use nothing else, so that the same run asks the same of RabbitMQ. What only one broker can do
says so by `BrokerCluster.kind`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from tests.kit.faulty_disk import FaultyDisk
from tests.kit.network import Network, Place

VHOST: Final = "/"
FLUFFLE: Final = "fluffle"
RABBITMQ: Final = "rabbitmq"
START_S: Final = 60.0
"""A start may take this long; only a failing test waits so long."""
SERVES_S: Final = 30.0
"""Each node must serve again this long after a fault has ended. Else the run is *stuck*: docs/reliability.md,
"What is counted"."""
Definition = Mapping[str, Any]
"""The definition of a policy has ha-mode, ha-params, ha-sync-mode, … as RabbitMQ calls them."""


class NodeFailed(AssertionError):
    """A node does not do what it must: start, stop, serve."""


class OperatorError(Exception):
    """No node did what an operator asked for."""


class Ring(NamedTuple):
    """A ring tells which nodes, by name, have copies of a queue.

    master: empty while there is none.   synchronised: those of the mirrors that have all.   joining: not yet mirrors.
    is_live: the queue can be used.   version: something that all nodes must agree on; empty: there is no such thing.
    """

    master: str
    mirrors: tuple[str, ...]
    synchronised: tuple[str, ...]
    joining: tuple[str, ...] = ()
    is_live: bool = True
    version: str = ""


class BrokerNode(Protocol):
    """One node: its process comes and goes, name, addresses and data stay.

    index: among the nodes.   short_name: n1, …; name: as the broker says it.   place: where it listens.
    data: its directory, which `small_disks` may have put on a file system of its own.   starts: how often so far.
    disk: what makes its disk fail and hang, if that is wanted.
    """

    index: int
    short_name: str
    name: str
    place: Place
    data: Path
    starts: int
    disk: FaultyDisk | None

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""

    def launch(self) -> None:
        """Start the process, and don't wait."""

    def kill(self) -> None:
        """kill -9, if it is there; frozen or not."""

    def freeze(self) -> None:
        """SIGSTOP, of all that makes the node."""

    def thaw(self) -> None:
        """SIGCONT, if it is there."""

    async def stop(self) -> int:
        """End it in peace, and wait. Returns: the exit code. Raises: NodeFailed if it has to be killed."""

    def usage(self) -> tuple[int, int]:
        """Resident memory in bytes, and open file descriptors."""

    def log_text(self) -> str:
        """Return what the last start has logged so far."""

    def log_end(self) -> str:
        """The last lines of it that say something."""

    def faults_in_log(self, allowed: re.Pattern[str] = ...) -> str:
        """Return what the log of the last start has that must not be in it; empty: nothing, or nobody looks."""


class BrokerCluster(Protocol):
    """The nodes.   kind: FLUFFLE or RABBITMQ.   network: what is between them.

    expected: reply codes that clients may be told while things happen, with words one of which the text must have.
    """

    kind: str

    @property
    def nodes(self) -> Sequence[BrokerNode]:
        """All, also those that don't run."""

    @property
    def network(self) -> Network:
        """Return the network between the nodes."""

    @property
    def expected(self) -> Mapping[int, Sequence[str]]:
        """See above."""

    async def start(self) -> None:
        """Start all, and wait until each sees each. Raises: NodeFailed."""

    async def await_up(self, limit_s: float = SERVES_S) -> float:
        """Wait until each node runs and sees each. Returns: how long it took, in s. Raises: NodeFailed."""

    async def leader(self) -> BrokerNode | None:
        """The leader of the metadata; None: nobody knows, or there is no such thing."""

    def close(self) -> None:
        """End all processes."""


class Operator(Protocol):
    """An operator asks this of the nodes, of any that answers. All raise OperatorError if none does."""

    async def set_policy(self, name: str, pattern: str, definition: Definition) -> None:
        """A policy for queues of `VHOST`, with priority 0."""

    async def rings(self, node: BrokerNode | None = None) -> dict[str, Ring]:
        """The mirrored queues by name, as this node or any says."""

    async def queue_master(self, queue: str) -> BrokerNode | None:
        """Return the node of the queue's master; None: nowhere, or nobody knows. Raises nothing."""

    async def depths(self, node: BrokerNode | None = None) -> dict[str, int]:
        """Return how many messages each queue has, ready or not, as this node or any says."""

    async def synchronise(self, queue: str) -> None:
        """Fill its mirrors; may return before they are full."""

    async def cancel_synchronisation(self, queue: str) -> None:
        """Stop that."""

    async def rebalance(self) -> None:
        """Spread the masters."""

    async def set_memory_watermark(self, node: BrokerNode, fraction: float | None) -> None:
        """Set a fraction of the machine's memory: 0 raises the alarm of this node; None: as it was configured."""
