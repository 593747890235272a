"""The fates of the dead letters of one run say which of them no queue has in the end, and why.

A dead letter is lost if its exchange is missing, if no queue is bound for it, or if all of its queues refuse it. No
client is told, so telemetry counts them by queue. `node.broker.dead_letters` keeps these fates only for a broker with a
meter.
"""

from collections import Counter
from collections.abc import Collection

from node.queue.dead_letter import CYCLE, REFUSED
from node.queue.pending_publish import PublishWaiter


class LetterFates:
    """The fates of the dead letters of one run, by their index in it.   unrouted: the cause if no queue is bound."""

    __slots__ = ("_causes", "_has_it")

    def __init__(self, count: int, unrouted: str) -> None:
        self._causes = [unrouted] * count
        self._has_it = [0] * count
        """The number of queues that have each message, or may have it."""

    def cycled(self, index: int) -> None:
        """Note that a queue does not get a message, which has been there before."""
        self._causes[index] = CYCLE

    def accepted(self, index: int, refused: Collection[int]) -> None:
        """Note the answer of a queue to a message alone.   refused: as in `PublishWaiter.accept`."""
        if refused:
            self._causes[index] = REFUSED
        else:
            self._has_it[index] += 1

    def waiter(self, index: int, waiter: PublishWaiter) -> PublishWaiter:
        """Return a waiter that notes a queue's later answer to a message alone, and passes it on."""
        return _Noting(self, index, waiter)

    def lost(self) -> Counter[str]:
        """Return how many messages no queue has, by cause. All queues have answered."""
        return Counter(cause for cause, has_it in zip(self._causes, self._has_it, strict=True) if not has_it)


class _Noting:
    """A waiter that notes the answer of one queue to one message."""

    __slots__ = ("_fates", "_index", "_waiter")

    def __init__(self, fates: LetterFates, index: int, waiter: PublishWaiter) -> None:
        self._fates = fates
        self._index = index
        self._waiter = waiter

    def accept(self, refused: Collection[int] = ()) -> None:
        """Note whether the queue has the message."""
        self._fates.accepted(self._index, refused)
        self._waiter.accept(refused)

    def fail(self) -> None:
        """Pass on that the queue was lost: the run is routed again, with new fates."""
        self._waiter.fail()

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Note that the queue has the message, if its disk or its mirrors kept it."""
        if is_safe:
            self._fates.accepted(self._index, ())
        self._waiter.settle(first, last, is_safe)
