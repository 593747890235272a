"""The messages of a Raft member on their way out: each leaves once the journal is synced as far as it promises."""

from collections.abc import Callable

from cluster.metadata.in_flight import AppendsInFlight
from cluster.metadata.journal import RaftJournal
from cluster.metadata.write_barrier import WriteBarrier

Send = Callable[[str, bytes], bool]
"""Hands a message to the link to a peer; False when there is none."""


class Outgoing:
    """The messages that one member sends.   now: sends one at once that promises nothing. False: there is no link.

    in_flight: the appends that are not answered.
    """

    def __init__(self, send: Send, journal: RaftJournal) -> None:
        self.now = send
        self.in_flight = AppendsInFlight()
        self._journal = journal
        self._promises = WriteBarrier(send)
        """Votes and answers, which promise to remember something, and leave once the journal is synced."""
        self._appends = WriteBarrier(send)
        """A leader's appends, which leave once its term is synced. They need not wait for its entries: it counts itself
        only once these are synced."""

    def promise(self, peer: str, message: bytes) -> None:
        """Send a message once the journal is synced as far as it is written now."""
        self._promises.push(peer, message, self._journal.written, self._journal.synced)

    def append(self, peer: str, message: bytes, now: float | None) -> None:
        """Send an append as the leader.   now: the time, if the follower is to answer."""
        if now is not None:
            self.in_flight.sent(peer, now)
        self._appends.push(peer, message, self._journal.ruling_written, self._journal.synced)

    def release(self) -> None:
        """Send the messages that waited for as much of the journal as is synced now."""
        self._promises.release(self._journal.synced)
        self._appends.release(self._journal.synced)

    def forget(self, peer: str) -> None:
        """Drop what waits for a peer whose link is gone."""
        self.in_flight.forget(peer)
        self._promises.forget(peer)
        self._appends.forget(peer)
