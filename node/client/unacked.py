"""The unacknowledged deliveries of a channel.

Deliveries are kept as they were made, a run at a time, so that acknowledging a run costs the run once.
Settled messages inside a run that is still open are blanked, which frees their bytes.
Source: amqp-behaviour §4.10.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.queue.run import Envelope, Run

if TYPE_CHECKING:
    from node.queue.consumer import Consumer
    from node.queue.live_queue import LiveQueue

_TOMBSTONES_MAX: Final = 1024
"""The settled entries kept among the open ones before the list is rebuilt, so many that rebuilding costs little."""

_STALE: Final = b"stale"
"""The content that stands for that of a message which another consumer may get again."""

_SETTLED: Final = Run(Envelope("", "", channel=0, frame_max_bytes=0), range(0), [], 0)
"""The run of a settled delivery until it is removed from the list, so that it keeps no bytes."""


class Delivery:
    """A run that one channel was given: delivery tags from `first_tag`, one a message.

    consumer: None for `basic.get`.   at: when it was sent, in seconds on the broker's clock.
    open: the number of its messages that are not settled.
    """

    __slots__ = ("at", "consumer", "first_tag", "open", "queue", "run")

    def __init__(
        self, first_tag: int, run: Run, queue: "LiveQueue", consumer: "Consumer | None", at: float
    ) -> None:
        self.first_tag = first_tag
        self.run = run
        self.queue = queue
        self.consumer = consumer
        self.at = at
        self.open = len(run.contents)

    @property
    def last_tag(self) -> int:
        """The delivery tag of its last message."""
        return self.first_tag + len(self.run.contents) - 1


class _Nobody:
    """Stands in for the queue of deliveries after another node became its master (§9.4): it ignores settlements.

    The messages are ready again at the new master; the tags stay valid.
    """

    is_local = True
    successor = None

    def ack(self, run: Run) -> None:
        """Ignore the acknowledgement."""

    def reject(self, run: Run, now: float) -> None:
        """Ignore the rejection."""

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Ignore the request: the messages are ready at the new master."""


NOBODY: Final = cast("LiveQueue", _Nobody())


def disowned(delivery: Delivery) -> bool:
    """Blank a delivery whose queue has left, which keeps nothing but its tags; return True if that is so.

    The caller stops counting it.
    """
    if delivery.queue.successor is None:
        return False
    contents = delivery.run.contents
    blank = [_STALE if content is not None else None for content in contents]
    delivery.run = Run(delivery.run.envelope, range(len(contents)), blank, len(_STALE))
    delivery.queue = NOBODY
    return True


def open_runs(delivery: Delivery) -> Iterator[Run]:
    """Yield copies of the open messages of a delivery, which stays as it is."""
    run = delivery.run
    if delivery.open == len(run.contents):
        yield run[:]
        return
    start = 0
    for is_settled, part in groupby(run.contents, lambda content: content is None):
        stop = start + len(list(part))
        if not is_settled:
            yield run[start:stop]
        start = stop


class Unacked:
    """The open deliveries of a channel, by delivery tag."""

    __slots__ = ("_deliveries", "_head", "count")

    def __init__(self) -> None:
        self.count = 0
        self._deliveries: list[Delivery] = []  # by first tag; some before _head or fully settled
        self._head = 0

    def add(self, delivery: Delivery) -> None:
        """Add a delivery; its tags follow all others."""
        self._deliveries.append(delivery)
        self.count += delivery.open

    def settle(self, first: int, last: int) -> list[Delivery]:
        """Remove the messages with the delivery tags from first to last, up to the first tag that is not open.

        Returns: them, in order of tags; fewer than asked for where a tag is unknown, see `unknown_delivery_tag`.
        """
        settled: list[Delivery] = []
        while first <= last:
            delivery = self._find(first)
            if delivery is None:
                break
            contents = delivery.run.contents
            start = first - delivery.first_tag
            stop = min(last + 1 - delivery.first_tag, len(contents))
            if delivery.open != len(contents):
                stop = next((at for at in range(start, stop) if contents[at] is None), stop)
            settled.append(self._cut(delivery, start, stop))
            first = delivery.first_tag + stop
        self._tidy()
        return settled

    def settle_through(self, tag: int) -> list[Delivery]:
        """Remove and return every open message up to `tag`, which must itself be open; 0 means all.

        Raises: ProtocolError 406 (§4.10: `multiple` needs exactly its tag outstanding).
        """
        if tag == 0:
            return self.drain()
        last = self._find(tag)
        if last is None:
            raise unknown_delivery_tag(tag)
        settled: list[Delivery] = []
        while self._deliveries[self._head] is not last:
            settled += self._open_parts(self._deliveries[self._head], None)
            self._head += 1
        settled += self._open_parts(last, tag + 1 - last.first_tag)
        self._tidy()
        return settled

    def drain(self) -> list[Delivery]:
        """Remove and return all open messages, in order of tags."""
        settled = [
            part for delivery in self._deliveries[self._head :] for part in self._open_parts(delivery, None)
        ]
        self._deliveries.clear()
        self._head = 0
        assert self.count == 0, self.count
        return settled

    def drain_last(self, limit: int) -> list[Delivery]:
        """Remove and return the latest deliveries with open messages, `limit` at most; in order of tags."""
        found: list[Delivery] = []
        while len(found) < limit and len(self._deliveries) > self._head:
            found += reversed(list(self._open_parts(self._deliveries.pop(), None)))
        self._tidy()
        found.reverse()
        return found

    def restore(self, deliveries: list[Delivery]) -> None:
        """Take back the messages that were settled in a transaction that is rolled back."""
        self._deliveries = sorted([*self.drain(), *deliveries], key=lambda delivery: delivery.first_tag)
        self.count = sum(delivery.open for delivery in self._deliveries)

    @property
    def oldest(self) -> Delivery | None:
        """The open delivery that was made first, of those that the queue still waits for."""
        return next((delivery for delivery in self.deliveries() if delivery.queue is not NOBODY), None)

    def deliveries(self) -> Iterator[Delivery]:
        """Return the deliveries with open messages, in order of tags."""
        return (delivery for delivery in self._deliveries[self._head :] if delivery.open)

    def disown(self) -> list[Delivery]:
        """Blank the deliveries whose queue has left, as `disowned` does; return them."""
        return [delivery for delivery in self.deliveries() if disowned(delivery)]

    def _find(self, tag: int) -> Delivery | None:
        """Return the delivery in which `tag` is open, or None."""
        deliveries = self._deliveries
        if self._head == len(deliveries):
            return None
        found = deliveries[self._head]  # most clients settle in order
        if not found.first_tag <= tag <= found.last_tag:
            index = bisect_right(deliveries, tag, lo=self._head, key=lambda delivery: delivery.first_tag) - 1
            found = deliveries[index]
            if index < self._head:
                return None
        if tag > found.last_tag or found.run.contents[tag - found.first_tag] is None:
            return None
        return found

    def _open_parts(self, delivery: Delivery, stop: int | None) -> Iterator[Delivery]:
        """Yield the open messages of a delivery's first `stop` ones (None: of all).

        as deliveries, in as few as possible.
        """
        if not delivery.open:
            return
        contents = delivery.run.contents
        stop = len(contents) if stop is None else stop
        if delivery.open == len(contents):
            yield self._cut(delivery, 0, stop)
            return
        start = 0
        while delivery.open and start < stop:
            if contents[start] is None:
                start += 1
                continue
            end = start + 1
            while end < stop and contents[end] is not None:
                end += 1
            yield self._cut(delivery, start, end)
            start = end

    def _cut(self, delivery: Delivery, start: int, stop: int) -> Delivery:
        """Take open messages out of a delivery and return them as a delivery of their own."""
        self.count -= stop - start
        delivery.open -= stop - start
        run = delivery.run
        if stop - start == len(run.contents):
            delivery.run = _SETTLED
            return Delivery(delivery.first_tag, run, delivery.queue, delivery.consumer, delivery.at)
        part = Delivery(
            delivery.first_tag + start, run[start:stop], delivery.queue, delivery.consumer, delivery.at
        )
        run.contents[start:stop] = [None] * (stop - start)  # type: ignore[list-item]
        return part

    def _tidy(self) -> None:
        deliveries = self._deliveries
        while self._head < len(deliveries) and not deliveries[self._head].open:
            self._head += 1
        if self._head == len(deliveries):
            deliveries.clear()
            self._head = 0
        elif self._head > _TOMBSTONES_MAX and self._head * 2 > len(deliveries):
            del deliveries[: self._head]
            self._head = 0
        if len(deliveries) - self._head > 2 * self.count + _TOMBSTONES_MAX:
            self._deliveries = [delivery for delivery in deliveries[self._head :] if delivery.open]
            self._head = 0


def unknown_delivery_tag(tag: int) -> ProtocolError:
    """Return the error for a tag that is not outstanding on the channel."""
    return ProtocolError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
