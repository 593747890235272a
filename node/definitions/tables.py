"""AMQP tables from JSON, as the HTTP API and definitions have them. The way back is `node.amqp.plain`.

Numbers become 64-bit integers and doubles, texts long strings.
Source: management §2.4, §2.2; what RabbitMQ 3.10.8 makes of arguments.
"""

from typing import Final

from node.amqp.field_table import (
    TABLE_DEPTH_MAX,
    VOID,
    Field,
    Table,
    array,
    boolean,
    long,
    longstr,
    table,
)
from node.catalogue.records import Json

ENTRIES_MAX: Final = 1000
"""The most values in one table, with all nested ones: no declaration needs so many, and every node keeps them."""

_KEY_BYTES_MAX = 255
_INTEGERS = range(-(2**63), 2**63)


class TableInvalid(ValueError):
    """This JSON is no table; the message is RabbitMQ's where it has one."""


def table_from_json(value: Json, *, allow_null: bool = False) -> Table:
    """Return the table of a JSON object; an empty list is an empty object. Raises: TableInvalid.

    allow_null: RabbitMQ refuses null here; with this it becomes a void.
    """
    found = {} if value == [] else value
    if not isinstance(found, dict):
        raise TableInvalid("arguments must be an object")
    if not _fits(found):
        raise TableInvalid(f"more than {ENTRIES_MAX} arguments")
    return _table(found, allow_null, TABLE_DEPTH_MAX)


def _fits(value: dict[str, Json]) -> bool:
    """True if there are no more values than allowed, found out before any table is made."""
    left, pending = ENTRIES_MAX, list[Json]([value])
    while pending:
        each = pending.pop()
        if isinstance(each, dict | list):
            left -= len(each)
            if left < 0:
                return False
            pending += each.values() if isinstance(each, dict) else each
    return True


def _table(value: dict[str, Json], allow_null: bool, levels: int) -> Table:
    for key in value:
        if len(key.encode("utf-8", "surrogatepass")) > _KEY_BYTES_MAX:
            raise TableInvalid(f"a key of arguments is longer than {_KEY_BYTES_MAX} bytes")
    return {key: _field(each, allow_null, levels - 1) for key, each in value.items()}


def _field(value: Json, allow_null: bool, levels: int) -> Field:
    if levels <= 0:
        raise TableInvalid("arguments are nested too deep")
    match value:
        case None:
            if not allow_null:
                raise TableInvalid("null_not_allowed")
            return VOID
        case bool():
            return boolean(value)
        case int():
            if value not in _INTEGERS:
                raise TableInvalid("an integer in arguments has more than 64 bits")
            return long(value)
        case float():
            return Field("d", value)
        case str():
            return longstr(value)
        case list():
            return array([_field(each, allow_null, levels - 1) for each in value])
        case dict():
            return table(_table(value, allow_null, levels))
