"""The parts that the indexes of all queues of a node share: the disk, the message stores, and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from node.amqp.frames import body_size
from node.queue.counters import DiskCounters
from node.queue.run import Run
from node.store.disk import Disk
from node.store.message_store import TRANSIENT_FIRST_ID, MessageStore

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex


@dataclass(frozen=True, slots=True)
class IndexHost:
    """The disk, message stores, sizes and callbacks that the indexes of a node's queues share.

    persistent, transient: the message stores.
    segment_entries, embed_max_bytes: as in `StoreOptions`.   epoch_s: returns `Storage.epoch_s`.
    on_dirty: called when `take_operations`, `take_steps` or `take_removals` would give something that they did
        not give before; once until that is taken.
    report: called with path, offset in bytes and description of what can't be read.
    counters: of what is read from the disk.
    on_failed: called when the disk refused steps that an index submitted by itself.
    later: calls back after so many seconds.   is_over: whether a write has failed, or the store is closed.
    damaged: indexes in whose files something could not be read.
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
    later: Callable[[float, Callable[[], None]], None]
    is_over: Callable[[], bool]
    counters: DiskCounters = field(default_factory=DiskCounters)
    damaged: "dict[QueueIndex, None]" = field(default_factory=dict)

    def contents(self, store_id: int) -> MessageStore:
        """Return the message store to which an id belongs."""
        return self.transient if store_id >= TRANSIENT_FIRST_ID else self.persistent

    def with_ids(self, run: Run) -> list[Run]:
        """Return the run in parts. Parts of large contents, of one size each, have ids in the message store."""
        embed_max_bytes = self.embed_max_bytes
        if run.store_id or max(map(len, run.contents)) < embed_max_bytes:
            return [run]
        parts, start = [], 0
        kinds = (body_size(content) if len(content) >= embed_max_bytes else -1 for content in run.contents)
        for body_bytes, group in groupby(kinds):
            stop = start + len(list(group))
            part = run[start:stop]
            if body_bytes >= 0:
                part.size = body_bytes
                part.store_id = self.transient.reserve(stop - start)
            parts.append(part)
            start = stop
        return parts
