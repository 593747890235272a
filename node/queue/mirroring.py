"""The protocols by which a broker and its queues use the mirrors of queues (`cluster.mirror`).

    Queue ── enqueued, removed, await_stable ─► QueueReplicator: of one queue, on its master's node
    Broker ── see, open, turn ─► Mirroring: of all mirrored queues that this node knows

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


class QueueReplicator(Protocol):
    """The copies of one queue on other nodes, as its master uses them."""

    @property
    def is_congested(self) -> bool:
        """True if so much is on its way to the copies that publishers should hold on."""

    def await_relief(self, publisher: "HeldPublisher") -> None:
        """Call `publisher.peer_relieved()` once the congestion is over, or the queue has moved."""

    def enqueued(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Note messages that came into the queue, with numbers from `first_seq` on.   expiry: as in `Run`."""

    def removed(self, seqs: range) -> None:
        """Note messages that have left the queue and will not come back.   seqs: of any step."""

    def returned(self, seqs: range, deliveries: int) -> None:
        """Note that messages came back from clients, and how often by now; only for queues with a delivery limit
        (§4.11).
        """

    def await_stable(self, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        """Settle (first, last) when all that came into the queue so far is on every node that has a copy.

        is_kept: it must also be on the disk of each synchronised copy.
        """

    def received(self, sender: int, number: int) -> None:
        """Note the number of the publish that came last, and the incarnation of its front end."""

    def last_received(self, sender: int) -> int:
        """Return the number of a front end's last publish, here or at an earlier master; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """The progress of a mirror that synchronises.   installed, total: messages that it has got, and those that it
    lacked.
    """

    installed: int
    total: int
    is_running: bool


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """A mirrored queue as this node sees it. Members are named by their node, in order of the ring.

    master: None: there is none now.   pending: broadcasts of this node that have not come round.
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
    behind: at a mirror the messages that it lacks, None: it has no inventory yet; at the master the broadcasts that
        have not come round.   behind_s: at the master the age of the oldest of these.
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
        """True if `turn` has something to do."""

    def entered(self, incarnation: int) -> None:
        """Begin: this broker counts as up from now on, as this incarnation."""

    def open(self, record: QueueRecord) -> "LiveQueue":
        """Open the live queue of a mirrored queue that the catalogue has, and its copy if this node has one."""

    def see(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        """Follow a queue to another view, to its first one, or to none.   cause: see `ViewChanged`."""

    def close(self, record: QueueRecord) -> None:
        """Drop the copy of a queue that was deleted. The broker closes its live queue."""

    is_store_whole: bool
    """True if this node's disk has lost no messages, as far as its start could tell."""

    def recovered(self, record: QueueRecord, copy: RecoveredCopy) -> None:
        """Take a copy that was found on disk and may bring its queue back."""

    def receive(self, node: str, frames: Sequence[bytes]) -> None:
        """Take the frames of a node's mirrors; a turn has to follow."""

    def nodes_changed(self) -> None:
        """Note that nodes came, went, or are in maintenance mode."""

    def settings_changed(self, record: QueueRecord) -> None:
        """Note that a queue is new here, or its policy has changed."""

    def damaged(self, record: QueueRecord, reason: str) -> bool:
        """Give up the copy of a queue here that cannot be read, or lacks messages, if a better one may exist. May be
        called again.

        reason: for the log, as in "the copy here (reason)": "has unreadable messages".
        Returns: True: the copy will be given up as a whole, so none of its messages may be dropped, and the node gets
        another copy. A master hands over first: until the queue leaves this node, its unreadable messages stay in it.
        False: there is no better copy, so the unreadable messages are lost.
        """

    def turn(self, now: float) -> None:
        """End a turn: hand over what has gathered."""

    def sync(self, record: QueueRecord, *, is_on: bool) -> None:
        """Have the mirrors of a queue whose master is here synchronise, or stop it."""

    def status(self, record: QueueRecord) -> MirrorStatus:
        """Return the state of a queue that has a view."""

    def replica(self, record: QueueRecord) -> ReplicaFacts | None:
        """Return the facts of this node's copy of a queue; None: there is none."""

    def copies(self) -> "Iterable[Pageable]":
        """Return all mirrors' copies here, which can be paged out."""

    def leave(self) -> None:
        """Move masters away where mirrors can take over: this node is about to stop."""

    @property
    def moving(self) -> int:
        """The number of masters here that will still move."""

    def close_all(self) -> None:
        """Stop."""
