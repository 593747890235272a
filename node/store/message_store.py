"""Contents of messages that are too large for the index of a queue: each once, however many queues hold it.

    place ─► gathered ─► take_steps ─► N.rdq ─► read_steps
               add_refs … drop_refs               collect ─► merge, remove

A content has an id and a count of the queues' references to it. The contents of one call get consecutive ids. They
are appended to files; what nobody refers to is garbage there. A file that is nothing else is removed, and when more
than half of everything is garbage, neighbours are merged.

There are two stores: one for persistent messages; one for others that were paged out, which is never synced, and
which a node wipes when it starts. Which one it is, is told by its ids.

**The order of things.** Steps that a method returns must be submitted before anything else is asked of the store,
because later ones build on them. References must be added in the turn in which the contents came.
Source: architecture §2.2.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final

from node.store.disk import TO_THE_END, Append, Disk, MakeDir, Read, Remove, Step, Sync, SyncDir
from node.store.file_merge import TMP_SUFFIX, FileMerge
from node.store.records import HEADER_BYTES, MESSAGES_HEADER
from node.store.store_file import BLOCK_BITS, OVERHEAD_BYTES, Report, StoreFile, framed, scan

FILE_MAX_BYTES: Final = 16 * 1024 * 1024
"""What a file may have, unless it holds but a single content."""

PERSISTENT_FIRST_ID: Final = 1
TRANSIENT_FIRST_ID: Final = 1 << 62
"""Ids from here on are those of the transient store, so that an id tells its store."""

_OFFSETS_END: Final = 1 << 32
"""Offsets are kept in 32 bits."""

_FILES_MIN: Final = 3
"""With fewer files garbage is let be: it is a few MiB at most."""

_SOURCES_MAX: Final = 8
"""How many files go into one merge, so that planning it and ending it costs the loop little."""

_FILE_NAME: Final = re.compile(r"([1-9][0-9]*)\.rdq")


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """How full a message store is.

    files: their number.   bytes: of the files.   garbage_bytes: of records in them that nobody refers to.
    messages: contents that somebody refers to; those that are not yet written count, too.
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
        self._disk = disk
        self._file_max_bytes = file_max_bytes
        self._is_synced = first_id < TRANSIENT_FIRST_ID
        self._next_id = first_id
        self._next_number = 1
        self._gathered: dict[int, bytes] = {}  # contents without a place in a file, in the order they came
        self._gathered_refs: dict[int, int] = {}
        self._gathered_bytes = 0
        self._files: set[StoreFile] = set()
        self._files_by_block: dict[int, list[StoreFile]] = {}  # who may have an id, see `BLOCK_BITS`
        self._current: StoreFile | None = None  # the one that is appended to
        self._bytes = 0
        self._live_bytes = 0
        self._has_directory = False
        self._unsynced: set[str] = set()
        self._unsynced_directories: set[str] = set()
        self._turn = 0
        self._had_drops = False  # since the last `collect`
        self._dead: set[StoreFile] = set()  # without live contents, when last looked at
        self._merge: FileMerge | None = None
        self._merged_away: list[StoreFile] = []  # no longer in use, but still there
        self._can_merge = True
        self._is_recovering = False
        self._is_damaged = False  # somebody referred to contents that are lost

    # --- contents come ---

    def place(self, contents: Sequence[bytes]) -> int:
        """Take in contents, to be written with the next steps.

        Returns: the id of the first; the others follow. Nobody refers to them yet.
        """
        first_id = self.reserve(len(contents))
        self._gather(zip(range(first_id, self._next_id), contents, strict=True))
        return first_id

    def reserve(self, count: int) -> int:
        """Give ids to contents that may have to be written later; the first one."""
        first_id = self._next_id
        self._next_id += count
        return first_id

    def write(self, first_id: int, contents: Sequence[bytes]) -> None:
        """Take in contents that had their ids reserved; nothing happens to those that are here already."""
        numbered = enumerate(contents, first_id)
        self._gather((store_id, content) for store_id, content in numbered if not self._has(store_id))

    def _gather(self, numbered: Iterator[tuple[int, bytes]]) -> None:
        for store_id, content in numbered:
            self._gathered[store_id] = content
            self._gathered_refs[store_id] = 0
            self._gathered_bytes += OVERHEAD_BYTES + len(content)

    # --- references ---

    def add_refs(self, first_id: int, count: int) -> None:
        """One more queue refers to contents; they must be here (but see `recover`)."""
        for file, position, ids in self._stretches(first_id, count):
            if file is not None:
                self._live_bytes += file.add_refs(position, len(ids))
            elif first_id in self._gathered or ids[0] in self._gathered:
                for store_id in ids:
                    self._gathered_refs[store_id] += 1
            else:
                assert self._is_recovering, ids
                self._is_damaged = True
                # What refers to lost contents must not come to mean others.
                self._next_id = max(self._next_id, ids.stop)

    def drop_refs(self, first_id: int, count: int) -> None:
        """A queue no longer refers to contents. The last reference gone, they must not be used any more, unless
        they are written anew.
        """
        self._had_drops = True
        for file, position, ids in self._stretches(first_id, count):
            if file is not None:
                self._live_bytes -= file.drop_refs(position, len(ids))
                if not file.live_bytes:
                    self._dead.add(file)
            elif ids[0] in self._gathered:
                for store_id in ids:
                    assert self._gathered_refs[store_id], store_id
                    self._gathered_refs[store_id] -= 1
            else:
                assert self._is_damaged, ids

    def missing(self, first_id: int, count: int) -> list[int]:
        """Those of consecutive ids whose contents are not here."""
        return [store_id for store_id in range(first_id, first_id + count) if not self._has(store_id)]

    # --- to and from the disk ---

    @property
    def gathered_bytes(self) -> int:
        """What `take_steps` would write, in bytes."""
        return self._gathered_bytes

    def take_steps(self, *, turn_ended: bool = False) -> list[Step]:
        """Write what has gathered.

        turn_ended: all references to it have been added, so that what has none need not be written: large
            messages that are consumed at once never see the disk.
        """
        gathered, refs = self._gathered, self._gathered_refs
        self._gathered, self._gathered_refs, self._gathered_bytes = {}, {}, 0
        ids = [store_id for store_id in gathered if refs[store_id]] if turn_ended else list(gathered)
        parts_by_path: dict[str, list[bytes]] = {}
        start = 0
        while start < len(ids):
            file = self._file_for(OVERHEAD_BYTES + len(gathered[ids[start]]))
            stretch, sizes = self._fitting(file, ids, start, gathered)
            self._put(file, stretch, sizes, [refs[store_id] for store_id in stretch])
            parts = parts_by_path.setdefault(file.path, [])
            if not parts and file.size_bytes == HEADER_BYTES + sum(sizes):
                parts.append(MESSAGES_HEADER)
            for store_id in stretch:
                parts += framed(store_id, gathered[store_id])
            start += len(stretch)
        steps: list[Step] = [Append(path, parts) for path, parts in parts_by_path.items()]
        if steps and not self._has_directory:
            self._has_directory = True
            steps.insert(0, MakeDir(self._directory))
            self._unsynced_directories.add(self._directory.rpartition("/")[0])
        self._unsynced.update(parts_by_path)
        return steps

    def sync_steps(self) -> list[Step]:
        """Make what was written outlive a power loss. For the persistent store."""
        steps: list[Step] = [
            *map(Sync, sorted(self._unsynced)),
            *map(SyncDir, sorted(self._unsynced_directories, reverse=True)),
        ]
        self._unsynced.clear()
        self._unsynced_directories.clear()
        return steps

    def read_steps(self, first_id: int, count: int) -> list[Read]:
        """Read contents. What `take_steps` gives must have been submitted before.

        Returns: steps that give lists of contents; one after the other they are `count`, in order of ids, with
            None for what is lost or damaged. No steps if there is nothing at all.
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

    def _file_for(self, size: int) -> StoreFile:
        """The file that a record of this size goes to."""
        file = self._current
        if file is not None and (not len(file) or file.size_bytes + size <= self._file_max_bytes):
            return file
        if file is not None and not file.live_bytes:
            self._dead.add(file)
        file = self._current = StoreFile(self._new_path(), self._turn)
        self._files.add(file)
        self._bytes += file.size_bytes
        self._unsynced_directories.add(self._directory)
        return file

    def _new_path(self) -> str:
        self._next_number += 1
        return f"{self._directory}/{self._next_number - 1}.rdq"

    def _fitting(
        self, file: StoreFile, ids: list[int], start: int, contents: dict[int, bytes]
    ) -> tuple[range, list[int]]:
        """The consecutive ids from `start` on whose records fit into the file, and the sizes of those."""
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

    def _put(self, file: StoreFile, ids: range, sizes: list[int], refs: list[int]) -> None:
        """Register contents that are appended to the current file."""
        bytes_before, live_before = file.size_bytes, file.live_bytes
        file.append(ids[0], sizes, refs)
        file.written_in = self._turn
        self._bytes += file.size_bytes - bytes_before
        self._live_bytes += file.live_bytes - live_before
        self._list(file, range(ids[0] >> BLOCK_BITS, (ids[-1] >> BLOCK_BITS) + 1))

    # --- where things are ---

    def _list(self, file: StoreFile, blocks: range | set[int]) -> None:
        for block in blocks:
            files = self._files_by_block.setdefault(block, [])
            if file not in files:
                files.append(file)

    def _adopt(self, file: StoreFile) -> None:
        """Take up a file with contents."""
        self._files.add(file)
        self._bytes += file.size_bytes
        self._live_bytes += file.live_bytes
        self._list(file, file.blocks)
        if not file.live_bytes:
            self._dead.add(file)

    def _forget(self, file: StoreFile) -> None:
        """Let go of a file that is no longer needed. It must not be synced any more: soon it won't be there."""
        self._files.remove(file)
        self._bytes -= file.size_bytes
        self._live_bytes -= file.live_bytes
        self._dead.discard(file)
        self._unsynced.discard(file.path)
        for block in file.blocks:
            files = self._files_by_block[block]
            files.remove(file)
            if not files:
                del self._files_by_block[block]

    def _find(self, store_id: int) -> tuple[StoreFile, int] | None:
        """The file that has a content, and its position there."""
        for file in self._files_by_block.get(store_id >> BLOCK_BITS, ()):
            position = file.find(store_id)
            if position is not None:
                return file, position
        return None

    def _has(self, store_id: int) -> bool:
        return store_id in self._gathered or self._find(store_id) is not None

    def _stretches(self, first_id: int, count: int) -> Iterator[tuple[StoreFile | None, int, range]]:
        """Where consecutive ids are: file, position, some of the ids. Without a file they are gathered, or not
        here at all.
        """
        at, end = first_id, first_id + count
        while at < end:
            found = None if at in self._gathered else self._find(at)
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
        """See to it that garbage is not kept for long: remove files that are nothing else, begin a merge when one
        is due.

        To be called at the end of a turn, after the operations were submitted by which references were dropped:
        if they were lost while the contents are gone, a recovering queue would miss contents. What was written
        since the last call is let be, as references may yet be added to it.
        """
        self._had_drops = False
        self._remove_merged_away()
        self._remove_dead()
        self._merge_if_due()
        self._turn += 1

    def _remove_dead(self) -> None:
        busy = set(self._merge.sources) if self._merge is not None else set()
        for file in list(self._dead):
            if file.live_bytes:
                self._dead.discard(file)
            elif file is not self._current and file not in busy and file.written_in < self._turn:
                self._forget(file)
                self._remove([file.path])

    def _remove(self, paths: Sequence[str]) -> None:
        # A file that can't be removed is found without references at the next start.
        self._disk.submit([Remove(path) for path in paths], _nothing, _nothing)

    def _merge_if_due(self) -> None:
        if self._merge is not None or not self._can_merge or not self._is_wasteful():
            return
        sources = self._best_sources()
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

    def _is_wasteful(self) -> bool:
        """Whether of all that is in full files more than half is garbage."""
        if len(self._files) < _FILES_MIN:
            return False
        size_bytes, live_bytes = self._bytes, self._live_bytes
        if self._current is not None:
            size_bytes -= self._current.size_bytes
            live_bytes -= self._current.live_bytes
        return 2 * live_bytes < size_bytes - HEADER_BYTES * len(self._files)

    def _best_sources(self) -> list[StoreFile]:
        """The neighbours, in order of ids, that give most room for what must be copied, and whose live contents
        fit into one file; none where nothing is worth it.

        Neighbours, because what came together is read together, and goes together.
        """
        files = [file for file in self._files if file is not self._current and file.written_in < self._turn]
        files.sort(key=lambda file: file.first_id)
        sizes = [(file.live_bytes, file.garbage_bytes) for file in files]
        best = 0
        found: list[StoreFile] = []
        for start in range(len(files)):
            size_bytes, gain = HEADER_BYTES, 0
            for stop in range(start, min(start + _SOURCES_MAX, len(files))):
                live_bytes, garbage_bytes = sizes[stop]
                size_bytes += live_bytes
                if size_bytes > self._file_max_bytes:
                    break
                gain += garbage_bytes - live_bytes
                if gain > best:
                    best, found = gain, files[start : stop + 1]
        return found

    def _end_merge(self, file: StoreFile | None) -> None:
        """From now on the new file has what the old ones had."""
        assert self._merge is not None
        for source in self._merge.sources:
            self._forget(source)
            self._merged_away.append(source)
        if file is not None:
            self._adopt(file)
        self._merge = None
        # What lost its last reference since the last `collect` wasn't copied, and its operation may not be
        # submitted. Then the next `collect` goes on.
        if not self._had_drops:
            self._remove_merged_away()
            self._merge_if_due()

    def _remove_merged_away(self) -> None:
        if self._merged_away:
            self._remove([file.path for file in self._merged_away])
            self._merged_away = []

    def _fail_merge(self) -> None:
        """Try no more until the node starts again: the disk is broken, or a file can't be read."""
        assert self._merge is not None
        self._remove([self._merge.tmp_path])
        self._merge = None
        self._can_merge = False

    # --- start ---

    def recover(self, disk: Disk, report: Report) -> list[str]:
        """Learn what is in the files, at the start of a node. Until `finish_recovery`, references are added for
        what the queues hold, and may be added to lost contents.

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
        found: list[tuple[StoreFile, bool]] = []
        hopeless: list[str] = []
        for number in numbers:
            self._next_number = number + 1
            path = f"{self._directory}/{number}.rdq"
            reports: list[str] = []
            [data] = disk.run([Read(path, 0, TO_THE_END)])
            file, is_whole = scan(path, data, lambda *what, to=reports: (to.append(what[0]), report(*what)))
            if reports and not len(file):
                hopeless.append(path)
            else:
                found.append((file, is_whole))
        _leave_out_twins([file for file, _is_whole in found])
        for file, _is_whole in found:
            self._adopt(file)
            self._unsynced.add(file.path)
        self._go_on_after(found)
        return hopeless

    def _go_on_after(self, found: Sequence[tuple[StoreFile, bool]]) -> None:
        """New contents get ids above all there are, and go where the highest ones are, if there is room."""
        filled = [(file.last_id, file, is_whole) for file, is_whole in found if len(file)]
        if filled:
            last_id, file, is_whole = max(filled, key=lambda entry: entry[0])
            self._next_id = max(self._next_id, last_id + 1)
            if is_whole and file.size_bytes < self._file_max_bytes:
                self._current = file
        if self._has_directory:
            self._unsynced_directories.add(self._directory)

    def finish_recovery(self) -> int:
        """All references were added: remove the files that have none.

        What was found may never have been synced; `sync_steps` has that now.
        Returns: bytes that nobody refers to.
        """
        self._is_recovering = False
        garbage_bytes = self.figures().garbage_bytes
        dead = [file for file in self._dead if not file.live_bytes]
        for file in dead:
            self._forget(file)
            if file is self._current:
                self._current = None
        self._dead.clear()
        self._disk.run([Remove(file.path) for file in dead])
        return garbage_bytes

    # --- for tools ---

    def figures(self) -> StoreFigures:
        """How full the store is. Costs a little for each file."""
        return StoreFigures(
            files=len(self._files) + len(self._merged_away),
            bytes=self._bytes + sum(file.size_bytes for file in self._merged_away),
            garbage_bytes=self._bytes - self._live_bytes - HEADER_BYTES * len(self._files),
            messages=len(self._gathered) + sum(file.live_count for file in self._files),
        )


def _leave_out_twins(files: Sequence[StoreFile]) -> None:
    """After a crash at the end of a merge, old and new files have the same contents: only the newest shall.

    files: from oldest to newest.
    """
    ages = {file: age for age, file in enumerate(files)}
    cluster: list[StoreFile] = []
    last_id = -1
    for file in [*sorted(filter(len, files), key=lambda file: file.first_id), None]:
        if file is None or file.first_id > last_id:
            seen: set[int] = set()
            for member in sorted(cluster, key=ages.__getitem__, reverse=True):
                ids = list(member.ids())
                member.leave_out(seen)
                seen.update(ids)
            cluster = []
        if file is not None:
            cluster.append(file)
            last_id = max(last_id, file.last_id)


def _padded(read: Read, before: int = 0, after: int = 0) -> Read:
    """A read of contents with some before or after that are lost."""
    if not before and not after:
        return read
    assert read.then is not None
    padding = {name: count for name, count in (("before", before), ("after", after)) if count}
    return replace(read, then=partial(read.then, **padding))


def _nothing(_result: Any) -> None:
    """Whether it went well matters to nobody."""
