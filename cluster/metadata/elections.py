"""Ask whether an election has a chance before a term begins (PreVote), which PySyncObj does not do.

A member that hears no leader asks the other voters. A voter says no if it hears a leader, or has a longer log. Only
with a majority of yes the member begins a term, which deposes the leader. So a member with one broken link disturbs
no others.
Source: reliability §3.2 (no PreVote in PySyncObj); Raft, Ongaro's thesis §9.6.
"""

from collections.abc import Callable
from math import inf


class Elections:
    """The questions of one member and its answers.

    min_s: for how long after it was heard a leader counts as there.   ask_s: about how long from question to question.
    random: from 0 to 1.
    """

    def __init__(self, name: str, min_s: float, ask_s: float, random: Callable[[], float]) -> None:
        self._name = name
        self._min_s = min_s
        self._ask_s = ask_s
        self._random = random
        self._heard_at = -inf
        self._asks_again_at = -inf
        self._term = 0
        self._granted: set[str] = set()
        self._votes: tuple[int, set[str]] = (0, set())

    def heard_leader(self, now: float) -> None:
        """Note that a leader was heard."""
        self._heard_at = now
        self._granted.clear()

    def expect_leader(self, now: float) -> None:
        """Note that this member has just started: there may be a leader that it has not heard yet."""
        self._heard_at = now + self._ask_s - self._min_s

    def lost_leader(self) -> None:
        """Note that the leader is gone, as far as is known."""
        self._heard_at = -inf

    def hears_leader(self, now: float, for_s: float | None = None) -> bool:
        """True if a leader was heard lately.   for_s: within so many seconds."""
        return now - self._heard_at < (self._min_s if for_s is None else for_s)

    def may_begin(self, term: int, voters: frozenset[str]) -> bool:
        """True if enough voters said yes to this term; their answers are forgotten then."""
        is_won = self._term == term and 2 * len((self._granted | {self._name}) & voters) > len(voters)
        if is_won:
            self._granted.clear()
        return is_won

    def asks(self, term: int, now: float) -> bool:
        """True if the others are to be asked now about this term."""
        if now < self._asks_again_at:
            return False
        self._asks_again_at = now + self._ask_s * (0.5 + self._random())
        self._term = term
        self._granted.clear()
        return True

    @property
    def asks_again_at(self) -> float:
        """The time of the next question."""
        return self._asks_again_at

    def hurry(self, at: float) -> None:
        """Ask at this time at the latest."""
        self._asks_again_at = min(self._asks_again_at, at)

    def granted(self, peer: str, term: int) -> None:
        """Note that a voter said yes."""
        if term == self._term:
            self._granted.add(peer)

    def counts(self, peer: str, term: int) -> bool:
        """True for the first vote of a peer in a term: PySyncObj counts votes, not voters."""
        if self._votes[0] != term:
            self._votes = (term, set())
        is_new = peer not in self._votes[1]
        self._votes[1].add(peer)
        return is_new
