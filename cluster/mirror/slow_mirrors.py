"""Finds the mirror that holds up a queue's ring, and decides what is to be done about it: reliability §4.9, W9.

    a broadcast of the master is not back after 5 s ─► each mirror is asked how far it has come (Probe ─► Report)
    after 10 s ─► the first in the ring that lacks it, and has got nothing new lately, is the one
                   ├ other mirrors have everything ─► it goes
                   ├ it is the last synchronised one ─► publishers wait, the log says so, and after 20 s it goes
                   └ the policy says `block`, or the master has no good copy ─► publishers wait, the log says so

A ring that is slow but moves is left alone until it is too far behind: its publishers are held back meanwhile. A
mirror whose disk is slow passes operations on like the others: `SlowDisks` handles that (S18). While there
is no master the one that answers for the dead one watches; then a single synchronised copy is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from node.catalogue.mirrors.views import RingMember, View

T_RING_S: Final = 10.0
"""How many seconds a broadcast may take, and a new neighbour to get going."""

LAST_S: Final = 2 * T_RING_S
"""How long publishers wait for the last synchronised mirror before it goes, too.

Nothing is lost by it, since the master has all that was confirmed. A link or disk that is back by then costs no
copy.
"""

PROBE_S: Final = T_RING_S / 2
"""The age of a broadcast at which mirrors are asked, and how long the blamed one has got nothing."""

REPEAT_S: Final = 2.0
"""How soon a mirror is asked again after its answer. A mirror that does not answer is not asked again."""

LAG_BYTES_MAX: Final = 256 * 1024 * 1024
"""The most bytes that may be on their way round a ring, however well it moves."""


@dataclass(frozen=True, slots=True)
class Ask:
    """These members should get a `Probe`, which asks whether they have this broadcast of the master."""

    members: tuple[int, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Evict:
    """This mirror should be removed: see `PolicyReconciler.evict`. Reported once.   reason: for the log."""

    member: int
    reason: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """The queue waits for this mirror, which must not be removed, or not yet. Reported once.   reason: for the log."""

    member: int
    reason: str


Verdict: TypeAlias = Ask | Evict | Blocked


@dataclass(slots=True)
class _Mark:
    """The progress of one member.

    last: the highest number that it has reported.   risen_s: when it first had this number, as far as is known.
    ask_s: when it may be asked again; None: its answer is due.
    """

    last: int
    risen_s: float
    ask_s: float | None


class SlowMirrors:
    """Watches the ring of one queue for a member that broadcasts.

    Looked at each second while there is an own broadcast that is older than `PROBE_S`; there is no need to
    otherwise.
    """

    def __init__(self) -> None:
        self._marks: dict[int, _Mark] = {}
        self._ring: tuple[int, ...] = ()
        self._oldest = -1
        self._front = -1
        """Place in the ring of the first mirror known to lack the oldest broadcast; beyond the end: none lacks it."""
        self._front_s = 0.0
        self._settled_s = 0.0
        self._looked_s = 0.0
        self._said: tuple[type[Verdict], int] | None = None

    def look(
        self, view: View, own: int, oldest: int, age_s: float, pending_bytes: int, policy: str, now: float
    ) -> Sequence[Verdict]:
        """Return what to do.

        own: the member that broadcasts.   oldest: own broadcast that is not confirmed, and its age.
        pending_bytes: of all that are not.   policy: `ha-slow-mirror`, evict or block.
        """
        mirrors = _after(view, own)
        if now - self._looked_s > PROBE_S:
            self._marks.clear()  # it went well meanwhile
        self._looked_s = now
        if not mirrors or age_s < PROBE_S:
            self._marks.clear()
            return ()
        self._keep_up(mirrors, oldest, now)
        verdicts: list[Verdict] = []
        asked = tuple(
            id_ for id_, mark in self._marks.items() if mark.ask_s is not None and mark.ask_s <= now
        )
        for id_ in asked:
            self._marks[id_].ask_s = None
        if asked:
            verdicts.append(Ask(asked, oldest))
        blamed = self._blamed(mirrors, age_s, pending_bytes, now)
        if blamed is not None:
            verdicts += self._sentence(view, blamed, age_s, pending_bytes, policy)
        return verdicts

    def report(self, member: int, last: int, now: float) -> None:
        """Take a mirror's report of how far it has come."""
        mark = self._marks.get(member)
        if mark is None:
            return
        mark.ask_s = now + REPEAT_S
        if last > mark.last:
            mark.last, mark.risen_s = last, now

    def _keep_up(self, mirrors: Sequence[RingMember], oldest: int, now: float) -> None:
        """Begin anew where the ring, or the oldest broadcast, is another one."""
        ring = tuple(member.id for member in mirrors)
        if ring != self._ring or not self._marks:
            if self._marks:
                self._settled_s = now  # new neighbours hand over what one of them lacks
            self._ring, self._front, self._said = ring, -1, None
            self._marks = {id_: self._marks.get(id_) or _Mark(-1, now, now) for id_ in ring}
        if oldest != self._oldest:
            self._oldest, self._front = oldest, -1
        # A mirror that has it got it from those before it, whether they answer or not.
        reached = [at for at, id_ in enumerate(ring) if self._marks[id_].last >= oldest]
        front = reached[-1] + 1 if reached else 0
        if front != self._front:
            self._front, self._front_s = front, now

    def _blamed(
        self, mirrors: Sequence[RingMember], age_s: float, pending_bytes: int, now: float
    ) -> RingMember | None:
        """Return the first in the ring that lacks the oldest broadcast, if it makes no progress; else None.

        If all have it the last one is blamed: it is stuck there. A mirror makes no progress if it has got nothing
        new since the one before it could have given it something.
        """
        blamed = mirrors[min(self._front, len(mirrors) - 1)]
        still_s = now - self._front_s
        if pending_bytes > LAG_BYTES_MAX:
            return blamed if still_s >= REPEAT_S else None
        if self._front < len(mirrors):
            still_s = min(still_s, now - self._marks[blamed.id].risen_s)
        is_late = age_s >= T_RING_S and now - self._settled_s >= T_RING_S
        return blamed if is_late and still_s >= PROBE_S else None

    def _sentence(
        self, view: View, blamed: RingMember, age_s: float, pending_bytes: int, policy: str
    ) -> Sequence[Verdict]:
        reason = f"has not passed on an operation for {age_s:.0f} s, {pending_bytes} bytes wait"
        others = {member.id for member in view.ring if member.id in view.synced and member.id != blamed.id}
        is_needed = blamed.id in view.synced and not others
        is_last = blamed.id in view.synced and others <= {view.master}
        may_go = policy != "block" and not is_needed and (not is_last or age_s >= LAST_S)
        verdict = Evict if may_go else Blocked
        if self._said == (verdict, blamed.id):
            return ()
        self._said = verdict, blamed.id
        return (verdict(blamed.id, reason),)


def _after(view: View, own: int) -> tuple[RingMember, ...]:
    """Return the others in the order in which this member's operations come to them."""
    ring = view.ring
    ids = [member.id for member in ring]
    if own not in ids:
        return ()
    at = ids.index(own)
    return (*ring[at + 1 :], *ring[:at])
