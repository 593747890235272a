"""Waiting until all places that must have a batch have it, or have failed to keep it.

    pending = PendingPublish(count)
    for each place that must answer: pending.expect(); … accept(refused), settle(…) or fail()
    pending.end(on_settled)          no more places follow: on_settled is called once, after the last answer

`node.queue.intake` decides which places must have a batch.
Source: amqp-behaviour §4.3, §9.1 (a publish in flight to a lost node is nacked).
"""

from collections.abc import Callable, Collection
from typing import Protocol


class PublishWaiter(Protocol):
    """The receiver of the answer to a publish: a `PendingPublish`, or an object in front of it. Also a `Waiter`."""

    def accept(self, refused: Collection[int] = ()) -> None:
        """Note that the queue has the messages, except those with these indexes."""

    def fail(self) -> None:
        """Note that the queue was lost, and maybe the messages with it."""

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Note that the disk or the mirrors have the messages.   is_safe: False if they failed to keep them."""


class PendingPublish:
    """Gathers the answers for `count` messages: of each place that `expect` announces, and of the caller itself
    (`end`).
    """

    __slots__ = ("_on_settled", "count", "is_kept", "is_lost", "is_unkept", "refused", "unanswered")

    def __init__(self, count: int) -> None:
        self.count = count
        self.unanswered = 1
        """The number of answers that are missing."""
        self.refused: set[int] = set()
        """The indexes of messages that a queue refused."""
        self.is_lost = False
        """True if a place was lost before it answered: the outcome is unknown for all messages."""
        self.is_kept = False
        """True if this node's disk must have some of the messages."""
        self.is_unkept = False
        """True if this node's disk failed to keep them."""
        self._on_settled: Callable[[PendingPublish], None] | None = None

    def expect(self) -> None:
        """Wait for one more answer."""
        self.unanswered += 1

    @property
    def is_awaited(self) -> bool:
        """True if an answer is missing beside that of the caller itself."""
        return self.is_kept or self.unanswered > 1

    def accept(self, refused: Collection[int] = ()) -> None:
        """Count the answer of a place that has all of the messages, except those at these indexes."""
        self.refused.update(refused)
        self._answered()

    def fail(self) -> None:
        """Count a place as lost: it is gone, or could not keep the messages."""
        self.is_lost = True
        self._answered()

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Count the answer of a queue's mirrors; see `Waiter.settle`."""
        if not is_safe:
            self.is_lost = True
        self._answered()

    def kept(self, *, is_safe: bool) -> None:
        """Count the answer of this node's disk."""
        self.is_unkept = not is_safe
        self._answered()

    def end(self, on_settled: "Callable[[PendingPublish], None]") -> None:
        """Note that all places have been asked.   on_settled: called once all have answered, now or later."""
        self._on_settled = on_settled
        self._answered()

    def _answered(self) -> None:
        self.unanswered -= 1
        assert self.unanswered >= 0
        if not self.unanswered:
            assert self._on_settled is not None
            self._on_settled(self)


class Answer:
    """Answers a publish once the messages that the queue took are safe. A `Waiter`.

    refused: indexes of the messages that the queue refused.
    """

    __slots__ = ("_refused", "_waiter")

    def __init__(self, waiter: PublishWaiter, refused: Collection[int]) -> None:
        self._waiter = waiter
        self._refused = refused

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Answer for the queue, with the messages that it had refused."""
        if is_safe:
            self._waiter.accept(self._refused)
        else:
            self._waiter.fail()


class OwnDisk:
    """Tells a pending publish what became of the messages on this node's disk. A `Waiter`."""

    __slots__ = ("_pending",)

    def __init__(self, pending: PendingPublish) -> None:
        self._pending = pending

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Tell the pending publish what became of the messages on the disk."""
        self._pending.kept(is_safe=is_safe)
