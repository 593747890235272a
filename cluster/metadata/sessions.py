"""Apply each batch of commands once, even if it arrives twice or is overtaken.

A process numbers its batches from 1 on, under a session that it made up. The next number of the node's current
session is applied; any other is skipped: it came before, or its submitter will send what is missing first. A new
session ends the one before: batches of the node's former process that are still on their way come too late.
Source: reliability §3.4 (a retry of PySyncObj's own may apply a command twice).
"""

from dataclasses import dataclass, field
from typing import Final

from cluster.metadata.raft_pb2 import Batch, Client

_FORMER_MAX: Final = 8
"""The number of former sessions of a node that are remembered."""


@dataclass(slots=True)
class _Session:
    """The current session of a node.   number: of the last batch that was applied."""

    id: str
    number: int = 0
    former: list[str] = field(default_factory=list)


class Sessions:
    """The part of the replicated state that knows which batches of each node were applied."""

    def __init__(self) -> None:
        self._by_node: dict[str, _Session] = {}

    def takes(self, batch: Batch) -> bool:
        """True if a batch is to be applied; notes that it was."""
        session = self._by_node.get(batch.node)
        if session is None or batch.session not in (session.id, *session.former):
            if batch.number != 1:
                return False
            former = [] if session is None else [*session.former, session.id][-_FORMER_MAX:]
            session = self._by_node[batch.node] = _Session(batch.session, 0, former)
        if batch.session != session.id or batch.number != session.number + 1:
            return False
        session.number = batch.number
        return True

    def is_over(self, node: str, session: str) -> bool:
        """True if another session took this one's place."""
        current = self._by_node.get(node)
        return current is not None and session in current.former

    def applied_number(self, node: str, session: str) -> int:
        """Return the last number that was applied of a session; 0 if it is not the node's current one."""
        current = self._by_node.get(node)
        return current.number if current is not None and current.id == session else 0

    def forget(self, node: str) -> None:
        """Forget a node that left the cluster."""
        self._by_node.pop(node, None)

    def clients(self) -> list[Client]:
        """Return all that is remembered, for a snapshot."""
        return [
            Client(node=node, session=each.id, number=each.number, former_sessions=each.former)
            for node, each in self._by_node.items()
        ]

    def restore(self, client: Client) -> None:
        """Take a node's session from a snapshot."""
        self._by_node[client.node] = _Session(client.session, client.number, list(client.former_sessions))
