"""Spark's progress on stderr: one updated line on a terminal, else a line every `LINE_S`; nothing for a quick job."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

QUICK_S: Final = 5.0
LINE_S: Final = 30.0
"""The time between two lines if the output is not a terminal, in seconds."""
_LOOK_S: Final = 0.5


@contextmanager
def progress(spark: "SparkSession", what: str, out: "IO[str] | None" = None) -> Iterator[None]:
    """Show the progress of the `with` block after its first `QUICK_S` seconds.   out: None: stderr."""
    ended = threading.Event()
    told = _Told(what, out or sys.stderr)
    thread = threading.Thread(target=_follow, args=(spark.sparkContext, told, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        told.clear()


def _follow(context: "SparkContext", told: "_Told", ended: threading.Event) -> None:
    """Poll the tasks of the active stages and show their number until `ended` is set."""
    started_at = time.monotonic()
    while not ended.wait(_LOOK_S):
        elapsed_s = time.monotonic() - started_at
        if elapsed_s < QUICK_S:
            continue
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        told.tell(elapsed_s, done, tasks)


class _Told:
    """The progress text on the output."""

    def __init__(self, what: str, out: IO[str]) -> None:
        self._what = what
        self._out = out
        self._is_terminal = out.isatty()
        self._width = 0
        self._next_s = 0.0

    def tell(self, elapsed_s: float, done: int, tasks: int) -> None:
        """Update the line on a terminal; otherwise write a line if `LINE_S` have passed since the last one."""
        text = f"{self._what}: {elapsed_s:.0f} s" + (f", {done} of {tasks} tasks" if tasks else "")
        if self._is_terminal:
            self._out.write("\r" + text.ljust(self._width))
            self._width = len(text)
        elif elapsed_s >= self._next_s:
            self._out.write(text + "\n")
            self._next_s = elapsed_s + LINE_S
        self._out.flush()

    def clear(self) -> None:
        """Erase the line from the terminal."""
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()
