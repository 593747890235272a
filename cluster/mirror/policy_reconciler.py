"""Proposes changes of the views of queues whose master is here, so that they get the shape that their policy wants.

    policy, members, views ─► look at the queue ─► what is wrong first? ─► one proposal ─► its view ─► look again …
        has the master taken over? ─ is a mirror too slow? ─ should the master move? ─ add ─ drop ─ unmirror

Each look begins with the present view and the present wishes: earlier wishes are not remembered, so a policy may
change at any time and any proposal may be lost. Views make each single change safe: a master moves to a
synchronised mirror or not at all. A member that comes or goes concerns every queue: those are looked at some at a
time, and only so many proposals are on their way.

Source: reliability §2.2 (change_policy, change_cluster, rapid_change), §4.1, §4.9, S15; amqp-behaviour §9.3, §9.7.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from cluster.mirror.proposals import Proposal, Proposals
from node.catalogue.mirrors.mirror_nodes import candidate_nodes, suggested_nodes, without
from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    RingMember,
    TookOver,
    TransferMaster,
    Unmirror,
    View,
    ViewChange,
    is_followed,
)
from node.catalogue.policy import QueueSettings
from node.catalogue.records import ClusterMember, QueueRecord

LOOKS_MAX: Final = 200
"""The most queues that are looked at in one go: a few milliseconds."""

BACK_OFF_S: Final = 10.0
"""How long a node gets no new mirrors or masters after one did not keep up. Doubled each time (reliability §4.9)."""

KEPT_S: Final = 60.0
"""For how long unreadable messages are awaited from mirrors on nodes that have another copy on disk, once all are
there.
"""

BACK_OFF_S_MAX: Final = 300.0
"""The longest such time; a node that has kept up for so long after it begins anew with `BACK_OFF_S`."""


@dataclass(frozen=True, slots=True)
class Step:
    """The first change that a queue needs.   change, reason: as in `Proposal`."""

    change: ViewChange | None
    reason: str = ""


@dataclass(slots=True)
class _Charge:
    """A queue whose master is here.

    slow: members that are to go since they don't keep up.   heard: the mastership in which the handover was heard.
    defect: why another node is to be master; empty: there is nothing wrong here.
    kept_since_s: since when all nodes are up that have a copy which was not taken, and may have the messages that
    cannot be read here; None: no messages are wanted of them.
    """

    record: QueueRecord
    settings: QueueSettings
    slow: set[int] = field(default_factory=set)
    heard: int = 0
    defect: str = ""
    kept_since_s: float | None = None


@dataclass(slots=True)
class _BackOff:
    """A time in which a node gets no new mirrors, for one incarnation of it."""

    incarnation: int
    until_s: float
    length_s: float = BACK_OFF_S
    is_on: bool = True


@dataclass(frozen=True, slots=True)
class Nodes:
    """The members of the cluster, with the facts that the policy reconciler needs.

    incarnations: of those that are up.   draining: of these, those that should get no masters, as they are in
    maintenance mode or their message disks are stuck.
    shunned: of these, those that should get no new mirrors or masters of ours, since one did not keep up.
    """

    incarnations: dict[str, int]
    draining: frozenset[str]
    shunned: frozenset[str]


def is_mirrored(record: QueueRecord, settings: QueueSettings) -> bool:
    """True if the queue should have a view, even if it is one of a single node (§9.3), or while a plan moves it."""
    is_wanted = record.type == "quorum" or settings.ha_mode is not None or bool(record.placement)
    return record.exclusive_owner is None and is_wanted


class PolicyReconciler:
    """The policy reconciler of the queues whose master is on the node `here`.

    The caller reports events, calls `look` at the end of the turn and at `next_look`, and hands the proposals to the
    catalogue. It need not report the outcome of a proposal.
    is_acting: whether a queue, by uid, is here already, and not a copy that is to become one. `see` follows when it
    is.
    """

    def __init__(self, here: str, is_acting: Callable[[str], bool] = lambda uid: True) -> None:
        self.here = here
        self._is_acting = is_acting
        self._charges: dict[str, _Charge] = {}
        self._members: dict[str, ClusterMember] = {}
        self._nodes = Nodes({}, frozenset(), frozenset())
        self._stuck: frozenset[str] = frozenset()
        """Nodes whose message disks are stuck. They are treated as if in maintenance mode."""
        self._back_offs: dict[str, _BackOff] = {}
        self._proposals = Proposals()
        self._heard_early: set[str] = set()
        """Queues whose handover was heard, but whose view with us as master is still to be told."""
        self._is_stopping = False
        self._followed: set[str] = set()
        """Queues whose master was here and sent its last batch, which is still on its way."""
        self._left: set[str] = set()
        """Queues whose master left since this node stops. One that comes back stays: others don't know that we stop."""

    # --- what happens ---

    def members_changed(self, members: Iterable[ClusterMember]) -> None:
        """Take the nodes of the cluster. Called first, and each time that one changes."""
        self._members = {member.name: member for member in members}
        for node, back_off in list(self._back_offs.items()):
            member = self._members.get(node)
            if member is None or member.incarnation != back_off.incarnation:
                del self._back_offs[node]
        self._renew()

    def disks_changed(self, stuck: frozenset[str]) -> None:
        """Take the nodes whose message disks are stuck. A node whose disk works again is not shunned any more."""
        for node in self._stuck - stuck:
            self._back_offs.pop(node, None)
        self._stuck = stuck
        self._renew()

    def healed(self, *nodes: str) -> None:
        """Stop shunning these nodes: what kept their mirrors from keeping up, as a link that was cut, is over."""
        for node in nodes:
            self._back_offs.pop(node, None)
        self._renew()

    def see(self, record: QueueRecord, settings: QueueSettings) -> None:
        """Take a queue that is new, or has another view or other settings. Also called for queues of other nodes."""
        uid = record.uid
        is_heard = uid in self._heard_early
        self._heard_early.discard(uid)
        if record.view is not None and is_followed(record.view, self.here):
            self._followed.add(uid)
        else:
            self._followed.discard(uid)
        if not self._is_ours(record) or (record.view is None and not is_mirrored(record, settings)):
            if self._is_stopping and uid in self._charges:
                self._left.add(uid)
            self._release(uid)
            return
        charge = self._charges.get(uid)
        if charge is None:
            charge = self._charges[uid] = _Charge(record, settings)
            if is_heard and record.view is not None:
                charge.heard = record.view.since
        else:
            charge.record, charge.settings = record, settings
        self._proposals.see(record)
        self._proposals.look_at(uid)

    def forget(self, uid: str) -> None:
        """Forget a queue that was deleted. An unknown one is ignored."""
        self._heard_early.discard(uid)
        self._followed.discard(uid)
        self._release(uid)

    def _release(self, uid: str) -> None:
        if self._charges.pop(uid, None) is not None:
            self._proposals.forget(uid)

    def heard_handover(self, uid: str) -> None:
        """Note that the master, which is here, has heard the last batch of the one before it.

        Called after `see`, or right before it with the view that makes this node the master.
        """
        charge = self._charges.get(uid)
        if charge is None:
            self._heard_early.add(uid)
        elif charge.record.view is not None:
            charge.heard = charge.record.view.since
            self._proposals.look_at(uid)

    def evict(self, uid: str, mirror: RingMember, now: float) -> None:
        """Remove a mirror that does not keep up (`SlowMirrors`), if the queue is ours, and `shun` its node."""
        charge = self._charges.get(uid)
        if charge is not None and charge.record.view is not None:
            if charge.record.view.member(mirror.id) is None or mirror.id in charge.slow:
                return
            charge.slow.add(mirror.id)
            self._proposals.look_at(uid)
        self.shun(mirror, now)

    def shun(self, mirror: RingMember, now: float) -> None:
        """Give the node of a mirror that can't keep up, or be master, no new mirrors or masters for a while."""
        member = self._members.get(mirror.node)
        if member is None or member.incarnation != mirror.incarnation:
            return
        known = self._back_offs.get(mirror.node)
        if known is None:
            self._back_offs[mirror.node] = _BackOff(mirror.incarnation, now + BACK_OFF_S)
        elif known.is_on:
            return  # more queues have noticed the same
        else:
            has_behaved = now - known.until_s >= BACK_OFF_S_MAX
            known.length_s = BACK_OFF_S if has_behaved else min(2 * known.length_s, BACK_OFF_S_MAX)
            known.until_s, known.is_on = now + known.length_s, True
        self._renew()

    def hand_over(self, uid: str, reason: str) -> None:
        """Move the master to another node, as soon as there is one with a synchronised mirror.   reason: for the
        log.
        """
        charge = self._charges.get(uid)
        if charge is not None:
            charge.defect = reason
            self._proposals.look_at(uid)

    def is_waiting(self, uid: str) -> bool:
        """True if copies that were not taken are waited for."""
        charge = self._charges.get(uid)
        return charge is not None and charge.kept_since_s is not None

    def awaits_kept(self, uid: str, now: float) -> bool:
        """True if nodes may have messages that the master here cannot read, in a copy that was not taken
        (`View.kept`).

        Called, maybe again, when no mirror is synchronised. These nodes get mirrors, whatever the policy says, and
        those that are not up are waited for.
        """
        charge = self._charges.get(uid)
        view = None if charge is None else charge.record.view
        if charge is None or view is None or not view.common:
            return False
        nodes = [self._members[node] for node, _ in view.kept if node in self._members and node != self.here]
        if not nodes:
            return False
        if charge.kept_since_s is None or not all(member.is_up for member in nodes):
            charge.kept_since_s = now
        elif now - charge.kept_since_s >= KEPT_S:
            charge.kept_since_s = None
        self._proposals.look_at(uid)
        return charge.kept_since_s is not None

    def stop(self) -> None:
        """Move masters away, as from a node in maintenance mode: this node is about to stop."""
        self._is_stopping = True
        self._renew()

    @property
    def moving(self) -> int:
        """The number of masters here that will move as soon as they may, or have moved and are still to be followed.

        A node that stops or drains waits for them, for a while. Looks at each queue.
        """
        return len(self._followed) + sum(
            charge.record.view is not None and self._refuge(charge, charge.record.view) is not None
            for charge in self._charges.values()
        )

    def back_off_of(self, node: str, now: float) -> float:
        """Return for how many more seconds the node gets no new mirrors of ours."""
        back_off = self._back_offs.get(node)
        return max(0.0, back_off.until_s - now) if back_off is not None else 0.0

    # --- looking ---

    def look(self, now: float) -> list[Proposal]:
        """Return the proposals to make now. Looks at some queues only: `next_look` says whether there are more."""
        for back_off in self._back_offs.values():
            if back_off.is_on and now >= back_off.until_s:
                back_off.is_on = False
                self._renew()
        for _ in range(LOOKS_MAX):
            uid = self._proposals.next(now)
            if uid is None:
                break
            charge = self._charges.get(uid)
            step = None if charge is None else self._step(charge)
            if charge is None or step is None:
                self._proposals.lapse(uid, now)
            else:
                self._proposals.make(charge.record, step.change, step.reason, now)
        return self._proposals.take()

    def next_look(self, now: float) -> float | None:
        """Return when to look again, if nothing happens until then."""
        times = [back_off.until_s for back_off in self._back_offs.values() if back_off.is_on]
        time = self._proposals.next_time(now)
        return min(times if time is None else (*times, time), default=None)

    def _step(self, charge: _Charge) -> Step | None:
        """Return the first change that a queue of ours needs."""
        record, settings, view = charge.record, charge.settings, charge.record.view
        if view is None:
            return Step(None)
        charge.slow.intersection_update(member.id for member in view.ring)
        if charge.slow:  # even the master before: its broadcasts may not come round while it is there
            return Step(DropMirror(min(charge.slow)))
        if view.previous:
            return Step(TookOver(view.since)) if charge.heard == view.since else None
        refuge = self._refuge(charge, view)
        if refuge is not None:
            return self._moved(view, refuge, charge.defect)
        if self._is_stopping:
            return None
        mirrors = [member.node for member in view.ring if member.id != view.master]
        master, wanted = suggested_nodes(
            settings,
            record,
            self.here,
            mirrors,
            [member.node for member in view.ring if member.id in view.synced and member.id != view.master],
            self._candidates(record, (self.here, *mirrors)),
        )
        there = view.member_on(master)
        if master != self.here and there is not None and self._may_move(view, there):
            return self._moved(view, there)
        kept = () if charge.kept_since_s is None else (node for node, _ in view.kept)
        return self._reshaped(charge, view, {master, *wanted, *kept})

    def _reshaped(self, charge: _Charge, view: View, wanted: set[str]) -> Step | None:
        """Return the next change towards the wanted nodes.

        Mirrors are added first, so that the queue never has fewer copies than before and after.
        """
        for node in sorted(wanted):
            if view.member_on(node) is None and node in self._nodes.incarnations:
                return Step(AddMirror(node, self._nodes.incarnations[node]))
        mirrors = [member for member in view.ring if member.id != view.master]
        extra = [member for member in mirrors if member.node not in wanted]
        is_always = charge.record.type == "quorum" or bool(charge.record.placement)
        is_automatic = is_always or charge.settings.ha_sync_mode == "automatic"
        if is_automatic and any(member.id not in view.synced for member in mirrors if member.node in wanted):
            # Wait until the mirrors that replace them have everything.
            extra = [member for member in extra if member.id not in view.synced]
        if extra:
            # Meanwhile another one may go, by a plan or because it died: then this one may be needed.
            return Step(
                DropMirror(extra[0].id, view.version), f"Dropping queue mirror on node {extra[0].node}"
            )
        is_wanted = is_mirrored(charge.record, charge.settings)
        if len(view.members) == 1 and not is_wanted and self._is_acting(charge.record.uid):
            return Step(Unmirror(view.master, view.version))
        return None

    # --- masters that move ---

    def _refuge(self, charge: _Charge, view: View) -> RingMember | None:
        """Return the member that becomes master since this node stops, drains or has no good copy; None: no member
        can.

        The queue's uid decides among several, so that masters are spread and the choice stays.
        """
        is_leaving = self._is_stopping and charge.record.uid not in self._left
        if view.previous or not (is_leaving or charge.defect or self.here in self._nodes.draining):
            return None
        mirrors = [member for member in view.ring if member.id != view.master]
        able = [member for member in mirrors if self._may_move(view, member)]
        if not able and charge.defect:  # a node that drains has a good copy all the same
            welcome = [member for member in mirrors if member.node not in self._nodes.shunned]
            able = [member for member in welcome if member.id in view.synced]
        return able[crc32(charge.record.uid.encode()) % len(able)] if able else None

    def _may_move(self, view: View, member: RingMember) -> bool:
        is_welcome = member.node not in self._nodes.draining and member.node not in self._nodes.shunned
        return member.id in view.synced and is_welcome

    def _moved(self, view: View, to: RingMember, defect: str = "") -> Step:
        reason = f": the copy here {defect}" if defect else ""
        return Step(TransferMaster(view.master, to.id), f"Migrating queue leader to node {to.node}{reason}")

    # --- nodes ---

    def _is_ours(self, record: QueueRecord) -> bool:
        view = record.view
        if view is None:
            return record.home == self.here
        return view.state == "live" and view.master_node == self.here

    def _candidates(self, record: QueueRecord, current: Sequence[str]) -> Sequence[str]:
        """Return the nodes that may have copies. Nodes that have one keep it."""
        candidates = candidate_nodes(without(self._members.values(), self._stuck), record, current)
        shunned = self._nodes.shunned
        if not shunned:
            return candidates
        return [node for node in candidates if node not in shunned or node in current]

    def _renew(self) -> None:
        """Look at all queues if nodes came, went, or may have more or fewer mirrors or masters."""
        up = [member for member in self._members.values() if member.is_up]
        nodes = Nodes(
            {member.name: member.incarnation for member in up},
            frozenset(member.name for member in without(up, self._stuck) if member.is_draining),
            frozenset(node for node, back_off in self._back_offs.items() if back_off.is_on),
        )
        if nodes != self._nodes or self._is_stopping:
            self._nodes = nodes
            self._proposals.look_at_all(self._charges)


def declined(before: View | None, after: View | None, here: str) -> RingMember | None:
    """Return the member that was to be master instead of one here, if it could not (`DeclineMaster`)."""
    if before is None or after is None or not before.previous or after.previous:
        return None
    is_back = after.master == before.previous and after.master_node == here
    return before.member(before.master) if is_back else None
