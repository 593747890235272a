"""Paces the proposals of queues' views: which queues to look at, and which changes are on their way to the
catalogue.

    an event ─► due ─ there is room ─► a look ─► pending, and to the catalogue ─► a view shows it: there is room
                                         ▲          │
                                         └──────────┘ not shown after a while

A proposal that is lost, or refused since the view went on meanwhile, is only known by the view that doesn't come.

Source: reliability §4.1 (commands are compare-and-set, so they may be repeated).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from node.catalogue.mirrors.views import (
    AddMirror,
    DropMirror,
    OfferCopy,
    Revive,
    TookOver,
    TransferMaster,
    Unmirror,
    ViewChange,
    is_offered,
    is_there,
)
from node.catalogue.records import QueueRecord

OUTSTANDING_MAX: Final = 100
"""The most proposals of one node that no view has shown yet: a node that goes down has a change for each of its
queues.
"""

PATIENCE_S: Final = 1.0
"""How long a proposal is waited for."""

PATIENCE_S_MAX: Final = 8.0
"""The same for a proposal that was repeated: while there is no majority none of them comes through."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of a queue's view for the catalogue.

    change: None: the queue has no view and is to get one (`StartMirroring`).
    reason: why, for the log, if it is worth a line; empty when it is made again.
    """

    vhost: str
    name: str
    uid: str
    change: ViewChange | None
    reason: str = ""


class _Timetable:
    """The times at which queues are to be looked at. A time that was replaced stays in the heap until it comes up."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def put(self, uid: str, time: float) -> None:
        self._times[uid] = time
        heappush(self._heap, (time, uid))
        if len(self._heap) > 2 * len(self._times) + 64:
            self._heap = [(time, uid) for uid, time in self._times.items()]
            heapify(self._heap)

    def remove(self, uid: str) -> None:
        self._times.pop(uid, None)

    def next_time(self) -> float | None:
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> str | None:
        time = self.next_time()
        if time is None or time > now:
            return None
        _, uid = heappop(self._heap)
        del self._times[uid]
        return uid


@dataclass(slots=True)
class _Pending:
    """A change that is on its way since `sent_s`, for the `attempts`-th time."""

    change: ViewChange | None
    sent_s: float
    attempts: int = 1

    @property
    def patience_s(self) -> float:
        return min(PATIENCE_S * 2.0 ** (self.attempts - 1), PATIENCE_S_MAX)


class Proposals:
    """The queues to look at, and the changes on their way: one of a queue at a time, and not too many of all."""

    def __init__(self) -> None:
        self._due: dict[str, None] = {}
        self._later: list[str] = []
        self._pending: dict[str, _Pending] = {}
        self._timetable = _Timetable()
        """The times at which queues with a pending change are looked at again."""
        self._made: list[Proposal] = []

    # --- what to look at ---

    def look_at(self, uid: str) -> None:
        """Look at this queue: something happened to it."""
        self._due[uid] = None

    def look_at_all(self, uids: Iterable[str]) -> None:
        """Look at all queues, after those of `look_at`."""
        self._later = list(uids)

    def next(self, now: float) -> str | None:
        """Return a queue to look at now: `make` or `lapse` has to follow. It may be one that was forgotten."""
        while (uid := self._timetable.take(now)) is not None:
            if uid in self._pending or self._has_room:
                return uid
            self._due[uid] = None
        if not self._has_room:
            return None
        if self._due:
            uid = next(iter(self._due))
            del self._due[uid]
            return uid
        return self._later.pop() if self._later else None

    def next_time(self, now: float) -> float | None:
        """Return when there is a queue to look at, if nothing happens until then."""
        return now if self._has_room and (self._due or self._later) else self._timetable.next_time()

    # --- what came of it ---

    def make(self, record: QueueRecord, change: ViewChange | None, reason: str, now: float) -> None:
        """Propose a change. While this or another one of the queue may still come through, look again later."""
        pending = self._pending.get(record.uid)
        if pending is None:
            pending = self._pending[record.uid] = _Pending(change, now)
        else:
            is_same = pending.change == change
            until = pending.sent_s + (pending.patience_s if is_same else PATIENCE_S)
            if now < until:
                self._timetable.put(record.uid, until)
                return
            pending.attempts = pending.attempts + 1 if is_same else 1
            pending.change, pending.sent_s = change, now
            reason = "" if is_same else reason
        self._made.append(Proposal(record.vhost, record.name, record.uid, change, reason))
        self._timetable.put(record.uid, now + pending.patience_s)

    def lapse(self, uid: str, now: float) -> None:
        """Note that the queue needs no change. One that is on its way may still come through for a while."""
        pending = self._pending.get(uid)
        if pending is not None:
            until = pending.sent_s + PATIENCE_S
            if now < until:
                self._timetable.put(uid, until)
            else:
                self.forget(uid)

    def see(self, record: QueueRecord) -> None:
        """Take a queue's changed view, which may show what was proposed."""
        pending = self._pending.get(record.uid)
        if pending is not None and is_shown(record, pending.change):
            self.forget(record.uid)

    def forget(self, uid: str) -> None:
        """Forget a queue's pending change."""
        self._pending.pop(uid, None)
        self._timetable.remove(uid)

    def take(self) -> list[Proposal]:
        """Return the proposals since the last call."""
        made, self._made = self._made, []
        return made

    @property
    def outstanding(self) -> int:
        """The number of changes on their way."""
        return len(self._pending)

    @property
    def _has_room(self) -> bool:
        return len(self._pending) < OUTSTANDING_MAX


def is_shown(record: QueueRecord, change: ViewChange | None) -> bool:
    """True if a change has been made, or can't be made any more."""
    view = record.view
    if view is None or change is None:
        return (view is None) is not (change is None)
    match change:
        case AddMirror(node, incarnation):
            member = view.member_on(node)
            return member is not None and member.incarnation == incarnation
        case DropMirror(id_, version):
            dropped = view.member(id_)
            return dropped is None or not is_there(dropped) or version not in (0, view.version)
        case TransferMaster(master, _):
            return view.master != master
        case TookOver(since):
            return view.since != since or not view.previous
        case OfferCopy():
            return view.state != "down" or is_offered(view, change)
        case Revive(version) | Unmirror(_, version):
            return view.version != version
    return False
