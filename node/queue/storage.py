"""What the broker asks of whoever keeps messages on disk, and the answer of a node without a disk.

Persistent messages in durable queues are *kept*: written to a journal, and safe once that is synced. Any message
may be *paged out*: its contents, then all that is known of it, live on disk only. Messages that are known on
disk for either reason are *indexed*; when one is done with, the storage must be told to *forget* it.

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

    first_seq, last_seq: none of them is outside; not every number between them need be among them.
    """

    segment: int
    priority: int
    first_seq: int
    last_seq: int
    count: int
    body_bytes: int

    @property
    def numbers(self) -> range:
        """From first to last."""
        return range(self.first_seq, self.last_seq + 1)

    def joined(self, other: "Page") -> "Page":
        """Both, as parts of one segment."""
        return Page(
            self.segment,
            self.priority,
            min(self.first_seq, other.first_seq),
            max(self.last_seq, other.last_seq),
            self.count + other.count,
            self.body_bytes + other.body_bytes,
        )


class Waiter(Protocol):
    """Who waits until what was kept is safe."""

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """What was kept before these numbers were registered is synced; is_safe False: it never will be."""


class StorageOwner(Protocol):
    """Who has the messages that a `QueueStorage` keeps."""

    def unreadable(self, reason: str) -> None:
        """The disk could not read more of them, which are among `QueueStorage.unreadable` now. Nothing is to be asked
        of the storage before this returns.
        """


class QueueStorage(Protocol):
    """The disk side of one queue. Sequence numbers are the queue's, and rise."""

    can_page: bool
    """Whether `page_out` may be called: there is a disk."""

    disk_reads: int
    disk_writes: int
    """Messages that came from the disk and that went there, since the node's start."""

    segment_entries: int
    """How many consecutive numbers share a segment: number n is in segment n // segment_entries."""

    unreadable: NumberSet | None
    """Messages that the disk could not read and nobody has given up: not to be changed. A scan doesn't find them."""

    def belong_to(self, owner: StorageOwner) -> None:
        """Say whose messages they are from now on; he is told of what is unreadable already."""

    def lose(self, seqs: Iterable[range]) -> None:
        """These of the unreadable messages are given up, the others need not be read: nothing is unreadable then."""

    @property
    def alive(self) -> list[range]:
        """The numbers of all messages that are in segments and not forgotten, and maybe of more that are indexed."""

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Persistent messages came into a durable queue, with numbers from `first_seq` on: they go with the next batch.

        expiry: as in `Run`. This queue's references to contents in the message store begin here.
        """

    def forget(self, seqs: range, store_id: int) -> None:
        """Indexed messages are done with (acknowledged, expired, dropped).   seqs: of any step.

        store_id: of the first one; where seqs has a step, the ids have it too.
        """

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        """See to it that all of these messages are in segments, so that the caller may let go of them.

        Those that are not indexed yet (`is_indexed` False) become so, without being safe. The runs come in order
        of numbers, below all others of this queue that are not indexed and will ever be paged out after them, or
        above: callers page from both ends of what is in memory.
        """

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        """Find the messages of a segment from first to last that are not forgotten, in order; `done` comes later.
        Once a write has failed it does not come if something is missing, as that may never have been written.

        What waits for its checkpoint is not in the segment yet: page_out what is to be found there.
        """

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """Fetch contents: a run for each, in order, or None where the disk no longer has them; `done` as in `scan`."""

    def clear(self, first_seq: int, last_seq: int) -> None:
        """Forget every message from first to last that is in a segment."""

    def delivered(self, seqs: range, count: int) -> None:
        """Indexed messages that came back from clients so often: to be told apart after a clean stop."""

    def drop(self) -> None:
        """The queue was deleted: forget everything, remove its files."""


class Storage(Protocol):
    """The disk side of a node."""

    epoch_s: float
    """Added to the broker's clock it gives the time of day; kept up to date by the broker."""

    embed_max_bytes: int
    """Contents of at least this size go to the message store."""

    has_work: bool
    """Whether `turn` has something to do."""

    @property
    def counters(self) -> DiskCounters:
        """What was read and written since the node's start."""

    @property
    def scrubbing(self) -> ScrubCounters:
        """How far the look for what has rotted is."""

    def damaged_files(self) -> list[str]:
        """Paths of files with damage that costs somebody something. Costs a little for each file of a message store."""

    @property
    def is_congested(self) -> bool:
        """Whether so much waits to be written that publishers should hold on."""

    def open(self, record: QueueRecord) -> QueueStorage:
        """The disk side of a queue that was declared."""

    def place(self, contents: list[bytes], *, persistent: bool) -> int:
        """Give large contents numbers in the message store; the first one, the others follow.

        persistent: they are written with the next batch, once, whatever queues keep them; else only when the
            first queue pages them out.
        """

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        """Have the waiter settled when all that was kept until now is safe."""

    def turn(self, now: float) -> None:
        """The end of a turn of the loop: hand over to the disk what is due."""


class MemoryStorage:
    """A storage that keeps nothing, and the disk side of its queues: for a broker without a disk. What is kept
    is safe at once.
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
        """See `Storage.damaged_files`."""
        return []

    def belong_to(self, owner: StorageOwner) -> None:
        """See `QueueStorage.belong_to`."""

    def lose(self, seqs: Iterable[range]) -> None:
        """See `QueueStorage.lose`."""

    def open(self, record: QueueRecord) -> QueueStorage:
        """See `Storage.open`."""
        return self

    @property
    def alive(self) -> list[range]:
        """See `QueueStorage.alive`."""
        return []

    def place(self, contents: list[bytes], *, persistent: bool) -> int:
        """See `Storage.place`."""
        return NO_STORE_ID

    def await_safety(self, waiter: Waiter, first: int, last: int) -> None:
        """See `Storage.await_safety`."""
        waiter.settle(first, last, is_safe=True)

    def turn(self, now: float) -> None:
        """See `Storage.turn`."""

    def keep(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """See `QueueStorage.keep`."""

    def forget(self, seqs: range, store_id: int) -> None:
        """See `QueueStorage.forget`."""

    def page_out(self, runs: Sequence[Run | Absent]) -> None:
        """See `QueueStorage.page_out`: memory is all there is."""
        raise AssertionError("nothing pages out without a disk")

    def scan(self, segment: int, first_seq: int, last_seq: int, done: Callable[[list[Absent]], None]) -> None:
        """See `QueueStorage.scan`."""
        done([])

    def load(self, absent: Sequence[Absent], done: Callable[[list[Run | None]], None]) -> None:
        """See `QueueStorage.load`."""
        done([None] * len(absent))

    def clear(self, first_seq: int, last_seq: int) -> None:
        """See `QueueStorage.clear`."""

    def delivered(self, seqs: range, count: int) -> None:
        """See `QueueStorage.delivered`."""

    def drop(self) -> None:
        """See `QueueStorage.drop`."""
