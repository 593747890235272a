"""The messages of a queue that wait to be ready again, as its backlog meets them.

A backlog that is read from disk, or filled from a mirror's copy, finds them among the ready ones, and gives them to
the queue (`node.queue.retries`). Those that the queue has already stand in the same segments as ready messages, and are
passed over.
"""

from collections.abc import Iterable
from typing import Protocol

from node.amqp.reader import MIXED_SIZES
from node.queue.number_set import NumberSet
from node.queue.run import Absent, Run


class WaitingOwner(Protocol):
    """The queue of a backlog."""

    @property
    def waiting_numbers(self) -> NumberSet:
        """The numbers of the messages that the queue knows to wait. Not to be changed."""

    def take_waiting(self, run: Run) -> None:
        """Take messages that wait, which the backlog has found."""


def without_known(found: Iterable[Absent], owner: WaitingOwner | None) -> list[Absent]:
    """Return what was found on disk without the waiting messages that the queue knows."""
    if owner is None:
        return list(found)
    known = owner.waiting_numbers
    return [part for absent in found for part in _unknown(absent, known)]


def _unknown(absent: Absent, known: NumberSet) -> list[Absent]:
    gone = known.intersection(absent.seqs) if absent.envelope.waits else []
    if not gone:
        return [absent]
    if absent.size == MIXED_SIZES:  # all of it stands in one record, and was found as a whole
        return []
    first = absent.seqs.start
    left = NumberSet([absent.seqs]).minus(NumberSet(gone))
    return [absent[seqs.start - first : seqs.stop - first] for seqs in left]
