"""A log that deletes what is large in pieces: a queue or an exchange with very many bindings, a vhost with very many
queues. All nodes apply a command at the same moment, and nobody is served while they do.

    DeleteQueue ─► large? ─ no ──────────────────────────────────────────────► the log
                      └ yes ─► Trim ─► applied ─► next turn ─► Trim ─► … ─► DeleteQueue

Until the last piece the object is there, with less and less of what it had. A node that stops half-way leaves it so:
whoever asked has no answer, and asks again.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, DeleteExchange, DeleteQueue, DeleteVhost, Refused, Trim
from node.catalogue.replicated_log import ReplicatedLog

ResultT = TypeVar("ResultT")

PIECE_MAX: Final = 200
"""Bindings that go at once, at some 10 us each; a queue counts as `node.catalogue.topology.QUEUE_COST` of them."""

_SPARE_PIECES: Final = 10
"""For what clients add meanwhile; the rest of that goes with the object."""


class InPieces:
    """A `ReplicatedLog` around another.

    wake: called when there is work for the coming turn.
    """

    def __init__(self, log: ReplicatedLog, catalogue: Catalogue, wake: Callable[[], None]) -> None:
        self._log = log
        self._catalogue = catalogue
        self._wake = wake
        self._due: deque[Callable[[], None]] = deque()

    def submit(
        self,
        command: Command[ResultT],
        on_applied: Callable[[ResultT | Refused], None] | None = None,
    ) -> None:
        """See `ReplicatedLog.submit`. What is submitted later may be applied before the end of a deletion in pieces."""
        trim, size = _first(command, self._catalogue)
        if trim is None or size <= PIECE_MAX:
            self._log.submit(command, on_applied)
        else:
            self._trim(
                trim, 2 * size // PIECE_MAX + _SPARE_PIECES, partial(self._log.submit, command, on_applied)
            )

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """See `ReplicatedLog.await_safety`."""
        self._log.await_safety(on_safe)

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do."""
        return bool(self._due)

    def turn(self) -> None:
        """The next piece, of whoever has waited longest."""
        self._due.popleft()()

    def _trim(self, trim: Trim, pieces_left: int, finish: Callable[[], None]) -> None:
        self._log.submit(trim, partial(self._trimmed, trim, pieces_left - 1, finish))

    def _trimmed(
        self, trim: Trim, pieces_left: int, finish: Callable[[], None], is_more: bool | Refused
    ) -> None:
        # Not at once: what isn't written to disk is answered before `submit` returns.
        self._due.append(
            partial(self._trim, trim, pieces_left, finish) if is_more is True and pieces_left else finish
        )
        self._wake()


def _first(command: Command[Any], catalogue: Catalogue) -> tuple[Trim | None, int]:
    """What takes a first piece off what a command is to delete, and how large all of that is."""
    match command:
        case DeleteQueue(vhost, name, uid):
            record = catalogue.queue(vhost, name)
            if record is not None and uid in (None, record.uid):
                trim = Trim(vhost, "queue", name, record.uid, PIECE_MAX)
                return trim, len(catalogue.bindings_to(vhost, "queue", name))
        case DeleteExchange(vhost, name, if_unused=False) if catalogue.exchange(vhost, name) is not None:
            size = len(catalogue.bindings_from(vhost, name)) + len(
                catalogue.bindings_to(vhost, "exchange", name)
            )
            return Trim(vhost, "exchange", name, None, PIECE_MAX), size
        case DeleteVhost(name) if catalogue.vhost(name) is not None:
            return Trim(name, "vhost", "", None, PIECE_MAX), catalogue.size_of(name)
    return None, 0
