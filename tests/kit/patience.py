"""How much longer a limit is on a machine that has more to do than it can.

A limit says when to give up waiting, or that something is not much too late. Tests run beside each other, and strangers
beside them: a limit that is right on a quiet machine measures the others on a busy one.
"""

import os
from typing import Final

LOAD_MAX: Final = 4.0


def patience() -> float:
    """Return by how much limits are longer on this machine now."""
    return max(1.0, min(LOAD_MAX, os.getloadavg()[0] / (2 * (os.cpu_count() or 1))))
