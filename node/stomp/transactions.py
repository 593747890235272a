"""Transactions of one connection: SEND, ACK and NACK frames that are carried out together when COMMIT comes.

They are kept here until then, as in RabbitMQ's plug-in; nothing of them is known to the broker, and ABORT forgets them.
"""

from typing import Final, NamedTuple, TypeAlias

from node.amqp.erlang import string_literal
from node.plugins import Properties
from node.stomp.errors import StompError

TRANSACTIONS_MAX: Final = 100
"""The most open transactions of one connection; another BEGIN is refused."""

HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that open transactions of one connection hold; a frame that would exceed it is refused."""

_ACTION_BYTES: Final = 1024
"""What a frame costs besides its body, at the least."""


class HeldPublish(NamedTuple):
    """A SEND frame.   receipt: None if none is wanted."""

    exchange: str
    routing_key: str
    properties: Properties
    body: bytes
    receipt: str | None


class HeldSettlement(NamedTuple):
    """An ACK or a NACK frame.   requeues: None for an ACK."""

    consumer_tag: str
    delivery_tag: int
    requeues: bool | None


Action: TypeAlias = HeldPublish | HeldSettlement


class Transactions:
    """The open transactions of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, list[Action]] = {}
        self._sizes: dict[str, int] = {}
        self.held_bytes = 0

    def begin(self, name: str) -> None:
        """Begin a transaction. Raises: StompError."""
        if name in self._open:
            raise StompError("Bad transaction", f"Transaction {string_literal(name)} has begun already\n")
        if len(self._open) >= TRANSACTIONS_MAX:
            raise StompError("Bad transaction", f"There are {TRANSACTIONS_MAX} open transactions\n")
        self._open[name] = []
        self._sizes[name] = 0

    def add(self, name: str, action: Action, size: int) -> None:
        """Add a frame to a transaction.   size: of its head and body. Raises: StompError."""
        actions, size = self._find(name), size + _ACTION_BYTES
        if self.held_bytes + size > HELD_MAX_BYTES:
            raise StompError("Bad transaction", f"Open transactions hold more than {HELD_MAX_BYTES} bytes\n")
        actions.append(action)
        self._sizes[name] += size
        self.held_bytes += size

    def end(self, name: str) -> list[Action]:
        """End a transaction, and return its frames in their order. Raises: StompError."""
        actions = self._find(name)
        del self._open[name]
        self.held_bytes -= self._sizes.pop(name)
        return actions

    def _find(self, name: str) -> list[Action]:
        if name not in self._open:
            raise StompError("Bad transaction", f"Invalid transaction identifier: {string_literal(name)}\n")
        return self._open[name]
