"""Values that are too long for one call between nodes are sent as compressed JSON lines, in parts of text.

Each element of a list is a line, so that neither side holds its loop for the whole list.
"""

import base64
import binascii
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from node.io.control import refused, unavailable
from node.io.turns import Turns

PART_CHARACTERS: Final = 700_000
"""The length of a part, in characters of base64; a call has room for a mebibyte."""
PACKED_CHARACTERS_MAX: Final = 64 * 1024 * 1024
UNPACKED_BYTES_MAX: Final = 512 * 1024 * 1024
"""The longest value that is unpacked; a longer one is refused. The rows of 100,000 queues are some 200 MB."""
SHELF_MAX: Final = 16
SHELF_S: Final = 30.0
"""Limits of the answers that wait to be fetched: their number (`SHELF_MAX`), and their time in seconds."""

_LIST: Final = b"list\n"
_VALUE: Final = b"value\n"
_NOT_UNDERSTOOD: Final = "an answer between nodes is not understood"


async def pack(value: Any) -> list[str]:
    """Return a JSON value as parts, at least one. Raises: ControlError if it is too long."""
    packer, turns = zlib.compressobj(1), Turns()
    packed = [packer.compress(_LIST if isinstance(value, list) else _VALUE)]
    for each in value if isinstance(value, list) else (value,):
        packed.append(packer.compress(json.dumps(each).encode() + b"\n"))
        await turns.give()
    packed.append(packer.flush())
    text = base64.b64encode(b"".join(packed)).decode()
    if len(text) > PACKED_CHARACTERS_MAX:
        raise refused("the answer is too long to be sent to another node")
    return [text[at : at + PART_CHARACTERS] for at in range(0, len(text), PART_CHARACTERS)]


async def unpack(parts: Sequence[str]) -> Any:
    """Return the value that parts were made of. Raises: ControlError."""
    found: list[Any] = []
    kind, turns = b"", Turns()
    try:
        for line in _lines(base64.b64decode("".join(parts), validate=True)):
            if not kind:
                kind = line
            else:
                found.append(json.loads(line))
            await turns.give()
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise unavailable(_NOT_UNDERSTOOD) from None
    if kind == _LIST:
        return found
    if kind != _VALUE or len(found) != 1:
        raise unavailable(_NOT_UNDERSTOOD)
    return found[0]


def _lines(packed: bytes) -> Iterator[bytes]:
    """Decompress and yield the lines. Raises: zlib.error, ValueError."""
    unpacker, rest, size = zlib.decompressobj(), b"", 0
    while not unpacker.eof:
        data = unpacker.decompress(packed, 64 * 1024)
        packed = unpacker.unconsumed_tail
        size += len(data)
        if size > UNPACKED_BYTES_MAX or (not data and not packed):
            raise ValueError(_NOT_UNDERSTOOD)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)


class Shelf:
    """The answers of several parts that wait until their last part is fetched, at most `SHELF_MAX`, for `SHELF_S`.

    now: seconds of a clock that never jumps.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._answers: OrderedDict[int, tuple[float, list[str]]] = OrderedDict()
        self._last = 0

    def put(self, parts: list[str]) -> int:
        """Keep the parts; return the number under which they can be fetched."""
        self._expire()
        self._last += 1
        self._answers[self._last] = (self._now() + SHELF_S, parts)
        return self._last

    def take(self, number: object, part: object) -> str:
        """Return one part; the last one removes the answer. Raises: ControlError."""
        self._expire()
        kept = self._answers.get(number) if isinstance(number, int) else None
        if kept is None or not isinstance(part, int) or not 0 <= part < len(kept[1]):
            raise unavailable("the answer was fetched too late")
        if part == len(kept[1]) - 1:
            del self._answers[number]  # type: ignore[arg-type]
        return kept[1][part]

    def _expire(self) -> None:
        now = self._now()
        while self._answers:
            number, (until, _) = next(iter(self._answers.items()))
            if until > now and len(self._answers) < SHELF_MAX:
                return
            del self._answers[number]
