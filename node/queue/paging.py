"""Paging: the choice of queues that move messages from memory to disk, and when.

Above `paging_ratio` of the memory watermark, long before publishers are blocked, queues move contents to disk:
those that hold most of them first, as much as memory is over the threshold, a little in each turn.
Source: amqp-behaviour §7.3; docs/internals/disk.md, "Paging".
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, Protocol

from node.queue.queue import Queue

TURN_MAX_BYTES: Final = 2 * 1024 * 1024
"""The bytes that are paged out in one turn: some two milliseconds of joining bytes."""

QUEUE_MIN_BYTES: Final = 64 * 1024
"""The bytes in memory below which a queue is left alone: many of them would give little."""


class Pageable(Protocol):
    """The messages of a queue, or a mirror's copy of them, which can leave memory.

    After a queue's end it holds nothing.
    """

    @property
    def memory_bytes(self) -> int:
        """The bytes that are held in memory, about."""

    def page_out(self, limit_bytes: int) -> int:
        """Take messages out of memory until that much is out; return how many bytes that was."""


class Pager:
    """Decides from the memory in use which messages leave it.

    threshold_bytes: above it queues page.   copies: returns the copies of queues whose master is on another node.
    """

    def __init__(self, threshold_bytes: float) -> None:
        self.threshold_bytes = threshold_bytes
        self.copies: Callable[[], Iterable[Pageable]] = tuple
        self._owed_bytes = 0
        self._holders: deque[Pageable] = deque()

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return self._owed_bytes > 0 and bool(self._holders)

    def sample(self, used_bytes: int, queues: Iterable[Queue]) -> None:
        """Note how much memory the node uses, and choose the queues that are to page."""
        self._owed_bytes = int(used_bytes - self.threshold_bytes)
        self._holders.clear()
        if self._owed_bytes > 0:
            holders: Iterable[Pageable] = chain((queue.backlog for queue in queues), self.copies())
            sizes = {holder: holder.memory_bytes for holder in holders}
            large = [holder for holder, size in sizes.items() if size >= QUEUE_MIN_BYTES]
            self._holders.extend(sorted(large, key=sizes.__getitem__, reverse=True))

    def turn(self) -> None:
        """Page out as much as one turn can take."""
        room = TURN_MAX_BYTES
        while room > 0 and self.has_work:
            freed = self._holders[0].page_out(min(room, self._owed_bytes))
            self._owed_bytes -= freed
            room -= max(freed, QUEUE_MIN_BYTES)
            if freed < QUEUE_MIN_BYTES:
                self._holders.popleft()
