"""The near end of a queue that lives on another node: what channels see instead of the `Queue`.

It keeps unanswered publishes and questions, and the consumers; all operations go to the home, in order. When the queue
is deleted, or its home is lost, everything that waits is answered at once. If a mirrored queue gets another master, its
next live queue takes over publishes, questions and consumers.
Source: amqp-behaviour §9.1, §9.4; docs/internals/remote-queues.md, "When a node is lost".
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import Malformed
from cluster.remote.frames import ranges
from cluster.remote.outgoing_frames import OutgoingFrames
from cluster.remote.publishes import WINDOW_BYTES, Publishes, frame_limit, pieces, settle_all
from cluster.remote.remote_pb2 import Accepted, Answer, Ask, Settle
from node.amqp.errors import ProtocolError
from node.amqp.field_table import encode_table
from node.catalogue.names import home_is_down, not_found
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.consumer import Consumer
from node.queue.live_queue import Asked, Counts, Handoff, HeldPublisher, LiveQueue
from node.queue.pending_publish import PublishWaiter
from node.queue.run import Batch, Run, bytes_of

if TYPE_CHECKING:
    from cluster.remote.home_link import HomeLink, Subscription


class Request:
    """A question to the home, which ends with `answer` or with an error.

    queue: the queue that is asked about; None: the question is about a requester of direct replies.
    answer: the home's; None: there is none, and `error` may say why.   run: the fetched message.
    is_own: the queue asks for itself, and handles a move of the queue itself.
    successor: the live queue that is to be asked instead.
    """

    __slots__ = ("answer", "error", "is_delete", "is_own", "on_done", "queue", "run", "successor")

    def __init__(self, queue: "RemoteQueue | None", *, is_delete: bool = False, is_own: bool = False) -> None:
        self.queue = queue
        self.is_delete = is_delete
        self.is_own = is_own
        self.answer: Answer | None = None
        self.error: ProtocolError | None = None
        self.run: Run | None = None
        self.successor: LiveQueue | None = None
        self.on_done: Callable[[Any], None] = lambda request: None

    def fail(self, error: ProtocolError | None) -> None:
        """End without an answer."""
        self.error = error
        self.on_done(self)

    def moved(self, successor: LiveQueue) -> None:
        """End, as the queue has moved: the successor is to be asked instead."""
        self.successor = successor
        self.on_done(self)

    def result(self) -> Answer:
        """Return the answer. Raises: ProtocolError, if the home answered with an error."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class RemoteQueue:
    """The `LiveQueue` of a queue on another node.

    Publishes are numbered from 1 for this node and the queue, deliveries for the pair of nodes.
    mastership: the queue's mastership that frames here belong to, see `QueueRecord`.
    """

    def __init__(
        self, record: QueueRecord, settings: QueueSettings, link: "HomeLink", incarnation: int | None
    ) -> None:
        self.record = record
        self.is_local = self.is_out_of_reach = False
        self.leaves_node = True
        self.is_durable = record.durable and record.exclusive_owner is None
        self.mastership = record.mastership
        self.outgoing = OutgoingFrames(link.outbox, record, self.mastership)
        self.successor: LiveQueue | None = None
        self._link = link
        self._meter = link.meter
        self._incarnation = incarnation
        self._publishes = Publishes()
        self._awaiting: dict[HeldPublisher, None] = {}
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._on_closed: list[Callable[[Any], None]] = []
        self._end: ProtocolError | None = None  # why the queue cannot be reached any more
        self._is_lost = False
        self.apply_settings(settings, 0.0)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """Note changed settings; the home applies them."""
        self.settings = settings
        self.is_plain = (
            settings.message_ttl is None and settings.max_length is None and settings.max_length_bytes is None
        )
        self.outgoing.limit = frame_limit(self.record.name, is_plain=self.is_plain)

    # --- publishing ---

    def publish(self, batch: Batch, waiter: PublishWaiter | None) -> Collection[int]:
        """Send messages to the home. Publishes to a queue that was deleted count as accepted (§4.3)."""
        if self._end is not None:
            if waiter is not None:
                waiter.fail() if self._is_lost else waiter.accept()
            return ()
        if self._meter is not None and self._meter.windows.is_open:
            self._meter.used_away(self.record, bytes_of(batch.contents, batch.size))
        is_kept = self.record.view is not None
        for piece, waiting in pieces(batch, waiter, self.outgoing.limit):
            self._send(self._publishes.add(piece, waiting, is_kept=is_kept, is_sent=True), waiting)
        return ()

    def _send(self, run: bytes, waiter: PublishWaiter | None, *, is_again: bool = False) -> None:
        publish = self.outgoing.operation(len(run)).publish
        publish.run = run
        if waiter is not None:
            publish.is_confirmed = True
        if is_again:
            publish.is_again = True
        if self._publishes.size > WINDOW_BYTES:
            self._link.congested[self] = None

    def accepted(self, answer: Accepted) -> None:
        """Take the home's answers to publishes. Raises Malformed."""
        refused = {refusal.number: refusal.indexes for refusal in answer.refusals} if answer.refusals else {}
        publishes = self._publishes
        for first, last in ranges(answer.bounds):
            if last >= publishes.next_number or last - first >= len(publishes):
                raise Malformed("an answer to a publish that was not sent")
            for number in range(first, last + 1):
                publish = publishes.pop(number)
                if publish is None:
                    raise Malformed("a second answer to a publish")
                waiter = publish.waiter
                if waiter is None:
                    continue
                if answer.is_lost:
                    waiter.fail()
                else:
                    waiter.accept(refused.get(number, ()))
                if self._end is not None:
                    return
        self.relieve()

    @property
    def is_congested(self) -> bool:
        """True if so many publishes wait for the home's answer that publishers should hold on."""
        return self._end is None and (self._publishes.size > WINDOW_BYTES or self._link.is_congested)

    @property
    def is_over(self) -> bool:
        """True if the home hears nothing of this live queue any more."""
        return self._end is not None

    @property
    def is_idle(self) -> bool:
        """True if no publish, consumer, publisher or deletion waits here."""
        return not any((self._publishes, self._subscriptions, self._awaiting, self._on_closed))

    def await_relief(self, publisher: HeldPublisher) -> None:
        """Call `publisher.peer_relieved()` when there is room again."""
        self._awaiting[publisher] = None
        self._link.awaiting[self] = None
        if not self.is_congested:
            self.relieve()

    def relieve(self) -> None:
        """Call the publishers back that wait for relief, if the way is not congested any more."""
        if self._end is None:
            if self._publishes.size > WINDOW_BYTES // 2:
                return
            if self in self._link.congested:
                self._link.uncongest(self)
            if not self._awaiting or self._link.is_congested:
                return
        self._link.awaiting.pop(self, None)
        awaiting, self._awaiting = self._awaiting, {}
        for publisher in awaiting:
            publisher.peer_relieved()

    # --- deliveries ---

    def delivered(self, run: Run) -> None:
        """Do nothing: the home counts deliveries."""

    def consumed(self, run: Run) -> None:
        """Do nothing: the home forgets messages that need no acknowledgement."""

    def ack(self, run: Run) -> None:
        """Tell the home that a client has acknowledged messages."""
        self.settle(Settle.ACK, run)

    def reject(self, run: Run, now: float) -> None:
        """Tell the home that a client has rejected messages."""
        self.settle(Settle.REJECT, run)

    def requeue(self, runs: list[Run], now: float, *, is_asked: bool = False) -> None:
        """Return messages of a client to the home."""
        for run in reversed(runs):
            self.settle(Settle.REQUEUE if is_asked else Settle.GIVE_BACK, run)

    def settle(self, kind: Settle.Kind, run: Run) -> None:
        """Tell the home that a delivery, or the rest of it, is settled; ignored if the queue is gone (§9.1)."""
        if self._end is None:
            self.outgoing.settle(kind, run.seqs.start, run.seqs[-1])

    # --- consumers ---

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        """Add a consumer at the home. Raises: ProtocolError."""
        self._require_open()
        subscription = self._link.subscribe(self, consumer)
        self._subscriptions[consumer] = subscription
        request = Request(self)
        try:
            yield partial(self._subscribe, subscription, request)
            if request.successor is None:
                request.result()
                subscription.is_joined = True
        finally:
            if not subscription.is_joined and self._subscriptions.pop(consumer, None) is not None:
                self._link.leave(subscription)
                if request.error is None and self._end is None:
                    self.outgoing.operation().unsubscribe = subscription.id
        if request.successor is not None:
            consumer.queue = request.successor
            yield from request.successor.subscribe(consumer)

    def _subscribe(
        self, subscription: "Subscription", request: Request, on_done: Callable[[Any], None]
    ) -> None:
        request.on_done = on_done
        consumer = subscription.consumer
        message = self.outgoing.operation().subscribe
        message.request = self._link.expect(request)
        message.consumer = subscription.id
        message.channel = subscription.near.id
        message.tag = consumer.tag.encode("utf-8", "surrogateescape")
        message.no_ack = consumer.no_ack
        message.exclusive = consumer.exclusive
        message.priority = consumer.priority
        message.prefetch = consumer.prefetch
        message.is_limited = subscription.is_limited
        if consumer.arguments:
            message.arguments = encode_table(consumer.arguments)

    def unsubscribe(self, consumer: Consumer, now: float) -> None:
        """Remove a consumer at the home. Deliveries that are on their way to it go back."""
        subscription = self._subscriptions.pop(consumer, None)
        if subscription is not None:
            self._link.leave(subscription)
            self.outgoing.operation().unsubscribe = subscription.id

    def resume(self, consumer: Consumer) -> None:
        """Deliver messages again to a consumer that was blocked."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None:
            self._link.resume(subscription)

    def limit_changed(self, consumer: Consumer) -> None:
        """Tell the home whether the consumer's channel has a prefetch limit, if that has changed."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None and self._link.limit_changed(subscription):
            limit = self.outgoing.operation().limit
            limit.consumer = subscription.id
            limit.is_limited = subscription.is_limited

    # --- asking ---

    def heard(self) -> Asked[None]:
        """Wait until the home has taken all earlier operations: ask it a question, and drop the answer."""
        with suppress(ProtocolError):  # the queue is gone, or has moved: earlier operations are void
            yield from self._ask(Ask.COUNTS, Request(self))

    def counts(self) -> Asked[Counts]:
        """Ask the home for the numbers of messages and consumers."""
        request = Request(self)
        successor = yield from self._ask(Ask.COUNTS, request)
        if successor is not None:
            return (yield from successor.counts())
        answer = request.result()
        return Counts(answer.messages, answer.consumers)

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """Fetch a message from the home, which keeps it until it has come here, even if the client will not settle
        it.
        """
        request = Request(self)
        taken = False
        try:
            successor = yield from self._ask(Ask.FETCH, request)
            taken = True
        finally:
            if not taken and request.run is not None:  # the channel that asked is gone
                self.settle(Settle.RETURN, request.run)
        if successor is not None:
            return (yield from successor.fetch(no_ack=no_ack))
        if request.run is None:
            return None
        if no_ack:
            self.settle(Settle.ACK, request.run)
        return request.run, request.result().messages

    def purge(self) -> Asked[int]:
        """Have the home drop all ready messages; return their number."""
        request = Request(self)
        successor = yield from self._ask(Ask.PURGE, request)
        if successor is not None:
            return (yield from successor.purge())
        return request.result().messages

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """Have the home delete the queue; it submits the command. Raises: ProtocolError."""
        request = Request(self, is_delete=True)
        successor = yield from self._ask(Ask.DELETE, request, if_unused=if_unused, if_empty=if_empty)
        if successor is not None:
            return (yield from successor.delete(if_unused=if_unused, if_empty=if_empty))
        if self._end is None:
            # The deletion reaches this node a little later. If the queue moves meanwhile, the next master is asked too.
            successor = yield self._on_closed.append
            if successor is not None:
                with suppress(ProtocolError):
                    yield from successor.delete(if_unused=False, if_empty=False)
        return request.result().messages

    def _ask(
        self, kind: Ask.Kind, request: Request, *, if_unused: bool = False, if_empty: bool = False
    ) -> Asked[LiveQueue | None]:
        """Wait for the answer to a request, or for the live queue to ask instead. Raises: ProtocolError."""
        if self.successor is not None:
            return self.successor
        self._require_open()
        yield partial(self._begin, Ask(kind=kind, if_unused=if_unused, if_empty=if_empty), request)
        if request.successor is None:
            request.result()
        return request.successor

    def _begin(self, ask: Ask, request: Request, on_done: Callable[[Any], None]) -> None:
        request.on_done = on_done
        ask.request = self._link.expect(request)
        self.outgoing.operation().ask.CopyFrom(ask)

    def _require_open(self) -> None:
        if self._end is not None:
            raise self._end

    # --- the home moves ---

    def hand_off(self) -> Handoff:
        """Hand over the unanswered publishes and questions, and the consumers, to the next live queue."""
        handoff = Handoff(self._publishes.next_number)
        if self._end is not None:
            return handoff
        self._end = home_is_down(self.record)
        self.outgoing.is_closed = True
        self._link.left(self)
        handoff.publishes = self._publishes.take()
        handoff.awaiting, self._awaiting = list(self._awaiting), {}
        subscriptions, self._subscriptions = self._subscriptions, {}
        for consumer, subscription in subscriptions.items():
            self._link.leave(subscription)
            if subscription.is_joined:
                handoff.consumers.append(consumer)
        on_closed, self._on_closed = self._on_closed, []
        requests = self._link.take_requests(self)
        handoff.questions = [request.moved for request in requests if not request.is_own]
        handoff.questions += on_closed
        return handoff

    def adopt(self, handoff: Handoff) -> None:
        """Take the publishes, questions and consumers of the live queue before this one, and send them to the home."""
        self._publishes.next_number = handoff.next_number
        if self._end is None:
            kept = [publish for publish in handoff.publishes if publish.run]
            for publish in kept:
                self._publishes.put(publish._replace(is_sent=True))
                self._send(publish.run, publish.waiter, is_again=publish.is_sent)
            self._publishes.next_number = handoff.next_number
            settle_all((each for each in handoff.publishes if not each.run), is_lost=True)
        else:
            settle_all(handoff.publishes, is_lost=self._is_lost)
        for consumer in handoff.consumers:
            successor = consumer.channel.reattached(consumer, self)
            if successor is None:
                continue
            if self._end is None:
                self._join_again(successor)
            else:
                consumer.channel.cancelled_by_server(successor)
        for publisher in handoff.awaiting:
            self.await_relief(publisher)
        for ask in handoff.questions:
            ask(self)

    def _join_again(self, consumer: Consumer) -> None:
        """Add a consumer that the home before this one had. Its client is told only if the new home refuses it."""
        subscription = self._link.subscribe(self, consumer)
        subscription.is_joined = True
        self._subscriptions[consumer] = subscription
        self._subscribe(subscription, Request(self, is_own=True), partial(self._joined_again, subscription))

    def _joined_again(self, subscription: "Subscription", request: Request) -> None:
        consumer = subscription.consumer
        if request.error is not None and self._subscriptions.pop(consumer, None) is not None:
            self._link.leave(subscription)
            consumer.channel.cancelled_by_server(consumer)

    # --- the end ---

    def close(self) -> None:
        """End the queue: it was deleted, or its home is down."""
        if self._end is not None:
            return
        home = self._link.member()
        if home is None or not home.is_up or home.incarnation != self._incarnation:
            self.lose()
            return
        if self.outgoing.is_used:
            self.outgoing.operation().close = True
        self._finish(not_found("queue", self.record.name, self.record.vhost))

    def lose(self) -> None:
        """End the queue, whose home is gone: pending publishes are answered as lost (§9.1)."""
        if self._end is None:
            self._is_lost = True
            self.outgoing.is_closed = True
            self._finish(home_is_down(self.record))

    def _finish(self, end: ProtocolError) -> None:
        self._end = end
        self._link.closed(self)
        settle_all(self._publishes.take(), is_lost=self._is_lost)
        for consumer in list(self._subscriptions):
            subscription = self._subscriptions.pop(consumer, None)
            if subscription is None:
                continue
            self._link.leave(subscription)
            if subscription.is_joined:
                consumer.channel.cancelled_by_server(consumer)
        self._link.fail_requests(self, end, with_deletes=self._is_lost)
        on_closed, self._on_closed = self._on_closed, []
        for on_done in on_closed:
            on_done(None)
        self.relieve()
