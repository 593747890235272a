"""The cluster-wide lock of a plan as its holder sees it: when to renew it, and whether it may be relied on. Pure.

It is kept in the cluster's replicated metadata and ends by itself. Source: reference spark.md §3.4.
"""

from collections.abc import Mapping
from typing import Any, Final

RENEWALS: Final = 3
"""It is renewed so many times in the time for which it is given."""

RETRY_S: Final = 1.0


class Lock:
    """The lock, from the first wish for it.

    owner: who holds it, for people and for the cluster.   due_at: when to ask for it.   was_held: it was ours once.
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
        """Of the requests that get, renew and release it."""
        return {"plan": self._plan, "owner": self.owner, "ttl_s": self._ttl_s}

    def is_due(self, now: float) -> bool:
        """Whether to ask for it."""
        return now >= self.due_at

    def is_held(self, now: float) -> bool:
        """Whether it is ours, with time left for a request: the cluster looks again at each step."""
        return now < self._until

    def gained(self, now: float) -> None:
        """The cluster gave it or renewed it. It was asked for earlier, so it ends a third earlier here."""
        self.was_held = True
        self._until = now + self._ttl_s * (1 - 1 / RENEWALS)
        self.due_at = now + self._ttl_s / RENEWALS

    def missed(self, now: float) -> None:
        """Nobody answered."""
        self.due_at = now + RETRY_S

    def lost(self) -> None:
        """It is not ours any more as far as the cluster is concerned. It is asked for at once."""
        self._until = self.due_at = float("-inf")
