"""The one way by which the catalogue is changed.

A single node is a cluster of one: it submits the same commands to a log that applies them at once. In a
cluster the log is Raft's, `on_applied` comes later, and the caller must have kept its place until then. There
is no other code path (architecture §1).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from node.broker.catalogue import Catalogue
from node.broker.commands import Command, Refused
from node.broker.events import Event

ResultT = TypeVar("ResultT")


class ReplicatedLog(Protocol):
    """Orders commands for all nodes."""

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Have the command applied, after all that was submitted here before.

        on_applied: called once with its result, after this node has reacted to what the command changed.
        """
        ...


class LocalLog:
    """The log of a node without peers: a command is applied before `submit` returns.

    react: gets what each command changed, in order, before the command's `on_applied`.

    A command submitted from within `react` or `on_applied` waits until those return, so that commands,
    reactions and answers keep one order; it is applied before the outermost `submit` returns.
    """

    def __init__(self, catalogue: Catalogue, react: Callable[[Sequence[Event]], None]) -> None:
        self._catalogue = catalogue
        self._react = react
        self._pending: deque[tuple[Command[Any], Callable[[Any], None] | None]] = deque()
        self._draining = False

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """See `ReplicatedLog.submit`."""
        self._pending.append((command, on_applied))
        if self._draining:
            return
        self._draining = True
        try:
            while self._pending:
                self._apply(*self._pending.popleft())
        finally:
            self._draining = False

    def _apply(self, command: Command[Any], on_applied: Callable[[Any], None] | None) -> None:
        result = self._catalogue.apply(command)
        events = self._catalogue.take_events()
        if events:
            self._react(events)
        if on_applied is not None:
            on_applied(result)
