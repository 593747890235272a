"""Processes of this machine, as commands that wait for one see them."""

import os
from typing import Final

POLL_S: Final = 0.05
"""How often a process is looked at."""


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended; one whose parent has not looked at it yet has."""
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
