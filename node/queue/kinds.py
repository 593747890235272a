"""The kinds of queues: which class a queue has follows from its name and its settings."""

from node.catalogue.delayed import is_waiting_queue
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.deduplicating_queue import DeduplicatingQueue, MeteredDeduplicatingQueue
from node.queue.delayed_queue import DelayedQueue
from node.queue.host import QueueHost
from node.queue.metering import Meter, MeteredQueue
from node.queue.queue import Queue
from node.queue.storage import QueueStorage


def new_queue(
    record: QueueRecord,
    settings: QueueSettings,
    host: QueueHost,
    storage: QueueStorage,
    meter: Meter | None,
) -> Queue:
    """Return an empty queue of the kind that its record and settings ask for.   meter: None: nothing is measured."""
    if is_waiting_queue(record.name):
        return DelayedQueue(record, settings, host, storage, host.now)
    if settings.is_deduplicating:
        if meter is None:
            return DeduplicatingQueue(record, settings, host, storage, host.now)
        return MeteredDeduplicatingQueue(record, settings, host, storage, host.now, meter)
    if meter is None:
        return Queue(record, settings, host, storage, host.now)
    return MeteredQueue(record, settings, host, storage, host.now, meter)
