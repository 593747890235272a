"""What a test of the fast gate must not do, seen by an audit hook of Python: https://peps.python.org/pep-0578/.

What libraries do in C with sockets of their own goes unseen; servers of uvloop bind theirs in Python.
"""

import sys
from typing import Any, Final

FORBIDDEN: Final = frozenset(
    {
        "os.fork",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "subprocess.Popen",
        "time.sleep",
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

    def look_at(self, *, may: bool) -> None:
        """Another test begins.   may: whether it is allowed everything."""
        self.seen.clear()
        self._is_watching = not may

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_watching or event not in FORBIDDEN:
            return
        if event == "time.sleep" and arguments[0] <= 0:  # lets other threads run
            return
        self.seen.add(event)
