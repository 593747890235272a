"""The near end of a queue that lives on another node: what channels see instead of the `Queue`.

It keeps what waits for an answer and who consumes; whatever it is told goes to the home, in order. When the queue
is deleted, or its home is lost, everything that waits is answered at once.
Source: amqp-behaviour §9.1; architecture §3.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from cluster.remote.frames import Malformed, cut, encode_run, ranges
from cluster.remote.letter import Letter
from cluster.remote.remote_pb2 import Accepted, Answer, Ask, Settle
from node.amqp.errors import ProtocolError
from node.amqp.field_table import encode_table
from node.broker.acceptance import Acceptance
from node.broker.consumer import Consumer
from node.broker.live_queue import Asked, Counts
from node.broker.names import home_is_down, not_found
from node.broker.policy import QueueSettings
from node.broker.records import QueueRecord
from node.broker.run import Envelope, Run

if TYPE_CHECKING:
    from cluster.remote.home_link import HomeLink, Subscription
    from node.broker.connection import Connection

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Publishes to one queue without an answer; with more on the way its publishers are not read from."""


class _Party(Protocol):
    """Who waits for the answer to a publish."""

    def accept(self, refused: Collection[int] = ()) -> None: ...

    def fail(self) -> None: ...


class Request:
    """A question to the home, which ends with `answer` or with an error.

    queue: asked about; None: a requester.   answer: the home's; None: there is none, and `error` says why, if
        that is anything to say.   run: fetched.
    """

    __slots__ = ("answer", "error", "is_delete", "on_done", "queue", "run")

    def __init__(self, queue: "RemoteQueue | None", *, is_delete: bool = False) -> None:
        self.queue = queue
        self.is_delete = is_delete
        self.answer: Answer | None = None
        self.error: ProtocolError | None = None
        self.run: Run | None = None
        self.on_done: Callable[[Any], None] = lambda request: None

    def fail(self, error: ProtocolError | None) -> None:
        """There will be no answer."""
        self.error = error
        self.on_done(self)

    def result(self) -> Answer:
        """The answer. Raises: ProtocolError, if that is what came."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class RemoteQueue:
    """See `node.broker.live_queue.RemoteQueue`. Publishes and deliveries are numbered from 1 for the pair of nodes."""

    def __init__(
        self, record: QueueRecord, settings: QueueSettings, link: "HomeLink", incarnation: int | None
    ) -> None:
        self.record = record
        self.is_local = False
        self.is_durable = record.durable and record.exclusive_owner is None
        self.letter = Letter(link.outbox, record)
        self._link = link
        self._incarnation = incarnation
        self._next_number = 1
        self._outstanding: dict[int, tuple[_Party | None, int]] = {}  # with their bytes, by number
        self._on_way_bytes = 0
        self._awaiting: dict[Connection, None] = {}
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._on_closed: list[Callable[[Any], None]] = []
        self._end: ProtocolError | None = None  # why it is out of reach
        self._is_lost = False
        self.apply_settings(settings, 0.0)

    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        """See `LiveQueue.apply_settings`: the home does the work."""
        self.settings = settings
        self.is_plain = (
            settings.message_ttl is None and settings.max_length is None and settings.max_length_bytes is None
        )

    # --- publishing ---

    def send(
        self, envelope: Envelope, contents: list[bytes], size: int, acceptance: Acceptance | None
    ) -> None:
        """See `live_queue.RemoteQueue.send`. Nobody waits for messages to a queue that was deleted (§4.3)."""
        if self._end is not None:
            if acceptance is not None:
                acceptance.fail() if self._is_lost else acceptance.accept()
            return
        pieces = cut(contents)
        if len(pieces) == 1:
            self._send(envelope, contents, size, acceptance)
            return
        whole = _Whole(acceptance, len(pieces)) if acceptance is not None else None
        first = 0
        for piece in pieces:
            self._send(envelope, piece, size, _Piece(whole, first) if whole is not None else None)
            first += len(piece)

    def _send(self, envelope: Envelope, contents: list[bytes], size: int, party: _Party | None) -> None:
        number = self._next_number
        self._next_number = number + 1
        raw = encode_run(envelope, number, contents, size)
        publish = self.letter.operation(len(raw)).publish
        publish.run = raw
        if party is not None:
            publish.is_confirmed = True
        self._outstanding[number] = party, len(raw)
        self._on_way_bytes += len(raw)
        if self._on_way_bytes > WINDOW_BYTES:
            self._link.congested[self] = None

    def accepted(self, answer: Accepted) -> None:
        """The home has answered publishes. Raises Malformed."""
        refused = {refusal.number: refusal.indexes for refusal in answer.refusals} if answer.refusals else {}
        for first, last in ranges(answer.bounds):
            if last >= self._next_number or last - first >= len(self._outstanding):
                raise Malformed("an answer to what was not published")
            for number in range(first, last + 1):
                party, size = self._outstanding.pop(number, (None, -1))
                if size < 0:
                    raise Malformed("a second answer to a publish")
                self._on_way_bytes -= size
                if party is None:
                    continue
                if answer.is_lost:
                    party.fail()
                else:
                    party.accept(refused.get(number, ()))
                if self._end is not None:
                    return
        self.relieve()

    @property
    def is_congested(self) -> bool:
        """See `live_queue.RemoteQueue.is_congested`."""
        return self._end is None and (self._on_way_bytes > WINDOW_BYTES or self._link.is_congested)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is kept for anybody."""
        kept = (self._outstanding, self._subscriptions, self._awaiting, self._on_closed)
        return not any(kept) and not self._on_way_bytes

    def await_relief(self, connection: "Connection") -> None:
        """See `live_queue.RemoteQueue.await_relief`."""
        self._awaiting[connection] = None
        self._link.awaiting[self] = None
        if not self.is_congested:
            self.relieve()

    def relieve(self) -> None:
        """Tell who waits for it if the way is not congested any more."""
        if self._end is None:
            if self._on_way_bytes > WINDOW_BYTES // 2:
                return
            if self in self._link.congested:
                self._link.uncongest(self)
            if not self._awaiting or self._link.is_congested:
                return
        self._link.awaiting.pop(self, None)
        awaiting, self._awaiting = self._awaiting, {}
        for connection in awaiting:
            connection.throttle.peer_relieved()

    # --- deliveries ---

    def delivered(self, run: Run) -> None:
        """See `LiveQueue.delivered`: the home counts."""

    def forget(self, run: Run) -> None:
        """See `LiveQueue.forget`: the home forgets."""

    def ack(self, run: Run) -> None:
        """See `LiveQueue.ack`."""
        self.settle(Settle.ACK, run)

    def reject(self, run: Run, now: float) -> None:
        """See `LiveQueue.reject`."""
        self.settle(Settle.REJECT, run)

    def requeue(self, runs: list[Run], now: float) -> None:
        """See `LiveQueue.requeue`."""
        for run in reversed(runs):
            self.settle(Settle.REQUEUE, run)

    def settle(self, kind: Settle.Kind, run: Run) -> None:
        """Settle a delivery, or what is left of it; if the queue is gone nobody minds (§9.1)."""
        if self._end is None:
            self.letter.settle(kind, run.seqs.start, run.seqs[-1])

    # --- consumers ---

    def subscribe(self, consumer: Consumer) -> Asked[None]:
        """See `LiveQueue.subscribe`."""
        self._require_open()
        subscription = self._link.subscribe(self, consumer)
        self._subscriptions[consumer] = subscription
        request = Request(self)
        try:
            yield partial(self._subscribe, subscription, request)
            request.result()
            subscription.is_joined = True
        finally:
            if not subscription.is_joined and self._subscriptions.pop(consumer, None) is not None:
                self._link.leave(subscription)
                if request.error is None and self._end is None:
                    self.letter.operation().unsubscribe = subscription.id

    def _subscribe(
        self, subscription: "Subscription", request: Request, on_done: Callable[[Any], None]
    ) -> None:
        request.on_done = on_done
        consumer = subscription.consumer
        message = self.letter.operation().subscribe
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
        """See `LiveQueue.unsubscribe`. What is still on its way to the consumer goes back."""
        subscription = self._subscriptions.pop(consumer, None)
        if subscription is not None:
            self._link.leave(subscription)
            self.letter.operation().unsubscribe = subscription.id

    def resume(self, consumer: Consumer) -> None:
        """See `LiveQueue.resume`."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None:
            self._link.resume(subscription)

    def limit_changed(self, consumer: Consumer) -> None:
        """See `LiveQueue.limit_changed`."""
        subscription = self._subscriptions.get(consumer)
        if subscription is not None and self._link.limit_changed(subscription):
            limit = self.letter.operation().limit
            limit.consumer = subscription.id
            limit.is_limited = subscription.is_limited

    # --- asking ---

    def heard(self) -> Asked[None]:
        """See `LiveQueue.heard`: what comes after all that, any question, is answered."""
        with suppress(ProtocolError):  # gone, deleted or lost
            yield from self._ask(Ask.COUNTS, Request(self))

    def counts(self) -> Asked[Counts]:
        """See `LiveQueue.counts`."""
        answer = yield from self._ask(Ask.COUNTS, Request(self))
        return Counts(answer.messages, answer.consumers)

    def fetch(self, *, no_ack: bool) -> Asked[tuple[Run, int] | None]:
        """See `LiveQueue.fetch`. The home keeps the message until we have it, also where the client won't settle it."""
        request = Request(self)
        taken = False
        try:
            answer = yield from self._ask(Ask.FETCH, request)
            taken = True
        finally:
            if not taken and request.run is not None:  # whoever asked is gone
                self.settle(Settle.RETURN, request.run)
        if request.run is None:
            return None
        if no_ack:
            self.settle(Settle.ACK, request.run)
        return request.run, answer.messages

    def purge(self) -> Asked[int]:
        """See `LiveQueue.purge`."""
        answer = yield from self._ask(Ask.PURGE, Request(self))
        return answer.messages

    def delete(self, *, if_unused: bool, if_empty: bool) -> Asked[int]:
        """See `LiveQueue.delete`. The home submits the command."""
        request = Request(self, is_delete=True)
        answer = yield from self._ask(Ask.DELETE, request, if_unused=if_unused, if_empty=if_empty)
        if self._end is None:
            yield self._on_closed.append  # here it is applied a little later
        return answer.messages

    def _ask(
        self, kind: Ask.Kind, request: Request, *, if_unused: bool = False, if_empty: bool = False
    ) -> Asked[Answer]:
        self._require_open()
        yield partial(self._begin, Ask(kind=kind, if_unused=if_unused, if_empty=if_empty), request)
        return request.result()

    def _begin(self, ask: Ask, request: Request, on_done: Callable[[Any], None]) -> None:
        request.on_done = on_done
        ask.request = self._link.expect(request)
        self.letter.operation().ask.CopyFrom(ask)

    def _require_open(self) -> None:
        if self._end is not None:
            raise self._end

    # --- the end ---

    def close(self) -> None:
        """See `LiveQueue.close`."""
        if self._end is not None:
            return
        home = self._link.member()
        if home is None or not home.is_up or home.incarnation != self._incarnation:
            self.lose()
            return
        if self.letter.is_used:
            self.letter.operation().close = True
        self._finish(not_found("queue", self.record.name, self.record.vhost))

    def lose(self) -> None:
        """The home is gone: what is not answered never will be (§9.1)."""
        if self._end is None:
            self._is_lost = True
            self.letter.is_closed = True
            self._finish(home_is_down(self.record))

    def _finish(self, end: ProtocolError) -> None:
        self._end = end
        self._link.closed(self)
        outstanding, self._outstanding = self._outstanding, {}
        self._on_way_bytes = 0
        for party, _ in outstanding.values():
            if party is None:
                continue
            if self._is_lost:
                party.fail()
            else:
                party.accept()
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


class _Whole:
    """Gathers the answers for the pieces of one run."""

    def __init__(self, acceptance: Acceptance, pieces: int) -> None:
        self._acceptance = acceptance
        self._left = pieces
        self._refused: list[int] = []
        self._is_lost = False

    def settle(self, refused: Collection[int], *, is_lost: bool) -> None:
        """A piece is answered."""
        self._refused += refused
        self._is_lost = self._is_lost or is_lost
        self._left -= 1
        if self._left:
            return
        if self._is_lost:
            self._acceptance.fail()
        else:
            self._acceptance.accept(self._refused)


class _Piece:
    """One piece of a run, which begins at index `first`."""

    def __init__(self, whole: _Whole, first: int) -> None:
        self._whole = whole
        self._first = first

    def accept(self, refused: Collection[int] = ()) -> None:
        """See `Acceptance.accept`."""
        self._whole.settle([self._first + index for index in refused], is_lost=False)

    def fail(self) -> None:
        """See `Acceptance.fail`."""
        self._whole.settle((), is_lost=True)
