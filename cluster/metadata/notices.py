"""Tell other members what this one has applied: a command is answered when every member that is up has applied it.

`cluster.metadata.raft_log` waits for these notices. The node that submitted the command is told at once, all others
now and then, as notices get lost. A member to which there is no link, though it is up for the leader, is told by way
of the leader, which has links to both.

    applied ─┬─► Applied(index) ──────────────────────────────► submitter
             └─► Applied(index, receiver) ─► leader ─► Applied(index, member) ─► submitter without a link
"""

from collections.abc import Callable
from typing import Final

from cluster.metadata.raft_pb2 import Applied

_AGAIN_S: Final = 5.0
"""How often all members are told, if there is news: half of the time for which an answer waits."""


class Notices:
    """The notices that one member sends.   say: sends one, which may get lost."""

    def __init__(self, say: Callable[[str, Applied], None]) -> None:
        self._say = say
        self._told_all = 0
        self._due = 0.0
        self._far: set[str] = set()
        """The submitters that have no link to this member."""

    def tell_one(self, peer: str, index: int) -> None:
        """Tell a peer how far this member has applied the log."""
        self._say(peer, Applied(index=index))

    def tell(self, index: int, submitters: set[str], links: set[str], leader: str | None, now: float) -> None:
        """Tell the submitters whose commands were applied; tell all peers if that is due."""
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
        """Pass on, as the leader, a member's notice to the one that it is for."""
        self._say(notice.receiver, Applied(index=notice.index, member=member))

    def soon(self, now: float) -> None:
        """Tell all peers soon: a snapshot replaced commands, so it is not known which nodes wait for these."""
        self._due = now

    def due(self, index: int) -> float:
        """Return when `tell` has something to say to all."""
        return self._due if self._told_all != index else float("inf")
