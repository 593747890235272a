"""Limits of time grow on an overloaded machine; and a wait until a condition is true.

A limit says when to give up waiting, or that something is not much too late. Tests run beside each other, and strangers
beside them: a limit that is right on a quiet machine measures the others on a busy one.
"""

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

LOAD_MAX: Final = 4.0
LIMIT_S: Final = 40.0
"""For any one thing that must happen; only a failing test waits so long."""
POLL_S: Final = 0.02

T = TypeVar("T")


def patience() -> float:
    """Return by how much limits are longer on this machine now."""
    return max(1.0, min(LOAD_MAX, os.getloadavg()[0] / (2 * (os.cpu_count() or 1))))


def wait_until(look: Callable[[], T], what: str | Callable[[], str] = "", within: float = LIMIT_S) -> T:
    """Ask until the answer is true, and return it.

    what: names it for a failure; a function does so then.   within: seconds on a quiet machine.
    """
    deadline = time.monotonic() + within * patience()
    while not (found := look()):
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within:.0f} s: {told or look}; at last: {found!r}")
        time.sleep(POLL_S)
    return found
