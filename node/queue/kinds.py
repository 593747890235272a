"""The kinds of queues: which class a queue has follows from its name and its settings, which a policy may change."""

from typing import Final, cast

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
from node.queue.live_queue import LiveQueue
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


_DEDUPLICATING: Final[dict[type[Queue], type[DeduplicatingQueue]]] = {
    Queue: DeduplicatingQueue,
    MeteredQueue: MeteredDeduplicatingQueue,
}
"""The class of a queue that begins to deduplicate. Queues of exchanges are not among them."""


def apply_settings(queue: LiveQueue, settings: QueueSettings, now: float) -> None:
    """Apply changed settings to a live queue, which gets the class that they ask for if it lives here.

    A queue that belongs to an exchange keeps its class.
    """
    queue.apply_settings(settings, now)
    if isinstance(queue, DeduplicatingQueue):
        if not settings.is_deduplicating:
            queue.end_deduplicating()
    elif isinstance(queue, Queue) and type(queue) in _DEDUPLICATING and settings.is_deduplicating:
        queue.__class__ = _DEDUPLICATING[type(queue)]
        cast("DeduplicatingQueue", queue).begin_to_deduplicate()


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
