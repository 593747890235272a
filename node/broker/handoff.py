"""The handoff of publishes and consumers to a `Queue` that becomes the master of a mirrored queue.

Source: amqp-behaviour §9.4; reliability §4.4.
"""

from collections.abc import Collection, Iterable
from copy import copy
from typing import TYPE_CHECKING

from node.catalogue.policy import QueueSettings
from node.queue.consumer import Consumer
from node.queue.live_queue import Handoff
from node.queue.operations import Enqueue, decode
from node.queue.pending_publish import Answer
from node.queue.run import Batch

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.queue.queue import Queue


def attach(queue: "Queue", consumers: Iterable[Consumer], now: float) -> None:
    """Add the consumers of this node that the queue had elsewhere, except those that want to be cancelled then."""
    for consumer in consumers:
        successor = consumer.channel.reattached(consumer, queue)
        if successor is not None:
            queue.add_consumer(successor, now)


class Again:
    """Marks messages as redelivered that may have been delivered by an earlier master, from its creation to `end`.

    A publish that was sent to an earlier master counts as redelivered even if no client has seen it (§9.4). No
    message is given out before that is done. The envelopes must be copies, so that these messages join no other run.
    """

    def __init__(self, broker: "Broker", queue: "Queue") -> None:
        self._broker = broker
        self._queue = queue
        self._first = queue.next_seq
        queue.consumers.hold()

    def end(self) -> None:
        """Mark the messages that came since the creation, and let consumers be served again."""
        queue = self._queue
        if queue.next_seq > self._first:
            for level in queue.backlog.levels:
                for run in level.in_memory(self._first):
                    run.deliveries = max(run.deliveries, 1)
            queue.backlog.redelivered_below(queue.next_seq)
        queue.consumers.release()
        self._broker.touch(queue)


def last_received(queue: "Queue", sender: int) -> int:
    """Return the number of a front end's last publish, here or at an earlier master; 0 if there was none.

    It also counts after the queue has ceased to be mirrored: unanswered publishes are sent again to the remaining
    master.
    """
    replicator = queue.replicator
    return queue.received.get(sender, 0) if replicator is None else replicator.last_received(sender)


def take_once(queue: "Queue", sender: int, number: int, batch: Batch, *, is_again: bool) -> Collection[int]:
    """Enqueue a publish of a front end unless it came before; return the indexes of messages that the queue refused.

    is_again: it was sent to an earlier master.
    """
    count = len(batch.contents)
    if number <= last_received(queue, sender):
        return range(count) if is_refusing(queue.settings) else ()
    refused = queue.publish(batch, None)
    if len(refused) == count:
        return refused
    # A next master must know the number, if there is one before the publish is answered.
    if queue.replicator is not None:
        queue.replicator.received(sender, number)
    elif is_again:  # without mirrors no other publish is ever sent again
        queue.received[sender] = number
    return refused


def publish_again(broker: "Broker", queue: "Queue", handoff: Handoff) -> None:
    """Enqueue the unanswered publishes that this node has sent to earlier masters, except those that came here
    before.

    Those too are answered only when the newly enqueued ones are stable, which implies that they are (reliability
    §4.4).
    """
    sender = broker.incarnation
    again = Again(broker, queue)
    is_again = True
    for publish in handoff.publishes:
        if is_again and not publish.is_sent:
            is_again = False
            again.end()
        if not publish.run:
            if publish.waiter is not None:
                publish.waiter.fail()
            continue
        entry = decode(publish.run)
        assert isinstance(entry, Enqueue)
        assert entry.contents is not None
        batch = Batch(copy(entry.envelope), entry.contents, entry.size)
        refused = take_once(queue, sender, publish.number, batch, is_again=is_again)
        if publish.waiter is not None:
            answer = Answer(publish.waiter, refused)
            broker.intake.await_safety(queue, answer, 0, 0, is_persistent=entry.envelope.persistent)
    if is_again:
        again.end()


def is_refusing(settings: QueueSettings) -> bool:
    """Return True if a queue refuses messages for its length.

    Then it is not known whether an earlier master has refused a message: the number of a later message tells nothing.
    Such messages are nacked if their answer was lost with that master.
    """
    is_limited = settings.max_length is not None or settings.max_length_bytes is not None
    return is_limited and settings.overflow != "drop-head"
