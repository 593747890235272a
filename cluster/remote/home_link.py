"""The front end's link to one home, shared by all queues there: requests, and the channels that consume there.

    DELIVER ─► Subscription ─► room in the channel's connection? ─► channel.deliver
                                  └ no: held, until `resume`           └► bytes go back as credit

A channel-wide prefetch limit (amqp-behaviour §4.9) is kept here, where the channel is. A home that has messages for a
limited consumer sends WANT and is granted what is left; it uses that in the same turn or gives it back, so that no
home keeps a grant that others wait for. Local and remote consumers get freed room in turns.

Direct replies (§4.12) for channels of that node go this way too: it is the home of their names.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import Malformed
from cluster.remote.frames import decode_run, delivered_run, encode_run
from cluster.remote.outgoing_frames import Outbox, OutgoingFrames
from cluster.remote.remote_pb2 import Answer, Deliver, Frame, Settle, Share
from cluster.remote.remote_queue import RemoteQueue, Request
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.reader import MIXED_SIZES
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord
from node.client.channel import Channel
from node.client.delivery_interception import InterceptedOutlet
from node.queue.consumer import Consumer
from node.queue.live_queue import Asked
from node.queue.run import Envelope, Run

if TYPE_CHECKING:
    from node.broker.broker import Broker

CREDIT_BYTES: Final = 256 * 1024
"""A channel must have taken so many bytes before its home is told."""

REPLIES_MAX_BYTES: Final = 16 * 1024 * 1024
"""The most direct replies that one turn may gather; more are dropped, as they are when the stream is congested."""

_GONE_MAX: Final = 1024
"""The most subscriptions to queues that are over for which late deliveries are still known; these come within a
moment.
"""

_COUNT_MAX: Final = (1 << 32) - 1
"""The highest count in the protocol's methods."""


class NearChannel:
    """One of our channels, as far as it consumes from one home.

    taken_bytes: bytes that the channel took and the home has not been told of.
    held: deliveries that wait for room; bounded by the home's window.
    """

    __slots__ = ("channel", "held", "id", "subscriptions", "taken_bytes")

    def __init__(self, number: int, channel: Channel) -> None:
        self.id = number
        self.channel = channel
        self.taken_bytes = 0
        self.held: deque[tuple[Subscription, Run]] = deque()
        self.subscriptions = 0


class Subscription:
    """A consumer of ours on another node.

    is_joined: the home has said yes.   is_limited: its channel has a limit for all its consumers.
    reserved: the part of that limit that the home may use for it.   wanted: messages that wait for it there.
    had_turn: it got room before local consumers were asked; the next time they go first.
    """

    __slots__ = (
        "consumer",
        "had_turn",
        "id",
        "is_joined",
        "is_limited",
        "near",
        "queue",
        "reserved",
        "wanted",
    )

    def __init__(self, number: int, queue: RemoteQueue, consumer: Consumer, near: NearChannel) -> None:
        self.id = number
        self.queue = queue
        self.consumer = consumer
        self.near = near
        self.is_joined = False
        self.is_limited = near.channel.prefetch_limit > 0
        self.reserved = 0
        self.wanted = 0
        self.had_turn = False


class HomeLink:
    """Everything of ours that lives on one node, in one incarnation of it.

    awaiting: queues with publishers that wait for relief.   congested: queues with full windows.
    on_left: called when a queue has left; channels still count what they got from it.
    """

    def __init__(
        self,
        node: str,
        broker: "Broker",
        outbox: Outbox,
        way_is_congested: Callable[[], bool],
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        self.node = node
        self._on_left = on_left
        self.outbox = outbox
        self.queues: dict[str, RemoteQueue] = {}
        self.awaiting: dict[RemoteQueue, None] = {}
        self.congested: dict[RemoteQueue, None] = {}
        self._broker = broker
        self._way_is_congested = way_is_congested
        self.meter = broker.meter
        self._outgoing = OutgoingFrames(outbox, None)
        self._numbers = count(1)
        self._requests: dict[int, Request] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._channels: dict[Channel, NearChannel] = {}
        self._wanting: dict[Subscription, None] = {}
        self._gone: dict[int, NearChannel] = {}  # by the number of the subscription, whose queue is over
        self._reply_bytes = 0  # gathered in this turn

    def open(self, record: QueueRecord, settings: QueueSettings) -> RemoteQueue:
        """Open the near end of a queue on that node."""
        home = self.member()
        queue = RemoteQueue(record, settings, self, home.incarnation if home is not None else None)
        self.queues[record.uid] = queue
        if home is None or not home.is_up:
            queue.lose()
        return queue

    def member(self) -> ClusterMember | None:
        """Return the node's record in the catalogue; None if it is no member."""
        return self._broker.catalogue.member(self.node)

    @property
    def is_congested(self) -> bool:
        """True if too much is on its way to the node."""
        return self._way_is_congested()

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(self._wanting)

    @property
    def is_idle(self) -> bool:
        """True if no request, subscription or queue is waited for."""
        kept = (
            self._requests,
            self._subscriptions,
            self._channels,
            self._wanting,
            self.awaiting,
            self.congested,
        )
        return not any(kept) and all(queue.is_idle for queue in self.queues.values())

    def relieved(self) -> None:
        """Call held publishers back: the stream to the node has room again."""
        for queue in list(self.awaiting):
            queue.relieve()

    def uncongest(self, queue: RemoteQueue) -> None:
        """Note that the window of a queue has room again."""
        self.congested.pop(queue, None)
        self._broker.wake()  # dead letters may wait for it

    def closed(self, queue: RemoteQueue) -> None:
        """Forget a queue that is gone, or whose home is."""
        if self.queues.get(queue.record.uid) is queue:  # else it is its successor
            del self.queues[queue.record.uid]
        self.uncongest(queue)

    def left(self, queue: RemoteQueue) -> None:
        """Forget a queue that has another master, on this node or another."""
        self.closed(queue)
        self.awaiting.pop(queue, None)
        self._on_left()

    def lose(self) -> None:
        """End all queues and requests: the node is gone."""
        for queue in list(self.queues.values()):
            queue.lose()
        for number in list(self._requests):  # about requesters, or deletions of deleted queues
            request = self._requests.pop(number, None)
            if request is None:
                continue
            if request.queue is None:
                request.fail(None)
            else:
                request.answer = Answer()
                request.on_done(request)

    # --- requests ---

    def expect(self, request: Request) -> int:
        """Number a request, which then waits for its answer."""
        number = next(self._numbers)
        self._requests[number] = request
        return number

    def answered(self, answer: Answer) -> None:
        """Pass on an answer of the home; its request may be gone. Raises Malformed."""
        request = self._requests.pop(answer.request, None)
        if request is None:
            return
        if answer.code:
            try:
                code = ReplyCode(answer.code)
            except ValueError:
                raise Malformed(f"no error has the code {answer.code}") from None
            request.fail(ProtocolError(code, answer.text.decode("utf-8", "surrogateescape")))
            return
        if max(answer.messages, answer.consumers) > _COUNT_MAX:
            raise Malformed("more messages than can be")
        if answer.run:
            entry = decode_run(answer.run)
            if entry.count != 1:
                raise Malformed("more messages than were asked for")
            request.run = delivered_run(entry)
        request.answer = answer
        request.on_done(request)

    def take_requests(self, queue: RemoteQueue) -> list[Request]:
        """Take out all requests about a queue: late answers are ignored."""
        numbers = [number for number, request in self._requests.items() if request.queue is queue]
        return [self._requests.pop(number) for number in numbers]

    def fail_requests(self, queue: RemoteQueue, error: ProtocolError, *, with_deletes: bool) -> None:
        """Fail the requests about a queue that is gone. A deletion still gets the home's answer unless
        `with_deletes`.
        """
        for number, request in list(self._requests.items()):
            is_meant = request.queue is queue and (with_deletes or not request.is_delete)
            if is_meant and self._requests.pop(number, None) is not None:
                request.fail(error)

    # --- direct replies ---

    def reply(self, name: str, envelope: Envelope, content: bytes) -> None:
        """Send a direct reply to a channel there (§4.12); without room for it, it is dropped."""
        if self._reply_bytes > REPLIES_MAX_BYTES or self._way_is_congested():
            return
        raw = encode_run(envelope, 1, [content], MIXED_SIZES)
        self._reply_bytes += len(raw)
        reply = self._outgoing.operation(len(raw)).reply
        reply.name = name.encode("utf-8", "surrogateescape")
        reply.run = raw

    def has_requester(self, name: str) -> Asked[bool]:
        """Ask whether a channel there waits for direct replies under this name; if the node is lost, none does."""
        request = Request(None)
        yield partial(self._find_requester, name, request)
        return request.answer is not None and request.answer.consumers > 0

    def _find_requester(self, name: str, request: Request, on_done: Callable[[Any], None]) -> None:
        request.on_done = on_done
        find = self._outgoing.operation().find_requester
        find.request = self.expect(request)
        find.name = name.encode("utf-8", "surrogateescape")

    # --- consumers ---

    def subscribe(self, queue: RemoteQueue, consumer: Consumer) -> Subscription:
        """Number a consumer, whose channel is one of ours."""
        outlet = consumer.channel
        channel = outlet.channel if isinstance(outlet, InterceptedOutlet) else outlet
        assert isinstance(channel, Channel)
        near = self._channels.get(channel)
        if near is None:
            near = self._channels[channel] = NearChannel(next(self._numbers), channel)
        near.subscriptions += 1
        subscription = Subscription(next(self._numbers), queue, consumer, near)
        self._subscriptions[subscription.id] = subscription
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Remove a consumer, and give back the messages that it holds."""
        del self._subscriptions[subscription.id]
        self._wanting.pop(subscription, None)
        near, is_over = subscription.near, subscription.queue.is_over
        for holder, run in near.held:
            if holder is subscription:
                if is_over:
                    self._took(near, run.contents)
                else:
                    subscription.queue.settle(Settle.RETURN, run)
        near.held = deque(held for held in near.held if held[0] is not subscription)
        near.subscriptions -= 1
        if not near.subscriptions:
            del self._channels[near.channel]
            if self._gone:
                self._gone = {number: each for number, each in self._gone.items() if each is not near}
        elif is_over:
            self._gone[subscription.id] = near
            if len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]
        subscription.wanted = 0
        self._release(subscription, subscription.reserved)

    def resume(self, subscription: Subscription) -> None:
        """Deliver again to a consumer: room or credit came back to its channel."""
        near = subscription.near
        outlet = subscription.consumer.channel
        while near.held and outlet.room_bytes() > 0:
            holder, run = near.held.popleft()
            self._hand_over(holder, run)
        if any(holder is subscription for holder, _ in near.held):
            outlet.block(subscription.consumer)
        if not subscription.wanted:
            return
        left = near.channel.limit_left()
        if left <= 0:
            near.channel.block(subscription.consumer)  # behind consumers that have waited longer
        elif subscription.had_turn:
            subscription.had_turn = False
            self._want(subscription)
        else:
            subscription.had_turn = True
            self._grant(subscription, left)

    # --- deliveries ---

    def deliver(self, queue: RemoteQueue, message: Deliver) -> None:
        """Deliver messages to a consumer; if it is gone they go back. Raises Malformed."""
        run = delivered_run(decode_run(message.run))
        if self.meter is not None and self.meter.windows.is_open:
            self.meter.used_away(queue.record, run.body_bytes)
        subscription = self._subscriptions.get(message.consumer)
        if subscription is None:
            queue.settle(Settle.RETURN, run)
            return
        if subscription.queue is not queue:
            raise Malformed("a delivery for the consumer of another queue")
        near, outlet = subscription.near, subscription.consumer.channel
        if near.held or outlet.room_bytes() <= 0:
            near.held.append((subscription, run))
            outlet.block(subscription.consumer)
        else:
            self._hand_over(subscription, run)

    def _hand_over(self, subscription: Subscription, run: Run) -> None:
        """Deliver as many messages as the channel's limit allows now, and return the rest."""
        channel, consumer, queue = subscription.near.channel, subscription.consumer, subscription.queue
        used = min(subscription.reserved, len(run))
        if used:
            subscription.reserved -= used
            channel.reserve(-used)
        if channel.prefetch_limit:
            left = max(0, channel.limit_left())
            if left and consumer.no_ack:
                left = len(run)
            if left < len(run):  # the limit was lowered while they were on their way
                queue.settle(Settle.RETURN, run[left:])
                if not left:
                    return
                run = run[:left]
        self._took(subscription.near, run.contents)
        if consumer.no_ack:
            queue.settle(Settle.ACK, run)
        consumer.channel.deliver(consumer, run, self._broker.now)

    def _missed(self, message: Deliver) -> None:
        """Credit the channel for messages from a queue that is over. Raises Malformed."""
        near = self._gone.get(message.consumer)
        if near is not None:
            self._took(near, decode_run(message.run).contents or [])

    def _took(self, near: NearChannel, contents: list[bytes]) -> None:
        near.taken_bytes += sum(map(len, contents))
        if near.taken_bytes >= CREDIT_BYTES:
            credit = self._outgoing.operation().credit
            credit.id, credit.amount = near.id, near.taken_bytes
            near.taken_bytes = 0

    # --- the limit of a channel ---

    def limit_changed(self, subscription: Subscription) -> bool:
        """Follow the channel's limit. True if the home has to know."""
        is_limited = subscription.near.channel.prefetch_limit > 0
        if is_limited is subscription.is_limited:
            return False
        subscription.is_limited = is_limited
        subscription.wanted = 0
        self._wanting.pop(subscription, None)
        self._release(subscription, subscription.reserved)
        return True

    def want(self, share: Share) -> None:
        """Note that the home has messages for a limited consumer."""
        subscription = self._subscriptions.get(share.id)
        if subscription is None or not subscription.is_limited or not share.amount:
            return
        subscription.wanted = share.amount
        self._want(subscription)

    def _want(self, subscription: Subscription) -> None:
        if not self._wanting:
            self._broker.wake()
        self._wanting[subscription] = None

    def given_back(self, share: Share) -> None:
        """Release the part of a grant that the home did not need."""
        subscription = self._subscriptions.get(share.id)
        if subscription is not None:
            self._release(subscription, min(share.amount, subscription.reserved))

    def _grant(self, subscription: Subscription, left: int) -> None:
        amount = min(subscription.wanted, left)
        if subscription.consumer.no_ack:
            amount = subscription.wanted  # they won't count
        else:
            subscription.reserved += amount
            subscription.near.channel.reserve(amount)
        subscription.wanted = 0
        grant = subscription.queue.outgoing.operation().grant
        grant.id, grant.amount = subscription.id, amount

    def _release(self, subscription: Subscription, amount: int) -> None:
        if amount:
            subscription.reserved -= amount
            subscription.near.channel.reserve(-amount)
            subscription.near.channel.unblock()

    def turn(self) -> None:
        """End a turn, in which local consumers have had theirs: grant what is left."""
        self._reply_bytes = 0
        if not self._wanting:
            return
        wanting, self._wanting = self._wanting, {}
        for subscription in wanting:
            left = subscription.near.channel.limit_left()
            if left > 0:
                self._grant(subscription, left)
            else:
                subscription.near.channel.block(subscription.consumer)

    # --- frames ---

    def receive(self, frame: Frame) -> None:
        """Take a home's frame about a queue. Raises Malformed."""
        for operation in frame.operations:
            kind = operation.WhichOneof("kind")
            if kind == "answer":
                self.answered(operation.answer)
                continue
            queue = self.queues.get(frame.uid)
            if queue is None or queue.mastership != frame.mastership:
                # It was deleted, or its home knows of an older one, or isn't its home any more.
                if kind == "deliver":
                    self._missed(operation.deliver)
                continue
            if kind == "deliver":
                self.deliver(queue, operation.deliver)
            elif kind == "accepted":
                queue.accepted(operation.accepted)
            elif kind == "want":
                self.want(operation.want)
            elif kind == "give_back":
                self.given_back(operation.give_back)
            else:
                raise Malformed("an operation of an unknown kind")
