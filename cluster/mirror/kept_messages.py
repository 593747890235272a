"""The messages of a copy that was not chosen when its queue came back, for the mirror that this node has of it now.

Messages of the copy that was taken may turn out to be unreadable before any mirror is synchronised. The other copies
are still where they were then. The view knows which numbers are the same messages in all of them (`View.common`);
the master knows which of these the queue still has.

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
    """The messages of one copy.   upto: those with lower numbers may be taken.   wake: called after each answer."""

    def __init__(self, found: RecoveredCopy, upto: int, wake: Callable[[], None]) -> None:
        self._upto = upto
        self._wake = wake
        self._reader = QueueReader(_Stored(found), lambda: ())

    def give(self, wanted: Sequence[range], epoch_s: float, done: Callable[[list[Enqueue]], None]) -> None:
        """Read some of the wanted messages that are common to all copies, and pass them to `done`, now or later."""
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
    """A copy as a source of messages; also its only level, all of which is on disk."""

    def __init__(self, found: RecoveredCopy) -> None:
        self.storage = found.storage
        self.settings = QueueSettings()
        self._pages = found.pages

    @property
    def backlog(self) -> "_Stored":
        """The copy itself, which has all ready messages."""
        return self

    @property
    def levels(self) -> Sequence["_Stored"]:
        """The only level, which is the copy itself."""
        return (self,)

    def in_memory(self, first: int) -> Iterator[Run]:
        """Yield nothing: all messages are on disk."""
        return iter(())

    def on_disk(self, first: int) -> Iterator[Page]:
        """Yield the pages with messages from this number on."""
        return (page for page in self._pages if page.last_seq >= first)
