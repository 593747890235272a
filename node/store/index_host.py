"""What the indexes of all queues of a node have in common: the disk, the message stores, and whom they tell."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.store.disk import Disk
from node.store.message_store import TRANSIENT_FIRST_ID, MessageStore

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex


@dataclass(frozen=True, slots=True)
class IndexHost:
    """What the indexes of a node have in common.

    persistent, transient: the message stores.
    segment_entries, embed_max_bytes: see `StoreOptions`.   epoch_s: gives `Storage.epoch_s`.
    on_dirty: called when `take_operations`, `take_steps` or `take_removals` would give something that they did
        not give before; once until that is taken.
    report: called with path, offset in bytes and description of what can't be read.
    on_failed: called when the disk refused steps that an index submitted by itself.
    """

    disk: Disk
    persistent: MessageStore
    transient: MessageStore
    segment_entries: int
    embed_max_bytes: int
    epoch_s: Callable[[], float]
    on_dirty: "Callable[[QueueIndex], None]"
    report: Callable[[str, int, str], None]
    on_failed: Callable[[OSError], None]

    def contents(self, store_id: int) -> MessageStore:
        """The message store that an id is of."""
        return self.transient if store_id >= TRANSIENT_FIRST_ID else self.persistent
