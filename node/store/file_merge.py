"""A merge: copying the contents that are alive in some files of a message store to one new file.

While it is at work the old files serve all reads. Jobs take turns: one reads, the next one writes what was read.

    Read Read … ─► Append Sync ─► Read … ─► Append Sync ─► Rename SyncDir ─► done(the new file)

The new file is `.tmp` until all of it is safe, so a crash leaves either no new file or one that holds as much as
the old ones. Records are copied as they are: one that is damaged stays damaged, and its crc still tells.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from node.store.disk import Append, Disk, Read, Rename, Step, Sync, SyncDir
from node.store.records import HEADER_BYTES, MESSAGES_HEADER
from node.store.store_file import StoreFile

TMP_SUFFIX: Final = ".tmp"

_JOB_MAX_BYTES: Final = 1024 * 1024
"""The limit of what one job reads or writes, and so of what a merge holds in memory; batches get in between."""

_JOB_MAX_RECORDS: Final = 1024
"""The limit of records in one job, so that planning it takes the loop at most a millisecond or two."""


class FileMerge:
    """One merge, which ends by calling `done` or `failed`, once.

    done: gets the new file, or None if nothing in the old ones is referred to any more. It must be taken over
        within the call, as references are counted in the old files until then.
    failed: gets the source that could not be read, or None: the disk takes no writes. The old files are as they were.
    """

    def __init__(
        self,
        sources: Sequence[StoreFile],
        path: str,
        disk: Disk,
        *,
        is_synced: bool,
        done: Callable[[StoreFile | None], None],
        failed: Callable[[StoreFile | None], None],
    ) -> None:
        self.sources = sources
        self.path = path
        self._disk = disk
        self._is_synced = is_synced
        self._done = done
        self._failed = failed
        self._copied: list[tuple[StoreFile, int]] = []
        self._sizes = array("I")
        self._parts: list[bytes] = [MESSAGES_HEADER]
        self._jobs = self._plan()

    @property
    def tmp_path(self) -> str:
        """The name of the new file while it isn't complete."""
        return self.path + TMP_SUFFIX

    def start(self) -> None:
        """Submit the first job."""
        for source in self.sources:
            source.is_leaving = True
        self._read_on(())

    def _read_on(self, _results: Sequence[Any]) -> None:
        reads = next(self._jobs, None)
        if reads is not None:
            self._disk.submit(
                reads, lambda parts: self._write(reads, parts), lambda _error: self._read_apart(reads, [])
            )
        elif self._copied:
            steps: list[Step] = [Rename(self.tmp_path, self.path)]
            if self._is_synced:
                steps.append(SyncDir(self.path.rpartition("/")[0]))
            self._submit(steps, lambda _results: self._done(self._merged()))
        else:
            self._done(None)

    def _read_apart(self, reads: Sequence[Read], parts: list[bytes]) -> None:
        """Repeat the reads of a failed job one by one, to find the file at fault; if none fails any more, continue.

        parts: the results so far.
        """
        if len(parts) == len(reads):
            self._write(reads, parts)
            return
        read = reads[len(parts)]
        self._disk.submit(
            [read],
            lambda results: self._read_apart(reads, parts + results),
            lambda _error: self._failed(self._source_of(read)),
        )

    def _source_of(self, read: Read) -> StoreFile:
        return next(source for source in self.sources if source.path == read.path)

    def _write(self, reads: Sequence[Read], parts: list[bytes]) -> None:
        for read, part in zip(reads, parts, strict=True):
            if len(part) != read.size:
                # The file has been cut off; its last contents are lost, the others must not shift.
                self._failed(self._source_of(read))
                return
        steps: list[Step] = [Append(self.tmp_path, [*self._parts, *parts])]
        self._parts = []
        if self._is_synced:
            # With each part, so that no commit waits for the sync of a whole file.
            steps.append(Sync(self.tmp_path))
        self._submit(steps, self._read_on)

    def _submit(self, steps: Sequence[Step], done: Callable[[list[Any]], None]) -> None:
        self._disk.submit(steps, done, lambda _error: self._failed(None))

    def _plan(self) -> Iterator[list[Read]]:
        """Yield the reads of one job after the other.

        Each job is planned when its turn comes: contents that have lost their references are not copied.
        """
        reads: list[Read] = []
        room_bytes, records = _JOB_MAX_BYTES, 0
        for source in self.sources:
            for position in source.live_positions():
                if not source.refs_at(position):
                    continue
                _store_id, offset, size = source.record_at(position)
                self._copied.append((source, position))
                self._sizes.append(size)
                records += 1
                while size:
                    part_bytes = min(size, room_bytes)
                    _add(reads, source.path, offset, part_bytes)
                    offset += part_bytes
                    size -= part_bytes
                    room_bytes -= part_bytes
                    if not room_bytes or records == _JOB_MAX_RECORDS:
                        yield reads
                        reads = []
                        room_bytes, records = _JOB_MAX_BYTES, 0
        if reads:
            yield reads

    def _merged(self) -> StoreFile:
        """Return the new file with the present references, without contents that have lost their last one."""
        file = StoreFile(self.path, written_in=-1)
        *offsets, file.size_bytes = accumulate(self._sizes, initial=HEADER_BYTES)
        columns = [
            (source.record_at(position)[0], offset, size, refs)
            for (source, position), offset, size in zip(self._copied, offsets, self._sizes, strict=True)
            if (refs := source.refs_at(position))
        ]
        file.fill(*zip(*columns, strict=True) if columns else ((), (), (), ()))
        return file


def _add(reads: list[Read], path: str, offset: int, size: int) -> None:
    """Extend the last read, if this one begins where it ends, or add another."""
    if reads and reads[-1].path == path and reads[-1].offset + reads[-1].size == offset:
        reads[-1] = Read(path, reads[-1].offset, reads[-1].size + size)
    else:
        reads.append(Read(path, offset, size))
