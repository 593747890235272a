"""A channel's open transaction: publishes and settlements that wait for the commit.

Not atomic across queues, as RabbitMQ's isn't: commit enqueues one after the other, then settles.
Source: amqp-behaviour §4.4.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.broker.acceptance import Acceptance
from node.broker.live_queue import Asked, RemoteQueue
from node.broker.paged_backlog import MESSAGE_BYTES
from node.broker.queue import Queue, is_any_durable
from node.broker.run import Envelope
from node.broker.safety import Safety
from node.broker.unacked import Delivery

if TYPE_CHECKING:
    from node.broker.channel import Channel
    from node.broker.connection import Connection


HELD_MAX_BYTES: Final = 512 * 1024 * 1024
"""What a connection's open transactions hold in memory: four messages of the largest size that is allowed."""


class _Publish(NamedTuple):
    envelope: Envelope
    contents: list[bytes]
    size: int
    queues: Collection[Queue]
    remote: Collection[RemoteQueue]
    is_returned: bool


class Transaction:
    """What to do when it commits, in order."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
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
        queues: Collection[Queue],
        remote: Collection[RemoteQueue],
        *,
        is_returned: bool,
    ) -> None:
        """Messages to enqueue, on this node and on others; routed already.   is_returned: mandatory and unroutable.

        Raises: ProtocolError 506 if the connection's transactions hold too much.
        """
        cost = sum(map(len, contents)) + MESSAGE_BYTES * len(contents)
        if self._connection.held_bytes + cost > HELD_MAX_BYTES:
            raise ProtocolError(
                ReplyCode.RESOURCE_ERROR,
                f"open transactions of this connection exceed {HELD_MAX_BYTES} bytes",
            )
        self._held_bytes += cost
        self._connection.held_bytes += cost
        self._publishes.append(_Publish(envelope, contents, size, queues, remote, is_returned))

    def ack(self, settled: list[Delivery]) -> None:
        """Deliveries to acknowledge."""
        self._settled.append((settled, None))

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Deliveries to reject."""
        self._settled.append((settled, requeue))

    def commit(self, channel: "Channel") -> Asked[None]:
        """Do it all, and wait until it is safe.

        Raises: ProtocolError 406 if a queue refused a message, or was lost with its node before it answered; 541 if
            this node's disk could not keep one. Everything else is done then.
        """
        publishes, self._publishes = self._publishes, []
        settled, self._settled = self._settled, []
        self._let_go()
        refused = is_kept = False
        away = [publish for publish in publishes if publish.remote]
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
        if away:
            acceptance = yield partial(self._publish_away, away)
            refused = refused or acceptance.is_lost or bool(acceptance.refused)
        if refused:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "partial tx completion")
        if is_kept and not (yield Safety(channel)):
            raise ProtocolError(ReplyCode.INTERNAL_ERROR, "messages of the transaction are not on disk")

    @staticmethod
    def _publish_away(away: list[_Publish], on_settled: Callable[[Acceptance], None]) -> None:
        """Publish to queues on other nodes."""
        parties = sum(len(publish.remote) for publish in away)
        acceptance = Acceptance(0, parties, on_settled)
        for publish in away:
            for queue in publish.remote:
                queue.send(publish.envelope, publish.contents, publish.size, acceptance)

    def _let_go(self) -> None:
        self._connection.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def rollback(self) -> list[Delivery]:
        """Forget it all; the deliveries that are unacknowledged again."""
        settled, self._settled = self._settled, []
        self._publishes = []
        self._let_go()
        return [delivery for deliveries, _ in settled for delivery in deliveries]
