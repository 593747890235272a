"""Changes of who votes that somebody on this node wants: proposed again and again until they are in force."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from cluster.metadata.entries import Change, ChangeKind, encode_change

Done = Callable[[str | None], None]
"""Gets None when it is done, else why it was not."""

CHANGE_S: Final = 15.0
"""For how long a change of who votes is tried."""


@dataclass(slots=True)
class _Pending:
    """A change that somebody wants.   is_proposed: whether a leader got it."""

    change: Change
    done: Done
    deadline: float
    retry_at: float
    is_proposed: bool = False


class VoterChanges:
    """The changes of one member.   retry_s: after how long without being in force one is proposed again: more than a
    heartbeat.
    """

    def __init__(self, retry_s: float) -> None:
        self.retry_s: Final = retry_s
        self._pending: list[_Pending] = []

    def add(self, kind: ChangeKind, name: str, done: Done, now: float) -> None:
        """Somebody wants a member to begin or to cease to vote."""
        self._pending.append(_Pending((kind, name), done, now + CHANGE_S, now))

    @property
    def is_empty(self) -> bool:
        """Whether nobody wants any."""
        return not self._pending

    def due(self) -> float:
        """When to call `advance` next."""
        return min((each.retry_at for each in self._pending), default=inf)

    def advance(
        self, now: float, in_force: frozenset[str], *, is_current: bool, propose: Callable[[bytes], bool]
    ) -> None:
        """Propose what is not in force yet.

        in_force: who votes by what is applied here. That may be old news; so it counts only a while after a leader
            was asked, while it is heard: is_current, within `retry_s`.
        propose: whether a leader gets it.
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
