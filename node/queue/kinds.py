"""The kinds of queues: which class a queue has follows from its name and its settings."""

from typing import Final

from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAYED_TYPE
from node.catalogue.exchange_queues import type_of_owner
from node.catalogue.policy import QueueSettings
from node.catalogue.recent_history import HISTORY_TYPE
from node.catalogue.records import QueueRecord
from node.catalogue.retained import RETAINED_TYPE
from node.queue.deduplicating_queue import DeduplicatingQueue, MeteredDeduplicatingQueue
from node.queue.delayed_queue import DelayedQueue
from node.queue.filter_queue import FilterQueue
from node.queue.history_queue import HistoryQueue
from node.queue.host import QueueHost
from node.queue.metering import Meter, MeteredQueue
from node.queue.queue import Queue
from node.queue.retained_queue import RetainedQueue
from node.queue.storage import QueueStorage

_EXCHANGE_QUEUES: Final = {
    DELAYED_TYPE: DelayedQueue,
    DEDUPLICATION_TYPE: FilterQueue,
    HISTORY_TYPE: HistoryQueue,
    RETAINED_TYPE: RetainedQueue,
}
"""The queues that belong to exchanges, by type of exchange."""


def new_queue(
    record: QueueRecord,
    settings: QueueSettings,
    host: QueueHost,
    storage: QueueStorage,
    meter: Meter | None,
) -> Queue:
    """Return an empty queue of the kind that its record and settings ask for.   meter: None: nothing is measured."""
    owner = type_of_owner(record.name)
    if owner is not None:
        return _EXCHANGE_QUEUES[owner](record, settings, host, storage, host.now)
    if settings.is_deduplicating:
        if meter is None:
            return DeduplicatingQueue(record, settings, host, storage, host.now)
        return MeteredDeduplicatingQueue(record, settings, host, storage, host.now, meter)
    if meter is None:
        return Queue(record, settings, host, storage, host.now)
    return MeteredQueue(record, settings, host, storage, host.now, meter)
