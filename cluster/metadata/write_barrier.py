"""The write barrier: a message waits until what it promises is synced.

A vote, a reply, an entry that is sent: each promises that this node will remember something. `push` tells how far
the journal must be synced first, `release` sends the messages that may leave, in the order in which they came. So
the disk's work of one turn of the loop is shared by all its messages, and the loop never waits.
Source: reliability §3.9 item 2.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

CAPACITY_BYTES: Final = 64 * 1024 * 1024
CAPACITY_MESSAGES: Final = 10_000
"""The most messages that wait for a disk that is stuck. Beyond it messages are dropped, which Raft tolerates."""


class WriteBarrier:
    """Messages on their way out.   send: hands a message to the peer's link, which may drop it."""

    def __init__(self, send: Callable[[str, bytes], object]) -> None:
        self._send = send
        self._waiting: deque[tuple[int, str, bytes]] = deque()
        self._bytes = 0

    def push(self, peer: str, message: bytes, needed: int, synced: int) -> None:
        """Send a message as soon as the journal is synced up to `needed`.

        needed: never less than in an earlier call.   synced: how far it is now.
        """
        if not self._waiting and needed <= synced:
            self._send(peer, message)
        elif self._bytes + len(message) <= CAPACITY_BYTES and len(self._waiting) < CAPACITY_MESSAGES:
            self._waiting.append((needed, peer, message))
            self._bytes += len(message)

    def release(self, synced: int) -> None:
        """Send the messages that waited for the journal to be synced up to `synced`."""
        while self._waiting and self._waiting[0][0] <= synced:
            _, peer, message = self._waiting.popleft()
            self._bytes -= len(message)
            self._send(peer, message)

    def forget(self, peer: str) -> None:
        """Drop the messages that wait for a peer whose link is gone."""
        kept = [each for each in self._waiting if each[1] != peer]
        self._waiting = deque(kept)
        self._bytes = sum(len(message) for _, _, message in kept)
