"""Messages of this node's queues that its disk cannot read: a mirror that has them takes over, or they are dropped.

    storage ─► found ─ end of the turn ─► another node is to be master: the queue waits, and moves
                                      └─► no other node has them: dropped, counted and reported

Source: reliability §4.6, §5.2.
"""

from typing import TYPE_CHECKING, Final

from node.broker.unsettled import unsettled
from node.queue.deduplicating_queue import DeduplicatingQueue
from node.queue.number_set import NumberSet
from node.queue.queue import Queue
from node.scheduling.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker

RETRY_S: Final = 1.0
"""The seconds before the broker asks again whether another node takes over: the one that was to may be gone."""


class Damages:
    """The queues of one broker that have unreadable messages, and the decision what to do about them."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[Queue, str] = {}
        """The queues with unreadable messages, with the reason why they are unreadable."""
        self._timer: Timer | None = None
        self.has_work = False
        """True if `turn` has something to do."""

    def found(self, queue: Queue, reason: str) -> None:
        """Register a queue with unreadable messages (`QueueStorage.unreadable`)."""
        self._waiting.setdefault(queue, reason)
        self.has_work = True
        self._broker.wake()

    def turn(self) -> None:
        """Decide for each queue: wait for another node to become its master, or give the messages up."""
        self.has_work = False
        for queue, reason in list(self._waiting.items()):
            if self._is_over(queue, reason):
                del self._waiting[queue]
        if self._waiting and self._timer is None:
            self._timer = self._broker.timers.at(self._broker.now + RETRY_S, self._rang)

    def _rang(self, _now: float) -> None:
        self._timer = None
        if self._waiting:
            self.has_work = True
            self._broker.wake()

    def _is_over(self, queue: Queue, reason: str) -> bool:
        """True if nothing more is to be done about the queue."""
        if queue.is_deleted or not queue.storage.unreadable:
            return True
        if queue.record.view is not None:
            if queue.replicator is None:
                return False  # it begins, or has left
            assert self._broker.mirrors is not None
            if self._broker.mirrors.damaged(queue.record, f"has unreadable messages ({reason})"):
                return False
        self._give_up(queue, queue.storage.unreadable.copy(), reason)
        return True

    def _give_up(self, queue: Queue, lost: NumberSet, reason: str) -> None:
        # Messages in memory may be nowhere else, but need not be read.
        for level in queue.backlog.levels:
            for run in level.in_memory(0):
                lost.discard(run.seqs)
        for run in unsettled(self._broker, queue):
            for piece in run.pieces():
                lost.discard(range(piece.seqs.start, piece.seqs[-1] + 1))
        queue.storage.lose(lost)
        if queue.replicator is not None:
            for seqs in lost:
                queue.replicator.removed(seqs)
        if isinstance(queue, DeduplicatingQueue):
            queue.lost(lost)
        count = len(lost)
        if count:
            self._broker.counters.messages_unreadable += count
            self._broker.observer.messages_unreadable(queue.record, count, reason)
        queue.backlog.go_on(lost)
