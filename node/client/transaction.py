"""A channel's open transaction: publishes and settlements that wait for the commit.

Not atomic across queues, as RabbitMQ's isn't: commit enqueues one after the other, then settles.
Source: amqp-behaviour §4.4.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.client.counters import ExchangeCounters
from node.client.unacked import Delivery, disowned
from node.queue.acceptance import Acceptance
from node.queue.live_queue import Asked, RemoteQueue, local_and_remote
from node.queue.mirroring import Mirror
from node.queue.paged_backlog import MESSAGE_BYTES
from node.queue.queue import Queue
from node.queue.run import Envelope
from node.queue.safety import Safety, is_any_durable

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.client.connection import Connection


HELD_MAX_BYTES: Final = 512 * 1024 * 1024
"""What a connection's open transactions hold in memory: four messages of the largest size that is allowed."""


class _Publish(NamedTuple):
    """Messages for queues that are looked up by their names when the transaction commits, as in RabbitMQ."""

    envelope: Envelope
    contents: list[bytes]
    size: int
    names: list[str]
    exchange: ExchangeCounters
    mandatory: bool


class _Routed(NamedTuple):
    """The same with the queues that are there.   is_cut: one that exists is out of reach."""

    publish: _Publish
    queues: Collection[Queue]
    remote: Collection[RemoteQueue]
    is_cut: bool

    @property
    def is_kept(self) -> bool:
        """Whether this node's disk alone has to have it."""
        return self.publish.envelope.persistent and is_any_durable(
            queue for queue in self.queues if queue.mirror is None
        )

    @property
    def mirrors(self) -> "list[tuple[Queue, Mirror]]":
        """Those of this node's queues that have copies on others."""
        return [(queue, queue.mirror) for queue in self.queues if queue.mirror is not None]


class Transaction:
    """What to do when it commits, in order.

    publish_count, settled_count: messages that are to be published, and deliveries that are to be settled.
    """

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._held_bytes = 0
        self.publish_count = self.settled_count = 0
        self._publishes: list[_Publish] = []
        self._settled: list[
            tuple[list[Delivery], bool | None]
        ] = []  # None: acked, else rejected and whether to requeue

    def publish(
        self,
        envelope: Envelope,
        contents: list[bytes],
        size: int,
        names: list[str],
        exchange: ExchangeCounters,
        *,
        mandatory: bool,
    ) -> None:
        """Messages to enqueue, routed already to queues of these names.

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
        self.publish_count += len(contents)
        self._publishes.append(_Publish(envelope, contents, size, names, exchange, mandatory))

    def ack(self, settled: list[Delivery]) -> None:
        """Deliveries to acknowledge."""
        self.settled_count += sum(delivery.open for delivery in settled)
        self._settled.append((settled, None))

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Deliveries to reject."""
        self.settled_count += sum(delivery.open for delivery in settled)
        self._settled.append((settled, requeue))

    def commit(self, channel: "Channel") -> Asked[None]:
        """Do it all, and wait until it is safe.

        Raises: ProtocolError 406 if a queue refused a message, is out of reach, or was lost with its node before it
            answered, or with all its copies; 541 if this node's disk could not keep one. Everything else is done then.
        """
        publishes, self._publishes = [_routed(channel, publish) for publish in self._publishes], []
        settled, self._settled = self._settled, []
        self.publish_count = self.settled_count = 0
        self._let_go()
        refused = any(routed.is_cut for routed in publishes)
        is_kept = False
        away = [routed for routed in publishes if routed.remote or routed.mirrors]
        for routed in publishes:
            publish, queues, remote = routed.publish, routed.queues, routed.remote
            channel.counters.publish += len(publish.contents)
            publish.exchange.published(len(publish.contents), len(queues) + len(remote))
            if channel.pairs is not None:
                channel.pairs.published(publish.envelope.exchange, len(publish.contents), queues, remote)
            if not queues and not remote and not routed.is_cut:
                channel.unroutable(publish.envelope, publish.contents, publish.mandatory)
            if channel.broker.enqueue(publish.envelope, publish.contents, publish.size, queues):
                refused = True
            is_kept = is_kept or routed.is_kept
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
        if is_kept and not (yield Safety(channel.broker.storage)):
            raise ProtocolError(ReplyCode.INTERNAL_ERROR, "messages of the transaction are not on disk")

    @staticmethod
    def _publish_away(away: list[_Routed], on_settled: Callable[[Acceptance], None]) -> None:
        """Publish to queues on other nodes, and wait for the mirrors of those on this one."""
        parties = sum(len(routed.remote) + len(routed.mirrors) for routed in away)
        acceptance = Acceptance(0, parties, on_settled)
        for routed in away:
            publish = routed.publish
            for queue in routed.remote:
                queue.send(publish.envelope, publish.contents, publish.size, acceptance)
            for local, mirror in routed.mirrors:
                is_kept = publish.envelope.persistent and local.is_durable
                mirror.await_stable(acceptance, 0, 0, is_kept=is_kept)

    def settled(self) -> Iterator[Delivery]:
        """What the client has settled, as far as it knows."""
        return (delivery for deliveries, _ in self._settled for delivery in deliveries)

    def disown(self) -> list[Delivery]:
        """See `Unacked.disown`."""
        return [delivery for delivery in self.settled() if disowned(delivery)]

    def _let_go(self) -> None:
        self._connection.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def rollback(self) -> list[Delivery]:
        """Forget it all; the deliveries that are unacknowledged again."""
        settled = list(self.settled())
        self._settled = []
        self._publishes = []
        self._let_go()
        return settled


def _routed(channel: "Channel", publish: _Publish) -> _Routed:
    """A publish with the queues that have its names by now."""
    live, vhost = channel.vhost.queues, channel.connection.vhost
    found = [live[name] for name in publish.names if name in live]
    queues, remote = local_and_remote(found)
    is_cut = len(found) < len(publish.names) and any(
        name not in live and channel.broker.catalogue.queue(vhost, name) is not None for name in publish.names
    )
    return _Routed(publish, queues, remote, is_cut)
