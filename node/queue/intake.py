"""The way of batches into queues, and the places that must have one before it is confirmed.

    a channel ── publish ─┐
    a part, a commit ─ give ─► put ─► Queue.enqueue              of each queue here: it has the batch at once
                           │   await_safety ─► disk, mirrors     which places must have its messages
                           └─► LiveQueue.publish                 of each queue elsewhere: it answers

A queue here needs no other place, or this node's disk if it is durable and the messages are persistent. A queue with
mirrors needs these, and they wait for all disks, this node's too. The disk is asked once for all queues of a batch, and
large contents go to the message store once. A queue elsewhere sends its own answer later.
Source: amqp-behaviour §4.3, §9.1; reliability §4.4.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from node.amqp.reader import MIXED_SIZES
from node.catalogue.exchange_queues import HISTORY_PREFIX
from node.queue.live_queue import LiveQueue, local_and_remote
from node.queue.pending_publish import Answer, OwnDisk, PendingPublish, PublishWaiter
from node.queue.pieces import by_place
from node.queue.run import Batch
from node.queue.storage import Storage, Waiter

if TYPE_CHECKING:
    from node.queue.metering import Meter
    from node.queue.queue import Queue


class Publisher(Waiter, Protocol):
    """A publisher that is told which of its messages are safe. It numbers them in order."""

    def expect(self, count: int) -> int:
        """Number so many messages that will be settled later; return the number of the first."""

    def confirm_at_once(self, count: int) -> None:
        """Confirm so many messages that are safe already."""


class IntakeHost(Protocol):
    """The broker, as its intake uses it."""

    storage: Storage
    meter: "Meter | None"
    now: float


class Targets:
    """The queues that a batch goes to.

    near, away: those of this node, and those on others or without a master.
    is_durable: one of the near ones keeps persistent messages.
    is_mirrored: one of the near ones has mirrors.   leaves_node: one of all is away, or has mirrors.
    """

    __slots__ = ("away", "count", "is_durable", "is_mirrored", "leaves_node", "near")

    def __init__(self, queues: Sequence[LiveQueue]) -> None:
        self.near: Collection[Queue]
        self.away: Collection[LiveQueue]
        self.near, self.away = local_and_remote(queues)
        self.count = len(queues)
        self.is_durable = any(queue.is_durable for queue in self.near)
        self.is_mirrored = any(queue.leaves_node for queue in self.near)
        self.leaves_node = self.is_mirrored or bool(self.away)

    def __iter__(self) -> Iterator[LiveQueue]:
        yield from self.near
        yield from self.away

    @property
    def is_history_only(self) -> bool:
        """True if the batch only goes to the queues of recent-history exchanges, which are no routes."""
        return all(queue.record.name.startswith(HISTORY_PREFIX) for queue in self)

    def congested(self) -> Iterator[LiveQueue]:
        """Return the queues to which publishers should hold on."""
        return (queue for queue in self if queue.is_congested)


class Intake:
    """The way into the queues of one broker."""

    def __init__(self, host: IntakeHost) -> None:
        self._host = host
        self._large_bytes = host.storage.embed_max_bytes

    def publish(self, batch: Batch, targets: Targets, publisher: Publisher | None) -> None:
        """Publish a batch.   publisher: is told the outcome of each message; None: no one needs it."""
        if targets.leaves_node and (targets.away or targets.count > 1):
            self._publish_to_all(batch, targets, publisher)
            return
        refused = self.put(batch, targets.near)
        if publisher is None:
            return
        count = len(batch.contents)
        is_kept = targets.is_durable and batch.envelope.persistent
        if not refused and not is_kept and not targets.leaves_node:
            publisher.confirm_at_once(count)
            return
        first = publisher.expect(count)
        for index in sorted(refused or ()):
            publisher.settle(first + index, first + index, is_safe=False)
        meter = self._host.meter
        waiter = publisher if meter is None else meter.timed(publisher, targets.near, self._host.now)
        if targets.leaves_node:
            (queue,) = targets.near
            self.await_safety(
                queue, waiter, first, first + count - 1, is_persistent=batch.envelope.persistent
            )
        elif is_kept:
            self._host.storage.await_safety(waiter, first, first + count - 1)
        else:
            publisher.settle(first, first + count - 1, is_safe=True)

    def _publish_to_all(self, batch: Batch, targets: Targets, publisher: Publisher | None) -> None:
        """Publish a batch to queues of which some answer for themselves."""
        if publisher is None:
            self.give(batch, targets, None)
            return
        count = len(batch.contents)
        pending = PendingPublish(count)
        on_settled = partial(tell, publisher, publisher.expect(count))
        self.give(batch, targets, pending)
        self.end(pending, on_settled)

    def give(self, batch: Batch, targets: Targets, pending: PendingPublish | None) -> None:
        """Publish a batch as one of several, or as a part.   pending: of all of them; `end` has to follow."""
        refused = self.put(batch, targets.near)
        if pending is None:
            for away in targets.away:
                away.publish(batch, None)
            return
        if refused:
            pending.refused.update(refused)
        is_persistent = batch.envelope.persistent
        for queue in targets.near:
            if queue.leaves_node:
                pending.expect()
                self.await_safety(queue, pending, 0, 0, is_persistent=is_persistent)
            elif is_persistent and queue.is_durable:
                pending.is_kept = True
        for away in targets.away:
            pending.expect()
            away.publish(batch, pending)

    def end(self, pending: PendingPublish, on_settled: Callable[[PendingPublish], None]) -> None:
        """Say that all of a pending publish has been given.   on_settled: see `PendingPublish.end`."""
        if pending.is_kept:
            pending.expect()
            self._host.storage.await_safety(OwnDisk(pending), 0, 0)
        pending.end(on_settled)

    def publish_here(self, queue: "Queue", batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Publish a batch to one queue here, as `LiveQueue.publish`; return the indexes of refused messages."""
        refused = self.put(batch, (queue,)) or ()
        if waiter is not None:
            answer = Answer(waiter, refused) if refused else waiter
            self.await_safety(queue, answer, 0, 0, is_persistent=batch.envelope.persistent)
        return refused

    def await_safety(
        self, queue: "Queue", waiter: Waiter, first: int, last: int, *, is_persistent: bool
    ) -> None:
        """Settle (first, last) when all that came into a queue here so far is where it must be.

        is_persistent: also on disks, if it is durable.
        """
        is_kept = is_persistent and queue.is_durable
        if queue.replicator is not None:
            queue.replicator.await_stable(waiter, first, last, is_kept=is_kept)
        elif is_kept:
            self._host.storage.await_safety(waiter, first, last)
        else:
            waiter.settle(first, last, is_safe=True)

    def put(self, batch: Batch, queues: "Collection[Queue]") -> set[int] | None:
        """Put messages into queues of this node, without waiting.

        Returns: the indexes of those that any of them refused, None if there are none.
        """
        if not queues:
            return None
        if batch.size == MIXED_SIZES:
            pieces = by_place(batch.contents, batch.size, self._large_bytes)
            if len(pieces) > 1:
                return self._put_pieces(batch, pieces, queues)
        if len(batch.contents[0]) >= self._large_bytes:
            is_kept = batch.envelope.persistent and any(queue.is_durable for queue in queues)
            store_id = self._host.storage.place(batch.contents, persistent=is_kept)
            batch = Batch(batch.envelope, batch.contents, batch.size, store_id)
        refused: set[int] | None = None
        now = self._host.now
        for queue in queues:
            indexes = queue.enqueue(batch, now)
            if indexes:
                refused = (refused or set()).union(indexes)
        return refused

    def _put_pieces(
        self, batch: Batch, pieces: list[list[bytes]], queues: "Collection[Queue]"
    ) -> set[int] | None:
        """Put messages into queues of which some go to the message store and some don't."""
        refused: set[int] = set()
        first = 0
        for piece in pieces:
            indexes = self.put(Batch(batch.envelope, piece, batch.size), queues)
            refused.update(first + index for index in indexes or ())
            first += len(piece)
        return refused or None


def tell(publisher: Publisher, first: int, pending: PendingPublish) -> None:
    """Tell a publisher what became of the messages that it numbered from `first`."""
    for index in sorted(pending.refused):
        publisher.settle(first + index, first + index, is_safe=False)
    is_safe = not (pending.is_lost or pending.is_unkept)
    publisher.settle(first, first + pending.count - 1, is_safe=is_safe)
