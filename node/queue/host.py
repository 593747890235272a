"""What a live queue asks of the broker around it, and of the copy that it begins with. Both are protocols: a queue
knows neither the broker nor mirrors, so that it can be tested by itself.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from node.queue.acceptance import Party
from node.queue.live_queue import Belongings
from node.queue.paged_backlog import PagedBacklog
from node.queue.priority_backlog import PriorityBacklog
from node.queue.run import Batch, Run
from node.scheduling.chores import Chore
from node.scheduling.timers import Timers

if TYPE_CHECKING:
    from node.queue.queue import Queue


class QueueHost(Protocol):
    """What a queue needs of the broker around it."""

    timers: Timers
    now: float

    def touch(self, queue: "Queue") -> None:
        """There may be something to deliver: call `pump` at the end of the turn."""

    def touch_last(self, queue: "Queue") -> None:
        """The same, behind all that are touched by now: those that share a prefetch limit are served in this order."""

    def begin(self, chore: Chore) -> None:
        """Do long work, at once or in pieces."""

    def discard(self, runs: list[Run]) -> None:
        """Free messages of a deleted queue, in pieces."""

    def publish_here(self, queue: "Queue", batch: Batch, party: Party | None) -> Collection[int]:
        """Publish a batch to a queue here. Returns: the indexes of what it refused."""

    def dead_letter(self, queue: "Queue", run: Run, reason: str, now: float) -> None:
        """Publish messages that left the queue to its dead-letter exchange, if it has one; then `forget` them."""

    def unreadable(self, queue: "Queue", reason: str) -> None:
        """The disk cannot read some messages of the queue."""

    def take_over(self, queue: "Queue", belongings: Belongings) -> None:
        """Give the queue what clients of this node had at the masters before."""

    def queue_unused(self, queue: "Queue", now: float) -> None:
        """Delete the queue: its last consumer left an auto-delete queue, or its time without use is over."""


class Copied(Protocol):
    """What a node had of a queue before it became its master."""

    next_seq: int

    def fill(self, backlog: PagedBacklog | PriorityBacklog, on_done: Callable[[], None]) -> None:
        """Put all messages into an empty backlog; `on_done` is called when they are there, maybe at once."""
