"""What a member has applied, told to those who wait for it: an answer is given when every member that is up has applied
the command (`cluster.metadata.raft_log`).

Who submitted the command hears at once, all others now and then, as news gets lost. A member to which there is no
link, though it is up for the leader, hears by way of the leader, who has links to both.

    applied ─┬─► Applied(index) ──────────────────────────────► who submitted
             └─► Applied(index, receiver) ─► leader ─► Applied(index, member) ─► who submitted, without a link
"""

from collections.abc import Callable
from typing import Final

from cluster.metadata.raft_pb2 import Applied

_AGAIN_S: Final = 5.0
"""How often all are told, if there is news: half of the time for which an answer waits."""


class Notices:
    """Those of one member.   say: sends one, which may get lost."""

    def __init__(self, say: Callable[[str, Applied], None]) -> None:
        self._say = say
        self._told_all = 0
        self._due = 0.0
        self._far: set[str] = set()
        """Who submitted commands and has no link to this member."""

    def tell_one(self, peer: str, index: int) -> None:
        """Tell a peer."""
        self._say(peer, Applied(index=index))

    def tell(self, index: int, submitters: set[str], links: set[str], leader: str | None, now: float) -> None:
        """Tell those whose commands were applied; all, if that is due."""
        self._far = (self._far | submitters) - links
        if index == self._told_all:
            return
        near, far = submitters & links, submitters - links
        if now >= self._due:
            self._due = now + _AGAIN_S
            self._told_all = index
            near, far = links, self._far
        for peer in sorted(near):
            self.tell_one(peer, index)
        if leader is not None and leader in links:
            for peer in sorted(far):
                self._say(leader, Applied(index=index, receiver=peer))

    def relay(self, member: str, notice: Applied) -> None:
        """Pass on what a member says to another one: this is the leader."""
        self._say(notice.receiver, Applied(index=notice.index, member=member))

    def soon(self, now: float) -> None:
        """A snapshot took the place of commands: who waits for those, it does not say."""
        self._due = now

    def due(self, index: int) -> float:
        """When `tell` has something to say to all."""
        return self._due if self._told_all != index else float("inf")
