"""The table of a message store's files: which one has a content, how much is garbage, which ones to merge.

The files of the persistent store have ids that rise from file to file. Paging writes in any order, so a file of the
transient store may have ids from anywhere. Both are found alike: ids are cut into blocks, and for each block there
is a short list of the files that have some of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from node.store.records import HEADER_BYTES
from node.store.store_file import BLOCK_BITS, StoreFile, blocks_of

_FILES_MIN: Final = 3
"""The number of files below which garbage stays: it is a few MiB at most."""

_SOURCES_MAX: Final = 8
"""The limit of files in one merge, so that planning it and ending it costs the loop little."""


class FileTable:
    """The files of a message store with their contents.

    size_bytes: of all files.   live_bytes: of the records in them that have references.
    dead: files that had no live contents when last looked at.
    unreadable: files of which something could not be read when they were to be merged: they stay as they are.
    """

    __slots__ = ("_by_block", "_files", "dead", "live_bytes", "size_bytes", "unreadable")

    def __init__(self) -> None:
        self._files: set[StoreFile] = set()
        self._by_block: dict[int, list[StoreFile]] = {}
        self.size_bytes = 0
        self.live_bytes = 0
        self.dead: set[StoreFile] = set()
        self.unreadable: set[StoreFile] = set()

    def __iter__(self) -> Iterator[StoreFile]:
        return iter(self._files)

    def __contains__(self, file: object) -> bool:
        return file in self._files

    def __len__(self) -> int:
        return len(self._files)

    @property
    def garbage_bytes(self) -> int:
        """The number of bytes of records without references."""
        return self.size_bytes - self.live_bytes - HEADER_BYTES * len(self._files)

    def add(self, file: StoreFile) -> None:
        """Add a file with its contents."""
        self._files.add(file)
        self.size_bytes += file.size_bytes
        self.live_bytes += file.live_bytes
        self._list(file, file.blocks)
        if not file.live_bytes:
            self.dead.add(file)

    def remove(self, file: StoreFile) -> None:
        """Remove a file with its contents from the table."""
        self._files.remove(file)
        self.size_bytes -= file.size_bytes
        self.live_bytes -= file.live_bytes
        self.dead.discard(file)
        self.unreadable.discard(file)
        for block in file.blocks:
            files = self._by_block[block]
            files.remove(file)
            if not files:
                del self._by_block[block]

    def _list(self, file: StoreFile, blocks: Iterable[int]) -> None:
        for block in blocks:
            files = self._by_block.setdefault(block, [])
            if file not in files:
                files.append(file)

    # --- contents ---

    def append(self, file: StoreFile, first_id: int, sizes: Sequence[int], refs: Sequence[int]) -> None:
        """Note that contents are appended to one of the files; the arguments are as in `StoreFile.append`."""
        live_before = file.live_bytes
        file.append(first_id, sizes, refs)
        self.size_bytes += sum(sizes)
        self.live_bytes += file.live_bytes - live_before
        self._list(file, blocks_of(first_id, first_id + len(sizes) - 1))

    def find(self, store_id: int) -> tuple[StoreFile, int] | None:
        """Return the file that has a content, and its position there, or None."""
        for file in self._by_block.get(store_id >> BLOCK_BITS, ()):
            position = file.find(store_id)
            if position is not None:
                return file, position
        return None

    def add_refs(self, file: StoreFile, position: int, count: int) -> None:
        """Add a reference to each of `count` contents of a file, from a position on."""
        self.live_bytes += file.add_refs(position, count)

    def drop_refs(self, file: StoreFile, position: int, count: int) -> None:
        """Drop a reference to each of `count` contents of a file, from a position on; the file may become dead."""
        self.live_bytes -= file.drop_refs(position, count)
        if not file.live_bytes:
            self.dead.add(file)

    # --- garbage ---

    def take_dead(self, spared: Iterable[StoreFile], turn: int) -> list[StoreFile]:
        """Remove and return the files without live contents, except for spared ones and those written in this turn."""
        self.dead = {file for file in self.dead if not file.live_bytes}
        taken = [file for file in self.dead.difference(spared) if file.written_in < turn]
        for file in taken:
            self.remove(file)
        return taken

    def is_wasteful(self, current: StoreFile | None) -> bool:
        """True if more than half of all files' contents is garbage, without the current and the unreadable files."""
        garbage_bytes, live_bytes = self.garbage_bytes, self.live_bytes
        for file in self.unreadable if current is None else {*self.unreadable, current}:
            garbage_bytes -= file.garbage_bytes
            live_bytes -= file.live_bytes
        return len(self._files) >= _FILES_MIN and garbage_bytes > live_bytes

    def best_sources(self, current: StoreFile | None, turn: int, file_max_bytes: int) -> list[StoreFile]:
        """Return neighbours, in order of ids, whose merge gains most, and whose live contents fit into one file.

        The gain is the garbage less what must be copied. There are none where nothing is gained. The current file is
        not among them, nor is one that was written in this turn, or is unreadable. Neighbours are taken because
        contents that came together are read together, and lose their references together.
        """
        files = [
            file for file in self._files - self.unreadable if file is not current and file.written_in < turn
        ]
        files.sort(key=lambda file: file.first_id)
        sizes = [(file.live_bytes, file.garbage_bytes) for file in files]
        best = (0, _SOURCES_MAX)
        found: list[StoreFile] = []
        for start in range(len(files)):
            size_bytes, gain = HEADER_BYTES, 0
            for stop in range(start, min(start + _SOURCES_MAX, len(files))):
                live_bytes, garbage_bytes = sizes[stop]
                size_bytes += live_bytes
                if size_bytes > file_max_bytes:
                    break
                gain += garbage_bytes - live_bytes
                if (gain, stop - start) > best:
                    best, found = (gain, stop - start), files[start : stop + 1]
        return found
