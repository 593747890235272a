"""A mirrored queue as one broker knows it: its record in the catalogue, and the copy that is here, if any."""

from typing import Any

from cluster.mirror.replica import Replica
from node.catalogue.mirrors.views import View
from node.catalogue.records import QueueRecord


class KnownQueue:
    """One mirrored queue.

    kind: which live queue the clients of this node have: where it lives, and since when.   replica: None without a copy
        here.
    """

    __slots__ = ("kind", "record", "replica")

    def __init__(self, record: QueueRecord) -> None:
        self.record = record
        self.kind: tuple[Any, ...] = ()
        self.replica: Replica | None = None

    @property
    def view(self) -> View:
        """The view that was seen last."""
        assert self.record.view is not None
        return self.record.view

    def unreadable(self, reason: str) -> None:
        """Give up a mirror's copy: its disk could not read messages."""
        if self.replica is not None:
            self.replica.give_up(f"has unreadable messages ({reason})")
            self.replica.touch()
