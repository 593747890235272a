"""Contents of messages that are too large for the index of a queue: each once, however many queues hold it.

    place ─► gathered ─► take_steps ─► N.rdq ─► read_steps
               add_refs … drop_refs               collect ─► merge, remove

A content has an id and a count of the queues' references to it. The contents of one call get consecutive ids. They
are appended to files; contents without references are garbage. A file of garbage only is removed, and when more
than half of everything is garbage, neighbours are merged.

There are two stores: one for persistent messages; one for others that were paged out, which is never synced, and
which a node wipes when it starts. An id tells its store.

**The order of things.** Steps that a method returns must be submitted before anything else is asked of the store,
because later ones build on them. References must be added in the turn in which the contents came.
Source: docs/internals/disk.md, "From a queue to the disk".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from node.store.disk import TO_THE_END, Disk, MakeDir, Read, Remove, Step, Sync, SyncDir, appends
from node.store.file_merge import TMP_SUFFIX, FileMerge
from node.store.file_table import FileTable
from node.store.records import MESSAGES_HEADER
from node.store.store_file import OVERHEAD_BYTES, Report, Scan, StoreFile, framed, scan

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""The size at which a file is full, unless it holds but a single content."""

PERSISTENT_FIRST_ID: Final = 1
TRANSIENT_FIRST_ID: Final = 1 << 62
"""The first id of the transient store, so that an id tells its store."""

_OFFSETS_END: Final = 1 << 32
"""The limit of offsets, which are kept in 32 bits."""

_FILE_NAME: Final = re.compile(r"([1-9][0-9]*)\.rdq")


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """The size of a message store, and how much of it is used.

    files: those in use.   bytes: of these.   garbage_bytes: of records in them without references.
    messages: contents with references; those that are not yet written count, too.
    """

    files: int
    bytes: int
    garbage_bytes: int
    messages: int


class MessageStore:
    """The contents in one directory.

    first_id: `PERSISTENT_FIRST_ID` or `TRANSIENT_FIRST_ID`.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        file_max_bytes: int = FILE_MAX_BYTES,
        first_id: int = PERSISTENT_FIRST_ID,
    ) -> None:
        assert file_max_bytes < _OFFSETS_END, file_max_bytes
        self._directory = directory
        self._parent = directory.rpartition("/")[0]
        self._disk = disk
        self._file_max_bytes = file_max_bytes
        self._is_synced = first_id < TRANSIENT_FIRST_ID
        self._next_id = first_id
        self._next_number = 1
        self._gathered: dict[int, bytes] = {}  # contents without a place in a file, in the order they came
        self._gathered_refs: dict[int, int] = {}
        self._gathered_bytes = 0
        self.written_count = 0
        """The number of contents that were taken in."""
        self._files = FileTable()
        self._current: StoreFile | None = None  # the one that is appended to
        self._has_directory = False
        self._unsynced: set[str] = set()
        self._unsynced_directories: set[str] = set()
        self._turn = 0
        self._had_drops = False  # since the last `collect`
        self._merge: FileMerge | None = None
        self._merged_away: list[StoreFile] = []  # no longer in use, but still there
        self._can_merge = True
        self._is_recovering = False
        self._is_damaged = False  # contents that are lost have had references

    # --- contents come ---

    def place(self, contents: Sequence[bytes]) -> int:
        """Take in contents, to be written with the next steps.

        Returns: the id of the first; the others follow. They have no references yet.
        """
        first_id = self.reserve(len(contents))
        self._gather(zip(range(first_id, self._next_id), contents, strict=True))
        return first_id

    def reserve(self, count: int) -> int:
        """Give ids to contents that may have to be written later; return the first one."""
        first_id = self._next_id
        self._next_id += count
        return first_id

    def write(self, first_id: int, contents: Sequence[bytes]) -> None:
        """Take in contents that had their ids reserved; those that are here already are left out."""
        numbered = enumerate(contents, first_id)
        self._gather((store_id, content) for store_id, content in numbered if not self._has(store_id))

    def _gather(self, numbered: Iterator[tuple[int, bytes]]) -> None:
        for store_id, content in numbered:
            self._gathered[store_id] = content
            self._gathered_refs[store_id] = 0
            self._gathered_bytes += OVERHEAD_BYTES + len(content)
            self.written_count += 1

    # --- references ---

    def add_refs(self, first_id: int, count: int) -> None:
        """Count one more queue that refers to contents; they must be here (but see `recover`)."""
        for file, position, ids in self._stretches(first_id, count):
            if file is not None:
                self._files.add_refs(file, position, len(ids))
            elif ids[0] in self._gathered:
                self._gathered_refs[ids[0]] += 1
            else:
                assert self._is_recovering, ids
                self._lose(ids[-1])

    def drop_refs(self, first_id: int, count: int) -> None:
        """Count one queue less that refers to contents.

        Contents without references must not be used any more, unless they are written anew.
        """
        self._had_drops = True
        for file, position, ids in self._stretches(first_id, count):
            if file is not None:
                self._files.drop_refs(file, position, len(ids))
            elif ids[0] in self._gathered:
                assert self._gathered_refs[ids[0]], ids
                self._gathered_refs[ids[0]] -= 1
            else:
                assert self._is_damaged, ids

    def missing(self, first_id: int, count: int) -> list[int]:
        """Return those of consecutive ids whose contents are not here. While the node starts, they never will be."""
        missing: list[int] = []
        for file, _position, ids in self._stretches(first_id, count):
            if file is None and ids[0] not in self._gathered:
                missing += ids
        if missing and self._is_recovering:
            self._lose(missing[-1])
        return missing

    def _lose(self, last_id: int) -> None:
        """Note that lost contents are referred to: their ids must not be given to other contents."""
        self._is_damaged = True
        self._next_id = max(self._next_id, last_id + 1)

    # --- to and from the disk ---

    @property
    def gathered_bytes(self) -> int:
        """The number of bytes that `take_steps` would write."""
        return self._gathered_bytes

    def take_steps(self, *, turn_ended: bool = False) -> list[Step]:
        """Return steps that write what has gathered.

        turn_ended: all references to it have been added, so that contents without any need not be written: large
            messages that are consumed at once never see the disk.
        """
        if not self._gathered:
            return []
        gathered, refs = self._gathered, self._gathered_refs
        self._gathered, self._gathered_refs, self._gathered_bytes = {}, {}, 0
        ids = [store_id for store_id in gathered if refs[store_id]] if turn_ended else list(gathered)
        parts_by_path: dict[str, list[bytes]] = {}
        start = 0
        while start < len(ids):
            file = self._file_for(OVERHEAD_BYTES + len(gathered[ids[start]]))
            stretch, sizes = self._fitting(file, ids, start, gathered)
            is_new = not len(file)
            self._files.append(file, stretch[0], sizes, [refs[store_id] for store_id in stretch])
            file.written_in = self._turn
            parts = parts_by_path.setdefault(file.path, [])
            if is_new:
                parts.append(MESSAGES_HEADER)
            for store_id in stretch:
                parts += framed(store_id, gathered[store_id])
            start += len(stretch)
        steps = appends(parts_by_path.items(), MESSAGES_HEADER)
        if steps and not self._has_directory:
            self._has_directory = True
            steps.insert(0, MakeDir(self._directory))
            self._unsynced_directories.add(self._parent)
        self._unsynced.update(parts_by_path)
        return steps

    def sync_steps(self) -> list[Step]:
        """Return steps that make what was written outlive a power loss; none in the transient store."""
        if not (self._is_synced and (self._unsynced or self._unsynced_directories)):
            return []
        steps: list[Step] = [
            *map(Sync, sorted(self._unsynced)),
            *map(SyncDir, sorted(self._unsynced_directories, reverse=True)),
        ]
        self._unsynced.clear()
        self._unsynced_directories.clear()
        return steps

    def read_steps(self, first_id: int, count: int) -> list[Read]:
        """Return steps that read contents. Those of `take_steps` must have been submitted before.

        They give lists of contents; one after the other they are `count`, in order of ids, with None for what is lost
        or damaged. No steps if none of the contents is here.
        """
        reads: list[Read] = []
        missing = 0
        for file, position, ids in self._stretches(first_id, count):
            if file is None:
                assert ids[0] not in self._gathered, "take_steps comes first"
                missing += len(ids)
                continue
            first, *others = file.reads(position, len(ids))
            reads += [_padded(first, before=missing), *others]
            missing = 0
        if reads:
            reads[-1] = _padded(reads[-1], after=missing)
        return reads

    def leave(self, path: str) -> None:
        """Stop appending to a file in which something could not be read: the next contents go to another one.

        The file may not even be there any more: then appending would make a file without the contents before.
        """
        if self._current is not None and self._current.path == path:
            self._current = None

    def _file_for(self, size: int) -> StoreFile:
        """Return the file that a record of this size goes to."""
        file = self._current
        if file is not None and file.size_bytes + size <= self._file_max_bytes:
            return file
        file = self._current = StoreFile(self._new_path(), self._turn)
        self._files.add(file)
        self._unsynced_directories.add(self._directory)
        return file

    def _new_path(self) -> str:
        self._next_number += 1
        return f"{self._directory}/{self._next_number - 1}.rdq"

    def _fitting(
        self, file: StoreFile, ids: list[int], start: int, contents: dict[int, bytes]
    ) -> tuple[range, list[int]]:
        """Return the consecutive ids from `start` on whose records fit into the file, and their sizes."""
        first_id = ids[start]
        sizes: list[int] = []
        size_bytes = file.size_bytes
        for at in range(start, len(ids)):
            size = OVERHEAD_BYTES + len(contents[ids[at]])
            size_bytes += size
            if sizes and (size_bytes > self._file_max_bytes or ids[at] != first_id + len(sizes)):
                break
            sizes.append(size)
        return range(first_id, first_id + len(sizes)), sizes

    # --- where things are ---

    def _has(self, store_id: int) -> bool:
        return store_id in self._gathered or self._files.find(store_id) is not None

    def _stretches(self, first_id: int, count: int) -> Iterator[tuple[StoreFile | None, int, range]]:
        """Yield where consecutive ids are: file, position, some of the ids.

        Without a file they are gathered, or not here at all.
        """
        at, end = first_id, first_id + count
        while at < end:
            found = None if at in self._gathered else self._files.find(at)
            if found is None:
                yield None, 0, range(at, at + 1)
                at += 1
            else:
                file, position = found
                length = file.stretch(position, end - at)
                yield file, position, range(at, at + length)
                at += length

    # --- garbage ---

    def collect(self) -> None:
        """Remove files that are nothing but garbage, and begin a merge when one is due.

        To be called at the end of a turn, right after the operations were submitted by which references were
        dropped. What was written since the last call is spared, as references may yet be added to it.
        """
        self._had_drops = False
        if self._files or self._merged_away:  # there are none where no message is large
            self._remove_merged_away()
            spared = set(self._merge.sources) if self._merge is not None else set()
            if self._current is not None:
                spared.add(self._current)
            self._remove(self._files.take_dead(spared, self._turn))
            self._merge_if_due()
        self._turn += 1

    def _remove(self, files: Sequence[StoreFile]) -> None:
        """Remove files that are no longer in use."""
        if not files:
            return
        paths = [file.path for file in files]
        self._unsynced.difference_update(paths)  # the sync would find no file when its turn comes
        if self._is_synced:
            # Not before the operations are safe by which the last references were dropped: maybe it is one of
            # those that moves the message elsewhere. A job that only removes passes one that finds no room; one
            # that makes a directory does not, so when it is done all before it is.
            barrier = MakeDir(self._directory)
            self._disk.submit([barrier], lambda _results: self._submit_removes(paths), _nothing)
        else:
            self._submit_removes(paths)

    def _submit_removes(self, paths: Sequence[str]) -> None:
        # A file that can't be removed is found without references at the next start.
        self._disk.submit([Remove(path) for path in paths], _nothing, _nothing)

    def _merge_if_due(self) -> None:
        if self._merge is not None or not self._can_merge or not self._files.is_wasteful(self._current):
            return
        sources = self._files.best_sources(self._current, self._turn, self._file_max_bytes)
        if sources:
            self._merge = FileMerge(
                sources,
                self._new_path(),
                self._disk,
                is_synced=self._is_synced,
                done=self._end_merge,
                failed=self._fail_merge,
            )
            self._merge.start()

    def _end_merge(self, file: StoreFile | None) -> None:
        """Use the new file instead of the old ones: the merge is done."""
        assert self._merge is not None
        for source in self._merge.sources:
            self._files.remove(source)
            self._merged_away.append(source)
        if file is not None and len(file):
            self._files.add(file)
        elif file is not None:
            self._merged_away.append(file)
        self._merge = None
        # Contents that lost their last reference since the last `collect` are not in the new file, and the operation
        # may not be submitted yet. Then the next `collect` continues.
        if not self._had_drops:
            self._remove_merged_away()
            self._merge_if_due()

    def _remove_merged_away(self) -> None:
        self._remove(self._merged_away)
        self._merged_away = []

    def _fail_merge(self, unreadable: StoreFile | None) -> None:
        """Give up a merge. The unreadable file is left alone; None means that the disk is broken, and merging is over.

        The next `collect` begins another merge: what lost its last reference meanwhile is to go first.
        """
        assert self._merge is not None
        self._submit_removes([self._merge.tmp_path])
        for source in self._merge.sources:
            source.stay()
        self._merge = None
        if unreadable is None:
            self._can_merge = False
        else:
            self._files.unreadable.add(unreadable)

    # --- start ---

    def recover(self, disk: Disk, report: Report) -> list[str]:
        """Learn what is in the files, at the start of a node.

        Until `finish_recovery`, references are added for what the queues hold, and may be added to lost contents.
        report: gets what is damaged. Nothing of it is changed; what is good in such a file is kept and used.
        Returns: paths of files that have nothing good in them. The store leaves them alone.
        Raises: NewerFormat, OSError.
        """
        assert not self._files, "recovery comes first"
        self._is_recovering = True
        names = disk.names(self._directory)
        self._has_directory = bool(names)
        disk.run([Remove(f"{self._directory}/{name}") for name in names if name.endswith(TMP_SUFFIX)])
        numbers = sorted(int(match[1]) for match in map(_FILE_NAME.fullmatch, names) if match)
        found: list[Scan] = []
        hopeless: list[str] = []
        for number in numbers:
            self._next_number = number + 1
            path = f"{self._directory}/{number}.rdq"
            [data] = disk.run([Read(path, 0, TO_THE_END)])
            scanned = scan(path, data, report)
            if scanned.is_hopeless:
                hopeless.append(path)
            else:
                found.append(scanned)
        _leave_out_twins([scanned.file for scanned in found])
        for file, _may_grow, _is_hopeless in found:
            self._files.add(file)
            self._unsynced.add(file.path)
        if self._has_directory:
            self._unsynced_directories.update((self._directory, self._parent))
        self._go_on_after([scanned for scanned in found if len(scanned.file)])
        return hopeless

    def _go_on_after(self, found: Sequence[Scan]) -> None:
        """Give new contents ids above all others, and a place in the file with the highest ones, if there is room."""
        if not found:
            return
        file, may_grow, _is_hopeless = max(found, key=lambda scanned: scanned.file.last_id)
        self._next_id = max(self._next_id, file.last_id + 1)
        if may_grow and file.size_bytes < self._file_max_bytes:
            self._current = file

    def finish_recovery(self) -> int:
        """Remove the files that have no references, after all references were added.

        What was found may never have been synced; `sync_steps` has that now.
        Returns: the number of bytes without references.
        """
        self._is_recovering = False
        garbage_bytes = self._files.garbage_bytes
        dead = self._files.take_dead((), self._turn)
        if self._current in dead:
            self._current = None
        self._disk.run([Remove(file.path) for file in dead])
        self._unsynced.difference_update(file.path for file in dead)
        return garbage_bytes

    # --- for the scrubber ---

    @property
    def files(self) -> FileTable:
        """The files in use."""
        return self._files

    def refers_to(self, file: StoreFile, store_id: int) -> bool:
        """True if a content in this file has references."""
        found = self._files.find(store_id)
        return found is not None and found[0] is file and file.refs_at(found[1]) > 0

    # --- for tools ---

    def figures(self) -> StoreFigures:
        """Return how full the store is. Costs a little for each file."""
        return StoreFigures(
            files=len(self._files),
            bytes=self._files.size_bytes,
            garbage_bytes=self._files.garbage_bytes,
            messages=len(self._gathered) + sum(file.live_count for file in self._files),
        )


def _leave_out_twins(files: Sequence[StoreFile]) -> None:
    """Leave out, after a crash at the end of a merge, contents that both old and new files have: the newest keeps them.

    files: from oldest to newest.
    """
    ages = {file: age for age, file in enumerate(files)}
    overlapping: list[StoreFile] = []
    last_id = -1
    for file in sorted(filter(len, files), key=lambda file: file.first_id):
        if file.first_id > last_id:
            _leave_out_older(sorted(overlapping, key=ages.__getitem__))
            overlapping = []
        overlapping.append(file)
        last_id = max(last_id, file.last_id)
    _leave_out_older(sorted(overlapping, key=ages.__getitem__))


def _leave_out_older(files: list[StoreFile]) -> None:
    """Keep each content only in the last of the files that has it."""
    seen: set[int] = set()
    if len(files) > 1:
        for file in reversed(files):
            ids = list(file.ids())
            file.leave_out(seen)
            seen.update(ids)


def _padded(read: Read, before: int = 0, after: int = 0) -> Read:
    """Return a read of contents with some lost ones added, as None, before or after."""
    if not before and not after:
        return read
    assert read.then is not None
    padding = {name: count for name, count in (("before", before), ("after", after)) if count}
    return replace(read, then=partial(read.then, **padding))


def _nothing(_result: Any) -> None:
    """Ignore the result of a step that may fail."""
