"""A channel: its publishes, its deliveries, and those that are not settled.

The methods of the protocol are in `node.client.handlers`; here are the parts that they share and that must be fast:
publishing a run along a cached route, delivering a run, settling ranges of delivery tags.
Source: amqp-behaviour §2, §4.
"""

from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from node.amqp.channel_state import ChannelState
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import boolean
from node.amqp.frames import method_frame
from node.amqp.methods import BasicCancel, BasicDeliver, BasicReturn, Method
from node.amqp.properties import Traits
from node.catalogue.access import Operation, check_resource, check_topic
from node.catalogue.records import QueueRecord, ResourceKind
from node.client.confirms import Confirms
from node.client.counters import ChannelCounters
from node.client.delivery_interception import InterceptedOutlet
from node.client.exclusive import check_exclusive
from node.client.giving_back import give_back
from node.client.header_routes import HeaderRoutes
from node.client.holding import held_or
from node.client.publishing import Route, make_envelope, rewritten
from node.client.reply_to import ReplyConsumer
from node.client.spreading import is_wide
from node.client.transaction import Transaction
from node.client.unacked import NOBODY, Delivery, Unacked, unknown_delivery_tag
from node.queue.consumer import UNLIMITED, Consumer, Outlet
from node.queue.content import chosen_headers
from node.queue.deliver_frames import deliver_frame, fitting
from node.queue.intake import Targets
from node.queue.run import Batch, Envelope, Run
from node.scheduling.chores import Chore

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.queue.live_queue import Asked, LiveQueue

CANCEL_ON_FAILOVER: Final = "x-cancel-on-ha-failover"
"""The argument of a consumer that wants basic.cancel when its queue gets another master (§9.4)."""

_TRUE: Final = boolean(True)
_TAG: Final = Struct(">Q")
_LAST_TAG: Final = attrgetter("last_tag")


class Channel:
    """One channel of a connection.

    prefetch_limit: of `basic.qos(global=true)`, for all consumers together.   prefetch: for consumers to
        come. 0: no limit.
    last_queue: the queue that an empty name stands for (§3.8); None before the first declare.
    held_cancels: while we delete a queue ourselves, the consumers to be told of it after our delete-ok
        (§3.11).
    """

    def __init__(self, number: int, connection: "BaseConnection") -> None:
        self.number = number
        self.connection = connection
        self.broker = connection.broker
        self.vhost = self.broker.vhosts[connection.vhost]
        self.state = ChannelState.OPEN
        self.consumers: dict[str, Consumer] = {}
        self.reply_consumer: ReplyConsumer | None = None
        self.unacked = Unacked()
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.prefetch = self.broker.settings.default_prefetch
        self.prefetch_limit = self.broker.settings.default_prefetch_limit
        self.last_queue: str | None = None
        self.held_cancels: list[Consumer] | None = None
        self._counters = ChannelCounters()
        self.broker.counters.channel_created += 1
        self.broker.channel_counts[connection.user_name] += 1
        self._next_tag = 1
        self._limited_count = 0  # unacknowledged messages that count against prefetch_limit
        self._limit_since_tag = 1
        self._blocked: dict[Consumer, None] = {}
        self._kept_back = 0  # messages that have tags, but did not go to the client
        self.pairs = self.broker.pairs.of_new(self)
        self.interceptors: InterceptedOutlet | None = None
        if self.broker.delivery_interception is not None:
            self.follow_interceptors()

    @property
    def counters(self) -> ChannelCounters:
        """The counts of the channel so far. They are added to the broker's when the channel is closed."""
        counters = self._counters
        if self.state is not ChannelState.OPEN:
            return counters
        if self.confirms is not None:
            counters.received_confirm, counters.confirm = self.confirms.numbered, self.confirms.confirmed
        others = counters.deliver_no_ack + counters.get + counters.get_no_ack + self._kept_back
        counters.deliver = self._next_tag - 1 - others
        return counters

    def send(self, method: Method) -> None:
        """Send a method without content."""
        self.connection.send(method_frame(self.number, method))

    # --- for handlers ---

    def check(self, kind: ResourceKind, name: str, operation: Operation) -> "Asked[None]":
        """Raise ProtocolError 403 unless the user may do that (§6.7). It waits where a plug-in authorises the user."""
        connection = self.connection
        if connection.rights is not None:
            yield from connection.rights.check_resource(kind, name, operation)
            return
        check_resource(self.broker.catalogue, connection.user_name, connection.vhost, kind, name, operation)

    def check_topic(self, exchange: str, routing_key: str) -> "Asked[None]":
        """Raise ProtocolError 403 unless the user may bind to a topic exchange with that key (§6.8), as `check`."""
        connection, catalogue = self.connection, self.broker.catalogue
        if connection.rights is not None:
            yield from connection.rights.check_topic(exchange, routing_key, "read")
            return
        check_topic(catalogue, connection.user_name, connection.vhost, exchange, routing_key, "read")

    def named_queue(self, name: str) -> str:
        """The queue that a method means: an empty name is the last declared one (§3.8)."""
        if name:
            return name
        if self.last_queue is None:
            raise ProtocolError(ReplyCode.NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def usable_queue(self, name: str) -> "LiveQueue":
        """The live queue; raises ProtocolError 404, or 405 if it is exclusive to another connection."""
        queue = self.broker.live_queue(self.connection.vhost, name)
        self.check_exclusive(queue.record)
        return queue

    def check_exclusive(self, record: QueueRecord, *, declared_exclusive: bool | None = None) -> None:
        """Raise ProtocolError if the client may not use the queue; see `node.client.exclusive.check_exclusive`."""
        check_exclusive(record, self.connection.id, declared_exclusive)

    # --- publishing ---

    def publish(self, route: Route, traits: Traits, contents: list[bytes], size: int) -> None:
        """Publish a run of messages along a route.

        Raises: ProtocolError for an invalid one, before any is enqueued.
        """
        envelope = route.envelope
        if envelope is None or (traits is not route.traits and traits != route.traits):
            if route.by_headers is not None:
                at = 0
                while at < len(contents):
                    at = self.publish_some(route, route.by_headers, traits, contents, at, size)
                return
            envelope = make_envelope(self, route, traits)
            if route.looks_at_each or traits.cc or traits.bcc is not None or traits.reply_to is not None:
                for content in contents:
                    self._publish_one(route, envelope, traits, content, size)
                return
            route.envelope, route.traits = envelope, traits
        self._publish(Batch(envelope, contents, size), route, route.targets)

    def publish_some(
        self,
        route: Route,
        by_headers: HeaderRoutes,
        traits: Traits,
        contents: list[bytes],
        first: int,
        size: int,
    ) -> int:
        """Publish messages from an index on whose headers decide where they go, as many as cost little to route.

        by_headers: the route's.   Returns: the index of the next message.
        Raises: ProtocolError if the first one is invalid.
        """
        envelope = by_headers.envelope
        if envelope is None or (traits is not by_headers.traits and traits != by_headers.traits):
            envelope = make_envelope(self, route, traits)
            if traits.cc or traits.bcc is not None or traits.reply_to is not None:
                self._publish_one(route, envelope, traits, contents[first], size)
                return first + 1
            by_headers.envelope, by_headers.traits = envelope, traits
        for targets, start, stop in by_headers.parts(contents, first):
            self._publish(Batch(envelope, contents[start:stop], size), route, targets)
            first = stop
        return first

    def _publish_one(
        self, route: Route, envelope: Envelope, traits: Traits, content: bytes, size: int
    ) -> None:
        """Publish a message that needs a route of its own: by its headers, by CC and BCC, by a plug-in, or to a direct
        reply.
        """
        headers = chosen_headers(content, route.headers_asked)
        keys = [route.routing_key, *traits.cc, *(traits.bcc or ())]
        queues = self.broker.route(self.connection.vhost, route.exchange, keys, headers, content)
        targets = Targets(held_or(self.vhost.queues, queues, content))
        content = rewritten(self, content, traits)
        if not route.exchange:
            for key in dict.fromkeys(keys):
                self.broker.reply(key, envelope, content)
        self._publish(Batch(envelope, [content], size), route, targets)

    def _publish(self, batch: Batch, route: Route, targets: Targets) -> None:
        if self.vhost.tracer is not None:
            self.vhost.tracer.published(self, batch, targets)
        if self.transaction is not None:
            names = [queue.record.name for queue in targets]
            self.transaction.publish(batch, names, route.counters, mandatory=route.mandatory)
            return
        count = len(batch.contents)
        exchange = route.counters
        self._counters.publish += count
        exchange.publish_in += count
        if self.pairs is not None:
            self.pairs.published(batch.envelope.exchange, count, targets)
        if targets.count:
            exchange.publish_out += count * targets.count
            if route.mandatory and targets.is_history_only:
                self.unroutable(batch, route.mandatory)
        else:
            self.unroutable(batch, route.mandatory)
        spreading = self.connection.spreading
        if spreading.is_on or (targets.count > 1 and is_wide(targets)):
            spreading.begin(self, batch, targets)
            return
        self.broker.intake.publish(batch, targets, None if self.confirms is None else self)
        if targets.leaves_node:
            self.connection.throttle.hold_for(targets)

    # --- confirms: a `Publisher` ---

    def expect(self, count: int) -> int:
        """Number so many messages that the client will be told of; return the first number."""
        assert self.confirms is not None
        self.connection.confirming[self] = None
        return self.confirms.expect(count)

    def confirm_at_once(self, count: int) -> None:
        """Confirm so many messages at the end of this read."""
        assert self.confirms is not None
        self.connection.confirming[self] = None
        self.confirms.confirm_at_once(count)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Confirm publishes with these numbers at the end of the turn, or reject them."""
        if self.confirms is None or self.state is not ChannelState.OPEN:
            return
        settle = self.confirms.confirm if is_safe else self.confirms.reject
        settle(first, last)
        self.connection.confirming[self] = None
        self.broker.has_output(self.connection)

    def unroutable(self, batch: Batch, is_mandatory: bool) -> None:
        """Return mandatory messages that reach no queue to the client, and count all (§4.2)."""
        envelope, contents = batch.envelope, batch.contents
        if self.pairs is not None:
            self.pairs.unroutable(envelope.exchange, len(contents), is_mandatory=is_mandatory)
        if not is_mandatory:
            self._counters.drop_unroutable += len(contents)
            return
        self._counters.return_unroutable += len(contents)
        code = ReplyCode.NO_ROUTE
        head = method_frame(
            self.number, BasicReturn(code, code.name, envelope.exchange, envelope.routing_key)
        )
        for content in contents:
            self.connection.send(head)
            self.connection.send(content)

    def flush_confirms(self) -> None:
        """Tell the client what has been settled since the last time."""
        if self.confirms is not None:
            for method in self.confirms.flush():
                self.send(method)

    # --- interceptors of plug-ins ---

    @property
    def outlet(self) -> Outlet:
        """The outlet to which consumers of this channel lead."""
        return self if self.interceptors is None else self.interceptors

    def follow_interceptors(self) -> None:
        """Lead all consumers to the interceptors that there are now, or to the channel itself."""
        found = self.broker.delivery_interception
        is_open = self.state is ChannelState.OPEN
        self.interceptors = InterceptedOutlet(self, found, self.broker.timers) if found and is_open else None
        for consumer in self.consumers.values():
            consumer.channel = self.outlet

    def keep_back(self, consumer: Consumer, run: Run, now: float) -> int:
        """Count messages as delivered that the client is not given; return the delivery tag of the first one."""
        tag, count = self._next_tag, len(run.contents)
        self._next_tag = tag + count
        self._kept_back += count
        consumer.unacked += count
        self._limited_count += count
        consumer.queue.delivered(run)
        self.unacked.add(Delivery(tag, run, consumer.queue, consumer, now))
        return tag

    # --- delivering: an `Outlet` ---

    def credit(self, consumer: Consumer) -> int:
        """Return how many messages the consumer may be given now, by its own limit and the channel's (§4.9)."""
        if self.state is not ChannelState.OPEN:
            return 0
        credit = consumer.prefetch - consumer.unacked if consumer.prefetch else UNLIMITED
        return min(credit, self.limit_left())

    def room_bytes(self) -> int:
        """Return the bytes that the connection may still be given this turn; 0 or less for none."""
        return self.connection.room_bytes()

    def block(self, consumer: Consumer) -> None:
        """Note that the consumer was left out for want of credit or room."""
        self._blocked[consumer] = None
        if self.connection.room_bytes() <= 0:
            self.connection.stalled[self] = None

    def unblock(self) -> None:
        """Let the consumers that can take messages join in again: credit or room came back."""
        if not self._blocked:
            return
        if self.connection.room_bytes() <= 0:
            self.connection.stalled[self] = None
            return
        # Room of the channel's limit goes to the consumer that has waited longest, or the first would always take it.
        for consumer in sorted(self._blocked, key=_LAST_TAG) if self.prefetch_limit else list(self._blocked):
            # A queue on another node counts itself, and includes deliveries that are still on their way.
            if not consumer.queue.is_local or self.credit(consumer) > 0:
                del self._blocked[consumer]
                consumer.queue.resume(consumer)

    def deliver(self, consumer: Consumer, run: Run, now: float, shown: Run | None = None) -> None:
        """Send messages to the client, and remember those that it will acknowledge.

        shown: the same messages as the client is to see them; None: as they are.
        """
        count = len(run.contents)
        head, tail = deliver_frame(consumer, run, self.number)
        tag = self._next_tag
        self._next_tag = tag + count
        consumer.last_tag = tag
        contents = self.fit(run if shown is None else shown, consumer.queue)
        if count == 1:
            self.connection.send_parts([head, _TAG.pack(tag), tail, contents[0]], len(contents[0]))
        else:
            parts = [head] * (4 * count)
            parts[1::4] = map(_TAG.pack, range(tag, tag + count))
            parts[2::4] = [tail] * count
            parts[3::4] = contents
            self.connection.send_parts(parts, sum(map(len, contents)))
        if run.deliveries:
            self._counters.redeliver += count
        if consumer.no_ack:
            self._counters.deliver_no_ack += count
            consumer.queue.consumed(run)
        else:
            consumer.unacked += count
            self._limited_count += count
            consumer.queue.delivered(run)
            self.unacked.add(Delivery(tag, run, consumer.queue, consumer, now))
        if self.pairs is not None:
            self.pairs.delivered(consumer, run)
        if self.vhost.tracer is not None:
            self.vhost.tracer.delivered(self, consumer.queue, run)

    def deliver_runs(self, consumer: Consumer, runs: list[Run], now: float) -> None:
        """Send the messages of several runs, as `deliver` does run by run; short runs cost less this way."""
        if self.pairs is not None or self.vhost.tracer is not None:
            for run in runs:
                self.deliver(consumer, run, now)
            return
        number, frame_max_bytes, queue = self.number, self.connection.frame_max_bytes, consumer.queue
        first = tag = self._next_tag
        parts, pack = list[bytes](), _TAG.pack
        for run in runs:
            envelope, contents = run.envelope, run.contents
            head, tail = deliver_frame(consumer, run, number)
            if run.deliveries or envelope.channel != number or envelope.frame_max_bytes != frame_max_bytes:
                contents = fitting(run, queue, number, frame_max_bytes)
            for content in contents:
                parts += (head, pack(tag), tail, content)
                tag += 1
            consumer.last_tag = tag - len(run.contents)
            if run.deliveries:
                self._counters.redeliver += len(run.contents)
            if consumer.no_ack:
                queue.consumed(run)
            else:
                queue.delivered(run)
                self.unacked.add(Delivery(consumer.last_tag, run, queue, consumer, now))
        self._next_tag = tag
        if consumer.no_ack:
            self._counters.deliver_no_ack += tag - first
        else:
            consumer.unacked += tag - first
            self._limited_count += tag - first
        self.connection.send_parts(parts, sum(map(len, parts[3::4])))

    def deliver_reply(self, requester: ReplyConsumer, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply: its delivery tag is the next one and isn't used up (§4.12). It may be dropped."""
        if not self.connection.takes_replies:
            return
        deliver = BasicDeliver(requester.tag, self._next_tag, False, envelope.exchange, envelope.routing_key)
        self.send(deliver)
        self.connection.send(self.fit(Run(envelope, range(1), [content], 0))[0])

    def fit(self, run: Run, queue: "LiveQueue | None" = None, *, is_got: bool = False) -> list[bytes]:
        """Return the contents of a run, from a queue, as this channel's client can take them."""
        return fitting(run, queue, self.number, self.connection.frame_max_bytes, is_got=is_got)

    def take_tag(self) -> int:
        """Use up the next delivery tag, for `basic.get`, and return it."""
        self._next_tag += 1
        return self._next_tag - 1

    def cancelled_by_server(self, consumer: Consumer) -> None:
        """Forget the consumer and tell the client: the queue is gone."""
        self._forget_consumer(consumer)
        if self.held_cancels is not None:
            self.held_cancels.append(consumer)
        else:
            self.notify_cancelled(consumer)

    def reattached(self, consumer: Consumer, queue: "LiveQueue") -> Consumer | None:
        """Return the consumer that replaces one whose queue has another master; None: it is cancelled. Its prefetch
        limit begins anew (§9.4).
        """
        if self.consumers.get(consumer.tag) is not consumer:
            return None
        self._blocked.pop(consumer, None)
        if consumer.arguments.get(CANCEL_ON_FAILOVER) == _TRUE and self.connection.has_capability(
            "consumer_cancel_notify"
        ):
            self._forget_consumer(consumer)
            self.notify_cancelled(consumer)
            return None
        successor = Consumer(
            consumer.tag,
            self.outlet,
            queue,
            no_ack=consumer.no_ack,
            exclusive=consumer.exclusive,
            priority=consumer.priority,
            prefetch=consumer.prefetch,
            arguments=consumer.arguments,
        )
        self.consumers[consumer.tag] = successor
        return successor

    def disown(self) -> None:
        """Stop counting deliveries from queues that have left (§9.4)."""
        deliveries = self.unacked.disown()
        if self.transaction is not None:
            deliveries += self.transaction.disown()
        for delivery in deliveries:
            if delivery.consumer is not None or delivery.first_tag < self._limit_since_tag:
                self._limited_count -= delivery.open
        if deliveries:
            self.unblock()

    def notify_cancelled(self, consumer: Consumer) -> None:
        """Tell the client that its consumer is gone, if it has asked to be told (§4.7)."""
        if self.state is ChannelState.OPEN and self.connection.has_capability("consumer_cancel_notify"):
            self.send(BasicCancel(consumer.tag, nowait=True))

    # --- settling ---

    def acks(self, first: int, last: int) -> None:
        """Acknowledge the delivery tags from first to last, each as one ack.

        Raises: ProtocolError 406 at the first unknown tag, those before it being acknowledged.
        """
        settled = self.unacked.settle(first, last)
        self.ack(settled)
        self.require_settled(settled, first, last)

    def require_settled(self, settled: list[Delivery], first: int, last: int) -> None:
        """Raise ProtocolError 406 unless every tag from first to last was open."""
        count = sum(delivery.open for delivery in settled)
        if count < last - first + 1:
            raise unknown_delivery_tag(first + count)

    def ack(self, settled: list[Delivery]) -> None:
        """Settle deliveries that the client has acknowledged, now or when the transaction commits."""
        if self.transaction is not None:
            self.transaction.ack(settled)
        else:
            self.settle_acked(settled)

    def reject(self, settled: list[Delivery], *, requeue: bool) -> None:
        """Settle deliveries that the client has rejected, now or when the transaction commits."""
        if self.transaction is not None:
            self.transaction.reject(settled, requeue=requeue)
        else:
            self.settle_rejected(settled, requeue=requeue)

    def settle_acked(self, settled: list[Delivery]) -> None:
        """Let the queues forget deliveries."""
        if self.pairs is not None:
            self.pairs.acked(settled)
        acked = 0
        for delivery in settled:
            acked += delivery.open
            self._uncount(delivery)
            delivery.queue.ack(delivery.run)
        self._counters.ack += acked
        if self._blocked:
            self.unblock()

    def settle_rejected(self, settled: list[Delivery], *, requeue: bool, is_asked: bool = True) -> None:
        """Requeue deliveries, or have them dead-lettered.   is_asked: as in `LiveQueue.requeue`."""
        now = self.broker.now
        returned: dict[LiveQueue, list[Run]] = {}
        # From the highest tag down where they go back: each then finds its place at the head of its queue.
        for delivery in reversed(settled) if requeue else settled:
            self._uncount(delivery)
            if requeue:
                returned.setdefault(delivery.queue, []).append(delivery.run)
            else:
                delivery.queue.reject(delivery.run, now)
        for queue, runs in returned.items():
            queue.requeue(runs, now, is_asked=is_asked)
        if self._blocked:
            self.unblock()

    def _uncount(self, delivery: Delivery) -> None:
        """Stop counting a delivery against prefetch limits."""
        if delivery.queue is NOBODY:
            return
        if delivery.consumer is not None:
            delivery.consumer.unacked -= delivery.open
        if delivery.consumer is not None or delivery.first_tag < self._limit_since_tag:
            self._limited_count -= delivery.open

    def limit_left(self) -> int:
        """Return how many more deliveries the limit for all consumers together allows now."""
        return self.prefetch_limit - self._limited_count if self.prefetch_limit else UNLIMITED

    def reserve(self, count: int) -> None:
        """Promise so much of that limit to a queue on another node, or (negative) take it back."""
        self._limited_count += count

    def limit_prefetch(self, limit: int) -> None:
        """Set the limit for all consumers together. What is unacknowledged now counts, later gets don't (§4.9)."""
        if limit and not self.prefetch_limit:
            self._limit_since_tag = self._next_tag
            deliveries = self.unacked.deliveries()
            self._limited_count = sum(each.open for each in deliveries if each.queue is not NOBODY)
        if limit or self.prefetch_limit:
            self.prefetch_limit = limit
            for consumer in self.consumers.values():
                consumer.queue.limit_changed(consumer)

    # --- the end ---

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer, which the client has cancelled or whose channel ends."""
        self._forget_consumer(consumer)
        consumer.queue.unsubscribe(consumer, self.broker.now)

    def _forget_consumer(self, consumer: Consumer) -> None:
        del self.consumers[consumer.tag]
        self._blocked.pop(consumer, None)
        self.broker.observer.consumer_removed(self, consumer)

    def close(self) -> Chore:
        """End: roll back a transaction now; return the chore that gives back its consumers and messages (§2.1)."""
        self.broker.observer.channel_closed(self)
        self.broker.counters.channel_closed += 1
        self.broker.channel_counts[self.connection.user_name] -= 1
        if not self.broker.channel_counts[self.connection.user_name]:
            del self.broker.channel_counts[self.connection.user_name]
        counters = self.counters
        self.broker.counters.ended.add(counters)
        if (live := self.broker.vhosts.get(self.connection.vhost)) is not None:
            live.ended.add(counters)
        self._counters = ChannelCounters()
        self.state = ChannelState.CLOSING
        if self.interceptors is not None:
            self.interceptors.close()
            self.interceptors = None
        self.connection.stalled.pop(self, None)
        self.connection.confirming.pop(self, None)
        if self.transaction is not None:
            self.unacked.restore(self.transaction.rollback())
            self.transaction = None
        if self.reply_consumer is not None:
            self.broker.reply_consumers.remove(self.reply_consumer)
            self.reply_consumer = None
        self.broker.pairs.end(self)
        if self.consumers or self.unacked.count:
            self.broker.closing[self] = None
        return give_back(self)
