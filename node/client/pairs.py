"""Counts of each channel's messages by queue and by exchange. They are kept only while a scrape asks for them.

    broker.pairs.ask(now)                  a scrape asks: from here on channels count
    broker.pairs.begin(channel)            an open channel begins to count
    channel.pairs.published(…)             bumped once a run, as all counters are

Without a scrape for `KEPT_S` channels forget them, and a run costs them one look at an attribute again. A node
keeps no more than `PAIRS_MAX`, a channel no more than `CHANNEL_PAIRS_MAX`: pairs beyond these are in the channel's own
counters only. Pairs of deleted queues and exchanges are removed at the next scrape. Source: a live RabbitMQ 3.10.8.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from node.client.confirms import Confirms, Spans
from node.client.counters import ExchangePair, QueuePair
from node.client.unacked import NOBODY
from node.scheduling.timers import Timers

if TYPE_CHECKING:
    from node.catalogue.catalogue import Catalogue
    from node.client.unacked import Delivery
    from node.queue.consumer import Consumer
    from node.queue.live_queue import LiveQueue
    from node.queue.run import Run

KEPT_S: Final = 900.0
"""For how many seconds channels count after a scrape; Prometheus scrapes each minute or more often."""

PAIRS_MAX: Final = 50_000
"""The most pairs of a node: some 15 MB, and 50 MB of a scrape if all of them are of channels with queues."""

CHANNEL_PAIRS_MAX: Final = 5_000
"""The most pairs of one channel, so that a channel that uses ever new names does not take them all."""

_FORGOTTEN_AT_ONCE: Final = 200
_FORGETTING_PAUSE_S: Final = 0.05

_Counts = TypeVar("_Counts", QueuePair, ExchangePair)


class Counted(Protocol):
    """A channel, as its pairs use it.   confirms: None unless it is in confirm mode."""

    confirms: Confirms | None
    pairs: "ChannelPairs | None"


class Pairs:
    """The pairs of one node: whether its channels count, and how many pairs there are."""

    def __init__(self, timers: Timers) -> None:
        self.is_on = False
        self.count = 0
        self._timers = timers
        self._asked_s = 0.0
        self._counting: dict[Counted, None] = {}

    def ask(self, now: float) -> None:
        """Have channels count from now on, as a scrape wants the pairs."""
        self._asked_s = now
        if not self.is_on:
            self.is_on = True
            self._timers.at(now + KEPT_S, self._review)

    def of_new(self, channel: Counted) -> "ChannelPairs | None":
        """Return the pairs of a new channel; None while channels do not count."""
        return ChannelPairs(self, channel) if self.is_on else None

    def begin(self, channel: Counted) -> "ChannelPairs":
        """Return the pairs of a channel, which counts from now on."""
        if channel.pairs is None:
            channel.pairs = ChannelPairs(self, channel)
        return channel.pairs

    def note(self, channel: Counted) -> None:
        """Note that a channel counts."""
        self._counting[channel] = None

    def end(self, channel: Counted) -> None:
        """Note that a channel is closed, or counts no longer."""
        if channel.pairs is not None:
            self.count -= channel.pairs.count
            channel.pairs = None
            if channel.confirms is not None:
                channel.confirms.spans = None
            del self._counting[channel]

    def _review(self, now: float) -> None:
        if now < self._asked_s + KEPT_S:
            self._timers.at(self._asked_s + KEPT_S, self._review)
            return
        self.is_on = False
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Have channels forget their pairs, some at a time as there may be thousands; a new scrape stops this."""
        for channel in list(self._counting)[:_FORGOTTEN_AT_ONCE]:
            self.end(channel)
        if self._counting and not self.is_on:
            self._timers.at(now + _FORGETTING_PAUSE_S, self._forget)


class ChannelPairs:
    """The pairs of one channel.   queues, exchanges: by name.   routed: messages by (queue, exchange)."""

    __slots__ = ("_channel", "_node", "_spans", "exchanges", "queues", "routed")

    def __init__(self, node: Pairs, channel: Counted) -> None:
        self._node = node
        self._channel = channel
        self._spans = Spans()
        self.queues: dict[str, QueuePair] = {}
        self.exchanges: dict[str, ExchangePair] = {}
        self.routed: dict[tuple[str, str], int] = {}
        node.note(channel)

    @property
    def count(self) -> int:
        """The number of pairs."""
        return len(self.queues) + len(self.exchanges) + len(self.routed)

    def published(
        self,
        exchange: str,
        count: int,
        queues: "Iterable[LiveQueue]",
    ) -> None:
        """Count a run that was published and reached these queues. It has no numbers for confirms yet."""
        pair = self.exchanges.get(exchange) or self._added(self.exchanges, exchange, ExchangePair())
        if pair is not None:
            pair.publish += count
            confirms = self._channel.confirms
            if confirms is not None:
                confirms.spans = self._spans
                self._spans.add(confirms.numbered + 1, count, pair)
        routed = self.routed
        for queue in queues:
            key = queue.record.name, exchange
            if key in routed:
                routed[key] += count
            elif self._has_room:
                routed[key] = count
                self._node.count += 1

    def unroutable(self, exchange: str, count: int, *, is_mandatory: bool) -> None:
        """Count a run, which `published` has counted, as unroutable."""
        pair = self.exchanges.get(exchange)
        if pair is None:
            return
        if is_mandatory:
            pair.return_unroutable += count
        else:
            pair.drop_unroutable += count

    def delivered(self, consumer: "Consumer", run: "Run") -> None:
        """Count a run that went to a consumer."""
        pair = self._queue(consumer.queue.record.name)
        if pair is None:
            return
        count = len(run.contents)
        if consumer.no_ack:
            pair.deliver_no_ack += count
        else:
            pair.deliver += count
        if run.deliveries:
            pair.redeliver += count

    def got(self, queue: str, run: "Run | None", *, no_ack: bool) -> None:
        """Count an answer to basic.get.   run: None: the queue was empty."""
        pair = self._queue(queue)
        if pair is None:
            return
        if run is None:
            pair.get_empty += 1
        elif no_ack:
            pair.get_no_ack += 1
        else:
            pair.get += 1
        if run is not None and run.deliveries:
            pair.redeliver += 1

    def acked(self, settled: "list[Delivery]") -> None:
        """Count acknowledged deliveries. Those of a queue that has left are only in the channel's own counters."""
        for delivery in settled:
            if delivery.queue is not NOBODY:
                pair = self._queue(delivery.queue.record.name)
                if pair is not None:
                    pair.ack += delivery.open

    def prune(self, catalogue: "Catalogue", vhost: str) -> None:
        """Forget the pairs of deleted queues and exchanges of the channel's vhost."""
        before = self.count
        names = self.queues.keys() | {queue for queue, _ in self.routed}
        queues = {name for name in names if catalogue.queue(vhost, name) is None}
        exchanges = {name for name in self.exchanges if name and catalogue.exchange(vhost, name) is None}
        if not queues and not exchanges:
            return
        for name in queues:
            self.queues.pop(name, None)
        for name in exchanges:
            del self.exchanges[name]
        for key in [key for key in self.routed if key[0] in queues or key[1] in exchanges]:
            del self.routed[key]
        self._node.count -= before - self.count

    @property
    def _has_room(self) -> bool:
        return self._node.count < PAIRS_MAX and self.count < CHANNEL_PAIRS_MAX

    def _queue(self, name: str) -> QueuePair | None:
        return self.queues.get(name) or self._added(self.queues, name, QueuePair())

    def _added(self, pairs: dict[str, _Counts], name: str, pair: _Counts) -> _Counts | None:
        if not self._has_room:
            return None
        self._node.count += 1
        pairs[name] = pair
        return pair
