"""Changes of the voters that were requested on this node: proposed again and again until they are in force."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from cluster.metadata.entries import Change, ChangeKind, encode_change

Done = Callable[[str | None], None]
"""Called with None when the change is in force, else with the reason why it is not."""

CHANGE_S: Final = 15.0
"""For how many seconds a change of the voters is tried."""


@dataclass(slots=True)
class _Pending:
    """A requested change of the voters.   is_proposed: whether a leader got it."""

    change: Change
    done: Done
    deadline: float
    retry_at: float
    is_proposed: bool = False


class VoterChanges:
    """The requested changes of one member.

    retry_s: a change that is not in force after so long is proposed again; more than a heartbeat.
    """

    def __init__(self, retry_s: float) -> None:
        self.retry_s: Final = retry_s
        self._pending: list[_Pending] = []

    def add(self, kind: ChangeKind, name: str, done: Done, now: float) -> None:
        """Request that a member begin or cease to vote."""
        self._pending.append(_Pending((kind, name), done, now + CHANGE_S, now))

    @property
    def is_empty(self) -> bool:
        """True if no change is pending."""
        return not self._pending

    def due(self) -> float:
        """Return when to call `advance` next."""
        return min((each.retry_at for each in self._pending), default=inf)

    def advance(
        self, now: float, in_force: frozenset[str], *, is_current: bool, propose: Callable[[bytes], bool]
    ) -> None:
        """Propose the changes that are not in force yet.

        in_force: the voters by what is applied here. That may be old news; so it counts only a while after a leader
        was asked, while it is heard: is_current, within `retry_s`.
        propose: proposes a command; True if a leader gets it.
        """
        for each in list(self._pending):
            kind, name = each.change
            if now >= each.deadline:
                self._pending.remove(each)
                each.done(f"the cluster did not {kind} '{name}' as a voter within {CHANGE_S:g} s")
            elif now >= each.retry_at:
                if each.is_proposed and is_current and (name in in_force) == (kind == "add"):
                    self._pending.remove(each)
                    each.done(None)
                    continue
                each.is_proposed = propose(encode_change(kind, name)) or each.is_proposed
                each.retry_at = now + self.retry_s
