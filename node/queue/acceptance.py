"""Waiting until everybody who must have a batch has it, or will never have it.

    acceptance = Acceptance(count)
    for each who answers for itself: acceptance.expect(); … accept(refused), settle(…) or fail()
    acceptance.end(on_settled)          no more of them are asked: called once, when the last has answered

Who must have a batch is decided in `node.queue.intake`.
Source: amqp-behaviour §4.3, §9.1 (a publish in flight to a lost node is nacked).
"""

from collections.abc import Callable, Collection
from typing import Protocol


class Party(Protocol):
    """Who waits for the answer to a publish: an `Acceptance`, or something between. A `Waiter`, too."""

    def accept(self, refused: Collection[int] = ()) -> None:
        """The queue has the messages, but for those with these indexes."""

    def fail(self) -> None:
        """The queue was lost, and the messages perhaps with it."""

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """The disk or the mirrors have the messages.   is_safe: False if they failed to keep them."""


class Acceptance:
    """The answers for `count` messages of all that were asked, and of whoever asks them, until `end`."""

    __slots__ = ("_on_settled", "count", "is_kept", "is_lost", "is_unkept", "parties", "refused")

    def __init__(self, count: int) -> None:
        self.count = count
        self.parties = 1
        """So many have not answered."""
        self.refused: set[int] = set()
        """Indexes of messages that a queue did not take."""
        self.is_lost = False
        """Whether a party went away without an answer: of none of the messages is it known what became of them."""
        self.is_kept = False
        """Whether this node's disk has to have some of the messages."""
        self.is_unkept = False
        """Whether it could not keep them."""
        self._on_settled: Callable[[Acceptance], None] | None = None

    def expect(self) -> None:
        """One more is asked."""
        self.parties += 1

    @property
    def is_awaited(self) -> bool:
        """Whether there is somebody to wait for, beside whoever asks."""
        return self.is_kept or self.parties > 1

    def accept(self, refused: Collection[int] = ()) -> None:
        """A party has all of the messages, but for those at these indexes; they are safe where they must be."""
        self.refused.update(refused)
        self._answered()

    def fail(self) -> None:
        """A party is gone, or could not keep the messages."""
        self.is_lost = True
        self._answered()

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """The party is a queue's mirrors; see `Waiter.settle`."""
        if not is_safe:
            self.is_lost = True
        self._answered()

    def kept(self, *, is_safe: bool) -> None:
        """The party is this node's disk."""
        self.is_unkept = not is_safe
        self._answered()

    def end(self, on_settled: "Callable[[Acceptance], None]") -> None:
        """All have been asked.   on_settled: called once all have answered, at once or later."""
        self._on_settled = on_settled
        self._answered()

    def _answered(self) -> None:
        self.parties -= 1
        assert self.parties >= 0
        if not self.parties:
            assert self._on_settled is not None
            self._on_settled(self)


class Answer:
    """Answers a publish when what a queue took of it is safe. A `Waiter`.

    refused: indexes of the messages that it did not take.
    """

    __slots__ = ("_party", "_refused")

    def __init__(self, party: Party, refused: Collection[int]) -> None:
        self._party = party
        self._refused = refused

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Answer for the queue, with what it had refused."""
        if is_safe:
            self._party.accept(self._refused)
        else:
            self._party.fail()


class OwnDisk:
    """Tells an acceptance what became of the messages on this node's disk. A `Waiter`."""

    __slots__ = ("_acceptance",)

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Tell the acceptance what became of the messages on the disk."""
        self._acceptance.kept(is_safe=is_safe)
