"""A pager that does not wait until memory is short."""

from collections.abc import Iterable

from cluster.mirror.copy import Copy
from node.queue.paging import Pager
from node.queue.queue import Queue

_WITHOUT_END = 1 << 40


class EagerPager(Pager):
    """Has all queues and copies page out what they hold, each time memory is sampled.

    keep_bytes: of bodies at the head of a queue, which stay.
    """

    def __init__(self, keep_bytes: int = 0) -> None:
        super().__init__(0)
        self.keep_bytes = keep_bytes

    @property
    def has_work(self) -> bool:
        return bool(self._holders)

    def sample(self, used_bytes: int, queues: Iterable[Queue]) -> None:
        self._holders.clear()
        self._holders.extend([*(queue.backlog for queue in queues), *self.copies()])

    def turn(self) -> None:
        while self._holders:
            each = self._holders.popleft()
            if isinstance(each, Copy):
                each.page_out(_WITHOUT_END)
            else:
                each.page_out(_WITHOUT_END, self.keep_bytes)
