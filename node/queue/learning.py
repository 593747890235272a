"""A queue that begins with messages may have to read them all before it can go on: what it knows follows from them.

restore, begin_with ─► require        pump ─► is_due? ─► begin ─► learn each run … ─► on_learnt, and pump again
"""

from collections.abc import Callable

from node.queue.host import QueueHost
from node.queue.queue import Queue
from node.queue.run import Run
from node.queue.whole_read import WholeRead


class Learning:
    """The one read of the messages that a queue began with.

    learn: is given each run.   on_learnt: called after the last one.
    is_due: the queue does not know yet what its messages mean.
    """

    def __init__(
        self, queue: Queue, host: QueueHost, learn: Callable[[Run], None], on_learnt: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._host = host
        self._learn = learn
        self._on_learnt = on_learnt
        self._has_begun = False
        self.is_due = False

    def require(self) -> None:
        """Note that the queue begins with messages."""
        self.is_due = True

    def begin(self) -> None:
        """Begin to read, unless that is under way. The queue is pumped at the end."""
        if not self._has_begun:
            self._has_begun = True
            WholeRead(self._queue, self._host, self._learn, self._end).begin()

    def _end(self) -> None:
        self.is_due = self._has_begun = False
        self._on_learnt()
        self._host.touch(self._queue)
