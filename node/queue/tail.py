"""The tail of a queue, to which messages come back under new numbers.

Disk and mirrors know such a message under its new number before they forget the old one, so that a crash in between
may leave it twice, but never loses it.
Source: amqp-behaviour §4.11.
"""

from collections.abc import Iterator
from typing import Protocol

from node.queue.run import Batch, Envelope, Run
from node.queue.storage import QueueStorage


class Replicating(Protocol):
    """The copies of a queue on other nodes, as far as they are told of new messages: a `QueueReplicator`."""

    def enqueued(self, batch: Batch, first_seq: int, expiry: float) -> None:
        """Note messages that came into the queue."""

    def returned(self, seqs: range, deliveries: int) -> None:
        """Note how often messages came back from clients."""


class Numbering(Protocol):
    """A queue, as far as it numbers messages.   next_seq: the next number."""

    next_seq: int
    is_durable: bool
    storage: QueueStorage

    @property
    def replicator(self) -> Replicating | None:
        """The copies on other nodes."""

    def count_letters(self, count: int) -> None:
        """Leave so many messages out of the count of publishes."""

    def renumbered(self, old: Run, new: Run) -> None:
        """Note that messages get other numbers; those of `old` are forgotten next."""

    def forget(self, run: Run) -> None:
        """Have disk and mirrors forget messages."""


def to_tail(queue: Numbering, run: Run, envelope: Envelope, expiry: float) -> Iterator[Run]:
    """Yield messages of a queue under the next numbers, each to be put where it belongs before the next one is taken.

    run: messages that are in no backlog.   envelope, expiry: theirs from now on.
    """
    for old in run.pieces():
        new = old.renumbered(queue.next_seq, is_indexed=queue.is_durable and envelope.persistent)
        new.envelope, new.expiry = envelope, expiry
        batch = Batch(envelope, new.contents, new.size, new.store_id)
        queue.next_seq = new.seqs.stop
        queue.count_letters(len(new))
        if queue.replicator is not None:
            queue.replicator.enqueued(batch, new.seqs.start, expiry)
            if new.deliveries:
                queue.replicator.returned(new.seqs, new.deliveries)
        if new.is_indexed:
            queue.storage.keep(batch, new.seqs.start, expiry)
            if new.deliveries:
                queue.storage.delivered(new.seqs, new.deliveries)
        queue.renumbered(old, new)
        yield new
        queue.forget(old)  # last, so that one of the two is there after a crash
