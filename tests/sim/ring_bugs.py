"""Bugs that the ring's simulator must find, put back one at a time: else it is no evidence.

Those of reliability §4.13 first, then those of this design. `SEEDS` says in how many seeds each was found.
Source: reliability §5.2 (mutation audit).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cluster.gm_ring.member import Member
from cluster.gm_ring.messages import NOTHING, Item
from cluster.gm_ring.origin import Origin
from node.broker import views
from node.broker.views import AddMirror, RingMember, TookOver, View, ViewChange, is_there
from tests.sim import ring_world
from tests.sim.ring_front import FrontEnd
from tests.sim.ring_group import Group
from tests.sim.ring_mirror import Batch, Follower, Leader, Message
from tests.sim.ring_plan import Front
from tests.sim.ring_world import Process, World

Patch = pytest.MonkeyPatch


# --- of the prototype: reliability §4.13 ---


def _confirm_early(patch: Patch) -> None:
    """A broadcast is confirmed when it has been sent."""
    whole = Member.flush

    def flush(self: Member) -> None:
        whole(self)
        if not self.is_lost:
            self._host.confirmed(self._own.last)

    patch.setattr(Member, "flush", flush)


def _no_catch_up(patch: Patch) -> None:
    """A new right neighbour is told no more than what comes from now on, and waits for nothing else."""
    patch.setattr(Member, "_new_right", lambda self: None)
    patch.setattr(Member, "_new_left", lambda self: None)


def _promote_at_once(patch: Patch) -> None:
    """A master is promoted before all the dead are erased."""
    whole = views.died

    def died(view: View, ids: Any, *, may_lose: bool) -> View:
        after = whole(view, ids, may_lose=may_lose)
        return views._promoted(after) if after.state == "flushing" else after

    patch.setattr(views, "died", died)
    patch.setattr(ring_world, "died", died)


def _no_edges(patch: Patch) -> None:
    """Neighbours that were parted take up where they were (S3)."""
    patch.setattr(Member, "_is_from_left", lambda self, sender, edge: sender == self.left)
    patch.setattr(Member, "_new_left", lambda self: None)


def _hear_all(patch: Patch) -> None:
    """Who is not the left neighbour is heard as well."""
    patch.setattr(Member, "_is_from_left", lambda self, sender, edge: True)
    patch.setattr(Member, "_new_left", lambda self: None)


def _no_gating(patch: Patch) -> None:
    """Frames of later views are taken at once (R1)."""
    patch.setattr(Member, "_is_early", lambda self, version: False)


def _keep_joining(patch: Patch) -> None:
    """Who is joining stays when another one dies (S2)."""
    whole = views.died

    def died(view: View, ids: Any, *, may_lose: bool) -> View:
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

    patch.setattr(views, "died", died)
    patch.setattr(ring_world, "died", died)


def _joiner_owns(patch: Patch) -> None:
    """Who is joining may answer for a dead one."""

    def owner_of(self: View, id_: int) -> int:
        ids = [member.id for member in self.members]
        at = ids.index(id_)
        for member in (*self.members[at:], *self.members[:at]):
            if member.status != "dead":
                return member.id
        return 0

    patch.setattr(View, "owner_of", owner_of)


def _no_high_water(patch: Patch) -> None:
    """A mirror goes on with the number after its last message (S4)."""

    def note_next(self: Follower, next_seq: int) -> None:
        self.next_seq = max(self.held, default=0) + 1

    patch.setattr(Follower, "note_next", note_next)


def _promote_anybody(patch: Patch) -> None:
    """The first one alive is promoted, synchronised or not."""

    def promoted(view: View) -> View:
        master = next(member.id for member in view.members if member.status == "alive")
        alive = tuple(member.id for member in view.members if member.id in view.synced)
        synced = alive if master in alive else (*alive, master)
        return replace(
            view, master=master, synced=synced, state="live", since=view.version, recoverable=(), copies=()
        )

    patch.setattr(views, "_promoted", promoted)


def _ghosts(patch: Patch) -> None:
    """A member may be added on an incarnation that is no more (S1)."""
    whole = World.change

    def change(self: World, change: ViewChange) -> None:
        if isinstance(change, AddMirror):
            after = views.changed(self.view, change)
            if after is not None:
                self.commit(ring_world.Entry(after), change)
        else:
            whole(self, change)

    patch.setattr(World, "change", change)


# --- of this design: the ring ---


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
            if (
                known.is_dead
                and known.is_mine
                and known.acked >= known.last
                and known.id not in self._proposed
            ):
                self._proposed[known.id] = change = views.EraseMirror(known.id, self.id)
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
    """Who begins late tells a right neighbour nothing that has waited for it since a view before."""
    whole = Member.__init__

    def init(self: Member, id_: int, view: View, host: Any) -> None:
        whole(self, id_, view, host)
        self._forget_gathered()

    patch.setattr(Member, "__init__", init)


def _late_and_alone(patch: Patch) -> None:
    """Who begins late and alone does not answer for the dead."""

    def retry(self: Member) -> None:
        if self.is_active and not self.is_lost:
            for change in list(self._proposed.values()):
                self._host.propose(change)

    patch.setattr(Member, "retry", retry)


def _joiner_delivers(patch: Patch) -> None:
    """A joiner takes its first catch-up as news: it adopts nothing."""

    def adopt(self: Member, items: Sequence[Item]) -> None:
        self.is_active = True
        self._owes_catch_up = True
        self._host.active()
        self._host.propose(views.ActivateMirror(self.id))

    patch.setattr(Member, "_adopt", adopt)


# --- of this design: leader and follower ---


def _roll_not_awaited(patch: Patch) -> None:
    """A new mirror thinks that it lacks nothing."""
    whole = Follower.__init__

    def init(self: Follower, group: Group, *, is_rolled: bool) -> None:
        whole(self, group, is_rolled=True)
        if not is_rolled:
            self.owed = {}

    patch.setattr(Follower, "__init__", init)


def _no_new_roll(patch: Patch) -> None:
    """A new master does not tell those who are not synchronised what there is."""
    whole = Leader.begin

    def begin(self: Leader) -> None:
        whole(self)
        self.group._rolled.update(dict.fromkeys((member.id for member in self.group.view.ring), True))

    patch.setattr(Leader, "begin", begin)


def _handover_not_awaited(patch: Patch) -> None:
    """A master begins when the view says so, whatever the one before it has still to say."""
    patch.setattr(Group, "may_act", property(lambda self: self.view.master == self.id))


def _took_over_early(patch: Patch) -> None:
    """A master has taken over as soon as it has begun, when others may still lack what the former one said."""
    patch.setattr(Group, "_is_known", lambda self, number: True)


def _took_over_late(patch: Patch) -> None:
    """That a master has taken over is believed whenever it is master, also if it said so in an earlier mastership."""
    whole = World.change

    def change(self: World, change: ViewChange) -> None:
        view = self.view
        if isinstance(change, TookOver) and self.checks.masters.get(change.since) == view.master:
            change = TookOver(view.since)
        whole(self, change)

    patch.setattr(World, "change", change)


def _not_taken_up_again(patch: Patch) -> None:
    """A master that hands over before it has begun does not look whether it is master again."""
    whole = Group._filled

    def filled(self: Group, since: int) -> None:
        with Patch.context() as inner:
            inner.setattr(Group, "take_up", lambda self: None)
            whole(self, since)

    patch.setattr(Group, "_filled", filled)


def _no_word_unbegun(patch: Patch) -> None:
    """A master that is another one before it has begun says no last word."""

    whole = Group._filled

    def filled(self: Group, since: int) -> None:
        if since == self.view.since:
            whole(self, since)
        else:
            self._filling = 0

    patch.setattr(Group, "_filled", filled)


def _duplicate_at_once(patch: Patch) -> None:
    """A publish that has come in before is answered at once."""

    def publish(self: Leader, front: Front, messages: Sequence[Message], *, is_again: bool) -> None:
        for message in messages:
            if message.number > self.last_received(message.sender):
                self._enqueue(message, is_again)
                self._is_due = True
                self.await_stable(front, message)
            else:
                self.group.world.checks.stable(self.group, 0, message)
                self.group.process.to_front(front, ("answer", self.mastership, message))

    patch.setattr(Leader, "publish", publish)


def _synced_before_disk(patch: Patch) -> None:
    """A mirror calls itself synchronised when it has all in memory."""
    patch.setattr(Follower, "_is_on_disk", lambda self, mark: True)


def _counts_late(patch: Patch) -> None:
    """Marks wait for a mirror's disk when that has all; what came while it was waited for may be confirmed without."""
    whole = Group.is_complete

    def is_complete(self: Group) -> None:
        self.member.counts = True
        whole(self)

    patch.setattr(Group, "count_disk", lambda self: None)
    patch.setattr(Group, "is_complete", is_complete)


def _no_senders_in_roll(patch: Patch) -> None:
    """A Roll does not say what came from which front end."""
    whole = Follower.roll

    def roll(self: Follower, ids: dict[int, Message], senders: dict[int, int]) -> None:
        whole(self, ids, {})

    patch.setattr(Follower, "roll", roll)


def _no_senders(patch: Patch) -> None:
    """Mirrors don't note what came from which front end."""
    whole = Follower.apply

    def apply(self: Follower, batch: Batch) -> None:
        whole(self, batch)
        self.senders.clear()

    patch.setattr(Follower, "apply", apply)


def _confirm_unsettled(patch: Patch) -> None:
    """The master confirms while a dead mirror counts as having all that was confirmed."""
    patch.setattr(Group, "_is_settled", lambda self: True)


def _confirm_flushing(patch: Patch) -> None:
    """Who was master confirms while the queue has none."""

    def is_settled(self: Group) -> bool:
        view = self.view
        return all(is_there(member) or member.id not in view.synced for member in view.members)

    patch.setattr(Group, "_is_settled", is_settled)


def _mirror_takes_all(patch: Patch) -> None:
    """A mirror takes from a chunk what it does not lack any more."""

    def install(self: Follower, request: int, found: list[tuple[int, Message]]) -> None:
        self.is_asking = False
        for seq, message in found:
            if self.owed is not None and seq not in self.held:
                self.owed.pop(seq, None)
                self._enqueue(seq, message)

    patch.setattr(Follower, "install", install)


def _copy_dropped(patch: Patch) -> None:
    """A node drops its copy though the queue may have to be brought back from it."""
    patch.setattr(
        Process, "_may_be_needed", lambda self, view: view.state == "down" and self.name in view.recoverable
    )


# --- of this design: front ends ---


def _hear_the_dead(patch: Patch) -> None:
    """What an incarnation that ended has sent is taken."""
    patch.setattr(Process, "hears", lambda self, front: True)


def _not_marked_again(patch: Patch) -> None:
    """What is published again is taken for new: its delivery may be the second one and does not say so."""
    whole = Leader.publish

    def publish(self: Leader, front: Front, messages: Sequence[Message], *, is_again: bool) -> None:
        whole(self, front, messages, is_again=False)

    patch.setattr(Leader, "publish", publish)


def _no_resend(patch: Patch) -> None:
    """A front end tells a new master only what is new."""
    whole = FrontEnd.see

    def see(self: FrontEnd, view: View) -> None:
        window, self.window = self.window, {}
        if view.state == "down":
            self.window = window
        whole(self, view)
        self.window = window if view.state != "down" else {}

    patch.setattr(FrontEnd, "see", see)


def _lossy_table(patch: Patch) -> None:
    """A mirror that was promoted though it lacks messages goes by its table of senders."""

    patch.setattr(Group, "_senders_of", lambda self, follower: follower.senders)


# --- of this design: views ---


def _transfer_to_the_dead(patch: Patch) -> None:
    """A master may hand over to one that has died and is still counted as synchronised."""

    def transfer(view: View, master: int, to: int) -> View | None:
        if (
            view.master != master
            or view.state != "live"
            or view.previous
            or to == master
            or to not in view.synced
        ):
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
        at = next(at for at, member in enumerate(view.members) if member.id == view.master) or len(
            view.members
        )
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
    """Who handed over and is promoted waits for its own last word."""
    whole = views._promoted

    def promoted(view: View) -> View:
        after = whole(view)
        return (
            after if after.state == "down" else replace(after, previous=view.previous, handover=view.handover)
        )

    patch.setattr(views, "_promoted", promoted)


def _synced_until_death(patch: Patch) -> None:
    """A mirror that dies is not counted as synchronised any more: the last one alone may bring the queue back."""
    whole = views.died

    def died(view: View, ids: Any, *, may_lose: bool) -> View:
        dead = list(ids)
        if view.master and view.master not in dead:
            view = replace(view, synced=tuple(id_ for id_ in view.synced if id_ not in dead))
        return whole(view, dead, may_lose=may_lose)

    patch.setattr(views, "died", died)
    patch.setattr(ring_world, "died", died)


def _promote_the_last(patch: Patch) -> None:
    """The last synchronised member is promoted instead of the first: no bug."""
    whole = views._promoted

    def promoted(view: View) -> View:
        after = whole(view)
        if after.state == "down":
            return after
        master = [member.id for member in after.members if member.id in after.synced][-1]
        previous = 0 if view.previous == master else view.previous
        return replace(after, master=master, previous=previous, handover=view.handover if previous else 0)

    patch.setattr(views, "_promoted", promoted)


BUGS: dict[str, Callable[[Patch], None]] = {
    "confirm early": _confirm_early,
    "no catch-up": _no_catch_up,
    "promote at once": _promote_at_once,
    "no edges": _no_edges,
    "hear all": _hear_all,
    "no gating": _no_gating,
    "keep joining": _keep_joining,
    "joiner owns": _joiner_owns,
    "no high water": _no_high_water,
    "promote anybody": _promote_anybody,
    "ghosts": _ghosts,
    "mark without disk": _mark_without_disk,
    "erase early": _erase_early,
    "by origin": _by_origin,
    "begins silently": _begins_silently,
    "late and alone": _late_and_alone,
    "joiner delivers": _joiner_delivers,
    "roll not awaited": _roll_not_awaited,
    "no new roll": _no_new_roll,
    "handover not awaited": _handover_not_awaited,
    "took over early": _took_over_early,
    "took over late": _took_over_late,
    "no word unbegun": _no_word_unbegun,
    "not taken up again": _not_taken_up_again,
    "duplicate at once": _duplicate_at_once,
    "synced before disk": _synced_before_disk,
    "counts late": _counts_late,
    "no senders in roll": _no_senders_in_roll,
    "no senders": _no_senders,
    "confirm unsettled": _confirm_unsettled,
    "confirm flushing": _confirm_flushing,
    "mirror takes all": _mirror_takes_all,
    "copy dropped": _copy_dropped,
    "hear the dead": _hear_the_dead,
    "not marked again": _not_marked_again,
    "no resend": _no_resend,
    "lossy table": _lossy_table,
    "transfer to the dead": _transfer_to_the_dead,
    "newcomer before owner": _newcomer_before_owner,
    "drop while flushing": _drop_while_flushing,
    "waits for itself": _waits_for_itself,
}

HARMLESS: dict[str, Callable[[Patch], None]] = {
    "promote the last": _promote_the_last,
    "synced until death": _synced_until_death,
}
"""Other ways that are right, too: no seed may object."""


@contextmanager
def bug(name: str) -> Iterator[None]:
    """Have the bug while the context lasts."""
    with Patch.context() as patch:
        ({**BUGS, **HARMLESS})[name](patch)
        yield
