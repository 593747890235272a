"""Short time slices: the kernel gives a node the processor sooner and for a shorter time. Its share stays the same.

A node wakes up when bytes come, and then works for a fraction of a millisecond. From 6.12 on Linux lets a thread that
wakes up wait until the running one has had its slice, some 3 ms, unless its own slice is shorter. On a machine with
other work, or with several nodes, a confirm would wait for several slices on its way.

An operator who has chosen another policy, as by chrt(1), is left alone. Earlier kernels ignore the length of slices.
Source: sched_setattr(2); sched(7), "The SCHED_OTHER policy"; Linux 6.12, kernel/sched/fair.c.
"""

import ctypes
import os
import platform
import sys
from struct import Struct, calcsize
from typing import Final

SLICE_NS: Final = 100_000
"""The length of a slice in nanoseconds: the least that the kernel takes, and about what a turn of a node lasts."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""The number of the system call, for which the C library has no function before glibc 2.41, by the machine."""

_ATTRIBUTES: Final = Struct("=IIQiIQQQ")
"""`struct sched_attr`: size, policy, flags, nice, priority, runtime (of SCHED_OTHER the slice), deadline, period."""

_POINTER_BYTES: Final = calcsize("P")


def ask_for_short_slices() -> bool:
    """Ask for short slices for this thread, and for all threads that it starts from now on.

    Returns: True if the kernel has taken the wish; it may ignore it all the same.
    """
    number = _SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is None or _POINTER_BYTES != 8 or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)  # as it is: a lower one would need a privilege
    wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    # A sandbox may forbid the call, which costs nothing but time.
    return bool(call(ctypes.c_long(number), ctypes.c_int(0), ctypes.c_char_p(wish), ctypes.c_uint(0)) == 0)
