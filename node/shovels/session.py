"""A shovel between two open connections: what it sets up, forwards, acknowledges and holds back.

    source ─► Delivered ─► publish ─► destination ─► Confirmed ─► ack ─► source

The n-th delivery of the source's channel is the n-th publish of the destination's, so their numbers are the same. A
message is acknowledged at the source once the destination has it (`on-confirm`); one that it refuses goes back to its
queue. Messages to a queue are published with `mandatory`, so that a queue that was deleted ends the session: the next
one declares it anew. While the destination takes nothing, nothing is read from the source: what waits here is one read,
or what `prefetch` allows.
Source: RabbitMQ 3.10.8, `rabbit_amqp091_shovel`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from node.amqp import methods as m
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp_client import events
from node.amqp_client.connection import ClientConnection
from node.amqp_client.events import Event
from node.amqp_client.unconfirmed import Unconfirmed
from node.shovels import failure
from node.shovels.definition import AckMode, ShovelDefinition
from node.shovels.failure import Failure, Side
from node.shovels.headers import Rewriter
from node.shovels.setup import CHANNEL, QUESTIONS, Prepared, Request, SetupFailed, set_up

REFUSED_PAUSE_S: Final = 1.0
"""The pause after the destination has refused a message: a queue that is full refuses it again at once."""


class Link(Protocol):
    """A connection with what carries its bytes."""

    @property
    def core(self) -> ClientConnection:
        """The connection, without I/O."""

    @property
    def is_writable(self) -> bool:
        """False while too much waits to be sent."""

    def start(self) -> None:
        """Connect; `Opened` or `Closed` follows."""

    def close(self) -> None:
        """Close in good order; `Closed` follows."""

    def abort(self) -> None:
        """Drop the connection; no event follows."""

    def pause_reading(self) -> None:
        """Read nothing more for now."""

    def resume_reading(self) -> None:
        """Read on."""


class Counters:
    """The numbers of messages of one shovel, over all of its attempts."""

    __slots__ = ("confirmed", "failures", "forwarded", "refused")

    def __init__(self) -> None:
        self.forwarded = self.confirmed = self.refused = self.failures = 0

    def add(self, other: "Counters") -> None:
        """Add the numbers of another shovel."""
        self.forwarded += other.forwarded
        self.confirmed += other.confirmed
        self.refused += other.refused
        self.failures += other.failures


COUNTED: Final = ("forwarded", "confirmed", "refused", "failures")
"""The names of the counters, in the order in which operators see them."""


class Session:
    """One pair of connections.

    later: calls back in so many seconds; returns a function that cancels it.   wall_s: seconds since 1970.
    left: the messages that a former attempt has left to be moved; None: there is no limit, or this one sets it.
    """

    def __init__(
        self,
        definition: ShovelDefinition,
        source: Link,
        destination: Link,
        rewriter: Rewriter,
        counters: Counters,
        *,
        later: Callable[[float, Callable[[], None]], Callable[[], None]],
        wall_s: Callable[[], float],
        left: int | None = None,
    ) -> None:
        self._definition = definition
        self._links: dict[Side, Link] = {"source": source, "destination": destination}
        self._source = source
        self._destination = destination
        self._rewriter = rewriter
        self._counters = counters
        self._later = later
        self._wall_s = wall_s
        self._script = set_up(definition, left)
        self._asked: Request | None = None
        self._prepared: Prepared | None = None
        self._pending: deque[events.Delivered] = deque()
        self._open = Unconfirmed()
        """The numbers of forwarded messages that are not settled at the source."""
        self._to_forward: int | None = None
        """The messages that are still to be forwarded; None: no limit."""
        self._has_taken = False
        self._is_stopped_by_flow = False
        self._is_resting = False
        self._is_held = False
        self._cancel_rest: Callable[[], None] | None = None
        self.is_draining = False
        self.failure: Failure | None = None
        """The end of this session; None: it goes on."""

    # --- for the owner ---

    @property
    def is_running(self) -> bool:
        """True once it consumes."""
        return self._prepared is not None and self.failure is None

    @property
    def is_complete(self) -> bool:
        """True if it was to forward so many messages, and has: they are all settled."""
        return self.is_running and self._to_forward == 0 and not self._open

    @property
    def left(self) -> int | None:
        """The messages that are still to be moved, with those under way; None: there is no limit, or none yet."""
        return None if self._to_forward is None else self._to_forward + len(self._open)

    @property
    def has_moved_nothing(self) -> bool:
        """True if messages came, and the destination has answered none of them.

        So ends each attempt while a message waits that cannot be forwarded, or for which the destination closes the
        channel.
        """
        return self._has_taken and self._open.published == len(self._open)

    @property
    def is_drained(self) -> bool:
        """True if nothing waits for the destination any more, after `drain`."""
        return self.is_draining and not self._open

    def begin(self) -> None:
        """Set up: both connections are open."""
        for side, link in self._links.items():
            limit = link.core.channel_max
            if limit and limit < QUESTIONS:
                self.failure = failure.too_few_channels(side, limit)
                return
        self._ask(None)

    def take(self, side: Side, taken: Sequence[Event]) -> None:
        """Take what happened on a connection."""
        for event in taken:
            if self.failure is not None:
                return
            try:
                self._take_one(side, event)
            except SetupFailed as failed:
                self.failure = failed.reason
            except ProtocolError as error:  # properties that are no properties
                self.failure = Failure(side, error.reply_text)
        self._follow_flow()

    def writable(self) -> None:
        """Go on, as the destination takes bytes again."""
        self._follow_flow()

    def drain(self) -> None:
        """Forward nothing more: what was not forwarded goes back to its queue when the connection closes."""
        self.is_draining = True
        self._pending.clear()
        if self._prepared is not None and self._prepared.consumer_tag:
            self._source.core.call(
                CHANNEL, m.BasicCancel(consumer_tag=self._prepared.consumer_tag, nowait=True)
            )
        self._follow_flow()

    def stop(self) -> None:
        """Forget the timer: the session is over."""
        self._script.close()
        if self._cancel_rest is not None:
            self._cancel_rest()
            self._cancel_rest = None

    # --- events ---

    def _take_one(self, side: Side, event: Event) -> None:
        match event:
            case events.Delivered() if side == "source":
                self._deliver(event)
            case events.Confirmed() if side == "destination":
                self._settled(event)
            case events.Answered(channel, _, answer):
                if self._asked is not None and self._asked[:2] == (side, channel):
                    self._ask(answer)
            case events.ChannelClosed():
                if self._asked is not None and self._asked[:2] == (side, event.channel):
                    self._ask(event)
                else:
                    self.failure = failure.channel_closed(side, event)
            case events.ConsumerCancelled():
                self.failure = failure.cancelled()
            case events.Returned() if side == "destination":
                # The queue has gone. The confirm that follows is not listened to, so the source keeps the message.
                self.failure = failure.returned(event)
            case events.Flow() if side == "destination":
                self._is_stopped_by_flow = not event.is_active
            case events.Closed():
                self.failure = failure.closed(side, event)

    def _ask(self, answer: m.Method | events.ChannelClosed | None) -> None:
        """Hand the answer to the script, and send what it asks for next."""
        try:
            request = next(self._script) if answer is None else self._script.send(answer)
        except StopIteration as done:
            self._asked = None
            self._prepared = done.value
            self._to_forward = done.value.remaining
            return
        self._asked = request
        core = self._links[request.side].core
        match request.method:
            case m.ChannelOpen():
                core.open_channel(request.channel)
            case m.ChannelClose():
                core.close_channel(request.channel)
            case _:
                core.call(request.channel, request.method)

    # --- messages ---

    def _deliver(self, event: events.Delivered) -> None:
        if self.is_draining:
            return
        self._has_taken = True
        if self._pending or self._is_destination_full:
            self._pending.append(event)
        else:
            self._forward(event)

    def _forward(self, event: events.Delivered) -> None:
        contents, mode = event.contents, self._definition.ack_mode
        if self._to_forward is not None and mode is not AckMode.NO_ACK:
            # Those beyond the limit go back to their queue. Without acknowledgements they cannot, and are forwarded.
            contents = contents[: self._to_forward]
        if not contents:
            return
        if event.first_tag != self._open.published + 1:
            raise ProtocolError(
                ReplyCode.UNEXPECTED_FRAME, f"delivery tag {event.first_tag} was not expected"
            )
        exchange, key = self._address(event)
        changed = self._rewriter.rewrite(contents, self._wall_s())
        is_to_queue = self._definition.destination.queue is not None
        self._destination.core.publish(CHANNEL, exchange, key, changed, mandatory=is_to_queue)
        count = len(contents)
        first = self._open.add(count)
        self._counters.forwarded += count
        if self._to_forward is not None:
            self._to_forward = max(self._to_forward - count, 0)
        if mode is not AckMode.ON_CONFIRM:
            last = self._open.published
            self._open.settle(first, last)
            if mode is AckMode.ON_PUBLISH:
                self._source.core.ack(CHANNEL, last, multiple=True)

    def _address(self, event: events.Delivered) -> tuple[str, str]:
        destination = self._definition.destination
        if destination.queue is not None:
            return "", destination.queue
        exchange = event.exchange if destination.exchange is None else destination.exchange
        return exchange, event.routing_key if destination.key is None else destination.key

    def _settled(self, event: events.Confirmed) -> None:
        first, last, core = event.first, event.last, self._source.core
        is_next = self._open.lowest == first
        self._open.settle(first, last)
        count = last + 1 - first
        if event.is_ack:
            self._counters.confirmed += count
            if is_next:
                # All numbers below were settled at the source before.
                core.ack(CHANNEL, last, multiple=True)
            else:
                for tag in range(first, last + 1):
                    core.ack(CHANNEL, tag, multiple=False)
            return
        self._counters.refused += count
        for tag in range(first, last + 1):
            core.nack(CHANNEL, tag, multiple=False, requeue=True)
        self._rest()

    # --- flow ---

    @property
    def _is_destination_full(self) -> bool:
        """True if nothing may be published."""
        return self._destination.core.is_blocked or self._is_stopped_by_flow or self._is_resting

    def _follow_flow(self) -> None:
        """Forward what waits, and read from the source or not."""
        if self.failure is None:
            try:
                while self._pending and not self._is_destination_full:
                    self._forward(self._pending.popleft())
            except ProtocolError as error:
                self.failure = Failure("source", error.reply_text)
        may_hold = self._prepared is not None and not self.is_draining
        is_held = may_hold and (
            self._is_destination_full or bool(self._pending) or not self._destination.is_writable
        )
        if is_held is not self._is_held:
            self._is_held = is_held
            (self._source.pause_reading if is_held else self._source.resume_reading)()

    def _rest(self) -> None:
        """Forward nothing for a while."""
        if not self._is_resting:
            self._is_resting = True
            self._cancel_rest = self._later(REFUSED_PAUSE_S, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        self._cancel_rest = None
        self._follow_flow()
