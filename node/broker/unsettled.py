"""The unsettled messages of a queue: those that have left its backlog and are not acknowledged or dropped yet.

    queue ─► unacked of a channel, open transaction ─┐
          ─► unacked of another node's proxy ────────┼─ unsettled ─► a copy of the queue, or its next master
          ─► dead letters, delayed messages ─────────┤
          ─► messages that wait to be ready again ───┘
Source: reliability §4.6 (all that is unacknowledged is requeued), §4.8; amqp-behaviour §7.6.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from node.client.unacked import Delivery, open_runs
from node.queue.queue import Queue
from node.queue.run import Run

if TYPE_CHECKING:
    from node.broker.broker import Broker
    from node.client.channel import Channel


def unsettled(broker: "Broker", queue: Queue, *, take: bool = False) -> list[Run]:
    """Return the messages of a queue of this node that clients hold or that are on their way, in no order.

    take: the queue hands off. Other nodes' proxies and dead letters that wait are dropped; what the channels of
        this node hold does not count any more, from the end of this turn on.
    """
    runs = broker.dead_letters.unsettled(queue, take=take) + broker.delayed.unsettled(queue, take=take)
    if broker.peers is not None:
        runs += broker.peers.unsettled(queue, take=take)
    if queue.retries is not None:
        runs += queue.retries.runs()
    if not queue.unacked_count:
        return runs
    for channel in broker.channels:
        for delivery in _held(channel):
            if delivery.queue is queue:
                runs.extend(open_runs(delivery))
    return runs


def note_deliveries(broker: "Broker") -> None:
    """Note in the storage all messages that clients have had, wherever those are, before the node stops.

    After a clean stop they are in their queues again, and only they count as redelivered. Messages that other nodes'
    clients held have come back by then.
    """
    queues = dict.fromkeys(queue for queue in broker.local_queues if queue.is_durable)
    for queue in queues:
        for run in queue.backlog.delivered_before():
            _note(queue, run, run.deliveries)
    for run, queue in broker.dead_letters.all_unsettled():
        if queue in queues and run.deliveries:
            _note(queue, run, run.deliveries)
    # A client that did not read may keep its socket until after this.
    for channel in broker.channels:
        for delivery in _held(channel):
            if isinstance(delivery.queue, Queue) and delivery.queue in queues:
                for run in open_runs(delivery):
                    _note(delivery.queue, run, run.deliveries + 1)


def _note(queue: Queue, run: Run, count: int) -> None:
    if run.is_indexed:
        queue.storage.delivered(run.seqs, count)


def _held(channel: "Channel") -> Iterator[Delivery]:
    yield from channel.unacked.deliveries()
    if channel.transaction is not None:
        yield from channel.transaction.settled()
