"""Brings queues back that are down, from the copies on this node's disk: reliability §4.10, W10.

    a queue is down and we have one of the copies that may bring it back ─► OfferCopy
    30 s after the first offer, and some are still missing ─► Revive: the best one is taken

The catalogue takes the best copy when all have come. A copy that has lost something counts only then: where others
may have all, they are waited for. After a restart of all nodes there may be thousands of such queues: no more
proposals are under way at a time than a `PolicyReconciler` has.
"""

from dataclasses import dataclass
from typing import Final

from cluster.mirror.policy_reconciler import LOOKS_MAX
from cluster.mirror.proposals import Proposal, Proposals
from node.catalogue.mirrors.views import OfferCopy, Revive, View, is_offered
from node.catalogue.records import QueueRecord

T_WAIT_S: Final = 30.0
"""How long the other copies are waited for once a node has offered one."""


@dataclass(slots=True)
class _Case:
    """A copy of ours, and since when there have been offers.

    copy: its number.   position, is_clean: see `OfferCopy`.
    """

    record: QueueRecord
    copy: int
    position: int
    is_clean: bool
    offered_s: float | None = None


class QueueRecovery:
    """The copies of the node `here` in this incarnation that may bring their queue back."""

    def __init__(self, here: str, incarnation: int) -> None:
        self.here = here
        self.incarnation = incarnation
        self._cases: dict[str, _Case] = {}
        self._waiting: dict[str, float] = {}
        """The times at which queues with offers of other nodes are due. All wait equally long, so they are in order."""
        self._proposals = Proposals()

    def recovered(
        self, record: QueueRecord, copy: int, position: int, now: float, *, is_clean: bool = True
    ) -> None:
        """Take a copy of a queue that is down, which this node has read.

        copy: its number.   position, is_clean: see `OfferCopy`.
        """
        self._cases[record.uid] = _Case(record, copy, position, is_clean)
        self.see(record, now)

    def see(self, record: QueueRecord, now: float) -> bool:
        """Take a queue's changed view. Also called for queues without a copy here.

        False when we had a copy to offer and it is not wanted any more; it may have been taken.
        """
        case, view = self._cases.get(record.uid), record.view
        if case is None:
            return True
        if view is None or self._is_taken(view, case.copy) or view.copy_to_keep(self.here) != case.copy:
            self.forget(record.uid)
            return False
        case.record = record
        if not view.offers or self.here not in view.recoverable:
            case.offered_s = None
            self._waiting.pop(record.uid, None)
        elif case.offered_s is None:
            case.offered_s = now
            self._waiting[record.uid] = now + T_WAIT_S
        self._proposals.see(record)
        self._proposals.look_at(record.uid)
        return True

    def _is_taken(self, view: View, copy: int) -> bool:
        """True if the queue came back with this copy."""
        own = view.member_on(self.here)
        return own is not None and own.incarnation == self.incarnation and own.copy == copy

    def forget(self, uid: str) -> None:
        """Forget a queue that was deleted. An unknown one is ignored."""
        if self._cases.pop(uid, None) is not None:
            self._waiting.pop(uid, None)
            self._proposals.forget(uid)

    def look(self, now: float) -> list[Proposal]:
        """Return the proposals to make now. Looks at some queues only: `next_look` says whether there are more."""
        while self._waiting:
            uid, time = next(iter(self._waiting.items()))
            if now < time:
                break
            del self._waiting[uid]
            self._proposals.look_at(uid)
        for _ in range(LOOKS_MAX):
            due = self._proposals.next(now)
            if due is None:
                break
            case = self._cases.get(due)
            change = None if case is None else self._wanted(case, now)
            if case is None or change is None:
                self._proposals.lapse(due, now)
            else:
                self._proposals.make(case.record, change, "", now)
        return self._proposals.take()

    def next_look(self, now: float) -> float | None:
        """Return when to look again, if nothing happens until then."""
        times = [self._proposals.next_time(now), next(iter(self._waiting.values()), None)]
        return min((time for time in times if time is not None), default=None)

    def _wanted(self, case: _Case, now: float) -> OfferCopy | Revive | None:
        view = case.record.view
        assert view is not None
        if view.state != "down" or self.here not in view.recoverable:
            return None  # dead members are not all known yet, or the queue comes back from another copy
        offer = OfferCopy(self.here, self.incarnation, case.position, case.is_clean)
        if not is_offered(view, offer):
            return offer
        is_late = case.offered_s is not None and now - case.offered_s >= T_WAIT_S
        return Revive(view.version) if is_late and view.clean_offers else None
