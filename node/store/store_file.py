"""One file of a message store, as the loop knows it: the places of contents, and the number of references to each.

    file    = header record*           see `node.store.records`
    payload = id:longlong content

A message costs 20 bytes in four arrays, sorted by id, and no object. The contents themselves are only read and
written in jobs of the disk.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, compress, pairwise
from struct import Struct
from typing import Final, NamedTuple

from node.store.disk import Read
from node.store.records import (
    HEADER_BYTES,
    MESSAGES_HEADER,
    RECORD_HEAD_BYTES,
    EndState,
    NewerFormat,
    check_header,
    payload_at,
    read_records,
    record,
)

Report = Callable[[str, int, str], None]
"""Takes what recovery found to be damaged: path, offset in bytes, description."""

BLOCK_BITS: Final = 12
"""The lowest bits of an id that do not count for its block.

A file of 16 MiB has about a block of contents of 4 KiB, so it belongs to few blocks and a block to few files.
"""

_READ_MAX_BYTES: Final = 1024 * 1024
"""The limit of what one Read fetches, unless a single content is larger."""

_ID: Final = Struct(">Q")

OVERHEAD_BYTES: Final = RECORD_HEAD_BYTES + _ID.size
"""The bytes that a content takes in a file besides itself."""


def framed(store_id: int, content: bytes) -> list[bytes]:
    """Return a content as a record, in parts."""
    return record([_ID.pack(store_id), content])


class StoreFile:
    """The contents of one file.

    size_bytes: of the file, when all steps that were made for it are executed.
    live_bytes, live_count: of the records with references.
    blocks: the ids it has, or had, without their lowest `BLOCK_BITS` bits.
    written_in: the turn in which it was last written, see `MessageStore.collect`.
    is_damaged: a content with references is not good.
    is_leaving: its contents are being copied to another file. Contents that have no references then cannot be found any
        more: the copy won't have them.
    """

    __slots__ = (
        "_ids",
        "_offsets",
        "_refs",
        "_sizes",
        "blocks",
        "is_damaged",
        "is_leaving",
        "live_bytes",
        "live_count",
        "path",
        "size_bytes",
        "written_in",
    )

    def __init__(self, path: str, written_in: int) -> None:
        self.path = path
        self.written_in = written_in
        self.size_bytes = HEADER_BYTES
        self.live_bytes = 0
        self.live_count = 0
        self.blocks: set[int] = set()
        self.is_leaving = False
        self.is_damaged = False
        # One element a content, all in order of ids. Sizes are of whole records.
        self._ids = array("Q")
        self._offsets = array("I")
        self._sizes = array("I")
        self._refs = array("I")

    @property
    def first_id(self) -> int:
        """The lowest id."""
        return self._ids[0]

    @property
    def last_id(self) -> int:
        """The highest id."""
        return self._ids[-1]

    @property
    def garbage_bytes(self) -> int:
        """The number of bytes of records without references."""
        return self.size_bytes - HEADER_BYTES - self.live_bytes

    def __len__(self) -> int:
        return len(self._ids)

    # --- contents come ---

    def append(self, first_id: int, sizes: Sequence[int], refs: Sequence[int]) -> None:
        """Add contents with ids from first_id on, which are written at the end.   sizes: of their records, in bytes."""
        *offsets, self.size_bytes = accumulate(sizes, initial=self.size_bytes)
        ids = self._ids
        # Paging writes ids in any order. None lie between those of one call, so they stay together.
        at = bisect_left(ids, first_id)
        assert at == len(ids) or ids[at] >= first_id + len(sizes), (first_id, ids[at])
        ids[at:at] = array("Q", range(first_id, first_id + len(sizes)))
        self._offsets[at:at] = array("I", offsets)
        self._sizes[at:at] = array("I", sizes)
        self._refs[at:at] = array("I", refs)
        self.blocks.update(blocks_of(first_id, first_id + len(sizes) - 1))
        self._count_live(sizes, refs)

    def fill(
        self, ids: Sequence[int], offsets: Sequence[int], sizes: Sequence[int], refs: Sequence[int]
    ) -> None:
        """Set the contents of the file, in any order; of an id that comes twice the later one counts.

        `size_bytes` is the caller's to set.
        """
        if any(left >= right for left, right in pairwise(ids)):
            last = {store_id: index for index, store_id in enumerate(ids)}
            order = [last[store_id] for store_id in sorted(last)]
            ids, offsets, sizes, refs = (
                [column[at] for at in order] for column in (ids, offsets, sizes, refs)
            )
        self._ids = array("Q", ids)
        self._offsets = array("I", offsets)
        self._sizes = array("I", sizes)
        self._refs = array("I", refs)
        self.blocks = set(_blocks(self._ids))
        self.live_bytes = self.live_count = 0
        self._count_live(sizes, refs)

    def _count_live(self, sizes: Sequence[int], refs: Sequence[int]) -> None:
        self.live_bytes += sum(compress(sizes, refs))
        self.live_count += len(refs) - refs.count(0)

    def leave_out(self, ids: set[int]) -> None:
        """Forget contents that another file has too. They are garbage here."""
        kept = [at for at, store_id in enumerate(self._ids) if store_id not in ids]
        columns = (self._ids, self._offsets, self._sizes, self._refs)
        self.fill(*([column[at] for at in kept] for column in columns))

    def stay(self) -> None:
        """Cancel leaving, as the copy failed. Contents without references stay forgotten.

        They may have come to another file meanwhile.
        """
        self.is_leaving = False
        self.leave_out({store_id for store_id, refs in zip(self._ids, self._refs, strict=True) if not refs})

    def ids(self) -> Sequence[int]:
        """Return all ids, rising. Not to be changed."""
        return self._ids

    # --- contents are looked up: a position is an index into the arrays ---

    def find(self, store_id: int) -> int | None:
        """Return the position of a content; None if it isn't here."""
        ids = self._ids
        at = bisect_left(ids, store_id)
        if at == len(ids) or ids[at] != store_id or (self.is_leaving and not self._refs[at]):
            return None
        return at

    def stretch(self, position: int, count: int) -> int:
        """Return how many contents from a position on, at most `count`, have consecutive ids."""
        ids = self._ids
        count = min(count, len(ids) - position)
        first = ids[position]
        if ids[position + count - 1] != first + count - 1:
            count = bisect_left(range(count), True, key=lambda ahead: ids[position + ahead] != first + ahead)
        if self.is_leaving:
            refs = self._refs[position : position + count]
            if 0 in refs:
                count = refs.index(0)
        return count

    def add_refs(self, position: int, count: int) -> int:
        """Add a reference to each of `count` contents; return the bytes that thereby come alive."""
        return self._set_refs(position, [refs + 1 for refs in self._refs[position : position + count]])

    def drop_refs(self, position: int, count: int) -> int:
        """Drop a reference to each of `count` contents; return the bytes that thereby become garbage."""
        return -self._set_refs(position, [refs - 1 for refs in self._refs[position : position + count]])

    def _set_refs(self, position: int, refs: list[int]) -> int:
        stop = position + len(refs)
        assert min(refs) >= 0, "more references were dropped than there are"
        bytes_before, sizes = self.live_bytes, self._sizes[position:stop]
        old = self._refs[position:stop]
        self.live_bytes += sum(compress(sizes, refs)) - sum(compress(sizes, old))
        self.live_count += old.count(0) - refs.count(0)
        self._refs[position:stop] = array("I", refs)
        return self.live_bytes - bytes_before

    def reads(self, position: int, count: int) -> Iterator[Read]:
        """Yield steps that read contents with consecutive ids.

        Each gives a list of some of them, in order; None for one whose record is damaged.
        """
        stop = position + count
        while position < stop:
            start = offset = self._offsets[position]
            end = position
            while end < stop and self._offsets[end] == offset:
                size = self._sizes[end]
                if end > position and offset + size - start > _READ_MAX_BYTES:
                    break
                offset += size
                end += 1
            sizes = tuple(self._sizes[position:end])
            yield Read(self.path, start, offset - start, partial(_contents, self._ids[position], sizes))
            position = end

    def check(self, next_id: int, max_bytes: int) -> tuple[range, Read] | None:
        """Return a read of the first contents from an id on that have references, and their ids, which are consecutive.

        The read gives the ids of those that are damaged. None: there are no more.   max_bytes: unless one is larger.
        """
        start = bisect_left(self._ids, next_id)
        while start < len(self._ids) and not self._refs[start]:
            start += 1
        if start == len(self._ids):
            return None
        first_id, first_offset = self._ids[start], self._offsets[start]
        stop, offset = start, first_offset
        while (
            stop < len(self._ids)
            and self._refs[stop]
            and self._ids[stop] == first_id + stop - start
            and self._offsets[stop] == offset
            and (stop == start or offset + self._sizes[stop] - first_offset <= max_bytes)
        ):
            offset += self._sizes[stop]
            stop += 1
        then = partial(_damaged, first_id, tuple(self._sizes[start:stop]))
        step = Read(self.path, first_offset, offset - first_offset, then, is_fresh=True)
        return range(first_id, first_id + stop - start), step

    # --- contents are copied ---

    def live_positions(self) -> list[int]:
        """Return the positions of contents with references."""
        return list(compress(range(len(self._refs)), self._refs))

    def record_at(self, position: int) -> tuple[int, int, int]:
        """Return the id, offset and size of a record."""
        return self._ids[position], self._offsets[position], self._sizes[position]

    def refs_at(self, position: int) -> int:
        """Return the number of references to a content."""
        return self._refs[position]


class Scan(NamedTuple):
    """A file as it was found at the start of a node.

    file: its contents, without references.   may_grow: more may be appended to it.
    is_hopeless: it is damaged, and there is nothing good in it.
    """

    file: StoreFile
    may_grow: bool
    is_hopeless: bool


def scan(path: str, data: bytes, report: Report) -> Scan:
    """Find the contents in a file.

    A torn end, which a crash leaves, is passed over in silence, other damage is reported.
    Raises: NewerFormat.
    """
    file = StoreFile(path, written_in=-1)
    file.size_bytes = max(len(data), HEADER_BYTES)
    damages: list[tuple[int, str]] = []
    try:
        has_header = check_header(data, MESSAGES_HEADER)
    except NewerFormat as error:
        raise NewerFormat(f"{path}: {error}") from None
    if not has_header:
        if MESSAGES_HEADER.startswith(data.rstrip(b"\0")):
            return Scan(file, may_grow=False, is_hopeless=False)
        # The records can still be told by their crcs.
        damages.append((0, "the header is damaged"))
    ids, offsets, sizes = array("Q"), array("I"), array("I")
    records = read_records(data, HEADER_BYTES)
    for offset, payload in records:
        if len(payload) < _ID.size:
            damages.append((offset, "a record without an id"))
            continue
        ids.append(_ID.unpack_from(payload)[0])
        offsets.append(offset)
        sizes.append(RECORD_HEAD_BYTES + len(payload))
    end = records.end
    assert end is not None
    damages += [(offset, f"{length} bytes are no record") for offset, length in end.bad]
    file.fill(ids, offsets, sizes, array("I", [0]) * len(ids))
    for offset, what in sorted(damages):
        report(path, offset, what)
    is_hopeless = bool(damages) and not ids
    return Scan(file, has_header and end.state is EndState.CLEAN and bool(ids), is_hopeless)


def _contents(
    first_id: int, sizes: Sequence[int], data: bytes, before: int = 0, after: int = 0
) -> list[bytes | None]:
    """Return the contents of records that follow each other; None for one that is damaged.

    before, after: how many None to add for contents that are in no file.
    """
    contents: list[bytes | None] = [None] * before
    for store_id, (offset, size) in enumerate(
        zip(accumulate(sizes, initial=0), sizes, strict=False), first_id
    ):
        payload = payload_at(data, offset)
        is_good = (
            payload is not None
            and len(payload) == size - RECORD_HEAD_BYTES
            and _ID.unpack_from(payload)[0] == store_id
        )
        contents.append(payload[_ID.size :] if payload is not None and is_good else None)
    return contents + [None] * after


def _damaged(first_id: int, sizes: Sequence[int], data: bytes) -> list[int]:
    """Return the ids of contents whose records are damaged."""
    contents = _contents(first_id, sizes, data)
    return [store_id for store_id, content in enumerate(contents, first_id) if content is None]


def blocks_of(first_id: int, last_id: int) -> range:
    """Return the blocks that have the ids from first to last."""
    return range(first_id >> BLOCK_BITS, (last_id >> BLOCK_BITS) + 1)


def _blocks(ids: Sequence[int]) -> Iterator[int]:
    """Yield the blocks of rising ids, without looking at each."""
    at = 0
    while at < len(ids):
        block = ids[at] >> BLOCK_BITS
        yield block
        at = bisect_left(ids, (block + 1) << BLOCK_BITS, at)
