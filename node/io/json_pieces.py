"""Long lists are encoded as JSON in pieces, so that they do not hold the loop that serves AMQP."""

from collections.abc import Callable, Iterator
from typing import Any, Final

ROWS: Final = 100
"""Rows of a list that are encoded at a time; a row of a queue has 1 to 5 kB."""


def json_pieces(value: Any, dumps: Callable[[Any], bytes]) -> Iterator[bytes]:
    """Yield the JSON of a value, cut where it has long lists: at the top, in an object, or in an object of that.

    dumps: encodes what is not cut.
    """
    if isinstance(value, dict) and any(map(is_long, value.values())):
        opening = b"{"
        for key, inner in value.items():
            yield opening + dumps(str(key)) + b":"
            yield from json_pieces(inner, dumps)
            opening = b","
        yield b"}"
    elif isinstance(value, list) and len(value) > ROWS:
        for at in range(0, len(value), ROWS):
            rows = dumps(value[at : at + ROWS])[1:-1]
            yield (b"," if at else b"[") + rows
        yield b"]"
    else:
        yield dumps(value)


def is_long(value: Any) -> bool:
    """Return whether a value is cut: it is a long list, or an object with one."""
    if isinstance(value, dict):
        return any(isinstance(inner, list) and len(inner) > ROWS for inner in value.values())
    return isinstance(value, list) and len(value) > ROWS
