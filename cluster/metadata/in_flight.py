"""The appends that followers have not answered yet: while a follower is busy with some, news for it may gather, as
PySyncObj sends appends again that are under way (ring §3).

Appends that only tell a new commit index are not among them, as they get no answer.
"""

from typing import Final

PATIENCE_S: Final = 0.5
"""A follower that has not answered for so long is not waited for."""


class AppendsInFlight:
    """The numbers of unanswered appends of one leader, by follower."""

    def __init__(self) -> None:
        self._by_peer: dict[str, tuple[int, float]] = {}
        """The number of appends, and when the last one went out."""

    def sent(self, peer: str, now: float) -> None:
        """Count an append to a follower."""
        self._by_peer[peer] = (self._by_peer.get(peer, (0, 0.0))[0] + 1, now)

    def answered(self, peer: str) -> None:
        """Count an answer."""
        count, sent_at = self._by_peer.get(peer, (0, 0.0))
        self._by_peer[peer] = (max(count - 1, 0), sent_at)

    def forget(self, peer: str) -> None:
        """Forget a follower's appends: they are lost, or answered in a session that is over."""
        self._by_peer.pop(peer, None)

    def is_busy(self, peer: str, now: float) -> bool:
        """Return True if a follower's answer is awaited."""
        count, sent_at = self._by_peer.get(peer, (0, 0.0))
        return count > 0 and now - sent_at <= PATIENCE_S
