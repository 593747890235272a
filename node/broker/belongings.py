"""What a `Queue` does with the belongings of clients when it becomes the master of a mirrored queue, or is it no more.

Source: amqp-behaviour §9.4; reliability §4.4.
"""

from collections.abc import Collection, Iterable
from copy import copy
from typing import TYPE_CHECKING

from node.catalogue.policy import QueueSettings
from node.queue.acceptance import Answer
from node.queue.consumer import Consumer
from node.queue.live_queue import Belongings
from node.queue.operations import Enqueue, decode
from node.queue.run import Batch

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.queue.queue import Queue


def attach(queue: "Queue", consumers: Iterable[Consumer], now: float) -> None:
    """Consumers of this node come along: all but those that want to be cancelled then."""
    for consumer in consumers:
        successor = consumer.channel.reattached(consumer, queue)
        if successor is not None:
            queue.add_consumer(successor, now)


class Again:
    """While it lasts, what is enqueued has been sent to another master already, and may have been delivered by it.

    So it counts as redelivered, even where nobody has seen it (§9.4); that must be so before it is given out.
    Its envelopes must be copies, that no other run has, so that it joins none.
    """

    def __init__(self, broker: "Broker", queue: "Queue") -> None:
        self._broker = broker
        self._queue = queue
        self._first = queue.next_seq
        queue.consumers.hold()

    def end(self) -> None:
        """What comes from now on is new."""
        queue = self._queue
        if queue.next_seq > self._first:
            for level in queue.backlog.levels:
                for run in level.in_memory(self._first):
                    run.deliveries = max(run.deliveries, 1)
            queue.backlog.redelivered_below(queue.next_seq)
        queue.consumers.release()
        self._broker.touch(queue)


def last_received(queue: "Queue", sender: int) -> int:
    """The number of the last publish of a front end that came in, here or at an earlier master; 0: none did.

    It counts also when the queue is not mirrored any more: until they are answered, publishes are sent again to the
    master that is left.
    """
    mirror = queue.mirror
    return queue.received.get(sender, 0) if mirror is None else mirror.last_received(sender)


def take_once(queue: "Queue", sender: int, number: int, batch: Batch, *, is_again: bool) -> Collection[int]:
    """Enqueue a publish of a front end unless it came in before; the indexes of what the queue doesn't take.

    is_again: it was sent to a master before.
    """
    count = len(batch.contents)
    if number <= last_received(queue, sender):
        return range(count) if is_refusing(queue.settings) else ()
    refused = queue.publish(batch, None)
    if len(refused) == count:
        return refused
    # The next master has to know, if there will be one while the publish waits for its answer.
    if queue.mirror is not None:
        queue.mirror.received(sender, number)
    elif is_again:  # nothing else is sent again that came while there are no mirrors
        queue.received[sender] = number
    return refused


def publish_again(broker: "Broker", queue: "Queue", belongings: Belongings) -> None:
    """Enqueue what this node has published to the masters before and was not answered, but for what came in there.

    That is answered too only when what was enqueued here is stable: then it is as well (reliability §4.4).
    """
    sender = broker.incarnation
    again = Again(broker, queue)
    is_again = True
    for publish in belongings.publishes:
        if is_again and not publish.is_sent:
            is_again = False
            again.end()
        if not publish.run:
            if publish.party is not None:
                publish.party.fail()
            continue
        entry = decode(publish.run)
        assert isinstance(entry, Enqueue)
        assert entry.contents is not None
        batch = Batch(copy(entry.envelope), entry.contents, entry.size)
        refused = take_once(queue, sender, publish.number, batch, is_again=is_again)
        if publish.party is not None:
            waiter = Answer(publish.party, refused)
            broker.intake.await_safety(queue, waiter, 0, 0, is_persistent=entry.envelope.persistent)
    if is_again:
        again.end()


def is_refusing(settings: QueueSettings) -> bool:
    """Whether a queue refuses messages for its length.

    Of what an earlier master has been sent, nobody knows then whether it was refused: the number of a later message
    tells nothing. Such messages are nacked if their answer was lost with that master.
    """
    is_limited = settings.max_length is not None or settings.max_length_bytes is not None
    return is_limited and settings.overflow != "drop-head"
