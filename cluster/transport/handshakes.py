"""Bounds the number of simultaneous handshakes with strangers, and chooses which of them end to make room.

Any host that reaches the port can begin a handshake and send nothing. So none is refused for that; the oldest one
ends. A member gets through, as it needs milliseconds. A host from which a member has proved itself goes before
strangers.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

HANDSHAKES_MAX: Final = 64
"""The most streams in their handshake at once: each has a descriptor and a buffer of 16 KiB."""

OF_HOST_MAX: Final = 16
"""The most of these from one host."""

KNOWN_MAX: Final = 1024
"""The most hosts that are remembered as members'."""


class Handshakes:
    """The handshakes in progress, the oldest first."""

    def __init__(self) -> None:
        self._going_on: dict[int, tuple[str, Callable[[], None]]] = {}
        self._of_host: Counter[str] = Counter()
        self._known: dict[str, None] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._going_on)

    def begin(self, host: str, end: Callable[[], None]) -> int:
        """Add a handshake; others may be ended for it.   end: ends this one soon.   Returns: the number for `leave`."""
        if self._of_host[host] >= OF_HOST_MAX:
            self._end_oldest(lambda other: other == host)
        elif len(self._going_on) >= HANDSHAKES_MAX and not self._end_oldest(self._is_strange):
            self._end_oldest(lambda other: True)
        self._last += 1
        self._going_on[self._last] = host, end
        self._of_host[host] += 1
        return self._last

    def leave(self, number: int) -> None:
        """Remove a handshake that has come to its end."""
        self._drop(number)

    def has_proved(self, host: str) -> None:
        """Note that a member has called from this host."""
        self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _is_strange(self, host: str) -> bool:
        return host not in self._known

    def _end_oldest(self, is_meant: Callable[[str], bool]) -> bool:
        for number, (host, end) in self._going_on.items():
            if is_meant(host):
                self._drop(number)
                end()
                return True
        return False

    def _drop(self, number: int) -> None:
        host, _ = self._going_on.pop(number, ("", None))
        if host:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]
