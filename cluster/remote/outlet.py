"""Consumers of other nodes, as the queues here see them, and the channels that they hang on.

A channel there is one outlet here, whatever queues it consumes: deliveries on their way to it are bounded by a window
of bytes, and its client's reading opens that again.
Source: amqp-behaviour §4.8, §4.9; docs/internals/remote-queues.md, "Delivering".
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cluster.remote.frames import FRAME_MAX_BYTES, cut, encode_run
from node.amqp.field_table import Table
from node.queue.consumer import UNLIMITED, Consumer
from node.queue.run import Run

if TYPE_CHECKING:
    from cluster.remote.proxy import Proxy
    from node.queue.live_queue import LiveQueue
    from node.queue.queue import Queue

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The most contents on their way to one channel."""

TURN_BYTES: Final = 1024 * 1024
"""The most contents that one channel is given in a turn, so that the others get theirs."""


class RemoteConsumer(Consumer):
    """A consumer on another node.

    id: its number at the front end.   is_limited: its channel has a limit for all its consumers, so that `granted`
    says how many messages it may be given.   has_asked: the front end knows that it wants some.
    """

    is_near = False

    __slots__ = ("granted", "has_asked", "id", "is_limited", "local", "outlet", "proxy")

    def __init__(
        self,
        number: int,
        proxy: "Proxy",
        outlet: "RemoteOutlet",
        queue: "Queue",
        tag: str,
        *,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        prefetch: int,
        is_limited: bool,
        arguments: Table,
    ) -> None:
        super().__init__(
            tag,
            outlet,
            queue,
            no_ack=no_ack,
            exclusive=exclusive,
            priority=priority,
            prefetch=prefetch,
            arguments=arguments,
        )
        self.id = number
        self.proxy = proxy
        self.outlet = outlet
        self.local = queue
        self.is_limited = is_limited
        self.granted = 0
        self.has_asked = False

    @property
    def incarnation(self) -> int:
        """The incarnation of the front end's node."""
        return self.proxy.sender

    @property
    def own_credit(self) -> int:
        """The number of messages that the consumer's own prefetch limit leaves."""
        return self.prefetch - self.unacked if self.prefetch else UNLIMITED


class RemoteOutlet:
    """A channel of another node, an `Outlet`.

    way_is_congested: whether too much is on its way to the node.   busy: the outlets that were given something in
    this turn, which this one adds itself to.
    """

    __slots__ = (
        "_blocked",
        "_busy",
        "_on_way_bytes",
        "_turn_bytes",
        "_way_is_congested",
        "consumers",
        "id",
    )

    def __init__(
        self, number: int, busy: "dict[RemoteOutlet, None]", way_is_congested: Callable[[], bool]
    ) -> None:
        self.id = number
        self.consumers: dict[RemoteConsumer, None] = {}
        self._busy = busy
        self._way_is_congested = way_is_congested
        self._on_way_bytes = 0
        self._turn_bytes = 0
        self._blocked: dict[RemoteConsumer, None] = {}

    # --- an `Outlet` ---

    def credit(self, consumer: Consumer) -> int:
        """Return how many messages the consumer may be given by its prefetch limit and its grant."""
        assert isinstance(consumer, RemoteConsumer)
        credit = consumer.prefetch - consumer.unacked if consumer.prefetch else UNLIMITED
        return min(credit, consumer.granted) if consumer.is_limited else credit

    def room_bytes(self) -> int:
        """Return the room in the window and in this turn; 0 while the stream to the node is congested."""
        if self._way_is_congested():
            return 0
        return min(WINDOW_BYTES - self._on_way_bytes, TURN_BYTES - self._turn_bytes)

    def deliver(self, consumer: Consumer, run: Run, now: float) -> None:
        """Send messages to the consumer's front end.

        Messages that need no acknowledgement are kept like the rest until the front end has given them to the
        client: they may come back.
        """
        assert isinstance(consumer, RemoteConsumer)
        contents = run.contents
        size = sum(map(len, contents))
        self._on_way_bytes += size
        self._turn_bytes += size
        self._busy[self] = None
        consumer.granted -= len(contents) if consumer.is_limited else 0
        if consumer.no_ack:
            consumer.local.count_consumed(run)
        else:
            consumer.unacked += len(contents)
            consumer.local.delivered(run)
        proxy = consumer.proxy
        tag = proxy.keep(run, consumer, now)
        for piece in cut(contents) if size > FRAME_MAX_BYTES else (contents,):
            raw = encode_run(run.envelope, tag, piece, run.size, run.deliveries)
            deliver = proxy.outgoing.operation(len(raw)).deliver
            deliver.consumer = consumer.id
            deliver.run = raw
            tag += len(piece)

    def deliver_runs(self, consumer: Consumer, runs: list[Run], now: float) -> None:
        """Send the messages of several runs to the consumer's front end."""
        for run in runs:
            self.deliver(consumer, run, now)

    def block(self, consumer: Consumer) -> None:
        """Note that a consumer can take no messages now. One that lacks a grant asks its front end for it."""
        assert isinstance(consumer, RemoteConsumer)
        self._blocked[consumer] = None
        self._busy[self] = None
        own = consumer.own_credit
        if consumer.is_limited and consumer.granted <= 0 and own > 0 and not consumer.has_asked:
            consumer.has_asked = True
            want = consumer.proxy.outgoing.operation().want
            want.id, want.amount = consumer.id, min(own, consumer.local.backlog.count)

    def cancelled_by_server(self, consumer: Consumer) -> None:
        """Remove the consumer: the front end has heard, or will hear, of the deletion itself."""
        assert isinstance(consumer, RemoteConsumer)
        self.remove(consumer)
        consumer.proxy.forget(consumer)

    def reattached(self, consumer: Consumer, queue: "LiveQueue") -> Consumer | None:
        """Fail: a remote consumer never moves to the queue's successor here, as its own node moves it."""
        raise AssertionError("a consumer of another node came along")

    # --- room and credit come back ---

    def remove(self, consumer: RemoteConsumer) -> None:
        """Remove a consumer that leaves the channel."""
        self.consumers.pop(consumer, None)
        self._blocked.pop(consumer, None)

    def taken(self, size: int) -> None:
        """Note that so many bytes are not on their way any more."""
        self._on_way_bytes = max(0, self._on_way_bytes - size)
        self.unblock()

    def granted(self, consumer: RemoteConsumer, amount: int) -> None:
        """Let a consumer have so many messages, as its front end says; 0: the request is void."""
        consumer.granted = min(consumer.granted + amount, UNLIMITED)
        consumer.has_asked = False
        self.unblock()

    def unblock(self) -> None:
        """Let the consumers that can take messages join in again."""
        if not self._blocked or self.room_bytes() <= 0:
            return
        for consumer in list(self._blocked):
            if consumer.own_credit > 0 and (
                not consumer.is_limited or consumer.granted > 0 or not consumer.has_asked
            ):
                del self._blocked[consumer]
                consumer.local.resume(consumer)

    def shut(self) -> None:
        """Give the channel no more room."""
        self._turn_bytes = TURN_BYTES

    def end_turn(self) -> None:
        """End a turn: the next one has room again."""
        self._turn_bytes = 0
        self.unblock()
