"""Releases: dropping the references of messages that were cleared by number, which only the segments' files know.

clear, drop ─► waiting ─ one file after the other ─► references dropped
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from node.store.disk import TO_THE_END, Read
from node.store.segment import Wanted, find_stored

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex


class Releases:
    """The releases of one queue, whose files are read one after the other so that other reads get in between.

    is_busy: a file is being read.
    """

    __slots__ = ("_waiting", "is_busy")

    def __init__(self) -> None:
        self.is_busy = False
        self._waiting: list[tuple[int, Wanted]] = []

    def add(self, number: int, wanted: Wanted) -> None:
        """Register messages of a segment that are gone: their references to contents are to be dropped."""
        if self._waiting and self._waiting[-1][0] == number:
            wanted = wanted.joined(self._waiting.pop()[1])  # one reading does for both
        self._waiting.append((number, wanted))

    @property
    def needed(self) -> set[int]:
        """The segments whose files are still to be read."""
        return {number for number, _ in self._waiting}

    def go_on(self, index: "QueueIndex") -> None:
        """Read the next file, unless one is being read."""
        if self.is_busy or not self._waiting:
            return
        self.is_busy = True
        number, wanted = self._waiting.pop(0)
        index.hand_over()
        read = Read(index.path(number), 0, TO_THE_END, partial(find_stored, wanted=wanted))
        index.host.disk.submit(
            [read], partial(self._released, index, number), partial(self._failed, index, number)
        )

    def _released(self, index: "QueueIndex", number: int, results: list[Any]) -> None:
        for first_id, count in results[0]:
            index.host.contents(first_id).drop_refs(first_id, count)
        self.is_busy = False
        self.go_on(index)
        index.released(number)

    def _failed(self, index: "QueueIndex", number: int, error: OSError) -> None:
        # Until the next start the contents count as referred to.
        if not index.host.is_over():  # else it may never have been written
            index.host.report(index.path(number), 0, str(error))
        self._released(index, number, [[]])
