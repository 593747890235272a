"""The end of a closed channel: its consumers leave their queues, then its unacknowledged messages are requeued.

This is done in pieces, as a channel may have tens of thousands of consumers and millions of deliveries. Queues that get
more than one piece give nothing out until all of it is back: it is in order again then.
Source: amqp-behaviour §2.1, §4.11.
"""

from typing import TYPE_CHECKING, Final, cast

from node.client.unacked import NOBODY
from node.scheduling.chores import Chore

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.queue.queue import Queue

DELIVERIES_AT_ONCE: Final = 50
"""The limit of deliveries that are requeued between two looks at the clock, at some 4 us each."""


def give_back(channel: "Channel") -> Chore:
    """Remove the consumers of a closed channel and requeue its messages; it is among `Broker.closing` until then."""
    for consumer in list(channel.consumers.values()):
        if consumer.tag in channel.consumers:  # it may have ended with an auto-delete queue
            channel.remove_consumer(consumer)
            yield
    held: dict[Queue, None] = {}
    unacked = channel.unacked
    while deliveries := unacked.drain_last(DELIVERIES_AT_ONCE):
        if unacked.count:
            for each in {delivery.queue: None for delivery in deliveries}:
                if each.is_local and each is not NOBODY and each not in held:
                    queue = cast("Queue", each)
                    held[queue] = None
                    queue.consumers.hold()
        channel.settle_rejected(deliveries, requeue=True, is_asked=False)
        yield
    for queue in held:
        queue.consumers.release()
        channel.broker.touch(queue)
        yield
    channel.broker.closing.pop(channel, None)
