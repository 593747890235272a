"""Reading all messages of a queue, in order, in pieces: by queues that must know what they begin with.

begin ─► a piece from memory ─► take ─► the next one … ─► on_done
       └► from disk: wait for it ─────┘
"""

from collections.abc import Callable
from typing import Final

from node.queue.host import QueueHost
from node.queue.queue import Queue
from node.queue.reader import Found, QueueReader
from node.queue.run import Run
from node.scheduling.chores import Chore

READ_BYTES: Final = 64 * 1024
"""The bytes of contents that are read in one go: half a millisecond's work."""


class WholeRead:
    """A read of the messages of one queue.

    take: is given each run, by rising numbers, while the queue is here.   on_done: called after the last one.
    stop: the number at which the read ends; None: when it has reached the end of the queue, as that is then.
    Messages that come or leave meanwhile may be read or not; one that stays in its place is.
    """

    def __init__(
        self,
        queue: Queue,
        host: QueueHost,
        take: Callable[[Run], None],
        on_done: Callable[[], None],
        stop: int | None = None,
    ) -> None:
        self._queue = queue
        self._host = host
        self._take = take
        self._on_done = on_done
        self._stop = stop
        self._reader = QueueReader(queue, lambda: ())
        self._upto = 1
        self._is_waiting = False

    def begin(self) -> None:
        """Begin to read; `take` and `on_done` may be called at once."""
        self._host.begin(self._read())

    def _read(self) -> Chore:
        queue = self._queue
        while self._upto < (stop := queue.next_seq if self._stop is None else self._stop):
            before = self._upto
            self._is_waiting = False
            self._reader.read([range(self._upto, stop)], READ_BYTES, self._host.now, self._found)
            if self._upto == before:
                self._is_waiting = True  # `_found` goes on when the disk has answered
                return
            yield
            if self._is_over:
                return
        self._on_done()

    @property
    def _is_over(self) -> bool:
        return self._queue.is_deleted or self._queue.successor is not None

    def _found(self, found: Found) -> None:
        if self._is_over:
            return
        for run in found.runs:
            self._take(run)
        self._upto = found.upto
        if self._is_waiting:
            self._host.begin(self._read())
