"""Watches, at each member, for the cause that holds up one queue, and has it removed: reliability §4.9.

    at the master         a broadcast does not come round ─► SlowMirrors ─► a mirror goes, or is waited for
                          a mirror's disk holds up confirms ─► SlowDisks ─► the same
                          its own disk does, others' work ─► another one is to be master
    at the next master    the last batch of the one before does not come ─► that one is to be master again
    at a dead one's heir  the dead one's broadcasts do not go round, and there is no master before they have
                          ─► SlowMirrors, with a broadcast of its own

Each second the watch looks, while something is not as it should be (`Mirrors`): nothing is done for each message.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cluster.mirror.side import Probe, Report, encode_side
from cluster.mirror.slow_disks import SlowDisks
from cluster.mirror.slow_mirrors import PROBE_S, T_RING_S, Ask, Blocked, Evict, SlowMirrors, Verdict
from node.catalogue.mirrors.views import DeclineMaster, DropMirror, GiveUp, View, is_there

if TYPE_CHECKING:
    from cluster.mirror.mirrors import Mirrors
    from cluster.mirror.replica import Replica

FLUSH_S: Final = 1.0
"""How long a dead member's broadcasts may take to go round, which they mostly do at once."""


class RingWatch:
    """The watch of one member. Its replica is an argument of each call, so that the two make no reference cycle."""

    def __init__(self, mirrors: "Mirrors") -> None:
        self._mirrors = mirrors
        self._ring = SlowMirrors()
        self._disks = SlowDisks()
        self._oldest: int | None = None
        """Our first broadcast that has not come round, and since when it has been that."""
        self._oldest_s = 0.0
        self._flushing = 0
        """The view in which a dead member was first waited for, and since when."""
        self._flushing_s = 0.0
        self._condemned = 0
        """A member that is to go so that there can be a master."""
        self._heard = (0, -1)
        """The last broadcast of the master before, in which mastership, and when it came."""
        self._heard_s = 0.0
        self._declined = 0
        """The mastership that this node has declined."""
        self._is_disk_told = False

    def has_declined(self, view: View) -> bool:
        """True if this node is not to begin as master in this mastership, as the one before may have it back."""
        former = view.member(view.previous)
        return self._declined == view.since and former is not None and is_there(former)

    def look(self, replica: "Replica", now: float) -> None:
        """Find what makes no progress. Called each second while `Replica.needs_attention`."""
        view = replica.view
        former = view.member(view.previous)
        oldest = replica.member.oldest_unconfirmed
        if oldest != self._oldest:
            self._oldest, self._oldest_s = oldest, now
        if replica.replicator is not None:
            self._look_as_master(replica, now)
        elif view.state == "flushing" or (former is not None and not is_there(former)):
            self._look_as_heir_of_the_dead(replica, now)
        elif replica.is_master and former is not None and not replica.is_filling:
            self._await_last_word(replica, now)

    def reported(self, sender: int, report: Report, now: float) -> None:
        """Take a member's report of how far it is."""
        self._ring.report(sender, report.last, now)
        self._disks.report(sender, report.disk)

    # --- at the master ---

    def _look_as_master(self, replica: "Replica", now: float) -> None:
        replicator, record = replica.replicator, replica.record
        assert replicator is not None
        verdicts = [*self._judged(replica, replicator.oldest_age_s(now), now)]
        policy = self._mirrors.settings_of(record).ha_slow_mirror
        state = replicator.disk_state
        verdicts += self._disks.look(replica.view, state, policy, now)
        for verdict in verdicts:
            match verdict:
                case Ask(members, number):
                    _ask(replica, members, number)
                case Evict(member, reason):
                    self._mirrors.controller.evict(record, member, reason)
                case Blocked(member, reason):
                    self._mirrors.controller.tell_slow(record, member, reason)
        self._look_at_own_disk(replica, self._disks.own_stuck_s(state, now))

    def _look_at_own_disk(self, replica: "Replica", stuck_s: float) -> None:
        """Let another node be master if only this one's disk makes no progress."""
        if stuck_s < T_RING_S:
            if self._is_disk_told and not replica.defect:
                self._mirrors.controller.hand_over(replica.record, "")
            self._is_disk_told = False
            return
        reason = f"has waited {stuck_s:.0f} s for its disk"
        if not self._is_disk_told:
            self._is_disk_told = True
            self._mirrors.controller.tell_disk(replica.record, replica.id, reason)
        if replica.is_spared:
            self._mirrors.controller.hand_over(replica.record, reason)

    def _judged(self, replica: "Replica", age_s: float, now: float) -> Sequence[Verdict]:
        """Return what to do about a broadcast of ours that has not come round.   age_s: as its sender knows it."""
        if self._oldest is None:
            return ()
        age_s = max(age_s, now - self._oldest_s)
        if age_s < PROBE_S:
            return ()
        policy = self._mirrors.settings_of(replica.record).ha_slow_mirror
        return self._ring.look(
            replica.view, replica.id, self._oldest, age_s, replica.pending_bytes, policy, now
        )

    # --- while there is no master ---

    def _look_as_heir_of_the_dead(self, replica: "Replica", now: float) -> None:
        """Find out which member holds up the ring, by an empty broadcast, if this one answers for a dead one."""
        view = replica.view
        is_owner = any(
            view.owner_of(member.id) == replica.id for member in view.members if not is_there(member)
        )
        if not is_owner:
            return
        if view.version != self._flushing:
            self._flushing, self._flushing_s = view.version, now
        if self._oldest is None:
            if now - self._flushing_s >= FLUSH_S:
                replica.broadcast(b"")
                replica.touch()
            return
        for verdict in self._judged(replica, 0.0, now):
            match verdict:
                case Ask(members, number):
                    _ask(replica, members, number)
                case Evict(member, reason):
                    self._condemned = member
                    self._mirrors.controller.evict(replica.record, member, reason)
                case Blocked(member, reason):
                    self._mirrors.controller.tell_slow(replica.record, member, reason)
        condemned = view.member(self._condemned)
        if condemned is None or not is_there(condemned):
            return
        if condemned.id == view.master:
            replica.propose(GiveUp(replica.id))  # one of the two has to go, and the other one is to be master
        else:
            replica.propose(DropMirror(condemned.id, view.version))

    # --- at the next master ---

    def _await_last_word(self, replica: "Replica", now: float) -> None:
        view = replica.view
        heard = view.since, replica.member.last_of(view.previous)
        if heard != self._heard:
            self._heard, self._heard_s = heard, now
        if now - self._heard_s >= T_RING_S:
            self._declined = view.since
        if self.has_declined(view):
            replica.propose(DeclineMaster(replica.id, view.since))


def _ask(replica: "Replica", members: Sequence[int], number: int) -> None:
    for member in members:
        replica.send_side(member, encode_side(Probe(number)))
