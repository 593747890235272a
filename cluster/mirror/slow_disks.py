"""Finds the disk that holds up the confirms of persistent messages, and decides what is to be done about it.

    for 5 s no disk of a mirror has got further ─► each is asked how far its disk is (Probe ─► Report)
    after 10 s ─► those whose disk lacks what is waited for
                   ├ another mirror's disk has it ─► they go
                   ├ the master's has ─► publishers wait, the log says so, and after 20 s they go
                   └ no disk has, or the policy says `block` ─► publishers wait, and the log says so

A disk that is slow but gets on is left alone. Disks are watched only while a publisher waits for them.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from cluster.mirror.slow_mirrors import LAST_S, PROBE_S, T_RING_S, Ask, Blocked, Evict, Verdict
from node.catalogue.mirrors.views import View

_NOTHING: Final[tuple[frozenset[int], bool]] = frozenset(), False


class DiskState(NamedTuple):
    """A replicator's knowledge of the disks.

    awaited: its first broadcast that must be on disks for a waiter; None: there is none.
    confirmed: those up to here are at every member.   mark, own: … on the disks of all others that count; on its
    own.
    is_own_enough: confirms don't wait for the others' disks.
    """

    awaited: int | None
    confirmed: int
    mark: int
    own: int
    is_own_enough: bool


class SlowDisks:
    """Watches the disks of one queue's copies for its master. Looked at each second while a publisher waits for
    them.
    """

    def __init__(self) -> None:
        self._mark: int | None = None
        self._own: int | None = None
        """How far the other disks and the master's are, if a confirm waits for them; and since when."""
        self._mark_s = self._own_s = 0.0
        self._asked: set[int] = set()
        self._disks: dict[int, int] = {}
        self._said: tuple[Collection[int], bool] = _NOTHING

    def look(self, view: View, state: DiskState, policy: str, now: float) -> list[Verdict]:
        """Return what to do about mirrors.   policy: `ha-slow-mirror`, evict or block."""
        awaited = state.awaited
        is_held_up = (
            awaited is not None and state.mark < awaited <= state.confirmed and not state.is_own_enough
        )
        mark = state.mark if is_held_up else None
        if mark is None or mark != self._mark:
            self._mark, self._mark_s, self._said = mark, now, _NOTHING
            self._asked.clear()
            self._disks.clear()
        if awaited is None or now - self._mark_s < PROBE_S:
            return []
        mirrors = [member.id for member in view.ring if member.id != view.master]
        asked = tuple(id_ for id_ in mirrors if id_ not in self._asked)
        self._asked.update(asked)
        verdicts: list[Verdict] = [Ask(asked, awaited)] if asked else []
        stuck = frozenset(id_ for id_ in mirrors if self._disks.get(id_, awaited) < awaited)
        age_s = now - self._mark_s
        good = {id_ for id_ in mirrors if id_ in view.synced}
        is_needed = policy == "block" or (
            good <= stuck and (age_s < LAST_S or state.own < awaited)  # then none is better than the others
        )
        if age_s >= T_RING_S and stuck and (stuck, is_needed) != self._said:
            self._said = stuck, is_needed
            reason = f"has not got operations to its disk for {age_s:.0f} s"
            for id_ in sorted(stuck):
                blames = Blocked if is_needed and (policy == "block" or id_ in good) else Evict
                verdicts.append(blames(id_, reason))
        return verdicts

    def report(self, member: int, disk: int | None) -> None:
        """Take a mirror's report of how far its disk is with the master's broadcasts; None: its disk is not waited
        for.
        """
        if disk is not None:
            self._asked.discard(member)
            self._disks[member] = disk

    def own_stuck_s(self, state: DiskState, now: float) -> float:
        """Return for how long the master's own disk alone has lacked what is awaited, without progress; else 0."""
        own = state.own if state.awaited is not None and state.own < state.awaited else None
        if own is None or own != self._own:
            self._own, self._own_s = own, now
        is_alone_to_blame = state.awaited is not None and state.mark >= state.awaited
        return now - self._own_s if is_alone_to_blame else 0.0
