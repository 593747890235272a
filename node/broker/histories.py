"""The messages that an exchange keeps, recent or retained ones, on their way to the destination of a new binding.

The node with the master of the exchange's queue publishes it, when it hears of the binding. Messages for a queue of
this node are there before the binding is confirmed to the client, unless some of the history is on disk.
Source: RabbitMQ 3.10.8's plug-in, code and live; docs/recent_history.md.
"""

from collections.abc import Sequence
from functools import partial

from node.amqp.errors import ProtocolError
from node.catalogue.records import Binding
from node.client.host import ClientHost
from node.queue.content import chosen_headers
from node.queue.history_queue import HistoryQueue
from node.queue.intake import Targets
from node.queue.live_queue import LiveQueue
from node.queue.queue import Queue
from node.queue.retained_queue import RetainedQueue
from node.queue.run import Batch, Run


def replay_history(broker: ClientHost, binding: Binding) -> None:
    """Give a new binding the history of its source, if that has one and its master is here."""
    live = broker.vhosts[binding.vhost]
    name = live.router.kept_by(binding.source)
    queue = None if name is None else live.queues.get(name)
    if isinstance(queue, HistoryQueue):
        queue.replay(partial(_give, broker, binding))
    elif isinstance(queue, RetainedQueue):
        queue.replay(binding.routing_key, partial(_give_retained, broker, binding))


def _give_retained(broker: ClientHost, binding: Binding, run: Run) -> None:
    """Publish retained messages, whichever exchange they came through, as messages of the one that keeps them."""
    given = run[:]
    given.envelope = run.envelope.of_exchange(binding.source)
    _give(broker, binding, given)


def _give(broker: ClientHost, binding: Binding, run: Run) -> None:
    """Publish messages of a history to the destination of a binding."""
    live = broker.vhosts.get(binding.vhost)
    if live is None:
        return
    if binding.destination_kind == "queue":
        queue = live.queues.get(binding.destination)
        if queue is not None:
            _publish(broker, Batch(run.envelope, run.contents, run.size), (queue,))
        return
    envelope, asked = run.envelope, live.router.headers_asked(binding.destination)
    keys = (envelope.routing_key, *envelope.cc, *envelope.bcc)
    for content in run.contents:
        headers = chosen_headers(content, asked)
        try:
            queues = broker.route(binding.vhost, binding.destination, keys, headers, content)
        except ProtocolError:  # no client can be told that routing would cost too much
            continue
        _publish(broker, Batch(envelope, [content], run.size), queues)


def _publish(broker: ClientHost, batch: Batch, queues: Sequence[LiveQueue]) -> None:
    if not queues:
        return
    broker.intake.give(batch, Targets(queues), None)
    for queue in queues:
        if isinstance(queue, Queue):
            queue.count_letters(len(batch.contents))
