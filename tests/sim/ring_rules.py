"""Rules of rings, views, masters and mirrors, taken away one at a time: `ring_stories` and `test_rings` must notice.

Each is put on the product's own classes. Those that `tests/cluster/gm_ring/test_any_order.py` and `mirror_bugs` put
back are not repeated here. Source: reliability §4.12, §4.13, §5.2 (mutation audit).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import NOTHING, Item
from cluster.gm_ring.origin import Origin
from cluster.mirror.batch import Batch, Inventory
from cluster.mirror.copy import Copy
from cluster.mirror.follower import Follower, _Finish
from cluster.mirror.replica import Replica
from cluster.mirror.replicator import Replicator
from cluster.mirror.sync_target import Spare
from cluster.remote.proxy import Proxy
from cluster.transport import stream
from cluster.transport.peer_pb2 import Batch as StreamBatch
from node.broker.handoff import last_received
from node.catalogue.mirrors import promotion, views
from node.catalogue.mirrors.mirrored_queues import MirroredQueues
from node.catalogue.mirrors.views import EraseMirror, RingMember, TookOver, View, ViewChange, is_there
from node.queue.number_set import NumberSet
from node.queue.operations import Enqueue
from node.queue.queue import Queue
from tests.sim.audit import put_back

Patch = pytest.MonkeyPatch


def _patch_died(patch: Patch, died: Callable[..., View]) -> None:
    """In all modules that have it by its name."""
    for module in (
        "node.catalogue.mirrors.views",
        "node.catalogue.mirrors.mirrored_queues",
        "tests.kit.ring",
    ):
        patch.setattr(f"{module}.died", died)


# --- the ring ---


def _mark_without_disk(patch: Patch) -> None:
    """A synchronised member passes on marks without looking at its own disk."""

    def raise_mark(self: Member, known: Origin) -> None:
        mark = known.disk if known is self._own else known.left_mark
        if mark > known.mark:
            known.mark = mark
            self._tell(known, is_urgent=True)

    patch.setattr(Member, "_raise_mark", raise_mark)


def _erase_early(patch: Patch) -> None:
    """A dead one is erased when its payloads have come round, before the acknowledgements have."""

    def erase_finished(self: Member) -> None:
        for known in list(self.origins.values()):
            is_due = known.is_dead and known.is_mine and known.acked >= known.last
            if is_due and known.id not in self._proposed:
                self._proposed[known.id] = change = EraseMirror(known.id, self.id)
                self._host.propose(change)

    patch.setattr(Member, "_erase_finished", erase_finished)


def _by_origin(patch: Patch) -> None:
    """A catch-up has what is pending by origin, not in the order in which it came."""

    def pending(self: Member) -> Iterator[Item]:
        for known in sorted(self.origins.values(), key=lambda known: known.id):
            if known.pending and not known.is_rights:
                yield Item(known.id, known.last, list(known.pending), NOTHING, NOTHING)

    patch.setattr(Member, "_pending_in_order", pending)


def _begins_silently(patch: Patch) -> None:
    """A member that begins late tells a right neighbour nothing that has waited for it since a view before."""
    whole = Member.__init__

    def init(self: Member, id_: int, view: View, host: Any) -> None:
        whole(self, id_, view, host)
        self._forget_gathered()

    patch.setattr(Member, "__init__", init)


def _late_and_alone(patch: Patch) -> None:
    """A member that begins late and alone does not answer for the dead."""

    def retry(self: Member) -> None:
        if self.is_active and not self.is_lost:
            for change in list(self._proposed.values()):
                self._host.propose(change)

    patch.setattr(Member, "retry", retry)


def _hear_the_dead(patch: Patch) -> None:
    """A message of an incarnation that ended is taken."""
    whole = stream.Receiver.receive

    def receive(self: stream.Receiver, message: bytes) -> Any:
        batch = StreamBatch.FromString(message)
        batch.from_incarnation, batch.to_incarnation = self.peer, self.own
        return whole(self, batch.SerializeToString())

    patch.setattr(stream.Receiver, "opens", lambda self, message: True)
    patch.setattr(stream.Receiver, "receive", receive)


# --- views ---


def _promote_at_once(patch: Patch) -> None:
    """A master is promoted before all the dead are erased."""
    whole = views.died

    def died(view: View, ids: Iterable[int], *, may_lose: bool) -> View:
        after = whole(view, ids, may_lose=may_lose)
        return promotion.promoted(after) if after.state == "flushing" else after

    _patch_died(patch, died)


def _keep_joining(patch: Patch) -> None:
    """A member that is joining stays when another one dies (S2)."""
    whole = views.died

    def died(view: View, ids: Iterable[int], *, may_lose: bool) -> View:
        dead = list(ids)
        after = whole(view, dead, may_lose=may_lose)
        if after.state == "down":
            return after
        known = {member.id: member for member in after.members}
        kept: list[RingMember] = []
        for member in view.members:
            if member.status == "joining":
                kept.append(replace(member, status="dead") if member.id in dead else member)
            else:
                kept.append(replace(known[member.id], edge=member.edge))
        changed = replace(after, version=view.version, members=view.members)
        return views._linked(changed, tuple(kept))

    _patch_died(patch, died)


def _joiner_owns(patch: Patch) -> None:
    """A member that is joining may answer for a dead one."""

    def owner_of(self: View, id_: int) -> int:
        ids = [member.id for member in self.members]
        at = ids.index(id_)
        return next((each.id for each in (*self.members[at:], *self.members[:at]) if is_there(each)), 0)

    patch.setattr(View, "owner_of", owner_of)


def _promote_anybody(patch: Patch) -> None:
    """The first one alive is promoted, synchronised or not."""

    def promoted(view: View) -> View:
        master = next(member.id for member in view.members if member.status == "alive")
        alive = tuple(member.id for member in view.members if member.id in view.synced)
        synced = alive if master in alive else (*alive, master)
        return replace(
            view, master=master, synced=synced, state="live", since=view.version, recoverable=(), copies=()
        )

    patch.setattr(promotion, "promoted", promoted)


def _ghosts(patch: Patch) -> None:
    """A member may be added on an incarnation that is no more (S1)."""
    patch.setattr(MirroredQueues, "_is_of_now", lambda self, change: True)


def _transfer_to_the_dead(patch: Patch) -> None:
    """A master may hand over to one that has died and is still counted as synchronised."""

    def transfer(view: View, master: int, to: int) -> View | None:
        is_possible = view.master == master and view.state == "live" and not view.previous
        if not is_possible or to == master or to not in view.synced:
            return None
        version = view.version + 1
        return replace(view, version=version, master=to, previous=master, handover=version, since=version)

    patch.setattr(views, "_transfer", transfer)


def _newcomer_before_owner(patch: Patch) -> None:
    """A newcomer may come to stand between a dead one and its owner."""

    def add(view: View, node: str, incarnation: int) -> View | None:
        if view.state != "live" or view.previous or view.member_on(node) is not None:
            return None
        version = view.version + 1
        newcomer = RingMember(version, node, incarnation, "joining", version, version)
        ids = [member.id for member in view.members]
        at = ids.index(view.master) or len(ids)
        return views._linked(view, (*view.members[:at], newcomer, *view.members[at:]))

    patch.setattr(views, "_add", add)


def _drop_while_flushing(patch: Patch) -> None:
    """A mirror may be dropped while there is no master."""

    def drop(view: View, id_: int, version: int) -> View | None:
        member = view.member(id_)
        if member is None or not is_there(member) or id_ == view.master:
            return None
        return views.died(view, (id_,), may_lose=False)

    patch.setattr(views, "_drop", drop)


def _waits_for_itself(patch: Patch) -> None:
    """A master that handed over and is promoted again waits for its own last word."""
    whole = promotion.promoted

    def promoted(view: View) -> View:
        after = whole(view)
        if after.state == "down":
            return after
        return replace(after, previous=view.previous, handover=view.handover)

    patch.setattr(promotion, "promoted", promoted)


def _took_over_late(patch: Patch) -> None:
    """A master is believed to have taken over even if it said so in an earlier mastership."""
    whole = views.changed
    masters: dict[int, int] = {}

    def changed(view: View, change: ViewChange) -> View | None:
        masters[view.since] = view.master
        if isinstance(change, TookOver) and masters.get(change.since) == view.master:
            change = TookOver(view.since)
        return whole(view, change)

    patch.setattr("node.catalogue.mirrors.mirrored_queues.changed", changed)


def _confirm_unsettled(patch: Patch) -> None:
    """The master confirms while a dead mirror counts as having all that was confirmed."""
    patch.setattr(View, "is_settled", property(lambda self: True))


def _confirm_flushing(patch: Patch) -> None:
    """A former master confirms while the queue has none."""

    def is_settled(self: View) -> bool:
        return all(is_there(member) or member.id not in self.synced for member in self.members)

    patch.setattr(View, "is_settled", property(is_settled))


def _copy_dropped(patch: Patch) -> None:
    """A node drops its copy though the queue may have to be brought back from it."""

    def copy_to_keep(self: View, node: str) -> int | None:
        is_needed = self.state == "down" and node in self.recoverable
        return self.copies[self.recoverable.index(node)] if is_needed else None

    patch.setattr(View, "copy_to_keep", copy_to_keep)


# --- who acts as master ---


def _no_new_inventory(patch: Patch) -> None:
    """A new master does not tell those who are not synchronised what there is."""
    whole = Replicator.begin

    def begin(self: Replicator) -> None:
        whole(self)
        replica: Any = self._host
        replica.told_from.update((member.id, self.next_seq) for member in replica.view.ring)

    patch.setattr(Replicator, "begin", begin)


def _took_over_early(patch: Patch) -> None:
    """A master has taken over as soon as it has begun, when others may still lack what the former one said."""
    whole = Replica._lead

    def lead(self: Replica, queue: Queue, live: NumberSet, senders: Mapping[int, int]) -> None:
        whole(self, queue, live, senders)
        if self.view.previous:
            self._mirrors.took_over(self)

    patch.setattr(Replica, "_lead", lead)


def _note_late(patch: Patch) -> list[Replica]:
    """Return a list that gets each replica that leads though the view has gone on meanwhile."""
    late: list[Replica] = []
    whole = Replica._lead

    def lead(self: Replica, queue: Queue, live: NumberSet, senders: Mapping[int, int]) -> None:
        whole(self, queue, live, senders)
        if not self.is_master or queue.mastership != self.record.mastership:
            late.append(self)

    patch.setattr(Replica, "_lead", lead)
    return late


def _no_word_unbegun(patch: Patch) -> None:
    """A master that is another one before it has begun says no last word."""
    late = _note_late(patch)
    whole = Replica._step_down

    def step_down(self: Replica) -> None:
        with Patch.context() as inner:
            if self in late:
                late.remove(self)
                inner.setattr(Replicator, "hand_over", lambda self, version: self.flush())
            whole(self)

    patch.setattr(Replica, "_step_down", step_down)


def _not_taken_up_again(patch: Patch) -> None:
    """A master that hands over before it has begun does not look whether it is master again."""
    late = _note_late(patch)
    whole = Replica.take_up

    def take_up(self: Replica) -> None:
        if self in late:
            late.remove(self)
        else:
            whole(self)

    patch.setattr(Replica, "take_up", take_up)


def _lossy_table(patch: Patch) -> None:
    """A member that is promoted and lacks messages still believes what it was told of publishes."""
    whole_take_up, whole_lead = Replica.take_up, Replica._lead
    told: dict[int, dict[int, int]] = {}

    def take_up(self: Replica) -> None:
        if self.follower is not None:
            told[self.id] = self.follower.senders
        whole_take_up(self)

    def lead(self: Replica, queue: Queue, live: NumberSet, senders: Mapping[int, int]) -> None:
        whole_lead(self, queue, live, told.get(self.id, senders))

    patch.setattr(Replica, "take_up", take_up)
    patch.setattr(Replica, "_lead", lead)


def _duplicate_at_once(patch: Patch) -> None:
    """A publish that has come in before is answered at once."""
    whole_take, whole_wait = Proxy._take, Proxy._wait
    duplicates: set[tuple[Proxy, int]] = set()

    def take(self: Proxy, entry: Enqueue, *, is_again: bool) -> Collection[int]:
        if entry.first_seq <= last_received(self.queue, self.sender):
            duplicates.add((self, entry.first_seq))
        return whole_take(self, entry, is_again=is_again)

    def wait(self: Proxy, number: int, *, is_kept: bool) -> None:
        if (self, number) in duplicates:
            self._answer(number, number)
        else:
            whole_wait(self, number, is_kept=is_kept)

    patch.setattr(Proxy, "_take", take)
    patch.setattr(Proxy, "_wait", wait)


# --- mirrors ---


def _no_high_water(patch: Patch) -> None:
    """A mirror goes on with the number after its last message (S4)."""
    whole = Follower._apply

    def apply(self: Follower, batch: Batch) -> None:
        whole(self, batch)
        self.copy.next_seq = max(self.copy.held.stop, 1)

    patch.setattr(Follower, "_apply", apply)


def _inventory_not_awaited(patch: Patch) -> None:
    """A new mirror thinks that it lacks nothing."""

    def begin_as_mirror(
        self: Replica, copy: Copy, *, has_inventory: bool, spare: Spare | None = None
    ) -> None:
        self._follow(copy, has_inventory=True, is_written=True)
        if not has_inventory:
            copy.missing = NumberSet()

    patch.setattr(Replica, "begin_as_mirror", begin_as_mirror)


def _counts_late(patch: Patch) -> None:
    """Marks wait for a mirror's disk when that has all; what came while it was waited for may be confirmed without."""
    whole = Follower._finished

    def written(self: Follower, *, is_safe: bool) -> None:
        if is_safe:
            self._storage.await_safety(_Finish(self._finished), 0, 0)
        else:
            whole(self, is_safe=False)

    def finished(self: Follower, *, is_safe: bool) -> None:
        if is_safe:
            self._host.count_disk(is_on=True)
        whole(self, is_safe=is_safe)

    patch.setattr(Follower, "_written", written)
    patch.setattr(Follower, "_finished", finished)


def _no_senders_in_inventory(patch: Patch) -> None:
    """An Inventory does not say what came from which front end."""
    whole = Follower._take_inventory

    def take_inventory(self: Follower, inventory: Inventory, next_seq: int) -> None:
        whole(self, Inventory(inventory.member, inventory.ids, {}), next_seq)

    patch.setattr(Follower, "_take_inventory", take_inventory)


def _no_senders(patch: Patch) -> None:
    """Mirrors don't note what came from which front end."""
    whole = Follower._apply

    def apply(self: Follower, batch: Batch) -> None:
        whole(self, batch)
        self.senders.clear()

    patch.setattr(Follower, "_apply", apply)


def _mirror_takes_all(patch: Patch) -> None:
    """A mirror takes from a chunk what it does not lack any more."""

    def install(self: Copy, entries: Iterable[Enqueue]) -> None:
        if self.missing is None:
            return
        for entry in entries:
            for seqs in NumberSet([entry.seqs]).minus(self.held).ranges():
                self.missing.discard(seqs)
                self.held.add(seqs)
                first = seqs.start - entry.first_seq
                self._take_in(entry[first : first + len(seqs)])

    patch.setattr(Copy, "install", install)


# --- no bugs ---


def _promote_the_last(patch: Patch) -> None:
    """The last synchronised member is promoted instead of the first."""
    whole = promotion.promoted

    def promoted(view: View) -> View:
        after = whole(view)
        if after.state == "down":
            return after
        master = [member.id for member in after.members if member.id in after.synced][-1]
        previous = 0 if view.previous == master else view.previous
        return replace(after, master=master, previous=previous, handover=view.handover if previous else 0)

    patch.setattr(promotion, "promoted", promoted)


def _synced_until_death(patch: Patch) -> None:
    """A mirror that dies is not counted as synchronised any more: the last one alone may bring the queue back."""
    whole = views.died

    def died(view: View, ids: Iterable[int], *, may_lose: bool) -> View:
        dead = list(ids)
        if view.master and view.master not in dead:
            view = replace(view, synced=tuple(id_ for id_ in view.synced if id_ not in dead))
        return whole(view, dead, may_lose=may_lose)

    _patch_died(patch, died)


IN_ANY_ORDER: dict[str, Callable[[Patch], None]] = {
    "keep joining": _keep_joining,
    "joiner owns": _joiner_owns,
    "newcomer before owner": _newcomer_before_owner,
    "mark without disk": _mark_without_disk,
    "erase early": _erase_early,
    "begins silently": _begins_silently,
    "late and alone": _late_and_alone,
}
"""Members alone come upon these bugs, by seeds (`tests.kit.ring.drive`)."""

BUGS: dict[str, Callable[[Patch], None]] = {
    **IN_ANY_ORDER,
    "by origin": _by_origin,
    "hear the dead": _hear_the_dead,
    "promote at once": _promote_at_once,
    "promote anybody": _promote_anybody,
    "ghosts": _ghosts,
    "transfer to the dead": _transfer_to_the_dead,
    "drop while flushing": _drop_while_flushing,
    "waits for itself": _waits_for_itself,
    "took over late": _took_over_late,
    "confirm unsettled": _confirm_unsettled,
    "confirm flushing": _confirm_flushing,
    "copy dropped": _copy_dropped,
    "no new inventory": _no_new_inventory,
    "took over early": _took_over_early,
    "no word unbegun": _no_word_unbegun,
    "not taken up again": _not_taken_up_again,
    "lossy table": _lossy_table,
    "duplicate at once": _duplicate_at_once,
    "no high water": _no_high_water,
    "inventory not awaited": _inventory_not_awaited,
    "counts late": _counts_late,
    "no senders in inventory": _no_senders_in_inventory,
    "no senders": _no_senders,
    "mirror takes all": _mirror_takes_all,
}

HARMLESS: dict[str, Callable[[Patch], None]] = {
    "promote the last": _promote_the_last,
    "synced until death": _synced_until_death,
}
"""Other ways that are right, too: no seed may object."""


bug = partial(put_back, BUGS | HARMLESS)
"""`with bug(name):` has it while the context lasts."""
