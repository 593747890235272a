"""The WebSocket extension permessage-deflate: its negotiation, and messages in and out of raw DEFLATE.

No side keeps a window between messages, which the server may demand: a connection that is idle has no buffers of zlib,
where RabbitMQ's have some 300 KB each. What a message inflates to is given out in pieces, so a message that inflates to
gigabytes costs its reader one piece at a time.
Source: RFC 7692 §7.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

NAME: Final = "permessage-deflate"

INFLATED_PIECE_BYTES: Final = 16 * 1024
"""The most bytes that are inflated at once."""

DEFLATED_MIN_BYTES: Final = 256
"""The size of the smallest message that is compressed: a shorter one would save less than setting up zlib costs."""

DEFLATED_MAX_BYTES: Final = 256 * 1024
"""The size of the largest message that is compressed: other clients wait meanwhile, some 3 ms."""

OFFERS_MAX: Final = 8
"""The number of offers of a client that are looked at."""

_LEVEL: Final = 1
_MEMORY_LEVEL: Final = 8
_BITS_MIN: Final = 9
"""The smallest window of a raw stream that zlib writes."""
_BITS_MAX: Final = 15

_TAIL: Final = b"\x00\x00\xff\xff"
"""The end of each message, which is not sent: an empty block that is not compressed."""

_AFTER_FINAL: Final = b"\x00" + _TAIL
"""What may follow a block that says it is the last one (RFC 7692 7.2.3.4): such an empty block."""

_BITS: Final = {str(bits): bits for bits in range(8, _BITS_MAX + 1)}


class DamagedData(Exception):
    """A message is no DEFLATE."""


class Agreement(NamedTuple):
    """The extension as it was agreed on.   header: the answer to the client.   bits: the window of what is sent."""

    header: str
    bits: int


def agree(offers: Sequence[str]) -> Agreement | None:
    """Return the answer to the first offer that can be taken; None: there is none.

    offers: the elements of the header `Sec-WebSocket-Extensions`.
    """
    for offer in offers[:OFFERS_MAX]:
        bits = _bits(offer)
        if bits is not None:
            window = "" if bits == _BITS_MAX else f"; server_max_window_bits={bits}"
            return Agreement(f"{NAME}; server_no_context_takeover; client_no_context_takeover{window}", bits)
    return None


def _bits(offer: str) -> int | None:
    """Return the window that an offer allows the server; None if it is none that can be taken."""
    name, *parameters = (part.strip() for part in offer.split(";"))
    if name.lower() != NAME:
        return None
    found: dict[str, str] = {}
    for parameter in parameters:
        key, equals, value = parameter.partition("=")
        key = key.strip().lower()
        if key in found:
            return None
        found[key] = value.strip().strip('"') if equals else ""
    for key in ("server_no_context_takeover", "client_no_context_takeover"):
        if found.pop(key, ""):
            return None
    client = found.pop("client_max_window_bits", "")
    if client and client not in _BITS:
        return None
    server = found.pop("server_max_window_bits", str(_BITS_MAX))
    if found or server not in _BITS or _BITS[server] < _BITS_MIN:
        return None
    return _BITS[server]


def deflated(data: bytes, bits: int) -> bytes | None:
    """Return a message compressed; None if it is better sent as it is.   bits: of the window that was agreed on."""
    if not DEFLATED_MIN_BYTES <= len(data) <= DEFLATED_MAX_BYTES:
        return None
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -bits, _MEMORY_LEVEL)
    packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    found = packed.removesuffix(_TAIL)
    return found if len(found) < len(data) else None


class Inflater:
    """Inflates one message of a client."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(-_BITS_MAX)
        self._after: bytes | None = None  # the bytes behind a block that says it is the last one

    def feed(self, data: bytes, *, is_end: bool) -> Iterator[bytes]:
        """Take bytes, and yield pieces of what they mean.   is_end: the message ends here. Raises: DamagedData."""
        if is_end:
            data += _TAIL
        if self._after is None:
            yield from self._pieces(data)
        else:
            self._after += data
        if self._after is not None and self._after != _TAIL and not _AFTER_FINAL.startswith(self._after):
            raise DamagedData("data follow the last block")

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        while data or len(piece) == INFLATED_PIECE_BYTES:  # zlib may hold more of a full piece
            try:
                piece = self._unpacker.decompress(data, INFLATED_PIECE_BYTES)
            except zlib.error as error:
                raise DamagedData(str(error)) from error
            if piece:
                yield piece
            if self._unpacker.eof:
                self._after = self._unpacker.unused_data
                return
            data = self._unpacker.unconsumed_tail
