"""A test of the fast gate must not do some things, seen by an audit hook: https://peps.python.org/pep-0578/.

What libraries do in C with sockets of their own goes unseen; servers of uvloop bind theirs in Python.
"""

import functools
import sys
import time
from typing import Any, Final

FORBIDDEN: Final = frozenset(
    {
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
    }
)


class Watch:
    """Notes what the test that runs has done.   seen: events that are forbidden."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._is_watching = False

    def begin(self) -> None:
        """Look from now on. Python can take no such hook away."""
        sys.addaudithook(self._hear)
        plain = time.sleep  # it tells the hook of itself from Python 3.13 on

        @functools.wraps(plain)
        def sleep(seconds: float) -> None:
            if self._is_watching and seconds > 0:  # 0 lets other threads run
                self.seen.add("time.sleep")
            plain(seconds)

        time.sleep = sleep

    def look_at(self, *, may: bool) -> None:
        """Another test begins.   may: whether it is allowed everything."""
        self.seen.clear()
        self._is_watching = not may

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_watching and event in FORBIDDEN:
            self.seen.add(event)
