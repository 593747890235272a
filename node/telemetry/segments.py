"""Segments: files of rows, written by a disk thread, that another program collects.

    <directory>/<node>/<boot_id>-<UTC yyyymmddThhmmss>-<n>.ndjson.open     while it is written
                      …                                      .ndjson          from its end on: never changed again

A segment ends each minute, or when it is large. A process that is killed leaves one open: it gets its final name at
the next start, and its last line may be torn. Nothing is synced: a power loss costs measurements only. The disk is
telemetry's own, so that none of its faults stops the message store.

Source: spark §2.7.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from node.store.disk import Append, Disk, Remove, Rename, Step

OPEN: Final = ".open"
ENDING: Final = ".ndjson"

SEGMENT_S: Final = 60.0
SEGMENT_BYTES: Final = 64 << 20
FLUSH_BYTES: Final = 256 << 10
"""Rows are handed to the disk when there are so many bytes, or at the next tick."""
PENDING_MAX_BYTES: Final = 16 << 20
"""The most bytes that wait for the disk, which may be full; further rows are dropped."""


class Segments:
    """The segments of one node; `tick` it each second.

    disk: of the directory.   exists: whether a file of it is still there.   time_text: UTC, as in the names.
    on_broken: called once, when writes fail permanently.
    """

    def __init__(
        self,
        disk: Disk,
        boot_id: str,
        max_bytes: int,
        *,
        exists: Callable[[str], bool],
        time_text: Callable[[], str],
        on_broken: Callable[[OSError], None],
    ) -> None:
        self.dropped_total = 0
        """The number of segments that were removed before they were collected."""
        self.lost_rows = 0
        """The number of rows that were dropped because the disk was full or too slow."""
        self._disk = disk
        self._boot_id = boot_id
        self._max_bytes = max_bytes
        self._exists = exists
        self._time_text = time_text
        self._on_broken = on_broken
        self._is_broken = False
        self._number = 0
        self._name = ""
        """The name of the open segment; empty: there is none."""
        self._opened_s = 0.0
        self._bytes = 0
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._closed: deque[tuple[str, int]] = deque()
        self._closed_bytes = 0

    def take_over(self) -> None:
        """Find segments of earlier starts; before the disk's thread starts. Raises: OSError."""
        names = []
        for name in self._disk.names(""):
            if name.endswith(ENDING + OPEN):
                closed = name.removesuffix(OPEN)
                self._disk.run([Rename(name, closed)])
                names.append(closed)
            elif name.endswith(ENDING):
                names.append(name)
        for name in sorted(names, key=_age):
            try:
                self._add(name, self._disk.size(name))
            except FileNotFoundError:
                continue  # it was collected meanwhile
        self._make_room(self._disk.run)

    def write(self, rows: Iterable[bytes], now: float) -> None:
        """Add rows, each a whole line.   now: monotonic."""
        for row in rows:
            self._buffer.append(row)
            self._buffered_bytes += len(row)
        if self._buffered_bytes >= FLUSH_BYTES:
            self.flush(now)

    def flush(self, now: float) -> None:
        """Hand all rows to the disk."""
        if not self._buffer:
            return
        rows, size = self._buffer, self._buffered_bytes
        self._buffer, self._buffered_bytes = [], 0
        if self._is_broken or self._disk.pending_bytes + size > PENDING_MAX_BYTES:
            self.lost_rows += len(rows)
            return
        if not self._name:
            self._number += 1
            self._name = f"{self._boot_id}-{self._time_text()}-{self._number}{ENDING}"
            self._opened_s, self._bytes = now, 0
        self._submit([Append(self._name + OPEN, [b"".join(rows)])])
        self._bytes += size

    def tick(self, now: float) -> None:
        """Hand rows to the disk, and end a segment that is old or large; called each second."""
        self.flush(now)
        if self._name and (now - self._opened_s >= SEGMENT_S or self._bytes >= SEGMENT_BYTES):
            self.close()

    def close(self) -> None:
        """End the open segment; what is not flushed goes into the next one."""
        if not self._name:
            return
        name, self._name = self._name, ""
        self._submit([Rename(name + OPEN, name)])
        self._add(name, self._bytes)
        self._make_room(self._submit)

    def _add(self, name: str, size: int) -> None:
        self._closed.append((name, size))
        self._closed_bytes += size

    def _make_room(self, do: Callable[[list[Step]], object]) -> None:
        """Remove the oldest segments while there is too much; one that was collected is only taken off the account."""
        while self._closed_bytes > self._max_bytes and len(self._closed) > 1:
            name, size = self._closed.popleft()
            self._closed_bytes -= size
            if self._exists(name):
                do([Remove(name)])
                self.dropped_total += 1

    def _submit(self, steps: list[Step]) -> None:
        if not self._is_broken:
            self._disk.submit(steps, _ignore, self._failed)

    def _failed(self, error: OSError) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._on_broken(error)


def _ignore(results: list[Any]) -> None:
    """Ignore the results of a write."""


def _age(name: str) -> tuple[str, int, str]:
    """Return a sort key for segments of several starts: their time, then their number."""
    _, _, rest = name.removesuffix(ENDING).partition("-")
    time, _, number = rest.rpartition("-")
    return time, int(number) if number.isdecimal() else 0, name
