"""A channel's open transaction: publishes and settlements that wait for the commit.

Not atomic across queues, as RabbitMQ's isn't: commit enqueues one after the other, then settles.
Source: amqp-behaviour §4.4.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.broker.paged_backlog import MESSAGE_BYTES
from node.broker.run import Envelope
from node.broker.unacked import Delivery

if TYPE_CHECKING:
    from node.broker.channel import Channel
    from node.broker.queue import Queue


HELD_MAX_BYTES: Final = 512 * 1024 * 1024
"""What an open transaction holds in memory: four messages of the largest size that is allowed."""


class _Publish(NamedTuple):
    envelope: Envelope
    contents: list[bytes]
    size: int
    queues: "Collection[Queue]"
    is_returned: bool


class Transaction:
    """What to do when it commits, in order."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._publishes: list[_Publish] = []
        self._settled: list[
            tuple[list[Delivery], bool | None]
        ] = []  # None: acked, else rejected and whether to requeue

    def publish(
        self,
        envelope: Envelope,
        contents: list[bytes],
        size: int,
        queues: "Collection[Queue]",
        *,
        is_returned: bool,
    ) -> None:
        """Messages to enqueue; routed already.   is_returned: mandatory and unroutable.

        Raises: ProtocolError 506 if the transaction holds too much.
        """
        self._held_bytes += sum(map(len, contents)) + MESSAGE_BYTES * len(contents)
        if self._held_bytes > HELD_MAX_BYTES:
            raise ProtocolError(
                ReplyCode.RESOURCE_ERROR, f"messages of an open transaction exceed {HELD_MAX_BYTES} bytes"
            )
        self._publishes.append(_Publish(envelope, contents, size, queues, is_returned))

    def ack(self, settled: list[Delivery]) -> None:
        """Deliveries to acknowledge."""
        self._settled.append((settled, None))

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Deliveries to reject."""
        self._settled.append((settled, requeue))

    def commit(self, channel: "Channel") -> bool:
        """Do it all.

        Returns: whether there is something to be waited for until it is on disk.
        Raises: ProtocolError 406 if a queue refused a message; everything else is done then.
        """
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        self._held_bytes = 0
        refused = is_kept = False
        for publish in publishes:
            if publish.is_returned:
                channel.return_unroutable(publish.envelope, publish.contents)
            if channel.broker.enqueue(publish.envelope, publish.contents, publish.size, publish.queues):
                refused = True
            is_kept = is_kept or (publish.envelope.persistent and is_any_durable(publish.queues))
        for deliveries, requeue in settled:
            if requeue is None:
                channel.settle_acked(deliveries)
            else:
                channel.settle_rejected(deliveries, requeue=requeue)
        if refused:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "partial tx completion")
        return is_kept

    def rollback(self) -> list[Delivery]:
        """Forget it all; the deliveries that are unacknowledged again."""
        settled, self._settled = self._settled, []
        self._publishes = []
        self._held_bytes = 0
        return [delivery for deliveries, _ in settled for delivery in deliveries]


def is_any_durable(queues: "Collection[Queue]") -> bool:
    """Whether persistent messages to these queues have to wait for the disk."""
    return any(queue.is_durable for queue in queues)
