"""A channel's open transaction: publishes and settlements that wait for the commit.

Not atomic across queues, as RabbitMQ's isn't: commit enqueues one after the other, then settles.
Source: amqp-behaviour §4.4.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.broker.run import Envelope
from node.broker.unacked import Delivery

if TYPE_CHECKING:
    from node.broker.channel import Channel
    from node.broker.queue import Queue


class _Publish(NamedTuple):
    envelope: Envelope
    contents: list[bytes]
    size: int
    queues: "Iterable[Queue]"
    is_returned: bool


class Transaction:
    """What to do when it commits, in order."""

    def __init__(self) -> None:
        self._publishes: list[_Publish] = []
        self._settled: list[
            tuple[list[Delivery], bool | None]
        ] = []  # None: acked, else rejected and whether to requeue

    def publish(
        self,
        envelope: Envelope,
        contents: list[bytes],
        size: int,
        queues: "Iterable[Queue]",
        *,
        is_returned: bool,
    ) -> None:
        """Messages to enqueue; routed already.   is_returned: mandatory and unroutable."""
        self._publishes.append(_Publish(envelope, contents, size, queues, is_returned))

    def ack(self, settled: list[Delivery]) -> None:
        """Deliveries to acknowledge."""
        self._settled.append((settled, None))

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Deliveries to reject."""
        self._settled.append((settled, requeue))

    def commit(self, channel: "Channel") -> None:
        """Do it all.

        Raises: ProtocolError 406 if a queue refused a message; everything else is done then.
        """
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        refused = False
        for publish in publishes:
            if publish.is_returned:
                channel.return_unroutable(publish.envelope, publish.contents)
            if channel.enqueue(publish.envelope, publish.contents, publish.size, publish.queues):
                refused = True
        for deliveries, requeue in settled:
            if requeue is None:
                channel.settle_acked(deliveries)
            else:
                channel.settle_rejected(deliveries, requeue=requeue)
        if refused:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "partial tx completion")

    def rollback(self) -> list[Delivery]:
        """Forget it all; the deliveries that are unacknowledged again."""
        settled, self._settled = self._settled, []
        self._publishes = []
        return [delivery for deliveries, _ in settled for delivery in deliveries]
