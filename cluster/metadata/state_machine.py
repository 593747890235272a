"""The interface of the replicated state, as a Raft member sees it."""

from collections.abc import Iterator, Sequence
from typing import Protocol


class Restoring(Protocol):
    """A state that is being received, beside the present one."""

    def add(self, items: Sequence[bytes]) -> None:
        """Take the next items of a snapshot. Raises SnapshotUnreadable."""

    def install(self) -> None:
        """Replace the present state by this one, which is complete."""


class SnapshotUnreadable(Exception):
    """A snapshot has items that this version does not know; the text is for the operator."""


class StateMachine(Protocol):
    """The replicated state. It is deterministic: members that apply the same commands in the same order have the
    same state.
    """

    def apply(self, index: int, command: bytes, *, is_last: bool) -> None:
        """Apply a committed entry. An exception stops this member until the node restarts.

        is_last: no other committed entry waits, so it may tell submitters before (`RaftMember.tell_applied`).
        """

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as it is now, as items; they may be made later, as they are asked for."""

    def begin_restore(self) -> Restoring:
        """Return a new, empty state."""

    def before(self, now: float) -> None:
        """Begin a tick: propose the commands that have gathered."""

    def after(self, now: float) -> float:
        """End a tick: answer commands that wait. Returns when to be called again at the latest."""

    def take_submitters(self) -> set[str]:
        """Return the nodes whose commands were applied since the last call."""

    def peer_applied(self, name: str, index: int) -> bool:
        """Note that a member has applied all up to this entry. True if `after` has something to do because of that."""

    def synced(self) -> bool:
        """Note that more of the journal is safe. True if `after` has something to do because of that."""

    def broken(self, reason: str) -> None:
        """Note that this member takes part no more: it applies and answers nothing from now on."""
