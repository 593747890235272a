"""Interceptors of plug-ins on the path of a delivery: between queues and a channel, while a plug-in has one.

A consumer leads its queue to its channel. While there are interceptors it leads to an `InterceptedOutlet` instead:
consumers are led anew when that changes, so that a delivery is never asked whether there are any.

    queue ─► InterceptedOutlet ─► interceptors ─► Channel.deliver      changed messages: the queue keeps its own
                   ├─► refused: kept back, then rejected in the client's place
                   └─► an interceptor failed: kept back, the channel is closed, and its messages go back
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from node.amqp.channel_state import ChannelState
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import Method
from node.amqp.reader import MIXED_SIZES
from node.client.unacked import Delivery, Unacked
from node.extension.delivery_interceptor import DeliveryInterceptor, DeliveryTarget, OutgoingMessage
from node.queue.consumer import Consumer, Outlet
from node.queue.content import decode_content, encode_content
from node.queue.live_queue import Asked, LiveQueue, current
from node.queue.run import Run
from node.scheduling.timers import Timer, Timers
from node.scheduling.turn import Turn

AT_ONCE_MAX: Final = 16
"""The most messages that interceptors are given before the clock is looked at, at some 20 us each."""

OF_ALL_MAX: Final = 128
"""The most messages that a queue gives to all its consumers in a row before the clock is looked at; each gets one."""

WORK_S: Final = 0.004
"""The seconds after which interceptors look at no more messages in a turn; the others are delivered in the next one."""

GETS_MAX: Final = 16
"""The most messages that one basic.get fetches, of which all but the last are refused."""


_SOON: Final = 0.0
"""A time that is over, for timers that are to run as soon as the present work is done."""

_IS_REFUSED: Final = attrgetter("is_refused")


class OutgoingInterceptor(NamedTuple):
    """An interceptor of an enabled plug-in.   plugin: its name."""

    plugin: str
    interceptor: DeliveryInterceptor


class _Failed(Exception):
    """An interceptor raised.   plugin: its plug-in."""

    def __init__(self, plugin: str) -> None:
        super().__init__(plugin)
        self.plugin = plugin


class DeliveryInterception:
    """The interceptors of one broker, with the time that they take.

    failed: told of each fault of a plug-in: its name, its action, and the exception.
    outlets: the number of open channels that have had consumers since the interceptors are there.
    """

    def __init__(
        self,
        interceptors: Sequence[OutgoingInterceptor],
        turns: Turn,
        failed: Callable[[str, str, Exception], None],
    ) -> None:
        self.interceptors = interceptors
        self.outlets = 0
        self._turns = turns
        self._failed = failed
        self._turn_number = -1
        self._taken_s = 0.0

    @property
    def is_over(self) -> bool:
        """True if interceptors have worked for long enough in this turn."""
        return self._turn_number == self._turns.number and self._taken_s >= WORK_S

    @property
    def at_once(self) -> int:
        """The most messages that a consumer is given at a time."""
        return max(1, min(AT_ONCE_MAX, OF_ALL_MAX // max(1, self.outlets)))

    def look(self, target: DeliveryTarget, run: Run) -> list[OutgoingMessage]:
        """Return the messages of a run as interceptors leave them. Raises: _Failed."""
        envelope = run.envelope
        messages = [
            OutgoingMessage(
                content,
                decode_content,
                exchange=envelope.exchange,
                routing_key=envelope.routing_key,
                redelivered=run.deliveries > 0,
            )
            for content in run.contents
        ]
        if self._turn_number != self._turns.number:
            self._turn_number, self._taken_s = self._turns.number, 0.0
        began = self._turns.clock()
        try:
            for plugin, interceptor in self.interceptors:
                try:
                    interceptor.delivering(target, messages)
                except Exception as error:  # noqa: BLE001 - whatever foreign code raises
                    self._failed(plugin, f"look at messages for {target.connection}", error)
                    raise _Failed(plugin) from None
        finally:
            self._taken_s += self._turns.clock() - began
        return messages


class ClientConnection(Protocol):
    """A client's connection, as this module uses it."""

    vhost: str

    @property
    def name(self) -> str:
        """The connection, as operators see it."""

    @property
    def user_name(self) -> str:
        """The name of the user who is logged in."""

    def failed(self, error: ProtocolError, number: int, method: type[Method] | None) -> None:
        """Handle an error: its code says whether the channel or the connection is closed."""


class Delivering(Outlet, Protocol):
    """A channel, as this module uses it."""

    number: int
    state: ChannelState
    unacked: Unacked

    @property
    def connection(self) -> ClientConnection:
        """The connection of the channel's client."""

    def deliver(self, consumer: Consumer, run: Run, now: float, shown: Run | None = None) -> None:
        """Send messages to the client.   shown: the same messages as the client is to see them; None: as they are."""

    def keep_back(self, consumer: Consumer, run: Run, now: float) -> int:
        """Count messages as delivered that the client is not given; return the delivery tag of the first one."""

    def settle_rejected(self, settled: list[Delivery], *, requeue: bool, is_asked: bool = True) -> None:
        """Requeue deliveries, or have them dead-lettered."""

    def unblock(self) -> None:
        """Let the consumers that can take messages join in again."""


class InterceptedOutlet:
    """A channel whose deliveries interceptors look at, an `Outlet`.

    timers: of the broker.
    """

    __slots__ = (
        "_client",
        "_error",
        "_interception",
        "_is_counted",
        "_refused",
        "_timer",
        "_timers",
        "channel",
    )

    def __init__(self, channel: Delivering, interception: DeliveryInterception, timers: Timers) -> None:
        self.channel = channel
        self._interception = interception
        self._timers = timers
        connection = channel.connection
        self._client = DeliveryTarget(connection.vhost, connection.user_name, connection.name, "", "")
        self._refused: list[tuple[int, int]] = []
        """The first and last delivery tags of messages that are to be rejected."""
        self._error: ProtocolError | None = None
        self._timer: Timer | None = None
        self._is_counted = False

    # --- an `Outlet` ---

    def credit(self, consumer: Consumer) -> int:
        """Return how many messages the consumer may be given: so few that the clock is looked at often enough."""
        if self._error is not None:
            return 0
        if not self._is_counted and self.channel.state is ChannelState.OPEN:
            self._is_counted = True
            self._interception.outlets += 1
        return min(self.channel.credit(consumer), self._interception.at_once)

    def room_bytes(self) -> int:
        """Return the room of the channel; 0 while interceptors may look at no more messages."""
        if self._error is not None or self._interception.is_over:
            return 0
        return self.channel.room_bytes()

    def block(self, consumer: Consumer) -> None:
        """Note that the consumer was left out; if interceptors lack the time, it goes on in the next turn."""
        self.channel.block(consumer)
        if self._interception.is_over:
            self._go_on_later()

    def deliver(self, consumer: Consumer, run: Run, now: float) -> None:
        """Send messages to the client as interceptors leave them."""
        if self._error is not None:
            self._keep_back(consumer, run, now)
            return
        target = self._client._replace(queue=consumer.queue.record.name, consumer=consumer.tag)
        try:
            messages = self._interception.look(target, run)
        except _Failed as failed:
            self._error = _error_of(failed)
            self._keep_back(consumer, run, now)
            self._go_on_later()
            return
        first = 0
        for is_refused, stretch in groupby(messages, _IS_REFUSED):
            found = list(stretch)
            part = run if len(found) == len(run) else run[first : first + len(found)]
            first += len(found)
            if not is_refused:
                self.channel.deliver(consumer, part, now, shown(part, found))
            elif (tags := self._keep_back(consumer, part, now)) is not None:
                self._refused.append(tags)
                self._go_on_later()

    def deliver_runs(self, consumer: Consumer, runs: list[Run], now: float) -> None:
        """Send the messages of several runs to the client as interceptors leave them."""
        for run in runs:
            self.deliver(consumer, run, now)

    def cancelled_by_server(self, consumer: Consumer) -> None:
        """Forget the consumer and tell the client: the queue is gone."""
        self.channel.cancelled_by_server(consumer)

    def reattached(self, consumer: Consumer, queue: LiveQueue) -> Consumer | None:
        """Return the consumer that replaces one whose queue has another master."""
        return self.channel.reattached(consumer, queue)

    def close(self) -> None:
        """Note that the channel is closed."""
        if self._is_counted:
            self._is_counted = False
            self._interception.outlets -= 1

    # --- basic.get ---

    def got(
        self, queue: LiveQueue, found: tuple[Run, int], now: float, *, no_ack: bool
    ) -> Asked[tuple[tuple[Run, int] | None, Run | None]]:
        """Look at a message that basic.get has fetched, and at those behind it while they are refused.

        Returns: the message with the number of those behind it, None if there is none, and as the client is to see it.
        Raises: ProtocolError 406 if an interceptor fails; the message is back in its queue then.
        """
        target = self._client._replace(queue=queue.record.name)
        for number in range(1, GETS_MAX + 1):
            run = found[0]
            try:
                messages = self._interception.look(target, run)
            except _Failed as failed:
                if not no_ack:
                    current(queue).requeue([run], now)
                raise _error_of(failed) from None
            if not messages[0].is_refused:
                return found, shown(run, messages)
            if not no_ack:
                current(queue).reject(run, now)
            following = None if number == GETS_MAX else (yield from queue.fetch(no_ack=no_ack))
            if following is None:
                break
            found = following
        return None, None

    # --- later ---

    def _keep_back(self, consumer: Consumer, run: Run, now: float) -> tuple[int, int] | None:
        """Keep messages from the client; return their first and last delivery tags.

        None: the client acknowledges nothing, and the messages are gone, as the ones that it got.
        """
        if consumer.no_ack:
            consumer.queue.consumed(run)
            return None
        tag = self.channel.keep_back(consumer, run, now)
        return tag, tag + len(run) - 1

    def _go_on_later(self) -> None:
        """Go on outside of the queue that is delivering: it must not change meanwhile."""
        if self._timer is None:
            self._timer = self._timers.at(_SOON, self._go_on)

    def _go_on(self, now: float) -> None:
        """Reject what was refused, or close the channel after a failure; serve consumers that waited."""
        self._timer = None
        channel, refused = self.channel, self._refused
        self._refused = []
        if channel.state is not ChannelState.OPEN:
            return  # its end has given all its messages back
        for first, last in refused:
            channel.settle_rejected(channel.unacked.settle(first, last), requeue=False)
        if self._error is not None:
            channel.connection.failed(self._error, channel.number, None)
        else:
            channel.unblock()


def shown(run: Run, messages: Sequence[OutgoingMessage]) -> Run | None:
    """Return messages as the client is to see them; None: as they are."""
    if not any(message.new_headers or message.new_body is not None for message in messages):
        return None
    envelope = run.envelope
    contents = []
    for content, message in zip(run.contents, messages, strict=True):
        if message.new_headers or message.new_body is not None:
            properties, body = decode_content(content)
            if message.new_headers:
                properties.headers = {**(properties.headers or {}), **message.new_headers}
            if message.new_body is not None:
                body = message.new_body
            content = encode_content(properties, body, envelope.channel, envelope.frame_max_bytes)
        contents.append(content)
    return Run(envelope, run.seqs, contents, MIXED_SIZES, run.expiry, run.deliveries)


def _error_of(failed: _Failed) -> ProtocolError:
    text = f"plug-in '{failed.plugin}' failed; the log has the reason"
    return ProtocolError(ReplyCode.PRECONDITION_FAILED, text)
