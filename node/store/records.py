"""The format of every file of the store: a header, then records.

    file   = header record*
    header = magic:4 version:long                       "FLFJ" 0 0 0 1
    record = length:long crc:long payload               crc32 of length and payload; the payload is never empty

A file is only ever appended to. A crash leaves a file whose end is *torn*: it stops inside a record, or
there are zeros where blocks were allocated and never written. A bad record with good ones behind it is no crash
but a *corrupt* disk; the good ones are found again, and what lies between is reported.
Source: docs/storage.md, "File formats".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final
from zlib import crc32

HEADER_BYTES: Final = 8
JOURNAL_HEADER: Final = b"FLFJ\0\0\0\1"
SEGMENT_HEADER: Final = b"FLFS\0\0\0\1"
MESSAGES_HEADER: Final = b"FLFM\0\0\0\1"
METADATA_HEADER: Final = b"FLFC\0\0\0\1"

_MAGIC_BYTES: Final = 4

VERSION_MAX: Final = 255
"""The highest version: a header with a higher one is damaged.

There will never be so many, and a node refuses to start over a later version.
"""

RECORD_HEAD_BYTES: Final = 8
"""The bytes before the payload of a record."""

_HEAD: Final = Struct(">II")
_LENGTH: Final = Struct(">I")
_LENGTH_BYTES: Final = 4

_CHAINED_MAX: Final = 4
"""The limit of parts of a record that are left as they are, so that large ones are not copied.

More are joined: a call for the crc of each small message would cost more than the copy.
"""

_GUESSES_MAX_BYTES: Final = 2 * 1024 * 1024 * 1024
"""The bytes whose crc is taken before the search for a good record in a damaged file is given up: some seconds' work.
"""

_WILD_GUESSES_BYTES: Final = 256 * 1024 * 1024
"""The part of these bytes that may go to places behind which no further record seems to stand."""


class NewerFormat(Exception):
    """A file was written by a later version of the node, in a format that this one doesn't know."""


class EndState(Enum):
    """The way in which the records of a file ended."""

    CLEAN = "clean"
    """The last record ends with the file's last byte."""
    TORN = "torn"
    """The file ends inside a record, or in zeros: nothing good follows."""
    CORRUPT = "corrupt"
    """The file has bad stretches with good records behind them; its end may be torn besides."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a file's records.

    offset: behind the last good record; what follows in the file, if anything, is torn.
    bad: offset and length of each bad stretch before it.
    """

    offset: int
    state: EndState
    bad: tuple[tuple[int, int], ...] = ()


def check_header(data: bytes, header: bytes) -> bool:
    """True if a file begins with this header. Raises NewerFormat if it is of its kind and of a later version."""
    found = data[:HEADER_BYTES]
    if found == header:
        return True
    if len(found) == HEADER_BYTES and found[:_MAGIC_BYTES] == header[:_MAGIC_BYTES]:
        version, known = int.from_bytes(found[_MAGIC_BYTES:]), int.from_bytes(header[_MAGIC_BYTES:])
        if known < version <= VERSION_MAX:
            raise NewerFormat(f"format {version} of {found[:_MAGIC_BYTES].decode()}, known up to {known}")
    return False


def record(parts: Sequence[bytes]) -> list[bytes]:
    """Return a payload, given in parts, as the parts of a record."""
    if len(parts) > _CHAINED_MAX:
        parts = [b"".join(parts)]
    length = sum(map(len, parts))
    assert length, "an empty record would look like zeros that were never written"
    crc = crc32(_LENGTH.pack(length))
    for part in parts:
        crc = crc32(part, crc)
    return [_HEAD.pack(length, crc), *parts]


def payload_at(data: bytes, offset: int = 0) -> bytes | None:
    """Return the payload of the record at an offset; None if no good one is there."""
    if offset + RECORD_HEAD_BYTES >= len(data):
        return None
    length, crc = _HEAD.unpack_from(data, offset)
    at = offset + RECORD_HEAD_BYTES
    if not 0 < length <= len(data) - at:
        return None
    payload = data[at : at + length]
    seed = crc32(data[offset : offset + _LENGTH_BYTES])
    return payload if crc32(payload, seed) == crc else None


class Records:
    """The good records of a file: iterate over offset (of the whole record) and payload of each, once.

    end: how they ended, known when the iteration is over.
    """

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self.end: End | None = None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        data, at = self._data, min(self._start, len(self._data))
        bad: list[tuple[int, int]] = []
        while at < len(data):
            payload = payload_at(data, at)
            if payload is None:
                found = _next_good(data, at)
                if found is None:
                    break
                bad.append((at, found - at))
                at = found
                continue
            yield at, payload
            at += RECORD_HEAD_BYTES + len(payload)
        if bad:
            state = EndState.CORRUPT
        else:
            state = EndState.CLEAN if at == len(data) else EndState.TORN
        self.end = End(at, state, tuple(bad))


def read_records(data: bytes, start: int = HEADER_BYTES) -> Records:
    """Return the records of a file that is in memory, from an offset on."""
    return Records(data, start)


def _next_good(data: bytes, bad_at: int) -> int | None:
    """Return the offset of the next good record behind a bad one; None if the rest of the file is torn.

    The contents of messages may look like records. So where the bad record's length can be believed, nothing
    inside it is taken for one; and where the file ends inside it, which is what a crash leaves, bytes that look like
    records must reach to the very last byte.
    """
    size = len(data)
    if size - bad_at <= RECORD_HEAD_BYTES or data.count(0, bad_at) == size - bad_at:
        return None
    beyond = bad_at + RECORD_HEAD_BYTES + _length(data, bad_at)
    if beyond == size:
        return None
    if payload_at(data, beyond) is not None:
        return beyond
    found = _search(data, bad_at + 1)
    if found is not None and beyond > size and not _ends_clean(data, found):
        return None
    return found


def _search(data: bytes, start: int) -> int | None:
    """Return the offset of the first good record from an offset on, wherever it is; None if none is found."""
    size, guessed_bytes = len(data), 0
    for match in _lengths_up_to(size - start).finditer(data, start, size - _LENGTH_BYTES):
        at = match.start()
        beyond = at + RECORD_HEAD_BYTES + _length(data, at)
        if beyond > size:
            continue
        is_likely = beyond == size or (beyond + RECORD_HEAD_BYTES < size and _fits(data, beyond))
        if not is_likely and guessed_bytes > _WILD_GUESSES_BYTES:
            continue
        if payload_at(data, at) is not None:
            return at
        guessed_bytes += beyond - at
        if guessed_bytes > _GUESSES_MAX_BYTES:
            return None
    return None


def _ends_clean(data: bytes, at: int) -> bool:
    """True if all records from a good one on are good, to the file's last byte."""
    while (payload := payload_at(data, at)) is not None:
        at += RECORD_HEAD_BYTES + len(payload)
    return at == len(data)


def _length(data: bytes, at: int) -> int:
    length: int = _LENGTH.unpack_from(data, at)[0]
    return length


def _fits(data: bytes, at: int) -> bool:
    """True if the length that stands here is one of a record within the file."""
    return 0 < _length(data, at) <= len(data) - at - RECORD_HEAD_BYTES


def _lengths_up_to(length: int) -> re.Pattern[bytes]:
    """Return a pattern for places where the length of a record of at most `length` bytes may stand; zeros are none."""
    high, middle = length >> 24, length >> 16 if length < 1 << 24 else 0xFF
    first, second = re.escape(bytes([high])), re.escape(bytes([middle]))
    return re.compile(rb"(?=(?!\0\0\0\0)[\0-" + first + rb"][\0-" + second + rb"])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Course:
    """The place in the records of a file up to which it has been read in pieces.

    head: the bytes of a record's head so far.   left: bytes of its payload that are still to come.
    crc: of the bytes so far.   wanted: what it must be in the end.
    """

    head: bytes = b""
    left: int = 0
    crc: int = 0
    wanted: int = 0

    @property
    def is_between(self) -> bool:
        """True if the place is where one record ends and another may begin."""
        return not self.head and not self.left


BEGINNING: Final = Course()


def follow(course: Course, data: bytes) -> Course | None:
    """Return the place after the next bytes; None if a record ended that is not good."""
    head, left, crc, wanted = course.head, course.left, course.crc, course.wanted
    at = 0
    while at < len(data):
        if not left:
            taken = RECORD_HEAD_BYTES - len(head)
            head += data[at : at + taken]
            at += taken
            if len(head) < RECORD_HEAD_BYTES:
                break
            left, wanted = _HEAD.unpack(head)
            crc = crc32(head[:_LENGTH_BYTES])
            head = b""
            if not left:
                return None
            continue
        part = data[at : at + left]
        crc = crc32(part, crc)
        at += len(part)
        left -= len(part)
        if not left and crc != wanted:
            return None
    return Course(head, left, crc, wanted)
