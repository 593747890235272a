"""A replicated log that is right by construction: one list of entries, elections, and who may reach whom.

What it keeps of Raft is what leases depend on: only the leader of the highest term commits, and only while it
reaches a majority; a leader of former days goes on taking itself for one; entries that it could not commit may be
committed by its successor; who cannot reach the leader applies nothing.
"""

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command
from node.catalogue.events import Event

ELECTION_S: Final = (0.4, 1.3)


@dataclass(slots=True)
class Entry:
    """An entry is a committed command with its result and events."""

    command: Command[Any]
    result: object
    events: list[Event]
    origin: Hashable | None
    """The origin waits for the result: what it proposes again is not done again."""


@dataclass(slots=True)
class Voter:
    """One node's part."""

    name: str
    belief: str | None = None
    """Whom it follows."""
    heard_s: float = 0.0
    patience_s: float = 1.0


@dataclass(slots=True)
class Pending:
    """A pending command was appended by the leader and is not yet committed."""

    command: Command[Any]
    origin: Hashable | None
    ready_s: float


@dataclass(slots=True)
class Raft:
    """All nodes' logs. reach: whether two nodes hear each other now, or one is awake, when both are the same."""

    names: list[str]
    rng: random.Random
    reach: Callable[[str, str], bool]
    on_commit: Callable[[Entry], None]
    leader: str | None = None
    leader_since_s: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    catalogue: Catalogue = field(default_factory=Catalogue)
    voters: dict[str, Voter] = field(default_factory=dict)
    _pending: list[Pending] = field(default_factory=list)
    _answered: set[Hashable] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.voters = {name: Voter(name, patience_s=self.rng.uniform(*ELECTION_S)) for name in self.names}

    def propose(self, name: str, command: Command[Any], origin: Hashable | None, now: float) -> bool:
        """Append it, if this is the leader indeed."""
        if name != self.leader:
            return False
        self._pending.append(Pending(command, origin, now + self.rng.uniform(0.002, 0.03)))
        return True

    def has_majority(self, name: str) -> bool:
        """Whether it reaches more than half, itself included."""
        return 2 * sum(self.reach(name, other) for other in self.names) > len(self.names)

    def step(self, now: float) -> None:
        """Time goes by: commit, hear the leader, elect."""
        leader = self.leader
        if leader is not None and self.has_majority(leader):
            self._commit(now)
        for voter in self.voters.values():
            if not self.reach(voter.name, voter.name):
                continue
            if leader is not None and self.reach(voter.name, leader):
                voter.belief, voter.heard_s = leader, now
            elif voter.belief == voter.name and voter.name != leader and self._knows_better(voter):
                voter.belief = None
            elif voter.belief != voter.name and now - voter.heard_s > voter.patience_s:
                voter.belief = None
                self._stand(voter, now)
                leader = self.leader

    def lost(self, name: str) -> None:
        """Note that a voter's process ended: it remembers the log, but not whom it followed."""
        voter = self.voters[name]
        voter.belief = None
        if self.leader == name:
            self.leader = None

    def _knows_better(self, voter: Voter) -> bool:
        """A leader of former days meets somebody who has voted for another."""
        return any(
            self.reach(voter.name, other.name) and other.belief != voter.name
            for other in self.voters.values()
            if other is not voter
        )

    def _stand(self, voter: Voter, now: float) -> None:
        voter.heard_s = now - self.rng.uniform(0, 0.3)
        voter.patience_s = self.rng.uniform(*ELECTION_S)
        votes = [
            other
            for other in self.voters.values()
            if self.reach(voter.name, other.name) and (other is voter or now - other.heard_s > ELECTION_S[0])
        ]
        if 2 * len(votes) <= len(self.names):
            return
        kept = self.rng.randint(
            0, len(self._pending)
        )  # a prefix of what the old leader had appended got through
        del self._pending[kept:]
        self.leader, self.leader_since_s = voter.name, now
        voter.belief, voter.heard_s = voter.name, now
        self._commit(now, whatever=True)

    def _commit(self, now: float, *, whatever: bool = False) -> None:
        while self._pending and (whatever or self._pending[0].ready_s <= now):
            pending = self._pending.pop(0)
            if pending.origin is not None:
                if pending.origin in self._answered:
                    continue
                self._answered.add(pending.origin)
            result = self.catalogue.apply(pending.command)
            entry = Entry(pending.command, result, self.catalogue.take_events(), pending.origin)
            self.entries.append(entry)
            self.on_commit(entry)
