"""A mirror's side of a queue: repeats the master's changes in its copy, and reports how far it and its disk are.

    ring ─ payload ─► Batch ─► Copy           its own disk ─ settle ─► how far it is, for the durable mark
    Inventory ─► the messages that are missing ─ removed, or fetched by a synchronisation ─► nothing: synchronised

Source: reliability §4.4, §4.5.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from cluster.mirror.batch import Batch, Clock, Handover, Inventory, SenderGone, SyncMode, decode_batch
from cluster.mirror.copy import Copy
from node.queue.operations import Delivered, Enqueue, Remove
from node.queue.storage import Storage


class FollowerHost(Protocol):
    """The part of a replica that its follower uses."""

    id: int

    @property
    def now(self) -> float:
        """The broker's clock in seconds."""

    def on_disk(self, origin: int, upto: int) -> None:
        """Note that this node's disk has what it must of a member's broadcasts up to this number."""

    def handed_over(self, version: int) -> None:
        """Note that the master that hands over in that view has sent its last batch."""

    def count_disk(self, *, is_on: bool) -> None:
        """Make marks wait for this disk, or not any more, as it keeps nothing."""

    def is_complete(self) -> None:
        """Note that the copy lacks nothing, and all of it is on disk, or waited for by marks."""

    def sync_mode(self, *, is_on: bool) -> None:
        """Note that an operator wants this mirror synchronised, or not any more."""

    def inventory_known(self) -> None:
        """Note that it is known what this copy lacks."""


class Follower:
    """A mirror's copy and its state.

    copy: the messages here.   senders: the last publish of each front end that the queue got.
    has_inventory: the master's inventory has come, so `copy.missing` is known; earlier operations are ignored.
    is_written: nothing of the copy is on its way to the disk: else no mark passes before that is there.
    is_disk_awaited: confirms wait for the disks of mirrors: `ha-confirm` is not `master`.
    """

    def __init__(
        self,
        host: FollowerHost,
        copy: Copy,
        storage: Storage,
        *,
        has_inventory: bool,
        is_written: bool = True,
    ) -> None:
        self.copy = copy
        self.senders: dict[int, int] = {}
        self.has_inventory = has_inventory
        self.is_disk_awaited = True
        self._host = host
        self._storage = storage
        self._is_durable = copy.is_durable
        self._was_kept = self._is_durable and not is_written
        self._asked: deque[tuple[int, int, int]] = deque()
        """Broadcasts that wait for the disk: number of the wait, the member that sent them, and the last one."""
        self._waits = 0
        self._is_broken = False
        self._is_finishing = False
        """True if the copy lacks nothing and waits for its disk."""

    # --- what the ring brings ---

    def deliver(self, origin: int, first: int, payloads: Sequence[bytes]) -> bool:
        """Repeat the master's changes. Raises: Malformed.

        Returns: True if the disk has to have something of them, and confirms wait for that.
        """
        for payload in payloads:
            if payload:  # it is empty where its sender was alone
                self._apply(decode_batch(payload))
        awaits_disk = self._was_kept and self.is_disk_awaited
        self._report(origin, first + len(payloads) - 1)
        self.check_complete()
        return awaits_disk

    def _apply(self, batch: Batch) -> None:
        copy = self.copy
        if batch.steps and isinstance(clock := batch.steps[0], Clock):
            copy.hear_clock(clock.at_ms, self._host.now)
        if not self.has_inventory:
            # These operations are older than this member's copy, unless the batch has its inventory.
            steps = batch.steps
            at = next(
                (at for at, step in enumerate(steps) if isinstance(step, Inventory) and self._is_meant(step)),
                None,
            )
            if at is None:
                self._watch(batch)
                return
            batch.steps = steps[at:]
        self.senders.update(batch.senders)
        for step in batch.steps:
            match step:
                case Enqueue():
                    copy.enqueue(step)
                    self._was_kept = self._was_kept or (self._is_durable and step.envelope.persistent)
                case Remove(ranges):
                    copy.remove(ranges)
                case Delivered(ranges, count):
                    copy.delivered(ranges, count)
                case Inventory() if self._is_meant(step):
                    self._take_inventory(step, batch.next_seq)
                case Inventory():
                    pass
                case Handover(version):
                    self._host.handed_over(version)
                case SyncMode(is_on):
                    self._host.sync_mode(is_on=is_on)
                case SenderGone(sender):
                    self.senders.pop(sender, None)
        copy.next_seq = max(copy.next_seq, batch.next_seq)

    def _watch(self, batch: Batch) -> None:
        """Take the steps that concern a member that knows nothing yet."""
        for step in batch.steps:
            if isinstance(step, Handover):
                self._host.handed_over(step.version)
            elif isinstance(step, SyncMode):
                self._host.sync_mode(is_on=step.is_on)

    def _is_meant(self, inventory: Inventory) -> bool:
        return inventory.member == self._host.id

    def _take_inventory(self, inventory: Inventory, next_seq: int) -> None:
        self.copy.take_inventory(inventory.ids, next_seq)
        self.senders = dict(inventory.senders)
        self.has_inventory = True
        self._host.inventory_known()

    # --- the disk ---

    def _report(self, origin: int, upto: int) -> None:
        """Report the broadcasts as on disk, now or when they are."""
        if not self._was_kept and not self._asked:
            self._host.on_disk(origin, upto)
            return
        self._was_kept = False
        self._waits += 1
        self._asked.append((self._waits, origin, upto))
        self._storage.await_safety(self, self._waits, self._waits)

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """End waits for the disk: report these broadcasts as on disk, or the disk as broken."""
        if not is_safe:
            self._is_broken = True
            self._host.count_disk(is_on=False)
            return
        asked = self._asked
        while asked and asked[0][0] <= last:
            _, origin, upto = asked.popleft()
            self._host.on_disk(origin, upto)

    def check_complete(self) -> None:
        """If the copy lacks nothing, report so once all of it is on disk."""
        if (
            self._is_finishing
            or self._is_broken
            or not self.has_inventory
            or self.copy.missing is None
            or len(self.copy.missing)
        ):
            return
        self._is_finishing = True
        if self._is_durable:  # a disk that hangs, as one may see now, is never to hold up marks
            self._storage.await_safety(_Finish(self._written), 0, 0)
        else:
            self._host.count_disk(is_on=True)
            self._finished(is_safe=True)

    def _written(self, *, is_safe: bool) -> None:
        """Make marks wait for this disk, which works."""
        if not is_safe or self._is_broken or self.copy.missing:
            self._finished(is_safe=is_safe)
            return
        # Broadcasts whose marks passed this disk before came before, and are on it when this wait is over.
        self._host.count_disk(is_on=True)
        self._storage.await_safety(_Finish(self._finished), 0, 0)

    def _finished(self, *, is_safe: bool) -> None:
        self._is_finishing = False
        if not is_safe:
            self._is_broken = True
            self._host.count_disk(is_on=False)
        if is_safe and not self._is_broken and self.copy.missing is not None and not len(self.copy.missing):
            self.copy.missing = None
            self._host.is_complete()


class _Finish:
    """A waiter for the disk that passes the outcome to a callback."""

    def __init__(self, on_settled: Callable[..., None]) -> None:
        self._on_settled = on_settled

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        """Pass on whether the disk is safe."""
        self._on_settled(is_safe=is_safe)
