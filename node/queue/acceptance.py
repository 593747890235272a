"""Waiting until every queue that got a run of publishes has answered for it.

Where all queues of a publish live on this node there is nothing to wait for but the disk. Where some live on other
nodes, each of them answers in its own time, and the run is settled when the last one has.
Source: amqp-behaviour §4.3, §9.1 (a publish in flight to a lost node is nacked).
"""

from collections.abc import Callable, Collection


class Acceptance:
    """The answers for one run of `count` messages from `parties` that were asked.

    on_settled: called once, when all have answered.
    """

    __slots__ = ("_on_settled", "count", "is_lost", "parties", "refused")

    def __init__(self, count: int, parties: int, on_settled: "Callable[[Acceptance], None]") -> None:
        assert parties > 0
        self.count = count
        self.parties = parties
        self.refused: set[int] = set()
        """Indexes of messages that a queue did not take."""
        self.is_lost = False
        """Whether a party went away without an answer: of none of the messages is it known what became of them."""
        self._on_settled = on_settled

    def accept(self, refused: Collection[int] = ()) -> None:
        """A party has all of the messages, but for those at these indexes; they are safe where they must be."""
        self.refused.update(refused)
        self._answered()

    def fail(self) -> None:
        """A party is gone, or could not keep the messages."""
        self.is_lost = True
        self._answered()

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """The party is this node's storage; see `Waiter.settle`."""
        if not is_safe:
            self.is_lost = True
        self._answered()

    @property
    def rejected(self) -> Collection[int]:
        """Indexes of the messages that are not to be confirmed."""
        return range(self.count) if self.is_lost else self.refused

    def _answered(self) -> None:
        self.parties -= 1
        assert self.parties >= 0
        if not self.parties:
            self._on_settled(self)
