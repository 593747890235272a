"""The waits between attempts to connect: they grow, are spread at random, and have a bound."""

from collections.abc import Callable
from typing import Final

FACTOR: Final = 2.0
"""Each wait is so many times the last one."""

LONGEST_S: Final = 30.0
"""The longest wait that is taken from growth; a first wait beyond it stays as it is."""

SPREAD: Final = 0.2
"""The part of a wait that is random, so that a thousand links do not come back in one moment."""


class Backoff:
    """Computes the waits of one link.

    first_s: the wait after the first failure, at least 0.   random: returns a number from 0 to below 1.
    """

    def __init__(self, first_s: float, random: Callable[[], float], *, longest_s: float = LONGEST_S) -> None:
        assert first_s >= 0
        self._first_s = first_s
        self._longest_s = max(first_s, longest_s)
        self._random = random
        self.failures = 0
        """The number of attempts that failed in a row."""

    def next_wait_s(self) -> float:
        """Note a failure and return the time in seconds until the next attempt."""
        grown = self._first_s * FACTOR ** min(self.failures, 32)
        self.failures += 1
        wait = min(grown, self._longest_s)
        return wait * (1.0 - SPREAD * self._random())

    def succeeded(self) -> None:
        """Begin again with the first wait: the link has worked."""
        self.failures = 0
