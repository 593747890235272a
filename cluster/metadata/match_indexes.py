"""Followers tell each other how far they have the leader's log safe, so that they know what is committed as soon as the
leader does: the leader's word for it would be one more hop between nodes.

An entry of the current term that a majority of the voters has safe is committed, whoever counts (Raft §5.4.2). A
follower hears of the others by the same answers to appends that the leader gets. It never counts the leader, of whose
disk it knows nothing.
"""

from collections.abc import Collection, Mapping
from typing import Final

TELLING_MAX: Final = 5
"""The most voters of a group whose followers tell each other what they have: the messages grow with the square."""


class MatchIndexes:
    """The last entries that the other followers have told to be safe, in one term, as long as they are linked."""

    def __init__(self) -> None:
        self._term = 0
        self._by_voter: dict[str, int] = {}

    def note(self, voter: str, term: int, index: int) -> None:
        """Note that a voter has all up to an entry safe.   term: of its message, not older than in an earlier call."""
        if term != self._term:
            assert term > self._term
            self._term = term
            self._by_voter.clear()
        self._by_voter[voter] = max(index, self._by_voter.get(voter, 0))

    def forget(self, voter: str) -> None:
        """Count a voter no more, as it may come back with an older journal."""
        self._by_voter.pop(voter, None)

    def told_in(self, term: int) -> Mapping[str, int]:
        """Return what the other followers have told in this term."""
        return self._by_voter if term == self._term else {}

    def safe_index(self, term: int, voters: Collection[str], own: int) -> int:
        """Return the last entry that a majority of the voters has safe, as far as is known; 0 if nothing is known.

        own: the last entry that is safe here.
        """
        known = [own, *(index for voter, index in self.told_in(term).items() if voter in voters)]
        known.sort(reverse=True)
        majority = len(voters) // 2 + 1
        return known[majority - 1] if len(known) >= majority else 0
