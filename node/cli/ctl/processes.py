"""Commands that wait for a process of this machine check here whether it runs."""

import os
from typing import Final

POLL_S: Final = 0.05
"""The interval at which a process is checked."""


def runs(pid: int) -> bool:
    """Return whether a process exists and has not ended; a zombie, which its parent has not waited for, has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not os.path.isdir("/proc/self")
