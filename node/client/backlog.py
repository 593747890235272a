"""Bytes of a client that were received and that its plug-in has not been given, as its share of the turn is over."""

from typing import Final

PIECE_BYTES: Final = 16 * 1024
"""The most bytes that a plug-in is given at once: the clock is looked at between two pieces."""


class Backlog:
    """The bytes of one client.   paused: nothing more is read from the client."""

    def __init__(self) -> None:
        self.paused = False
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that wait."""
        return self._kept_bytes

    def keep(self, data: bytes) -> None:
        """Keep bytes, behind those that wait."""
        self._kept.append(data)
        self._kept_bytes += len(data)

    def take(self) -> bytes:
        """Return all bytes that wait, which do so no longer."""
        data = b"".join(self._kept)
        self.clear()
        return data

    def clear(self) -> None:
        """Forget the bytes."""
        self._kept = []
        self._kept_bytes = 0
