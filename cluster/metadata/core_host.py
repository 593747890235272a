"""What a core stands on in the place of PySyncObj's sockets: its host, who is asked and told."""

from typing import NamedTuple, Protocol

from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]

from cluster.metadata.wire import CoreMessage


class Host(Protocol):
    """Who drives a core."""

    def send(self, peer: str, message: CoreMessage) -> None:
        """A message of the core to a peer; it may get lost."""

    def apply(self, index: int, command: bytes) -> None:
        """A committed entry. What it raises ends the tick."""

    def may_campaign(self) -> bool:
        """The time to hear from a leader is over: whether an election has a chance."""

    def reconfigured(self) -> None:
        """Who votes may have changed."""

    def asked_to_leave(self) -> None:
        """This leader is to cease to vote: somebody else has to lead first."""


class Position(NamedTuple):
    """How far a member is: its last entry, the last one committed, the last one applied; and who leads."""

    last: int
    committed: int
    applied: int
    term: int
    is_leader: bool


class CoreTransport(Transport):  # type: ignore[misc]  # PySyncObj has no types
    """PySyncObj's way to others: the host."""

    ready = True

    def __init__(self, host: Host) -> None:
        super().__init__(None, None, [])
        self._host = host

    def send(self, node: Node, message: CoreMessage) -> bool:
        """A message for a peer; always taken."""
        self._host.send(node.id, message)
        return True

    def tryGetReady(self) -> None:
        """It always is."""

    def addNode(self, node: Node) -> None:
        """Links are the host's."""

    def dropNode(self, node: Node) -> None:
        """Links are the host's."""

    def destroy(self) -> None:
        """Nothing to do."""


class NoPoller:
    """In the place of the poller: there are no sockets."""

    def poll(self, timeout: float) -> None:
        """Nothing happens."""
