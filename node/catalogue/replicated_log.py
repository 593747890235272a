"""The command log: the only way by which the catalogue is changed.

A single node is a cluster of one: it submits the same commands to a log that applies them at once. In a
cluster the log is Raft's, `on_applied` comes later, and the caller must have kept its place until then. There
is no other code path (docs/internals/catalogue.md, "Three logs").

    LocalLog     applied, reacted to, answered                     a broker without a disk
    DurableLog   applied, written, reacted to … synced … answered  a node without peers
    RaftLog      sent … synced … committed, applied, reacted to … applied everywhere, answered   see `cluster.metadata`
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from node.amqp.constants import ReplyCode
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, Refused
from node.catalogue.durable_part import durable_changes
from node.catalogue.events import Event

ResultT = TypeVar("ResultT")

Answer = Callable[[Any], None]
React = Callable[[Sequence[Event]], None]

NOT_WRITTEN: Final = Refused(ReplyCode.INTERNAL_ERROR, "metadata could not be written to disk")
"""The answer to a command whose change is not on disk and will be gone after a restart.

Until then the change stays in the catalogue: others may have seen it, so it cannot be undone.
"""


class ReplicatedLog(Protocol):
    """A log that orders the commands of all nodes."""

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Have the command applied, after all that was submitted here before.

        on_applied: called once with its result, after this node has reacted to the command's changes.
        """
        ...

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """Call back, once, when all that was applied so far outlives this node; with False if it never will."""
        ...


class CommandLog(Protocol):
    """A log that keeps commands on disk, in order."""

    def append(self, commands: Sequence[Command[Any]], on_safe: Callable[[bool], None]) -> None:
        """Keep the commands of one change: after a crash all of them are there or none.

        on_safe: called once, later (never from within `append`), and in the order of the changes: whether they
            are synced. False: they never will be.
        """


class LocalLog:
    """The log of a broker without a disk: a command is applied before `submit` returns.

    react: gets what each command changed, in order, before the command's `on_applied`.

    A command submitted from within `react` or `on_applied` waits until those return, so that commands,
    reactions and answers keep one order; it is applied before the outermost `submit` returns.
    """

    def __init__(self, catalogue: Catalogue, react: React) -> None:
        self._catalogue = catalogue
        self._react = react
        self._agenda = _Agenda()

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Apply the command and react to it, then call `on_applied`; all before the outermost `submit` returns."""
        self._agenda.add(partial(self._apply, command, on_applied))

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """Call back at once with True: without a disk nothing gets safer by waiting."""
        on_safe(True)

    def _apply(self, command: Command[Any], on_applied: Answer | None) -> None:
        result = self._catalogue.apply(command)
        events = self._catalogue.take_events()
        if events:
            self._react(events)
        if on_applied is not None:
            on_applied(result)


class DurableLog:
    """The log of a node without peers: a command is applied before `submit` returns, as by `LocalLog`, and what it
    changes in the durable part of the catalogue is written.

    `on_applied` comes once that is synced; `NOT_WRITTEN` when it never will be. A change of nothing durable is
    answered at once, out of turn: a submitter that cares for the order of its commands waits for each answer.
    A result without a change (the object exists already, or is gone) is given once all earlier changes are synced.
    """

    def __init__(self, catalogue: Catalogue, react: React, commands: CommandLog) -> None:
        self._catalogue = catalogue
        self._react = react
        self._commands = commands
        self._agenda = _Agenda()
        self._unsafe: deque[list[Callable[[bool], None]]] = deque()
        """For each change that is not synced yet, the callbacks that wait for it."""

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Apply the command, write what changed durably, and react; `on_applied` comes once that is synced."""
        self._agenda.add(partial(self._apply, command, on_applied))

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """Call back when the last unsynced change is synced, or never will be; at once if there is none."""
        if self._unsafe:
            self._unsafe[-1].append(on_safe)
        else:
            on_safe(True)

    def replay(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """Apply and react to a command that is on disk: at the start, to build what was there."""
        self._agenda.add(partial(self._apply, command, on_applied, is_new=False))

    def _apply(self, command: Command[Any], on_applied: Answer | None, *, is_new: bool = True) -> None:
        result = self._catalogue.apply(command)
        events = self._catalogue.take_events()
        changes = durable_changes(command, result, events, self._catalogue) if is_new else []
        answer = partial(_answer, on_applied, result)
        if changes:
            # Before the reaction: a new queue's record is on its way when the first message comes.
            self._unsafe.append([answer])
            self._commands.append(changes, self._safe)
        if events:
            self._react(events)
        if changes:
            return
        if self._unsafe and not events:
            self._unsafe[-1].append(answer)
        else:
            answer(True)

    def _safe(self, is_safe: bool) -> None:
        """Answer all that wait for the oldest change: it is synced, or never will be."""
        self._agenda.add(partial(_answer_all, self._unsafe.popleft(), is_safe))


class _Agenda:
    """A queue of tasks that run one after the other: one that is added from within another waits until that is done."""

    def __init__(self) -> None:
        self._tasks: deque[Callable[[], None]] = deque()
        self._is_busy = False

    def add(self, task: Callable[[], None]) -> None:
        """Do the task, at once unless this is called from within another one."""
        self._tasks.append(task)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._tasks:
                self._tasks.popleft()()
        finally:
            self._is_busy = False


def _answer(on_applied: Answer | None, result: object, is_safe: bool) -> None:
    if on_applied is not None:
        on_applied(result if is_safe else NOT_WRITTEN)


def _answer_all(answers: list[Callable[[bool], None]], is_safe: bool) -> None:
    for answer in answers:
        answer(is_safe)
