"""When the masters of a node broadcast: together, and so that many messages share a broadcast where nodes are busy.

at once ─► few messages  ─► when they have come round, at the latest after FEW_FACTOR times the usual time
        └► more          ─► after the usual time
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

FLUSH_S: Final = 0.002
"""The time between two broadcasts of masters, so that a moderate load needs few broadcasts."""

FEW: Final = 8
FEW_FACTOR: Final = 2.5
"""After a broadcast with fewer than `FEW` messages the next one goes when that one has come round, and at the latest
after the usual time by this factor. A broadcast costs all nodes as much CPU time as many messages. Where nodes are busy
one takes longer to come round, so that more gathers for the next one."""

LAZY_S: Final = 0.010
"""The longest delay in seconds of what only lets others forget: acknowledgements within the ring, removed messages."""

Master = TypeVar("Master")


class Due(Protocol):
    """The replicator of a master that has something to broadcast.

    is_urgent: that is more than removals.   gathered_count: how many messages.
    """

    @property
    def is_urgent(self) -> bool: ...

    @property
    def gathered_count(self) -> int: ...

    def due_at(self, now: float) -> float:
        """Return when the batch is to go that is due, unless something urgent comes."""


class Pacing(Generic[Master]):
    """Decides when the masters of one node broadcast.

    flush_s: the usual time between two broadcasts: all masters at once, so that their batches share frames.
    touch: called with each master that was held back, when it may broadcast before it expects to.
    at: when the next broadcast is, unless one of few messages comes round before.
    """

    def __init__(self, flush_s: float, touch: Callable[[Master], None]) -> None:
        self.at = float("-inf")
        self.flush_s = flush_s
        self._touch = touch
        self._has_broadcast = False  # in this turn, and so many messages
        self._count = 0
        self._awaits_few = False
        """True if the last broadcast had few messages, and is not known to have come round."""
        self._held_back: dict[Master, None] = {}

    def at_for(self, master: Master, replicator: Due, now: float) -> float:
        """Return when a master is to broadcast. If that is `now` it does so in this turn."""
        due_at = replicator.due_at(now)
        if due_at > now:
            return due_at
        if now < self.at:
            self._held_back[master] = None
            return self.at
        if replicator.is_urgent:  # no publish is to wait until removals have come round
            self._has_broadcast = True
            self._count += replicator.gathered_count
        return now

    def turn(self, now: float, under_way_bytes: int) -> None:
        """Decide when the next broadcasts go.   under_way_bytes: of all broadcasts that have not come round."""
        if self._has_broadcast:
            self._has_broadcast = False
            self._awaits_few = self._count < FEW
            self._count = 0
            self.at = now + (FEW_FACTOR if self._awaits_few else 1.0) * self.flush_s
            self._held_back.clear()
        elif self._awaits_few and not under_way_bytes:
            self._awaits_few = False
            self.at = now
            for master in self._held_back:
                self._touch(master)
            self._held_back.clear()
