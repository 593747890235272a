"""The writes of a recovery to segments: gathered by file, so that they cost few steps, and made safe at the end."""

from collections.abc import Iterable, Sequence
from typing import Final

from node.store.completeness import Completeness
from node.store.directory import QUEUES
from node.store.disk import Append, Disk, MakeDir, Remove, Rename, Step, Sync, SyncDir, is_full
from node.store.record_file import RecordFile
from node.store.records import SEGMENT_HEADER, record

NEW_SUFFIX: Final = ".new"
"""The ending of the name under which a segment is rewritten."""

_GATHERED_MAX_BYTES: Final = 8 * 1024 * 1024
"""The limit of bytes that wait to be written: few calls of the system, and little memory."""

_SYNCS_MAX: Final = 64
"""The limit of steps in one job that makes safe: between jobs the disk can be left to others."""


class RecoveryWriter:
    """Writes segments. Nothing is safe before `sync`.

    completeness: losses that it found are written down before a segment is changed that may show them.
    """

    def __init__(self, disk: Disk, completeness: Completeness) -> None:
        self._disk = disk
        self._completeness = completeness
        self._parts: dict[str, list[bytes]] = {}
        self._gathered_bytes = 0
        self._dirty: dict[str, None] = {}  # files, in the order in which they were first written
        self._dirty_directories: dict[str, None] = {}
        self._has_directory: set[str] = set()
        self._rewritten: dict[str, int] = {}  # segments that are to be replaced: bytes of the new file
        self._doomed: dict[str, tuple[str, int]] = {}  # files that are to go: their queues and segments

    def append(self, path: str, payloads: Iterable[Sequence[bytes]], *, is_new: bool) -> int:
        """Add records to a segment; return how many bytes it grows.   payloads: each in parts.

        is_new: there is no such file yet.
        """
        parts = [SEGMENT_HEADER] if is_new else []
        for payload in payloads:
            parts += record(payload)
        added = sum(map(len, parts))
        if is_new:
            self._begin(path)
        self._parts.setdefault(path, []).extend(parts)
        self.keep(path)
        self._gather(added)
        return added

    def _gather(self, size_bytes: int) -> None:
        self._gathered_bytes += size_bytes
        if self._gathered_bytes > _GATHERED_MAX_BYTES:
            self.flush()

    def _begin(self, path: str) -> None:
        """Make the directory of a new file if it is not there."""
        directory = path.rpartition("/")[0]
        if directory not in self._has_directory:
            self._has_directory.add(directory)
            self._disk.run([MakeDir(directory)])

    def keep(self, path: str) -> None:
        """Mark a segment to be made safe, even if nothing is added: a killed node has left what was never synced."""
        self._dirty[path] = None
        self.keep_names(path.rpartition("/")[0])

    def keep_names(self, directory: str) -> None:
        """Mark the names in the directory of a queue to be made safe.

        A file that a killed node has removed must not come back when nothing says any more that it is gone.
        """
        for each in (directory, QUEUES, ""):
            self._dirty_directories[each] = None

    def rewrite(self, file: RecordFile) -> int:
        """Replace a segment by its good bytes, with the next `flush`; return its size then.

        file: was read to its end.
        """
        new_path = file.path + NEW_SUFFIX
        parts = [SEGMENT_HEADER, *(file.data[start:stop] for start, stop in file.good)]
        size_bytes = sum(map(len, parts))
        self._disk.run([Remove(new_path), Append(new_path, parts), Sync(new_path)])
        self._dirty_directories[file.path.rpartition("/")[0]] = None
        self._rewritten[file.path] = size_bytes
        self._gather(size_bytes)
        return size_bytes

    def doom(self, uid: str, number: int, path: str) -> None:
        """Mark a segment in which nothing is left, to be removed by the next `remove_doomed`."""
        parts = self._parts.pop(path, [])
        self._gathered_bytes -= sum(map(len, parts))
        if path in self._rewritten:
            self._gathered_bytes -= self._rewritten.pop(path)
            self._doomed[path + NEW_SUFFIX] = uid, number
        self._dirty.pop(path, None)
        self._doomed[path] = uid, number

    def remove_doomed(self) -> None:
        """Remove the segments that `doom` has marked. That they are gone is not safe before `sync`."""
        if not self._doomed:
            return
        try:
            self._note()
        except OSError as error:
            if not is_full(error):
                raise
            # They make room for the note. Should this recovery be cut short right here, the next one misses some that
            # were transient: a copy is then called damaged that is not. Else a full node could not be drained.
            may_go_before = self._completeness.may_go_before
            self._remove([path for path, segment in self._doomed.items() if may_go_before(*segment)])
            self._note()
        self._remove(list(self._doomed))

    def _remove(self, paths: Sequence[str]) -> None:
        for at in range(0, len(paths), _SYNCS_MAX):
            self._disk.run([Remove(path) for path in paths[at : at + _SYNCS_MAX]])
        for path in paths:
            del self._doomed[path]
            self._dirty_directories[path.rpartition("/")[0]] = None

    def _note(self) -> None:
        """Write down the losses that were found, safely."""
        steps = self._completeness.steps_before_change()
        if steps:
            self._disk.run(steps)
            self._completeness.is_written_down()

    def flush(self) -> None:
        """Write what has gathered."""
        if not self._parts and not self._rewritten:
            return
        self._note()
        self._disk.run([Rename(path + NEW_SUFFIX, path) for path in self._rewritten])
        self._disk.run([Append(path, parts) for path, parts in self._parts.items()])
        self._rewritten.clear()
        self._parts.clear()
        self._gathered_bytes = 0

    def sync(self) -> None:
        """Make all safe."""
        self.flush()
        steps: list[Step] = [*map(Sync, self._dirty), *map(SyncDir, self._dirty_directories)]
        for at in range(0, len(steps), _SYNCS_MAX):
            self._disk.run(steps[at : at + _SYNCS_MAX])
        self._dirty.clear()
        self._dirty_directories.clear()
