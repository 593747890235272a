"""Read fields of answers of an HTTP API, whose form is not to be relied on.

RabbitMQ 3.8 to 4.x differ in fields, leave out what they do not know yet, and write `[]` for an empty object and
`undefined` for no value. A field that is missing or of another type gives the default. Nothing here raises.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from node.catalogue.records import Json

Row: TypeAlias = Mapping[str, Json]
"""An object of an answer."""

UNDEFINED: Final = "undefined"
"""RabbitMQ's text for a value that is not known."""


def rows(value: Json) -> Iterator[Row]:
    """Yield the objects of a list; a page's list is in `items`."""
    if isinstance(value, dict):
        value = value.get("items")
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def inner(row: Row, *keys: str) -> Row:
    """Return a nested object; an empty one if there is none."""
    for key in keys:
        found = row.get(key)
        if not isinstance(found, dict):
            return {}
        row = found
    return row


def text(row: Row, key: str, default: str = "") -> str:
    """Return a text."""
    value = row.get(key)
    return value if isinstance(value, str) and value != UNDEFINED else default


def count(row: Row, key: str) -> int:
    """Return a number that is not negative; 0 if there is none."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return int(value) if value < 1 << 63 else (1 << 63) - 1


def optional_count(row: Row, key: str) -> int | None:
    """Return a number, like `count`; None if there is none, or infinity."""
    value = row.get(key)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else count(row, key)


def rate(row: Row, key: str) -> float:
    """Return the rate that stands beside a counter, in events a second."""
    value = inner(row, f"{key}_details").get("rate")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value > 0 else 0.0  # type: ignore[operator,arg-type]


def is_set(row: Row, key: str) -> bool:
    """True if a field is true."""
    return row.get(key) is True


def texts(value: Json) -> tuple[str, ...]:
    """Return the texts of a list."""
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
