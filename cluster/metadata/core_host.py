"""The interface between a core and its host, which stands in for PySyncObj's sockets."""

from typing import NamedTuple, Protocol

from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]

from cluster.metadata.wire import CoreMessage


class CoreHost(Protocol):
    """The driver of a core: it sends the core's messages and applies its entries."""

    def send(self, peer: str, message: CoreMessage) -> None:
        """Send a message of the core to a peer; it may get lost."""

    def apply(self, index: int, command: bytes, *, is_last: bool) -> None:
        """Apply a committed entry. An exception ends the tick.   is_last: it is the last committed one."""

    def committed(self) -> None:
        """Note that entries are committed that are not applied here yet."""

    def may_campaign(self) -> bool:
        """True if an election has a chance. Asked when the time to hear from a leader is over."""

    def reconfigured(self) -> None:
        """Note that the voters may have changed."""

    def asked_to_leave(self) -> None:
        """Note that this leader is to cease to vote: another member has to lead first."""


class Position(NamedTuple):
    """The progress of a member: its last entry, the last one committed, the last one applied, its term and role."""

    last: int
    committed: int
    applied: int
    term: int
    is_leader: bool


class CoreTransport(Transport):  # type: ignore[misc]  # PySyncObj has no types
    """PySyncObj's transport, which hands all messages to the host."""

    ready = True

    def __init__(self, host: CoreHost) -> None:
        super().__init__(None, None, [])
        self._host = host

    def send(self, node: Node, message: CoreMessage) -> bool:
        """Send a message to a peer; always accepted."""
        self._host.send(node.id, message)
        return True

    def tryGetReady(self) -> None:
        """Do nothing: the transport is always ready."""

    def addNode(self, node: Node) -> None:
        """Do nothing: links are the host's."""

    def dropNode(self, node: Node) -> None:
        """Do nothing: links are the host's."""

    def destroy(self) -> None:
        """Nothing to do."""


class NoPoller:
    """Stands in for PySyncObj's poller, as the core has no sockets."""

    def poll(self, timeout: float) -> None:
        """Do nothing."""
