"""Whom a member of a ring tells what comes of its broadcasts and of those of others."""

from collections.abc import Sequence
from typing import Protocol

from cluster.gm_ring.messages import Activity, CatchUp
from node.catalogue.mirrors.views import ViewChange


class Host(Protocol):
    """What a member is part of. Any of these may call `broadcast` and `on_disk`, none may call `see` or `receive`."""

    def send(self, to: int, message: Activity | CatchUp) -> None:
        """For a member, always the right neighbour. Called by `Member.flush` only."""

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> None:
        """Broadcasts of another member, in order, each once.   first: the number of the first."""

    def confirmed(self, upto: int) -> None:
        """Own broadcasts up to here are at every member."""

    def durable(self, upto: int) -> None:
        """… and on the disk of every member that counts."""

    def propose(self, change: ViewChange) -> None:
        """Ask for a change of the view. It may be lost: `Member.retry` asks again."""

    def lost(self, reason: str) -> None:
        """It is no member any more, and knows nothing any more. Nothing is called after this."""

    def active(self) -> None:
        """It has adopted its left neighbour's state: what comes from now on is delivered."""


class Nobody:
    """The `Host` of a member that has left."""

    def send(self, to: int, message: Activity | CatchUp) -> None:
        """See `Host.send`."""

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> None:
        """See `Host.deliver`."""

    def confirmed(self, upto: int) -> None:
        """See `Host.confirmed`."""

    def durable(self, upto: int) -> None:
        """See `Host.durable`."""

    def propose(self, change: ViewChange) -> None:
        """See `Host.propose`."""

    def lost(self, reason: str) -> None:
        """See `Host.lost`."""

    def active(self) -> None:
        """See `Host.active`."""
