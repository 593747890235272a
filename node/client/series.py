"""Series: publishes of one channel that differ in their routing keys, such as a key for each customer.

A run shares its method frame, so a run is one message long where each message has another key. In a *series* the reader
finds what stands for each method frame, its `Address`, and all messages are published at once: what has to be asked
once for a publish is asked once for the series. Each message goes into its queue by itself, as its envelope is its own.

    reader ─ method frames that are known ─► addresses, contents ─► publish_series ─► Queue.enqueue

Only routes that lead to one plain queue of this node without mirrors have an address: all others are published run by
run. An address is valid as long as its route. `publish_series` is hot: it has a loop over messages.
Source: amqp-behaviour §4.1, §4.3.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from node.client.confirms import Confirms
from node.client.counters import ChannelCounters, ExchangeCounters
from node.queue.intake import IntakeHost, Publisher
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope


class Address(NamedTuple):
    """The parts of a route that a series needs.   counters: of its exchange."""

    envelope: Envelope
    queue: Queue
    counters: ExchangeCounters


class SeriesChannel(Publisher, Protocol):
    """A channel, as series use it.   confirms: None unless it is in confirm mode."""

    confirms: Confirms | None

    @property
    def broker(self) -> IntakeHost:
        """The broker, whose time, disk and meter are used."""

    @property
    def counters(self) -> ChannelCounters:
        """The counts of the channel so far."""


def publish_series(
    channel: SeriesChannel, addresses: Sequence[Address], contents: Sequence[bytes], size: int
) -> None:
    """Publish messages, each to its address.   contents: each is embedded.   size: of each body in bytes."""
    broker = channel.broker
    now = broker.now
    refused: list[int] = []
    for index, ((envelope, queue, counters), content) in enumerate(zip(addresses, contents, strict=True)):
        counters.publish_in += 1
        counters.publish_out += 1
        if queue.enqueue(Batch(envelope, [content], size), now):
            refused.append(index)
    count = len(contents)
    channel.counters.publish += count
    if channel.confirms is None:
        return
    is_kept = addresses[0].envelope.persistent and any(address.queue.is_durable for address in addresses)
    if not refused and not is_kept:
        channel.confirm_at_once(count)
        return
    first = channel.expect(count)
    for index in refused:
        channel.settle(first + index, first + index, is_safe=False)
    if is_kept:
        meter = broker.meter
        waiter = channel if meter is None else meter.timed(channel, (addresses[0].queue,), now)
        broker.storage.await_safety(waiter, first, first + count - 1)
    else:
        channel.settle(first, first + count - 1, is_safe=True)
