"""The last lines of a node's log, kept in memory for the HTTP API: the UI shows them as they come.

They are there wherever the log goes, and cost a node without management nothing. Lines come from any thread.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from node.config.config import LogFormat
from node.log.log import PlainFormatter, level_of

LINES_MAX: Final = 1000
"""Lines that are kept, the newest."""

CHARACTERS_MAX: Final = 2000
"""Of a line; the rest is cut off. All lines together have 2 MB at most, or 8 MB of the widest characters."""


class LogLines(logging.Handler):
    """The lines between `start` and `stop` that any output of the log takes, counted from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(PlainFormatter(LogFormat()))
        self._count = 0
        self._lines: deque[Mapping[str, Any]] = deque(maxlen=LINES_MAX)

    def start(self) -> None:
        """Keep lines from now on."""
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        """Keep no more; stopping twice is harmless."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`, which is called under the handler's lock."""
        self._count += 1
        line = self.format(record)
        cut = line[:CHARACTERS_MAX] + " …" if len(line) > CHARACTERS_MAX else line
        self._lines.append({"number": self._count, "level": level_of(record).name.lower(), "text": cut})

    def after(self, number: int) -> dict[str, Any]:
        """The lines that came after one, the oldest first.

        Returns: lines, and `last`, to be asked for next time. Who knows of more lines than there have been
        knows those of a process before, and gets all.
        """
        self.acquire()
        try:
            lines, last = list(self._lines), self._count
        finally:
            self.release()
        known = number if number <= last else 0
        return {"lines": [line for line in lines if line["number"] > known], "last": last}
