"""JSON and gzip in slices, so that a long list does not hold the loop that serves AMQP.

10,000 queues are some 30 MB: orjson makes 1 MB in 2 ms, zlib packs it in 15.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from node.io.json_pieces import ROWS, json_pieces
from node.io.turns import Turns, next_slice

FREED: Final = 1000
"""The number of rows that are freed at once."""
GZIP_BYTES: Final = 64 * 1024
GZIP_LEVEL: Final = 1
GZIP_WORTH_BYTES: Final = 1000
"""Shorter answers are sent as they are."""

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


async def as_json(value: Any) -> AsyncIterator[bytes]:
    """Encode a value as JSON, in pieces. A long list is emptied: to free 10,000 rows of queues at once takes 14 ms."""
    is_long = isinstance(value, list) and len(value) > ROWS
    turns = Turns()
    for piece in json_pieces(value, dumps):
        yield piece
        await turns.give()
    while is_long and value:
        del value[-FREED:]
        await next_slice()


def dumps(value: Any) -> bytes:
    """Encode a value as JSON at once. Values that JSON does not have are shown as text."""
    try:
        return orjson.dumps(value, default=_shown, option=_OPTIONS)
    except TypeError:
        # Nested deeper than orjson goes, an integer beyond 64 bits, or text with lone surrogates.
        return orjson.dumps(_tamed(value, 0), default=_shown, option=_OPTIONS)


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def _tamed(value: Any, depth: int) -> Any:
    if depth > 200:
        return "…"
    match value:
        case dict():
            return {_tamed(str(key), depth): _tamed(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple():
            return [_tamed(inner, depth + 1) for inner in value]
        case bool():
            return value
        case int() if not -(2**63) <= value < 2**64:
            return float(value) if abs(value) < 10**300 else str(value)
        case str():
            return value.encode("utf-8", "replace").decode()
        case _:
            return value


async def gzipped(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Compress the pieces."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    async for piece in pieces:
        for at in range(0, len(piece), GZIP_BYTES):
            packed = packer.compress(piece[at : at + GZIP_BYTES])
            if packed:
                yield packed
            await next_slice()
    yield packer.flush()
