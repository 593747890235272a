"""Deletions of queues that no method asked for: exclusive ones without their connection, auto-delete ones without
consumers, expired ones. Only some are under way at a time: what the cluster has to agree on next, a renewal of leases
for instance, comes behind them.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from node.catalogue.commands import Command, DeleteQueue
from node.catalogue.records import QueueRecord

DELETIONS_MAX: Final = 100
"""The most deletions under way."""


class Deletions:
    """The deletions of one broker, in the order in which they were asked for.

    submit: hands a command to the log, and has a function called once it is applied or refused.
    """

    def __init__(self, submit: Callable[[Command[Any], Callable[[Any], None]], None]) -> None:
        self._submit = submit
        self._line: deque[QueueRecord] = deque()
        self._asked = self._done = 0
        self._awaiting: deque[tuple[int, Callable[[Any], None]]] = deque()
        self._is_submitting = False

    def add(self, record: QueueRecord) -> None:
        """Delete a queue, now or when others have been deleted."""
        self._asked += 1
        self._line.append(record)
        self._go_on()

    def await_all(self, on_done: Callable[[Any], None]) -> None:
        """Call back when all queues are deleted that were added so far."""
        if self._done == self._asked:
            on_done(None)
        else:
            self._awaiting.append((self._asked, on_done))

    def _go_on(self) -> None:
        if self._is_submitting:
            return  # a deletion was done, or refused, before `submit` returned
        self._is_submitting = True
        try:
            while self._line and self._asked - self._done - len(self._line) < DELETIONS_MAX:
                record = self._line.popleft()
                self._submit(DeleteQueue(record.vhost, record.name, uid=record.uid), self._deleted)
        finally:
            self._is_submitting = False

    def _deleted(self, _: object) -> None:
        self._done += 1
        while self._awaiting and self._awaiting[0][0] <= self._done:
            self._awaiting.popleft()[1](None)
        self._go_on()
