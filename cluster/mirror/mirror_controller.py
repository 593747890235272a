"""Submits the proposals of a node's policy reconciler and queue recovery, and reports events of its mirrored queues.

catalogue ─► PolicyReconciler, QueueRecovery ─ proposals ─► catalogue            views ─► mirror_events ─► log
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cluster.mirror.mirror_events import (
    blocked,
    disk_stuck,
    evicted,
    given_up,
    is_speaker,
    kept_awaited,
    mirror_events,
    proposed,
    sync_begun,
    sync_ended,
    wanted_copies,
)
from cluster.mirror.policy_reconciler import PolicyReconciler, declined
from cluster.mirror.proposals import Proposal
from cluster.mirror.queue_recovery import QueueRecovery
from cluster.mirror.sync_source import batch_size
from node.catalogue.commands import ChangeView, Command, StartMirroring
from node.catalogue.mirrors.views import ViewChange
from node.catalogue.policy import QueueSettings
from node.catalogue.records import QueueRecord
from node.queue.mirroring import RecoveredCopy
from node.scheduling.timers import Timer

if TYPE_CHECKING:
    from node.broker.broker import Broker


class MirrorController:
    """The mirror controller of one broker, which counts as up.   is_acting: as in `PolicyReconciler`."""

    def __init__(self, broker: "Broker", incarnation: int, is_acting: Callable[[str], bool]) -> None:
        here = broker.settings.node_name
        self.reconciler = PolicyReconciler(here, is_acting)
        self.recovery = QueueRecovery(here, incarnation)
        self._broker = broker
        self._timer: Timer | None = None
        self._is_due = True
        self._submitted: set[tuple[str, ViewChange | None]] = set()
        catalogue = broker.catalogue
        self.reconciler.members_changed(catalogue.members.values())
        self.reconciler.disks_changed(broker.stuck_disks)
        for vhost in catalogue.vhosts():
            for record in catalogue.queues(vhost.name):
                self.reconciler.see(record, broker.queue_settings(record))

    # --- what happens ---

    def see(self, record: QueueRecord, settings: QueueSettings) -> None:
        """Take a queue that is new, or has another view or other settings."""
        self.reconciler.see(record, settings)
        self.recovery.see(record, self._broker.now)
        self.look_soon()

    def forget(self, uid: str) -> None:
        """Forget a queue that was deleted."""
        self.reconciler.forget(uid)
        self.recovery.forget(uid)

    def recovered(self, record: QueueRecord, found: RecoveredCopy) -> None:
        """Note a copy on disk that may bring a queue back."""
        now = self._broker.now
        is_clean = found.is_clean and not found.storage.unreadable  # which was found since it was recovered
        self.recovery.recovered(record, found.copy, found.next_seq, now, is_clean=is_clean)
        self.look_soon()

    def nodes_changed(self) -> None:
        """Note that nodes came, went, or are in maintenance mode."""
        self.reconciler.members_changed(self._broker.catalogue.members.values())
        self.look_soon()

    def disks_changed(self) -> None:
        """Note that message disks, here or of other nodes, are stuck or work again."""
        self.reconciler.disks_changed(self._broker.stuck_disks)
        self.look_soon()

    def healed(self, *nodes: str) -> None:
        """Note that links to or between these nodes are up again."""
        self.reconciler.healed(*nodes)
        self.look_soon()

    def took_over(self, record: QueueRecord) -> None:
        """Note that this node acts as master of a queue, and all members have all batches of the master before."""
        self.reconciler.heard_handover(record.uid)
        self.look_soon()

    def evict(self, record: QueueRecord, member: int, reason: str) -> None:
        """Remove a mirror that does not keep up."""
        now = self._broker.now
        if record.view is not None and (mirror := record.view.member(member)) is not None:
            self.reconciler.evict(record.uid, mirror, now)
            each = evicted(record, mirror, reason, self.reconciler.back_off_of(mirror.node, now))
            self._broker.observer.mirror_event(each)
        self.look_soon()

    def hand_over(self, record: QueueRecord, reason: str) -> None:
        """Move the master of a queue, which is here, to another node."""
        self.reconciler.hand_over(record.uid, reason)
        self.look_soon()

    def awaits_kept(self, record: QueueRecord, member: int, reason: str) -> bool:
        """True if copies that were not taken may have messages that the master here cannot read: see
        `PolicyReconciler`.
        """
        view = record.view
        assert view is not None
        was_waiting = self.reconciler.is_waiting(record.uid)
        is_waiting = self.reconciler.awaits_kept(record.uid, self._broker.now)
        if is_waiting and not was_waiting and (master := view.member(member)) is not None:
            nodes = [node for node, _ in view.kept]
            self._broker.observer.mirror_event(kept_awaited(record, master, reason, nodes))
        self.look_soon()
        return is_waiting

    @property
    def moving(self) -> int:
        """The number of masters of this node that are to move before it stops."""
        return self.reconciler.moving

    def leave(self) -> None:
        """Move masters away: this node is about to stop."""
        self.reconciler.stop()
        self.look_soon()

    # --- proposals ---

    def look_soon(self) -> None:
        """Look at queues at the end of the turn."""
        if not self._is_due:
            self._is_due = True
            self._broker.wake()

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return self._is_due

    def turn(self, now: float) -> None:
        """Submit the proposals that are wanted now."""
        if not self._is_due:
            return
        self._is_due = False
        for proposal in (*self.reconciler.look(now), *self.recovery.look(now)):
            if proposal.reason:
                self._broker.observer.mirror_event(proposed(proposal))
            self._submit(proposal)
        times = [self.reconciler.next_look(now), self.recovery.next_look(now)]
        due = min((time for time in times if time is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._broker.timers.at(due, self._look_now)

    def _submit(self, proposal: Proposal) -> None:
        """Submit a proposal, unless the same one is submitted already and has no answer."""
        key = proposal.uid, proposal.change
        if key not in self._submitted:
            self._submitted.add(key)
            # A view shows the outcome.
            self._broker.log.submit(_command(proposal), lambda _: self._submitted.discard(key))

    def _look_now(self, now: float) -> None:
        self._timer = None
        self.look_soon()

    # --- reports ---

    def tell(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        """Report the events of a queue's changed view.   cause: see `ViewChanged`."""
        broker = self._broker
        members = broker.catalogue.members
        up = [name for name, member in members.items() if member.is_up]
        if (heir := declined(before.view, after.view, broker.settings.node_name)) is not None:
            self.reconciler.shun(heir, broker.now)
        if not is_speaker(before.view, after.view, broker.settings.node_name, up):
            return
        wanted = wanted_copies(after, broker.queue_settings(after), members.values())
        for each in mirror_events(before, after, wanted):
            broker.observer.mirror_event(replace(each, cause=cause) if cause else each)

    def tell_sync_begun(self, record: QueueRecord, member: int, messages: int) -> None:
        """Report that a mirror begins to get the messages that it lacks."""
        mirror = record.view.member(member) if record.view is not None else None
        if mirror is not None:
            size = batch_size(self._broker.queue_settings(record).ha_sync_batch_size)
            for each in sync_begun(record, messages, size, mirror.node):
                self._broker.observer.mirror_event(each)

    def tell_sync_ended(self, record: QueueRecord, *, is_whole: bool) -> None:
        """Report that a mirror has all messages, or wants no more."""
        each = sync_ended(record, "complete" if is_whole else "cancelled")
        self._broker.observer.mirror_event(each)

    def tell_defect(self, record: QueueRecord, member: int, reason: str) -> None:
        """Report that the copy of this node is of no use."""
        if record.view is not None and (mirror := record.view.member(member)) is not None:
            self._broker.observer.mirror_event(given_up(record, mirror, reason))

    def tell_disk(self, record: QueueRecord, member: int, reason: str) -> None:
        """Report that the disk of the master, which is here, makes no progress."""
        if record.view is not None and (master := record.view.member(member)) is not None:
            self._broker.observer.mirror_event(disk_stuck(record, master, reason))

    def tell_slow(self, record: QueueRecord, member: int, reason: str) -> None:
        """Report that publishers wait for a mirror that does not keep up."""
        if record.view is not None and (mirror := record.view.member(member)) is not None:
            each = blocked(record, mirror, reason)
            self._broker.observer.mirror_event(each)


class NoMirrorController:
    """Stands in for the mirror controller until this broker counts as up: a node that is not up proposes and reports
    nothing.
    """

    has_work: Final = False
    moving: Final = 0

    def see(self, record: QueueRecord, settings: QueueSettings) -> None:
        """Do nothing: the mirror controller reads all queues from the catalogue when it begins."""

    def forget(self, uid: str) -> None:
        """Do nothing: no queue is known."""

    def nodes_changed(self) -> None:
        """Do nothing: the mirror controller reads all members from the catalogue when it begins."""

    def disks_changed(self) -> None:
        """Do nothing: the mirror controller asks the broker for stuck disks when it begins."""

    def healed(self, *nodes: str) -> None:
        """Do nothing: no mirror has a back-off."""

    def took_over(self, record: QueueRecord) -> None:
        """Do nothing: no handover is awaited."""

    def tell(self, before: QueueRecord, after: QueueRecord, cause: str = "") -> None:
        """Do nothing: a node that is up reports this view."""

    def tell_sync_begun(self, record: QueueRecord, member: int, messages: int) -> None:
        """Do nothing: no master here synchronises a mirror."""

    def tell_sync_ended(self, record: QueueRecord, *, is_whole: bool) -> None:
        """Do nothing: no master here synchronises a mirror."""

    def turn(self, now: float) -> None:
        """Do nothing: nothing is proposed."""

    def leave(self) -> None:
        """Do nothing: there are no masters to hand over."""


def _command(proposal: Proposal) -> Command[Any]:
    if proposal.change is None:
        return StartMirroring(proposal.vhost, proposal.name, proposal.uid)
    return ChangeView(proposal.vhost, proposal.name, proposal.uid, proposal.change)
