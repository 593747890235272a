"""Messages that follow each other with the same properties, octet for octet: these are read once for all of them.

A publisher that repeats itself sends the same flags and values again and again, so what depends on headers costs per
stretch of such messages, and not per message. The contents passed `read_traits`: the properties fill their frame.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from node.amqp.constants import FRAME_OVERHEAD_BYTES
from node.amqp.field_table import Table
from node.amqp.properties import read_headers

PROPERTIES_AT: Final = 19
"""The offset of the flags in a content: behind the frame header, class, weight and body size."""

CACHED_MAX_BYTES: Final = 512
"""The longest properties whose headers are remembered: typical ones have 100 bytes."""

_CACHED_MAX: Final = 1024
"""The most properties whose headers are remembered, at up to a kilobyte each."""

_SIZE_AT: Final = slice(3, 7)


def properties_octets(content: bytes) -> bytes:
    """Return the flags and values of a content, and the octet that ends their frame."""
    size = int.from_bytes(content[_SIZE_AT], "big")
    return content[PROPERTIES_AT : FRAME_OVERHEAD_BYTES + size]


def stretches(contents: Sequence[bytes], first: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Yield stretches of contents with the same properties: these, the first index, and the one behind the last.

    first: the index of the content to begin with.
    """
    count = len(contents)
    while first < count:
        octets = properties_octets(contents[first])
        stop = first + 1
        while stop < count and contents[stop].startswith(octets, PROPERTIES_AT):
            stop += 1
        yield octets, first, stop
        first = stop


def headers_in(octets: bytes, names: tuple[bytes, ...]) -> Table:
    """Return the headers with these names, from properties as `stretches` gives them. It is not to be changed."""
    if len(octets) > CACHED_MAX_BYTES:
        return read_headers(octets, 0, names)
    return _remembered(octets, names)


@lru_cache(_CACHED_MAX)
def _remembered(octets: bytes, names: tuple[bytes, ...]) -> Table:
    return read_headers(octets, 0, names)
