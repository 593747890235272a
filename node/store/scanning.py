"""Scans: a search for messages in one segment, on behalf of a queue's index.

Messages that are not found, or can't be read, are reported to the index; the caller gets those that were found.
Source: docs/internals/disk.md, "Paging".
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from node.queue.run import Absent
from node.store.damage import tell_damage
from node.store.disk import Read
from node.store.rereading import read
from node.store.segment import Damage, Found, Segment, Wanted

if TYPE_CHECKING:
    from node.store.queue_index import QueueIndex


class Scan:
    """Finds messages of a segment from first to last, once; after a change that it must not miss, once more.

    done: as in `QueueStorage.scan`.
    """

    __slots__ = ("_changes", "_done", "_index", "_segment", "_seqs", "_wanted")

    def __init__(
        self, index: "QueueIndex", segment: Segment, seqs: range, done: Callable[[list[Absent]], None]
    ) -> None:
        self._index = index
        self._segment = segment
        self._seqs = seqs
        self._done = done
        self._wanted = Wanted(0, b"")
        self._changes = 0

    def start(self) -> None:
        """Submit the read; everything on its way to the file has been submitted before."""
        self._wanted = self._segment.wanted(self._seqs.start, self._seqs[-1])
        self._changes = self._segment.changes
        self._index.host.counters.queue_index_read_count += 1
        read(self._index.host, self._reads, self._arrived, self._failed)

    def _reads(self) -> list[Read]:
        then = self._index.finder(self._segment.number, self._wanted)
        path = self._index.path(self._segment.number)
        return [Read(path, 0, self._segment.size_bytes, then)]

    def _failed(self, error: OSError) -> None:
        self._arrived([Found([], self._wanted.ranges, [Damage(0, str(error))])])

    def _arrived(self, results: list[Any]) -> None:
        found: Found = results[0]
        index, segment = self._index, self._segment
        if index.is_dropped:
            self._done([])
            return
        if found.lost or found.damages:
            if index.host.is_over():
                return  # see `node.store.rereading`
            tell_damage(index, segment, found)
        absents: list[Absent] | None = found.absents
        if segment.changes != self._changes:
            absents = segment.still_alive(found.absents)
        if absents is None:
            index.hand_over()
            self.start()
        else:
            self._done(absents)
