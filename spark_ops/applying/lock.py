"""The cluster-wide lock of a plan as its holder sees it: when to renew it, and whether it is held. Pure.

The lock is kept in the cluster's replicated metadata and expires unless renewed. Source: spark §3.4.
"""

from collections.abc import Mapping
from typing import Any, Final

RENEWALS: Final = 3
"""The number of renewals of the lock within its time to live."""

RETRY_S: Final = 1.0


class Lock:
    """The lock, from the first request for it.

    owner: the holder's name, for operators and for the cluster.   due_at: when to request it.   was_held: it was ours
    once.
    """

    def __init__(self, plan: str, owner: str, ttl_s: float, now: float) -> None:
        self.owner = owner
        self.due_at = now
        self.was_held = False
        self._plan = plan
        self._ttl_s = ttl_s
        self._until = float("-inf")

    @property
    def body(self) -> Mapping[str, Any]:
        """The body of the requests that get, renew and release the lock."""
        return {"plan": self._plan, "owner": self.owner, "ttl_s": self._ttl_s}

    def is_due(self, now: float) -> bool:
        """True if it is time to request or renew the lock."""
        return now >= self.due_at

    def is_held(self, now: float) -> bool:
        """True if we hold the lock, with time left for a request: the cluster checks it again at each step."""
        return now < self._until

    def gained(self, now: float) -> None:
        """Note that we hold the lock. It began with the earlier request, so it ends a third earlier here."""
        self.was_held = True
        self._until = now + self._ttl_s * (1 - 1 / RENEWALS)
        self.due_at = now + self._ttl_s / RENEWALS

    def missed(self, now: float) -> None:
        """Note that no node answered; the lock is requested again soon."""
        self.due_at = now + RETRY_S

    def lost(self) -> None:
        """Note that the cluster says that we do not hold the lock. It is requested at once."""
        self._until = self.due_at = float("-inf")
