"""Which queues give up memory, and when.

Above `paging_ratio` of the memory watermark, long before publishers are blocked, queues move contents to disk:
those that hold most of them first, as much as memory is over the threshold, a little in each turn.
Source: amqp-behaviour §7.3; architecture §2.2.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from node.broker.queue import Queue

TURN_MAX_BYTES: Final = 2 * 1024 * 1024
"""What is paged out in one turn: some two milliseconds of joining bytes."""

QUEUE_MIN_BYTES: Final = 64 * 1024
"""A queue that holds less in memory is left alone: many of them would give little."""


class Pager:
    """Decides from the memory in use what leaves it.   threshold_bytes: above it queues page."""

    def __init__(self, threshold_bytes: float) -> None:
        self.threshold_bytes = threshold_bytes
        self._owed_bytes = 0
        self._queues: deque[Queue] = deque()

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""
        return self._owed_bytes > 0 and bool(self._queues)

    def sample(self, used_bytes: int, queues: Iterable[Queue]) -> None:
        """The node uses so much memory now."""
        self._owed_bytes = int(used_bytes - self.threshold_bytes)
        self._queues.clear()
        if self._owed_bytes > 0:
            sizes = {queue: queue.backlog.memory_bytes for queue in queues}
            large = [queue for queue, size in sizes.items() if size >= QUEUE_MIN_BYTES]
            self._queues.extend(sorted(large, key=sizes.__getitem__, reverse=True))

    def turn(self) -> None:
        """Page out what one turn can take."""
        room = TURN_MAX_BYTES
        while room > 0 and self.has_work:
            queue = self._queues[0]
            freed = 0 if queue.is_deleted else queue.backlog.page_out(min(room, self._owed_bytes))
            self._owed_bytes -= freed
            room -= max(freed, QUEUE_MIN_BYTES)
            if freed < QUEUE_MIN_BYTES:
                self._queues.popleft()
