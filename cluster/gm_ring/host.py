"""The calls that a member of a ring makes to the node that it is part of."""

from collections.abc import Sequence
from typing import Protocol

from cluster.gm_ring.messages import Activity, CatchUp
from node.catalogue.mirrors.views import ViewChange


class RingHost(Protocol):
    """The node's side of a ring member. Each method may call `broadcast` and `on_disk` of the member, none may call
    `see` or `receive`.
    """

    def send(self, to: int, message: Activity | CatchUp) -> None:
        """Send a message to another member, always the right neighbour. Called by `Member.flush` only."""

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        """Take broadcasts of another member, in order, each once.   first: the number of the first one.

        Returns: True if their origin waits for this node's disk, so that `on_disk` follows.
        """

    def confirmed(self, upto: int) -> None:
        """Note that all members have this member's own broadcasts up to this number."""

    def durable(self, upto: int) -> None:
        """Note that own broadcasts up to this number are on the disk of every member that counts."""

    def propose(self, change: ViewChange) -> None:
        """Ask for a change of the view. It may be lost: `Member.retry` asks again."""

    def lost(self, reason: str) -> None:
        """Note that the member has left the ring and forgotten its state. It calls nothing after this."""

    def active(self) -> None:
        """Note that the member has adopted its left neighbour's state: it delivers all broadcasts from now on."""


class Nobody:
    """The `RingHost` of a member that has left the ring; it ignores all calls."""

    def send(self, to: int, message: Activity | CatchUp) -> None:
        """Drop the message."""

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        """Drop the broadcasts."""
        return False

    def confirmed(self, upto: int) -> None:
        """Ignore the confirmation."""

    def durable(self, upto: int) -> None:
        """Ignore the mark."""

    def propose(self, change: ViewChange) -> None:
        """Drop the change."""

    def lost(self, reason: str) -> None:
        """Ignore the loss."""

    def active(self) -> None:
        """Ignore the activation."""
