"""Mass deletion in pieces: of a queue or an exchange with very many bindings, or a vhost with very many queues.

All nodes apply a command at the same moment, and no client is served while they do.

    DeleteQueue ─► large? ─ no ──────────────────────────────────────────────► the log
                      └ yes ─► Trim ─► applied ─► next turn ─► Trim ─► … ─► DeleteQueue

Until the last piece the object is there, with fewer and fewer bindings or queues. A node that stops half-way leaves it
so: the client that asked has no answer, and asks again.
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
"""The limit of bindings deleted at once, at some 10 us each; a queue counts as `topology.QUEUE_COST` of them."""

_SPARE_PIECES: Final = 10
"""The number of pieces added for bindings that clients add meanwhile; any more go with the object."""


class InPieces:
    """A `ReplicatedLog` around another, which deletes large objects in pieces.

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
        """Submit the command; before the deletion of a large object submit commands that remove it in pieces.

        Commands that are submitted later may be applied before the end of a deletion in pieces.
        """
        trim, size = _first(command, self._catalogue)
        if trim is None or size <= PIECE_MAX:
            self._log.submit(command, on_applied)
        else:
            self._trim(
                trim, 2 * size // PIECE_MAX + _SPARE_PIECES, partial(self._log.submit, command, on_applied)
            )

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        """Call back when all that was applied so far is safe in the log around which this one is."""
        self._log.await_safety(on_safe)

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(self._due)

    def turn(self) -> None:
        """Submit the next piece of the deletion that has waited longest."""
        self._due.popleft()()

    def _trim(self, trim: Trim, pieces_left: int, finish: Callable[[], None]) -> None:
        self._log.submit(trim, partial(self._trimmed, trim, pieces_left - 1, finish))

    def _trimmed(
        self, trim: Trim, pieces_left: int, finish: Callable[[], None], is_more: bool | Refused
    ) -> None:
        # Not at once: a command that writes nothing to disk is answered before `submit` returns.
        self._due.append(
            partial(self._trim, trim, pieces_left, finish) if is_more is True and pieces_left else finish
        )
        self._wake()


def _first(command: Command[Any], catalogue: Catalogue) -> tuple[Trim | None, int]:
    """Return the command that removes a first piece of the object that a command deletes, and the object's size.

    None and 0 where the command deletes nothing large.
    """
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
