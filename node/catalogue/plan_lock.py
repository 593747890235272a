"""The lock of plans: one plan at a time moves copies in a cluster, and its owner is known.

It is kept in the catalogue. A lock that is not renewed expires, by the clocks of the nodes that are asked: these may
differ, so a lock can end early or late, and two plans may each believe for a moment to have it. That does no harm,
since each step is judged alone when it is applied (`plan_steps`), and only while its plan has the lock then.
Source: spark §3.4 ("busy by X since T").
"""

from datetime import UTC, datetime
from typing import Final

from node.catalogue.records import PlanLock

_LAST_S: Final = 253_402_300_799
"""The last second that can be shown: a catalogue must not fail over a number."""


def taken(lock: PlanLock | None, plan: str, owner: str, now_ms: int, ttl_ms: int) -> PlanLock:
    """Return the lock after a request for it: the asking plan's, new or renewed, or still another's."""
    if lock is not None and (lock.plan, lock.owner) == (plan, owner):
        return PlanLock(plan, owner, lock.since_ms, now_ms + ttl_ms)
    if lock is not None and now_ms < lock.expires_ms:
        return lock
    return PlanLock(plan, owner, now_ms, now_ms + ttl_ms)


def refusal(lock: PlanLock | None, plan: str, now_ms: int) -> str | None:
    """Return why a plan may do nothing; None if it may."""
    if lock is None:
        return f"plan {plan} does not have the lock"
    if lock.plan != plan:
        return busy(lock)
    if now_ms >= lock.expires_ms:
        return f"the lock of plan {plan} has expired at {moment(lock.expires_ms)}"
    return None


def busy(lock: PlanLock) -> str:
    """Return the text for a plan that asked in vain for the lock."""
    return f"plan {lock.plan} of {lock.owner} is being carried out since {moment(lock.since_ms)}"


def moment(time_ms: int) -> str:
    """A time in UTC as plans show it: 2026-11-21T09:00:00Z."""
    seconds = min(max(time_ms // 1000, 0), _LAST_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
