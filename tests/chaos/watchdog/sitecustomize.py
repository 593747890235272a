"""In the nodes of the fault loop: says on standard error what the event loop does while it hangs.

A thread looks at the main thread ten times a second; when that was in Python code each time for longer than
`BUSY_S`, the stacks that were seen, and how much processor time there was, are printed.

And it lets the time of day jump: by as many seconds as the file says that FLUFFLE_CHAOS_CLOCK names, if it is there.
"""

import os
import sys
import threading
import time
from collections import Counter
from types import FrameType

BUSY_S = 1.0
LOOK_S = 0.1
FRAMES_MAX = 14


def _is_idle(frame: FrameType | None) -> bool:
    # uvloop waits in C, below this.
    return frame is None or frame.f_code.co_filename.endswith("asyncio/runners.py")


def _stack(frame: FrameType | None) -> str:
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MAX:
        code = frame.f_code
        lines.append(f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(lines)


def _watch(main: int) -> None:
    seen: Counter[str] = Counter()
    busy_since, cpu_s, looked = time.monotonic(), time.process_time(), time.monotonic()
    while True:
        time.sleep(LOOK_S)
        now = time.monotonic()
        late_s, looked = now - looked, now
        frame = sys._current_frames().get(main)
        stack = _stack(frame)
        if not _is_idle(frame) and "importlib" not in stack:
            seen[stack] += 1
            if late_s < BUSY_S:
                continue
        lasted_s, used_s = now - busy_since, time.process_time() - cpu_s
        if lasted_s > BUSY_S:
            text = f"[watchdog] busy for {lasted_s:.1f} s, processor {used_s:.1f} s; last look took {late_s:.1f} s"
            for stack, count in seen.most_common(5):
                text += f"\n[watchdog]   {count}: {stack}"
            print(text, file=sys.stderr, flush=True)
        seen.clear()
        busy_since, cpu_s = now, time.process_time()


def _follow_clock(path: str) -> None:
    real, ahead_s = time.time, 0
    time.time = lambda: real() + ahead_s
    time.time_ns = lambda: int((real() + ahead_s) * 1_000_000_000)
    while True:
        try:
            with open(path) as file:
                ahead_s = int(file.read() or 0)
        except FileNotFoundError:
            ahead_s = 0
        time.sleep(LOOK_S)


if "start" in sys.orig_argv and "FLUFFLE_CHAOS_CLOCK" in os.environ:
    threading.Thread(target=_follow_clock, args=(os.environ["FLUFFLE_CHAOS_CLOCK"],), daemon=True).start()
if "start" in sys.orig_argv:
    threading.Thread(target=_watch, args=(threading.main_thread().ident,), daemon=True).start()
