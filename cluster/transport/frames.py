"""The bytes of a link's stream: the preface that opens it, and the frames that follow, encoded and decoded. No I/O.

    preface   "\\xf1links", version, kind                                  8 bytes of each side, before TLS
    frame     length of the payload, type, CRC-32, payload                 9 bytes, and up to `PAYLOAD_BYTES_MAX`

The CRC is of length, type and payload. Until a stream is open its frames are those of a handshake, and short.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

from cluster.transport.interface import CALL_BYTES_MAX
from cluster.transport.pieces import PIECE_BYTES, PIECES_PER_MESSAGE

VERSION: Final = 3
"""The version of all that follows the preface. Nodes of version 1 begin with HTTP/2 (`former_protocol`)."""

PREFACE_BYTES: Final = 8
_MAGIC: Final = b"\xf1links"
FIRST_BYTE: Final = _MAGIC[:1]

CONTROL: Final = 1
DATA: Final = 2
CALL: Final = 3
ENCRYPTED: Final = 0x80
"""The kinds of streams in a preface, and the bit that says that TLS follows."""

HANDSHAKE_BYTES_MAX: Final = 16 * 1024
PAYLOAD_BYTES_MAX: Final = PIECE_BYTES + 8 * PIECES_PER_MESSAGE + 1024
"""The biggest payload: the content of a message's pieces, at most 5 bytes of encoding for each, and the numbers."""
CALL_PAYLOAD_BYTES_MAX: Final = CALL_BYTES_MAX + 1024
"""The biggest payload of a call: a request or an answer, and its encoding."""

_HEADER: Final = struct.Struct(">IBI")
_SUMMED: Final = struct.Struct(">IB")
HEADER_BYTES: Final = _HEADER.size
_BUFFER_BYTES: Final = 64 * 1024
"""The buffer of an open stream; it grows to the size of the biggest frame that comes."""


class FrameFault(Exception):
    """The other side sent bytes that are no frames; the text says why. Nothing after them can be read."""


class FrameType(IntEnum):
    """The purpose of a frame. A ping is answered by a pong; both are empty."""

    HANDSHAKE = 1
    MESSAGE = 2
    PING = 3
    PONG = 4


_TYPES: Final = {int(each): each for each in FrameType}

Frame = tuple[FrameType, bytes]


def preface(kind: int, *, is_encrypted: bool) -> bytes:
    """Encode the first bytes of a stream, in either direction."""
    return _MAGIC + bytes([VERSION, kind | ENCRYPTED if is_encrypted else kind])


def read_preface(data: bytes, *, is_encrypted: bool) -> int:
    """Return the kind of the stream.   is_encrypted: this side has certificates. Raises: FrameFault."""
    assert len(data) == PREFACE_BYTES
    if data[: len(_MAGIC)] != _MAGIC:
        raise FrameFault(f"it has no links of protocol {VERSION}: is it a node of another version, or none?")
    version, kind = data[-2:]
    if version != VERSION:
        raise FrameFault(f"the nodes speak different protocols, {version} and {VERSION}")
    if bool(kind & ENCRYPTED) is not is_encrypted:
        raise FrameFault("one of the nodes has certificates and the other one has none")
    if kind & ~ENCRYPTED not in (CONTROL, DATA, CALL):
        raise FrameFault(f"there is no stream of kind {kind & ~ENCRYPTED}")
    return kind & ~ENCRYPTED


def encode(type_: FrameType, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    size = len(payload)
    assert size <= max(PAYLOAD_BYTES_MAX, CALL_PAYLOAD_BYTES_MAX), f"a payload of {size:,} bytes"
    return _HEADER.pack(size, type_, zlib.crc32(payload, zlib.crc32(_SUMMED.pack(size, type_)))) + payload


class FrameReader:
    """Finds the frames in a stream of bytes, which the caller writes into `buffer`.

    At first no payload may be longer than `HANDSHAKE_BYTES_MAX`; after `open`, than it says. The buffer holds one such
    frame at most.
    """

    def __init__(self) -> None:
        self._payload_max = HANDSHAKE_BYTES_MAX
        self._buffer = bytearray(HEADER_BYTES + HANDSHAKE_BYTES_MAX)
        self._start = self._end = 0  # of the bytes that belong to no frame yet

    def open(self, payload_max: int = PAYLOAD_BYTES_MAX) -> None:
        """Allow payloads of up to `payload_max` bytes from here on."""
        self._payload_max = payload_max
        self._move_to(bytearray(_BUFFER_BYTES))

    def buffer(self) -> memoryview:
        """Return the room for the next bytes, which is never empty once `next` has returned None."""
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> None:
        """Note that so many bytes were written to `buffer`."""
        self._end += count

    def next(self) -> Frame | None:
        """Return the next complete frame; None until more bytes come. Raises: FrameFault."""
        waiting = self._end - self._start
        if waiting < HEADER_BYTES:
            self._make_room(HEADER_BYTES)
            return None
        size, number, given = _HEADER.unpack_from(self._buffer, self._start)
        if size > self._payload_max:
            raise FrameFault(f"a frame of {size:,} bytes, more than {self._payload_max:,}")
        type_ = _TYPES.get(number)
        if type_ is None:
            raise FrameFault(f"there is no frame of type {number}")
        if waiting < HEADER_BYTES + size:
            self._make_room(HEADER_BYTES + size)
            return None
        begin = self._start + HEADER_BYTES
        payload = bytes(memoryview(self._buffer)[begin : begin + size])
        self._start = begin + size
        if zlib.crc32(payload, zlib.crc32(_SUMMED.pack(size, number))) != given:
            raise FrameFault("a frame with a wrong checksum")
        return type_, payload

    def _make_room(self, size: int) -> None:
        """Have the frame that begins at `_start` fit into the buffer, and more room behind it if nothing waits."""
        if self._start == self._end:
            self._start = self._end = 0
        if size > len(self._buffer):
            self._move_to(bytearray(size))
        elif self._start + size > len(self._buffer):
            self._move_to(self._buffer)

    def _move_to(self, buffer: bytearray) -> None:
        waiting = self._end - self._start
        buffer[:waiting] = self._buffer[self._start : self._end]
        self._buffer = buffer
        self._start, self._end = 0, waiting
