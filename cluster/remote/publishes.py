"""The publishes of this node to one queue elsewhere that have not been answered.

A publish to a mirrored queue is kept until its answer comes, so that it can be sent again to the next master.
Source: reliability §4.4 (the resend buffer).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from cluster.remote.frames import FRAME_MAX_BYTES, RULED_MAX_BYTES, cut, encode_run
from node.catalogue.exchange_queues import is_exchange_queue
from node.queue.live_queue import Unanswered
from node.queue.pending_publish import PublishWaiter
from node.queue.run import Batch

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of unanswered publishes to one queue; above it the queue's publishers are not read from."""


class Publishes:
    """The unanswered publishes, numbered from 1.

    next_number: of the next publish.   size: of all of them in frames, in bytes.
    """

    __slots__ = ("_waiting", "next_number", "size")

    def __init__(self) -> None:
        self.next_number = 1
        self.size = 0
        self._waiting: dict[int, Unanswered] = {}

    def add(
        self,
        batch: Batch,
        waiter: PublishWaiter | None,
        *,
        is_kept: bool,
        is_sent: bool,
    ) -> bytes:
        """Number a publish, and return it encoded.   is_kept: keep it to send it again.   is_sent: the caller sends
        it now.
        """
        number = self.next_number
        run = encode_run(batch.envelope, number, batch.contents, batch.size)
        self.put(Unanswered(number, len(run), run if is_kept else b"", waiter, is_sent))
        return run

    def put(self, publish: Unanswered) -> None:
        """Take a publish from the live queue before this one; its number is above all others."""
        self.next_number = publish.number + 1
        self.size += publish.size
        self._waiting[publish.number] = publish

    def pop(self, number: int) -> Unanswered | None:
        """Remove and return a publish; None if it is not pending."""
        publish = self._waiting.pop(number, None)
        if publish is not None:
            self.size -= publish.size
        return publish

    def take(self) -> list[Unanswered]:
        """Remove and return all publishes, in order."""
        publishes = list(self._waiting.values())
        self._waiting.clear()
        self.size = 0
        return publishes

    def __len__(self) -> int:
        return len(self._waiting)


def frame_limit(queue: str, *, is_plain: bool) -> int:
    """Return the most contents in bytes of a frame with publishes to a queue.   queue: its name.

    is_plain: as in `LiveQueue`.
    """
    return FRAME_MAX_BYTES if is_plain and not is_exchange_queue(queue) else RULED_MAX_BYTES


def pieces(
    batch: Batch, waiter: PublishWaiter | None, limit: int
) -> Iterator[tuple[Batch, PublishWaiter | None]]:
    """Yield a batch in pieces that fit a frame each, each with the waiter for its answer.   limit: as in `cut`."""
    parts = cut(batch.contents, limit)
    if len(parts) == 1:
        yield batch, waiter
        return
    whole = _Whole(waiter, len(parts)) if waiter is not None else None
    first = 0
    for part in parts:
        yield Batch(batch.envelope, part, batch.size), _Piece(whole, first) if whole is not None else None
        first += len(part)


def settle_all(publishes: Iterable[Unanswered], *, is_lost: bool) -> None:
    """Answer publishes that will get no other answer.   is_lost: as lost, else as accepted."""
    for publish in publishes:
        if publish.waiter is None:
            continue
        if is_lost:
            publish.waiter.fail()
        else:
            publish.waiter.accept()


class _Whole:
    """Gathers the answers for the pieces of one run."""

    def __init__(self, waiter: PublishWaiter, pieces: int) -> None:
        self._waiter = waiter
        self._left = pieces
        self._refused: list[int] = []
        self._is_lost = False

    def settle(self, refused: Collection[int], *, is_lost: bool) -> None:
        """Count the answer for one piece; answer the run after the last piece."""
        self._refused += refused
        self._is_lost = self._is_lost or is_lost
        self._left -= 1
        if self._left:
            return
        if self._is_lost:
            self._waiter.fail()
        else:
            self._waiter.accept(self._refused)


class _Piece:
    """One piece of a run, which begins at index `first`."""

    def __init__(self, whole: _Whole, first: int) -> None:
        self._whole = whole
        self._first = first

    def accept(self, refused: Collection[int] = ()) -> None:
        """Settle what the queue refused, and count its answer."""
        self._whole.settle([self._first + index for index in refused], is_lost=False)

    def fail(self) -> None:
        """Count the queue as lost."""
        self._whole.settle((), is_lost=True)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Count the answer of the disk or the mirrors."""
        self._whole.settle((), is_lost=not is_safe)
