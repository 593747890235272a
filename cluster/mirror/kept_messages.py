"""What a node has of a copy that was not taken when its queue came back, for the mirror of the queue that it has now.

Of the copy that was taken something may turn out to be unreadable before any mirror is synchronised. The others are
still where they were then. Which numbers are of the same messages in all of them says the view (`View.common`); which
of these the queue still has says its master.
Source: reliability §4.10.
"""

from collections.abc import Callable, Iterator, Sequence

from cluster.mirror.sync_source import CHUNK_BYTES, entry_of
from node.catalogue.policy import QueueSettings
from node.queue.mirroring import RecoveredCopy
from node.queue.operations import Enqueue
from node.queue.reader import Found, QueueReader
from node.queue.run import Run
from node.queue.storage import Page


class KeptMessages:
    """Of one copy.   upto: what has a lower number may be taken.   wake: called after each answer."""

    def __init__(self, found: RecoveredCopy, upto: int, wake: Callable[[], None]) -> None:
        self._upto = upto
        self._wake = wake
        self._reader = QueueReader(_Stored(found), lambda: ())

    def give(self, wanted: Sequence[range], epoch_s: float, done: Callable[[list[Enqueue]], None]) -> None:
        """See `Spare.give`."""
        common = [range(seqs.start, min(seqs.stop, self._upto)) for seqs in wanted if seqs.start < self._upto]
        if not common:
            done([])
            return

        def read(found: Found) -> None:
            self._reader.rest()
            done([entry_of(run, epoch_s) for run in found.runs])
            self._wake()

        self._reader.read(common, CHUNK_BYTES, 0.0, read)


class _Stored:
    """A copy as something that is read from; also its only level, all of which is on disk."""

    def __init__(self, found: RecoveredCopy) -> None:
        self.storage = found.storage
        self.settings = QueueSettings()
        self._pages = found.pages

    @property
    def backlog(self) -> "_Stored":
        """See `Source`."""
        return self

    @property
    def levels(self) -> Sequence["_Stored"]:
        """See `PagedBacklog.levels`."""
        return (self,)

    def in_memory(self, first: int) -> Iterator[Run]:
        """See `PagedBacklog.in_memory`."""
        return iter(())

    def on_disk(self, first: int) -> Iterator[Page]:
        """See `PagedBacklog.on_disk`."""
        return (page for page in self._pages if page.last_seq >= first)
