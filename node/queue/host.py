"""The protocols by which a live queue uses its broker, and the copy that it begins with.

A queue imports neither the broker nor mirrors, so that it can be tested alone.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from node.queue.delay_backlog import DelayBacklog
from node.queue.live_queue import Handoff
from node.queue.paged_backlog import PagedBacklog
from node.queue.pending_publish import PublishWaiter
from node.queue.priority_backlog import PriorityBacklog
from node.queue.run import Batch, Run
from node.scheduling.chores import Chore
from node.scheduling.timers import Timers

if TYPE_CHECKING:
    from node.queue.queue import Queue


class QueueHost(Protocol):
    """The broker, as its queues use it."""

    timers: Timers
    now: float
    epoch_s: float

    def touch(self, queue: "Queue") -> None:
        """Call the queue's `pump` at the end of the turn: there may be something to deliver."""

    def touch_last(self, queue: "Queue") -> None:
        """Call the queue's `pump` after those of all queues touched before. Queues that share a prefetch limit take
        turns that way.
        """

    def begin(self, chore: Chore) -> None:
        """Do long work, at once or in pieces."""

    def discard(self, runs: list[Run]) -> None:
        """Free messages of a deleted queue, in pieces."""

    def publish_here(self, queue: "Queue", batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Publish a batch to a queue here. Returns: the indexes of the messages that it refused."""

    def dead_letter(self, queue: "Queue", run: Run, reason: str, now: float) -> None:
        """Publish messages that left the queue to its dead-letter exchange, if it has one; then `forget` them."""

    def due_room(self, queue: "Queue") -> int:
        """Return how many messages that are due may be given to `due` now; with none, touch the queue later."""

    def due(self, queue: "Queue", run: Run, now: float) -> None:
        """Publish messages that are due through the exchange for which the queue kept them; then `forget` them."""

    def duplicates(self, queue: "Queue", count: int) -> None:
        """Count messages that the queue has dropped as duplicates."""

    def unreadable(self, queue: "Queue", reason: str) -> None:
        """Decide what becomes of messages of the queue that the disk cannot read."""

    def adopt(self, queue: "Queue", handoff: Handoff) -> None:
        """Give the queue the publishes, consumers and questions that clients of this node had at earlier masters."""

    def queue_unused(self, queue: "Queue", now: float) -> None:
        """Delete the queue: its last consumer left an auto-delete queue, or its time without use is over."""


class Copied(Protocol):
    """A mirror's copy, from which a queue begins when this node becomes its master."""

    next_seq: int

    def fill(
        self, backlog: PagedBacklog | PriorityBacklog | DelayBacklog, on_done: Callable[[], None]
    ) -> None:
        """Put all messages into an empty backlog; `on_done` is called when they are there, maybe at once."""
