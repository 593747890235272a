"""The last lines of a node's log are kept in memory for the HTTP API, and the UI shows them as they come.

They are kept for any output of the log, and not on a node without management. Lines come from any thread.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from node.config.config import LogFormat
from node.log.log import PlainFormatter, level_of

LINES_MAX: Final = 1000
"""The number of lines that are kept, the newest."""

CHARACTERS_MAX: Final = 2000
"""The most characters of a line that are kept. All lines together have 2 MB at most, or 8 MB of the widest
characters.
"""


class LogLines(logging.Handler):
    """The log lines between `start` and `stop`, numbered from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(PlainFormatter(LogFormat()))
        self._count = 0
        self._lines: deque[Mapping[str, Any]] = deque(maxlen=LINES_MAX)

    def start(self) -> None:
        """Keep lines from now on."""
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        """Keep no more lines; stopping twice is harmless."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; `logging` holds the handler's lock."""
        self._count += 1
        line = self.format(record)
        cut = line[:CHARACTERS_MAX] + " …" if len(line) > CHARACTERS_MAX else line
        self._lines.append({"number": self._count, "level": level_of(record).name.lower(), "text": cut})

    def after(self, number: int) -> dict[str, Any]:
        """Return the lines after a number, the oldest first, and `last`, the number for the next call.

        A caller whose number is higher than the last line's knows the lines of an earlier process, and gets all.
        """
        self.acquire()
        try:
            lines, last = list(self._lines), self._count
        finally:
            self.release()
        known = number if number <= last else 0
        return {"lines": [line for line in lines if line["number"] > known], "last": last}
