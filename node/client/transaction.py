"""A channel's open transaction: publishes and settlements that wait for the commit.

It is not atomic across queues, as RabbitMQ's is not: a commit enqueues one message after the other, then settles.
Source: amqp-behaviour §4.4.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.client.counters import ExchangeCounters
from node.client.unacked import Delivery, disowned
from node.queue.intake import Targets
from node.queue.live_queue import Asked
from node.queue.paged_backlog import MESSAGE_BYTES
from node.queue.pending_publish import PendingPublish
from node.queue.run import Batch

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel


HELD_MAX_BYTES: Final = 512 * 1024 * 1024
"""The most bytes of a connection's open transactions: four messages of the largest size that is allowed."""


class _Publish(NamedTuple):
    """Messages for queues that are looked up by their names when the transaction commits, as in RabbitMQ."""

    batch: Batch
    names: list[str]
    exchange: ExchangeCounters
    mandatory: bool


class Transaction:
    """The operations of an open transaction, in order.

    publish_count, settled_count: messages that are to be published, and deliveries that are to be settled.
    """

    def __init__(self, connection: "BaseConnection") -> None:
        self._connection = connection
        self._held_bytes = 0
        self.publish_count = self.settled_count = 0
        self._publishes: list[_Publish] = []
        self._settled: list[
            tuple[list[Delivery], bool | None]
        ] = []  # None: acked, else rejected and whether to requeue

    def publish(self, batch: Batch, names: list[str], exchange: ExchangeCounters, *, mandatory: bool) -> None:
        """Add messages, which are routed already to queues of these names.

        Raises: ProtocolError 506 if the connection's transactions hold too much.
        """
        cost = sum(map(len, batch.contents)) + MESSAGE_BYTES * len(batch.contents)
        if self._connection.held_bytes + cost > HELD_MAX_BYTES:
            raise ProtocolError(
                ReplyCode.RESOURCE_ERROR,
                f"open transactions of this connection exceed {HELD_MAX_BYTES} bytes",
            )
        self._held_bytes += cost
        self._connection.held_bytes += cost
        self.publish_count += len(batch.contents)
        self._publishes.append(_Publish(batch, names, exchange, mandatory))

    def ack(self, settled: list[Delivery]) -> None:
        """Add deliveries to acknowledge."""
        self.settled_count += sum(delivery.open for delivery in settled)
        self._settled.append((settled, None))

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Add deliveries to reject."""
        self.settled_count += sum(delivery.open for delivery in settled)
        self._settled.append((settled, requeue))

    def commit(self, channel: "Channel") -> Asked[None]:
        """Carry out all operations, and wait until they are safe.

        Raises: ProtocolError 406 if a queue refused a message, is out of reach, or was lost with its node before it
            answered, or with all its copies; 541 if this node's disk could not keep one. Everything else is done then.
        """
        publishes = [(publish, *_routed(channel, publish)) for publish in self._publishes]
        settled, self._publishes, self._settled = self._settled, [], []
        self.publish_count = self.settled_count = 0
        self._let_go()
        pending = PendingPublish(0)
        for publish, targets, is_cut in publishes:
            _publish(channel, publish, targets, pending, is_cut=is_cut)
        for deliveries, requeue in settled:
            if requeue is None:
                channel.settle_acked(deliveries)
            else:
                channel.settle_rejected(deliveries, requeue=requeue)
        if pending.is_awaited:
            yield partial(channel.broker.intake.end, pending)
        if pending.is_lost or pending.refused or any(is_cut for _, _, is_cut in publishes):
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, "partial tx completion")
        if pending.is_unkept:
            raise ProtocolError(ReplyCode.INTERNAL_ERROR, "messages of the transaction are not on disk")

    def settled(self) -> Iterator[Delivery]:
        """Yield the deliveries that the client has settled in this transaction."""
        return (delivery for deliveries, _ in self._settled for delivery in deliveries)

    def disown(self) -> list[Delivery]:
        """Blank the deliveries whose queue has left; return them."""
        return [delivery for delivery in self.settled() if disowned(delivery)]

    def _let_go(self) -> None:
        self._connection.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def rollback(self) -> list[Delivery]:
        """Forget all operations; return the deliveries that are unacknowledged again."""
        settled = list(self.settled())
        self._settled = []
        self._publishes = []
        self._let_go()
        return settled


def _routed(channel: "Channel", publish: _Publish) -> tuple[Targets, bool]:
    """Return the queues that now have a publish's names, and True if one that exists is out of reach."""
    live, vhost = channel.vhost.queues, channel.connection.vhost
    found = [live[name] for name in publish.names if name in live]
    is_cut = len(found) < len(publish.names) and any(
        name not in live and channel.broker.catalogue.queue(vhost, name) is not None for name in publish.names
    )
    return Targets(found), is_cut


def _publish(
    channel: "Channel", publish: _Publish, targets: Targets, pending: PendingPublish, *, is_cut: bool
) -> None:
    batch = publish.batch
    count = len(batch.contents)
    channel.counters.publish += count
    publish.exchange.published(count, targets.count)
    if channel.pairs is not None:
        channel.pairs.published(batch.envelope.exchange, count, targets)
    if not is_cut and (not targets.count or (publish.mandatory and targets.is_history_only)):
        channel.unroutable(batch, publish.mandatory)
    channel.broker.intake.give(batch, targets, pending)
