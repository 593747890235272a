"""The protocols by which a broker uses its disk of messages, and a stand-in for a node without a disk.

Persistent messages in durable queues are *kept*: written to a journal, and safe once that is synced. Any message
may be *paged out*: its contents, then all that is known of it, live on disk only. Messages that are known on
disk for either reason are *indexed*; when one is settled, the storage must be told to *forget* it.

    publish ─► keep ───────────────► batch ─► synced ─► waiters settled: confirms, tx.commit-ok
    memory is short ─► page_out ─► delta      scan ─► Absent ─► load ─► Run
Source: amqp-behaviour §7.3-7.6; docs/internals/disk.md, "From a queue to the disk" and "Paging".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from node.catalogue.records import QueueRecord
from node.queue.counters import DiskCounters, ScrubCounters
from node.queue.number_set import NumberSet
from node.queue.run import Absent, Batch, Run

NO_STORE_ID: Final = 0
"""The `store_id` of contents that are not in the message store: they are embedded in the queue's index."""


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of one priority in one segment, known by their number only (delta).

    first_seq, last_seq: bounds of their numbers; not every number between them need be among them.
    """

    segment: int
    priority: int
    first_seq: int
    last_seq: int
    count: int
    body_bytes: int

    @property
    def numbers(self) -> range:
        """The range from the first to the last number."""
        return range(self.first_seq, self.last_seq + 1)

    def joined(self, other: "Page") -> "Page":
        """Return both pages, which are parts of one segment, as one."""
        return Page(
            self.segment,
            self.priority,
            min(self.first_seq, other.first_seq),
            max(self.last_seq, other.last_seq),
            self.count + other.count,
            self.body_bytes + other.body_bytes,
        )


class Waiter(Protocol):
    """An object that waits until messages are safe."""

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Note that messages kept before these numbers were registered are safe; is_safe False: they never will be."""


class StorageOwner(Protocol):
    """The owner of the messages that a `QueueStorage` keeps."""

    def unreadable(self, reason: str) -> None:
        """Note that the disk could not read some messages, which are among `QueueStorage.unreadable` now. The storage
        may not be asked for anything before this returns.
        """


class QueueStorage(Protocol):
    """The disk side of one queue. Sequence numbers are the queue's, and rise."""

    can_page: bool
    """True if `page_out` may be called: there is a disk."""

    disk_reads: int
    disk_writes: int
    """The numbers of messages that were read from the disk and written to it, since the node's start."""

    segment_entries: int
    """The count of consecutive numbers that share a segment: number n is in segment n // segment_entries."""

    unreadable: NumberSet | None
    """The messages that the disk could not read and that are not given up. Read-only. A scan does not find them."""

    def belong_to(self, owner: StorageOwner) -> None:
        """Set the owner of the messages, and tell it which of them are unreadable already."""

    def lose(self, seqs: Iterable[range]) -> None:
        """Give up these unreadable messages. The others need not be read, so none counts as unreadable after this."""

    @property
    def alive(self) -> list[range]:
        """The numbers of all messages that are in segments and not forgotten, and maybe of more that are indexed."""

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Write persistent messages of a durable queue with the next batch. Their numbers begin with `first_seq`.

        expiry: as in `Run`. This queue's references to contents in the message store begin here.
        """

    def forget(self, seqs: range, store_id: int) -> None:
        """Forget indexed messages that were acknowledged, have expired or were dropped.   seqs: of any step.

        store_id: of the first one; where seqs has a step, the ids have it too.
        """

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        """Put all of these messages into segments, so that the caller may drop them from memory.

        Those that are not indexed yet (`is_indexed` False) become indexed, but not safe. The runs are in order of
        numbers. They are below all messages that are not indexed and are paged out later, or above: callers page from
        both ends of the messages in memory.
        """

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        """Find the messages of a segment from first to last that are not forgotten, in order; `done` is called later.

        After a failed write `done` is not called if something is missing, as it may never have been written. Messages
        that wait for a checkpoint are not in the segment yet: `page_out` puts them there.
        """

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """Fetch contents: a run for each, in order, or None where the disk no longer has them; `done` as in `scan`."""

    def clear(self, first_seq: int, last_seq: int) -> None:
        """Forget every message from first to last that is in a segment."""

    def delivered(self, seqs: range, count: int) -> None:
        """Note how often indexed messages came back from clients, to be known after a clean stop."""

    def drop(self) -> None:
        """Forget everything, and remove the files: the queue was deleted."""


class Storage(Protocol):
    """The disk side of a node."""

    epoch_s: float
    """The difference between the time of day and the broker's clock, which the broker keeps up to date."""

    embed_max_bytes: int
    """Contents of at least this size go to the message store."""

    has_work: bool
    """True if `turn` has something to do."""

    @property
    def counters(self) -> DiskCounters:
        """The counts of reads and writes since the node's start."""

    @property
    def scrubbing(self) -> ScrubCounters:
        """The progress of the scrubber, which looks for damage."""

    def damaged_files(self) -> list[str]:
        """Return the paths of files with damage that costs messages. This looks at each file of a message store."""

    @property
    def is_congested(self) -> bool:
        """True if so much waits to be written that publishers should hold on."""

    def open(self, record: QueueRecord) -> QueueStorage:
        """Return the disk side of a queue that was declared."""

    def place(self, contents: list[bytes], *, persistent: bool) -> int:
        """Give large contents numbers in the message store; return the first one, which the others follow.

        persistent: they are written with the next batch, once, whatever queues keep them; else only when the first
            queue pages them out.
        """

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        """Have the waiter settled when all that was kept until now is safe."""

    def turn(self, now: float) -> None:
        """End a turn of the loop: hand over to the disk what is due."""


class MemoryStorage:
    """A storage that keeps nothing, and the disk side of its queues: for a broker without a disk.

    All messages count as safe at once.
    """

    epoch_s = 0.0
    embed_max_bytes = 1 << 62
    segment_entries = 16384
    can_page = False
    has_work = False
    is_congested = False
    disk_reads = disk_writes = 0
    unreadable: NumberSet | None = None

    def __init__(self) -> None:
        self.counters = DiskCounters()
        self.scrubbing = ScrubCounters()

    def damaged_files(self) -> list[str]:
        """Return no paths: there are no files."""
        return []

    def belong_to(self, owner: StorageOwner) -> None:
        """Do nothing: no message is ever unreadable."""

    def lose(self, seqs: Iterable[range]) -> None:
        """Do nothing: no message is ever unreadable."""

    def open(self, record: QueueRecord) -> QueueStorage:
        """Return the storage itself, which serves all queues."""
        return self

    @property
    def alive(self) -> list[range]:
        """The numbers of messages in segments: none."""
        return []

    def place(self, contents: list[bytes], *, persistent: bool) -> int:
        """Return that the contents are not in a message store."""
        return NO_STORE_ID

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        """Settle the waiter at once."""
        waiter.settle(first, last, is_safe=True)

    def turn(self, now: float) -> None:
        """Do nothing: nothing is to be written."""

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Do nothing: the queue has the messages in memory."""

    def forget(self, seqs: range, store_id: int) -> None:
        """Do nothing: no message is on disk."""

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        """Fail: there is no disk to page out to."""
        raise AssertionError("nothing pages out without a disk")

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        """Find no messages."""
        done([])

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """Find no contents."""
        done([None] * len(absent))

    def clear(self, first_seq: int, last_seq: int) -> None:
        """Do nothing: no message is on disk."""

    def delivered(self, seqs: range, count: int) -> None:
        """Do nothing: no message survives a stop."""

    def drop(self) -> None:
        """Do nothing: there are no files."""
