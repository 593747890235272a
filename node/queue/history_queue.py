"""The queue that keeps the last messages of a recent-history exchange, for the bindings to come.

    publish ─► enqueue: without x-recent-history-no-store ─► backlog of at most x-recent-history-length messages
    a new binding ─► replay ─► a copy of each, in order, to its destination

Clients don't reach it, and nothing leaves it but the oldest message for a new one. It is a `Queue`, so the history is
on all its copies.
Source: RabbitMQ 3.10.8's plug-in, code and live; docs/recent_history.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from node.catalogue.policy import QueueSettings
from node.catalogue.recent_history import KEPT, NO_STORE
from node.catalogue.records import QueueRecord
from node.override import override
from node.queue.content import chosen_headers
from node.queue.host import QueueHost
from node.queue.id_window import pieces_of
from node.queue.queue import Queue
from node.queue.run import NEVER, Batch, Run
from node.queue.storage import QueueStorage
from node.queue.whole_read import WholeRead

_NAMES: Final = (NO_STORE.encode(),)


class HistoryQueue(Queue):
    """The queue of one recent-history exchange."""

    def __init__(
        self,
        record: QueueRecord,
        settings: QueueSettings,
        host: QueueHost,
        storage: QueueStorage,
        now: float,
    ) -> None:
        self._length = KEPT.of(record.arguments)
        super().__init__(record, self._own(settings), host, storage, now)

    @override
    def apply_settings(self, settings: QueueSettings, now: float) -> None:
        super().apply_settings(self._own(settings), now)

    def _own(self, settings: QueueSettings) -> QueueSettings:
        """Return the settings of the queue: none of its users' policies, and the length of the history."""
        return replace(settings.of_copies, max_length=self._length)

    @override
    def enqueue(self, batch: Batch, now: float) -> list[int]:
        """Keep messages, but for those that are not to be kept."""
        if self.is_deleted:
            return []
        kept = [index for index, content in enumerate(batch.contents) if _is_kept(content)]
        for first, stop in pieces_of(kept):
            store_id = batch.store_id + first if batch.store_id else 0
            # A message's time to live begins in the queue that it is copied to.
            self._append(Batch(batch.envelope, batch.contents[first:stop], batch.size, store_id), NEVER)
        self._drop_excess(now)
        self._unpublished -= len(batch.contents) - len(kept)
        return []

    @override
    def _drop_excess(self, now: float) -> None:
        """Forget the oldest messages above the length; they are no dead letters."""
        backlog = self.backlog
        while (excess := backlog.count - self._length) > 0:
            if not backlog.at_hand:
                backlog.refill()
            if not backlog.at_hand:
                return  # the head is on its way from disk: `_loaded` will continue
            self.forget(backlog.take(excess))

    def replay(self, give: Callable[[Run], None]) -> None:
        """Give a copy of each message that is here now, in order; at once, if all of them are in memory."""
        WholeRead(self, self._host, give, _nothing, stop=self.next_seq).begin()


def _is_kept(content: bytes) -> bool:
    field = chosen_headers(content, _NAMES).get(NO_STORE)
    return field is None or field.value is not True


def _nothing() -> None:
    """Do nothing when all messages have been given."""
