"""What is replicated, as a Raft member sees it."""

from collections.abc import Iterator, Sequence
from typing import Protocol


class Restoring(Protocol):
    """A state on its way in, beside the one that is there."""

    def add(self, items: Sequence[bytes]) -> None:
        """The next items of a snapshot. Raises SnapshotUnreadable."""

    def install(self) -> None:
        """All is there: from now on this is the state."""


class SnapshotUnreadable(Exception):
    """A snapshot has what this version does not know; the text is for the operator."""


class StateMachine(Protocol):
    """Deterministic: members that apply the same commands in the same order have the same state."""

    def apply(self, index: int, command: bytes) -> None:
        """Do what a committed entry says. What it raises stops this member for good."""

    def snapshot(self) -> Iterator[bytes]:
        """The state as it is now, as items; they may be made later, as they are asked for."""

    def begin_restore(self) -> Restoring:
        """A new, empty state."""

    def before(self, now: float) -> None:
        """A tick begins: propose what has gathered."""

    def after(self, now: float) -> float:
        """A tick is over: answer who waits. Gives when to be called again at the latest."""

    def take_submitters(self) -> set[str]:
        """The nodes whose commands were applied since the last call."""

    def peer_applied(self, name: str, index: int) -> bool:
        """A member has applied all up to this entry. Whether `after` has something to do because of that."""

    def synced(self) -> bool:
        """More of the journal is safe. Whether `after` has something to do because of that."""

    def broken(self, reason: str) -> None:
        """This member takes part no more: nothing is applied or answered by it from now on."""
