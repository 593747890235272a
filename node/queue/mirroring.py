"""What a broker and its queues ask of whoever keeps copies of queues on other nodes (`cluster.mirror`).

    Queue ── enqueued, removed, await_stable ─► Mirror: of one queue, on its master's node
    Broker ── see, open, turn ─► Mirroring: of all mirrored queues that this node has to do with

Source: reliability §4; docs/internals/mirrors.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from node.catalogue.records import QueueRecord
from node.queue.run import Batch
from node.queue.storage import Page, QueueStorage, Waiter

if TYPE_CHECKING:
    from node.queue.live_queue import HeldPublisher, LiveQueue
    from node.queue.paging import Pageable


class Mirror(Protocol):
    """The copies of one queue, as its master's node deals with them."""

    @property
    def is_congested(self) -> bool:
        """Whether so much is on its way to them that publishers should hold on."""

    def await_relief(self, publisher: "HeldPublisher") -> None:
        """Call `publisher.peer_relieved()` once that is over, or the queue has moved."""

    def enqueued(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Messages came into the queue, with numbers from `first_seq` on.   expiry: as in `Run`."""

    def removed(self, seqs: range) -> None:
        """Messages are done with.   seqs: of any step."""

    def returned(self, seqs: range, deliveries: int) -> None:
        """Messages came back from clients so often by now; told of queues that count (§4.11)."""

    def await_stable(self, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        """Settle (first, last) when all that came into the queue so far is on every node that has a copy.

        is_kept: and on the disk of every synchronised one.
        """

    def received(self, sender: int, number: int) -> None:
        """What came in last is the publish of that number from the front end of that incarnation."""

    def last_received(self, sender: int) -> int:
        """The number of the last publish of a front end that came in, here or at an earlier master; 0: none did."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """installed, total: messages that a mirror has got, and those that it lacked."""

    installed: int
    total: int
    is_running: bool


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """A mirrored queue as this node sees it. Members are told by their node, in order of the ring.

    master: None: there is none now.   pending: broadcasts of this node that are not everywhere yet.
    sync: of mirrors that were ever synchronised; only the master's node knows.
    lacks: messages that an unsynchronised mirror has not got, at most; only the master's node knows. A master that took
        over knows nothing of what such a mirror got before: it counts all that it had itself then.
    """

    version: int
    state: str
    master: str | None
    mirrors: tuple[str, ...]
    synced: tuple[str, ...]
    ring: tuple[str, ...]
    joining: tuple[str, ...] = ()
    recoverable: tuple[str, ...] = ()
    pending: int = 0
    sync: Mapping[str, SyncProgress] = field(default_factory=dict)
    lacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """The copy of a mirrored queue on this node.

    is_master: it acts as master.   next_seq: above the numbers of all messages that it knows of.
    behind: at a mirror messages that it lacks, None: it has not been told yet; at the master broadcasts that are not
        everywhere yet.   behind_s: at the master for how long the oldest of those has been on its way.
    memory_bytes: of a mirror's messages.
    """

    is_master: bool
    next_seq: int
    behind: int | None
    behind_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class RecoveredCopy:
    """A copy that was found on disk.

    copy: which one, see `stored_uid`.   next_seq: above the numbers of all its messages.
    is_clean: it has all that it ever had, as far as can be told.
    """

    storage: QueueStorage
    copy: int
    next_seq: int
    pages: Sequence[Page]
    is_clean: bool


class Mirroring(Protocol):
    """The mirrored queues of one broker."""

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""

    def entered(self, incarnation: int) -> None:
        """This broker counts as up from now on, as this incarnation."""

    def open(self, record: QueueRecord) -> "LiveQueue":
        """The live queue of a mirrored queue that the catalogue has; where it has a copy here, that begins."""

    def see(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        """A queue has another view, or has one now, or none any more.   cause: see `ViewChanged`."""

    def close(self, record: QueueRecord) -> None:
        """A queue was deleted: drop what is here of it. Its live queue is closed by the broker."""

    is_store_whole: bool
    """Whether this node's disk has all that it ever had of messages, as far as its start could tell."""

    def recovered(self, record: QueueRecord, copy: RecoveredCopy) -> None:
        """A copy that may bring its queue back was found on disk."""

    def receive(self, node: str, frames: Sequence[bytes]) -> None:
        """Take what a node's mirrors sent; a turn has to follow."""

    def nodes_changed(self) -> None:
        """Nodes came, went, or are in maintenance mode."""

    def settings_changed(self, record: QueueRecord) -> None:
        """A queue is new here, or its policy is another one."""

    def damaged(self, record: QueueRecord, reason: str) -> bool:
        """The copy of a queue here cannot be read, or lacks what it should have. May be told again.

        reason: for the log, as in "the copy here (reason)": "has unreadable messages".
        True: the copy will be given up: nothing of it is to be dropped, it goes as a whole, and the node gets another
            one. A master hands over first: until the queue leaves this node, what cannot be read stays in it.
        False: no better copy is there: what cannot be read is lost.
        """

    def turn(self, now: float) -> None:
        """The end of a turn: hand over what has gathered."""

    def sync(self, record: QueueRecord, *, is_on: bool) -> None:
        """Have the mirrors of a queue whose master is here synchronised, or have them stop it."""

    def status(self, record: QueueRecord) -> MirrorStatus:
        """What there is to see of a queue that has a view."""

    def replica(self, record: QueueRecord) -> ReplicaFacts | None:
        """The copy of a queue here; None: there is none."""

    def copies(self) -> "Iterable[Pageable]":
        """What pages out to free memory."""

    def leave(self) -> None:
        """This node is about to stop: masters move away, as far as there are mirrors to take over."""

    @property
    def moving(self) -> int:
        """How many masters here will still move."""

    def close_all(self) -> None:
        """This node stops."""
