"""Mirrored queues without a ring: a `Mirroring` and its `Mirror`s whose copies are one memory that all nodes share.

What a master does is in its own memory until `Cluster.settle` (or `Mirrors.replicate`) moves it over, so that a crash
before that loses it; unless `Cluster.is_ring_held`. Views are those of the catalogue.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cluster.remote.masterless_queue import MasterlessQueue
from node.broker.unsettled import unsettled
from node.catalogue.commands import ChangeView
from node.catalogue.mirrors.views import (
    ActivateMirror,
    AddMirror,
    EraseMirror,
    MirrorSynced,
    OfferCopy,
    TookOver,
    ViewChange,
)
from node.catalogue.records import QueueRecord
from node.queue.live_queue import HeldPublisher, LiveQueue
from node.queue.mirroring import MirrorStatus, RecoveredCopy
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from node.queue.storage import Waiter

if TYPE_CHECKING:
    from tests.kit.cluster import Node


class Replica:
    """The content of a queue on all its mirrors.   holder: the node and incarnation that acts as the master."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[Envelope, bytes, int]] = {}
        self.next_seq = 1
        self.senders: dict[int, int] = {}
        self.holder: tuple[str, int] | None = None


class Mirror:
    """The operations of a master for the replica, and the callbacks that wait for them."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.is_congested = False
        self.senders = dict(replica.senders)
        self._operations: list[Callable[[], None]] = []
        self._waiting: list[tuple[Waiter, int, int, bool]] = []
        self._awaiting: list[HeldPublisher] = []

    def await_relief(self, publisher: HeldPublisher) -> None:
        self._awaiting.append(publisher)

    def relieve(self) -> None:
        self.is_congested = False
        awaiting, self._awaiting = self._awaiting, []
        for publisher in awaiting:
            publisher.peer_relieved()

    def enqueued(self, batch: Batch, first_seq: int, expiry: float) -> None:
        envelope, size, kept = batch.envelope, batch.size, list(batch.contents)

        def apply() -> None:
            for seq, content in enumerate(kept, first_seq):
                self.replica.messages[seq] = envelope, content, size
            self.replica.next_seq = first_seq + len(kept)

        self._operations.append(apply)

    def removed(self, seqs: range) -> None:
        self._operations.append(lambda: [self.replica.messages.pop(seq, None) for seq in seqs] and None)

    def returned(self, seqs: range, deliveries: int) -> None:
        """Ignore returned messages, which are not counted here."""

    def await_stable(self, waiter: Waiter, first: int, last: int, *, is_kept: bool) -> None:
        self._waiting.append((waiter, first, last, is_kept))

    def received(self, sender: int, number: int) -> None:
        assert number > self.senders.get(sender, 0)
        self.senders[sender] = number
        self._operations.append(lambda: self.replica.senders.__setitem__(sender, number))

    def last_received(self, sender: int) -> int:
        return self.senders.get(sender, 0)

    def replicate(self, *, is_safe: bool = True) -> bool:
        """Apply all operations on all copies. Returns: whether there were any."""
        operations, self._operations = self._operations, []
        for apply in operations:
            apply()
        waiting, self._waiting = self._waiting, []
        for waiter, first, last, _ in waiting:
            waiter.settle(first, last, is_safe)
        return bool(operations or waiting)

    @property
    def kept(self) -> list[bool]:
        """Return for each waiter whether it also waits for disks."""
        return [is_kept for *_, is_kept in self._waiting]


class Mirrors:
    """The mirrored queues of one node. It proposes changes that no node has to decide."""

    has_work = False
    moving = 0

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.leading: dict[str, tuple[Queue, Mirror]] = {}
        self._records: dict[str, QueueRecord] = {}
        self._kinds: dict[str, tuple[Any, ...]] = {}
        self._proposed: set[tuple[str, int, ViewChange]] = set()

    # --- what the catalogue says ---

    def open(self, record: QueueRecord) -> LiveQueue:
        self._records[record.uid] = record
        self._kinds[record.uid] = kind = self._kind(record)
        return self._live(record, kind)

    def see(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        assert after.view is not None, "the stub can't do that"
        self._records[after.uid] = after
        if before.view is None:
            self._kinds[after.uid] = self._kind(after)
            queue = self.node.broker.vhosts[after.vhost].queues[after.name]
            if isinstance(queue, Queue):
                self._lead(after, queue)
        else:
            self._refresh(after)
        self.node.broker.vhosts[after.vhost].queues[after.name].record = after
        self._propose(after)

    def close(self, record: QueueRecord) -> None:
        self._records.pop(record.uid, None)
        self._kinds.pop(record.uid, None)
        led = self.leading.pop(record.uid, None)
        if led is not None:
            led[1].replicate()

    def nodes_changed(self) -> None:
        self.refresh()

    def refresh(self) -> bool:
        """A master may begin when the one before it has said all; whether one did."""
        before = dict(self._kinds)
        for record in list(self._records.values()):
            self._refresh(record)
            self._propose(record)
        return self._kinds != before

    def replicate(self) -> bool:
        return sum(mirror.replicate() for _, mirror in list(self.leading.values())) > 0

    def _replica(self, record: QueueRecord) -> Replica:
        return self.node.cluster.replicas.setdefault(record.uid, Replica())

    def _kind(self, record: QueueRecord) -> tuple[Any, ...]:
        view = record.view
        assert view is not None
        master = view.member(view.master)
        if view.state != "live" or master is None:
            return "nowhere", view.state
        if master.node != self.node.name:
            return "there", record.mastership, master.incarnation
        own = self.node.broker.catalogue.member(self.node.name)
        holder = self._replica(record).holder
        is_free = holder in (None, (self.node.name, master.incarnation)) or not self.node.cluster.is_up(
            *holder
        )
        if own is not None and own.is_up and own.incarnation == master.incarnation and is_free:
            return "here", record.mastership
        return "nowhere", view.state

    def _live(self, record: QueueRecord, kind: tuple[Any, ...]) -> LiveQueue:
        broker = self.node.broker
        if kind[0] == "nowhere":
            return MasterlessQueue(record, broker.queue_settings(record), broker)
        if kind[0] == "there":
            return self.node.peers.open(record, broker.queue_settings(record))
        replica = self._replica(record)
        queue = broker.make_queue(record, broker.storage.open(record))
        queue.next_seq = replica.next_seq
        for seq, (envelope, content, size) in sorted(replica.messages.items(), reverse=True):
            queue.backlog.put_back(Run(envelope, range(seq, seq + 1), [content], size, deliveries=1))
        self._lead(record, queue)
        broker.touch(queue)
        return queue

    def _lead(self, record: QueueRecord, queue: Queue) -> None:
        assert record.view is not None
        replica = self._replica(record)
        master = record.view.member(record.view.master)
        assert master is not None
        replica.holder = self.node.name, master.incarnation
        mirror = Mirror(replica)
        queue.replicator = mirror
        self.leading[record.uid] = queue, mirror

    def _refresh(self, record: QueueRecord) -> None:
        kind = self._kind(record)
        if kind == self._kinds[record.uid]:
            return
        self._kinds[record.uid] = kind
        led = self.leading.pop(record.uid, None)
        if led is not None:
            queue, mirror = led
            mirror.replicate()
            mirror.relieve()
            loose = unsettled(self.node.broker, queue, take=True)
            assert sum(map(len, loose)) + queue.backlog.count == len(mirror.replica.messages)
        self.node.broker.replace(record, self._live(record, kind))
        if led is not None:
            led[0].retire()
            mirror.replica.holder = None

    def _propose(self, record: QueueRecord) -> None:
        view = record.view
        assert view is not None
        name, own = self.node.name, view.member_on(self.node.name)
        member = self.node.broker.catalogue.member(name)
        assert member is not None
        changes: list[ViewChange] = []
        if view.state == "down":
            if member.is_up and name in view.recoverable:
                changes.append(OfferCopy(name, member.incarnation, self._replica(record).next_seq))
        elif own is not None:
            dead = [each.id for each in view.members if each.status == "dead"]
            changes += [EraseMirror(id_, own.id) for id_ in dead if view.owner_of(id_) == own.id]
            if view.previous and own.id == view.master and record.uid in self.leading:
                changes.append(TookOver(view.since))
            if own.status == "joining":
                changes.append(ActivateMirror(own.id))
            elif own.id not in view.synced and self._replica(record).holder is not None:
                changes.append(MirrorSynced(own.id))
            if self.node.cluster.is_refilled and record.uid in self.leading:
                members = self.node.broker.catalogue.members.values()
                newcomers = [each for each in members if each.is_up and view.member_on(each.name) is None]
                changes += [AddMirror(each.name, each.incarnation) for each in newcomers]
        for change in changes:
            if (
                record.uid,
                view.version,
                change,
            ) not in self._proposed and not self.node.cluster.is_ring_held:
                self._proposed.add((record.uid, view.version, change))
                self.node.broker.log.submit(ChangeView(record.vhost, record.name, record.uid, change))

    # --- of no matter here ---

    is_store_whole = True

    def recovered(self, record: QueueRecord, copy: RecoveredCopy) -> None: ...

    def receive(self, node: str, frames: Sequence[bytes]) -> None: ...

    def relieved(self, node: str) -> None: ...

    def settings_changed(self, record: QueueRecord) -> None: ...

    def turn(self, now: float) -> None: ...

    def sync(self, record: QueueRecord) -> bool:
        return False

    def cancel_sync(self, record: QueueRecord) -> bool:
        return False

    def status(self, record: QueueRecord) -> MirrorStatus:
        raise NotImplementedError

    def copies(self) -> Iterable[object]:
        return ()

    def close_all(self) -> None: ...
