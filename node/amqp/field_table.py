"""Field tables: the typed key/value maps of arguments, headers and client properties.

    table = long:size entry*   entry = shortstr:key value   array = long:size value*   value = octet:tag data

Every value keeps the type with which it came, because peers tell an `s` from an `I` and RabbitMQ prints the
types in error texts. Only `L` becomes `l`: both are a signed 64-bit number, and so RabbitMQ writes them back.
Two readers accept the same tables: `decode_table` builds values, `check_table` only walks over them, for the many
headers that are never used; of a table that was checked `pick_fields` builds a few. All cost time and memory in
proportion to the bytes of the table, and stop at a nesting that no client uses.
Source: amqp-behaviour §0.4; AMQP 0-9-1 errata §3.
"""

from collections.abc import Collection
from math import isfinite
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple, TypeAlias

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError

TABLE_DEPTH_MAX: Final = 32
"""The limit of tables within tables.

`x-death`, the deepest that brokers write, has three; Python's stack ends at 1000.
"""


class Field(NamedTuple):
    """A typed value.

    tag: the letter of its type on the wire, a key of `TYPE_NAMES`.
    value: bytes for `S` and `x`, (scale, unscaled) for `D`, seconds since 1970 for `T`, None for `V`.
    """

    tag: str
    value: "FieldValue"


Table: TypeAlias = dict[str, Field]
FieldValue: TypeAlias = bytes | int | float | bool | tuple[int, int] | Table | list[Field] | None

TYPE_NAMES: Final = {
    "S": "longstr",
    "T": "timestamp",
    "I": "signedint",
    "i": "unsignedint",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "l": "long",
    "d": "double",
    "f": "float",
    "t": "bool",
    "D": "decimal",
    "F": "table",
    "A": "array",
    "x": "binary",
    "V": "void",
}

_NUMBERS: Final = {
    "T": Struct(">Q"),
    "I": Struct(">i"),
    "i": Struct(">I"),
    "b": Struct(">b"),
    "B": Struct(">B"),
    "s": Struct(">h"),
    "u": Struct(">H"),
    "l": Struct(">q"),
    "d": Struct(">d"),
    "f": Struct(">f"),
}
_DECIMAL: Final = Struct(">BI")
_SIZE: Final = Struct(">I")
_read_size: Final = _SIZE.unpack_from

_STRINGS: Final = {ord("S"): "S", ord("x"): "x"}
_NUMBERS_BY_OCTET: Final = {ord(tag): (tag, struct) for tag, struct in _NUMBERS.items()} | {
    ord("L"): ("l", _NUMBERS["l"])
}
_FLOATS: Final = {ord("d"): _NUMBERS["d"], ord("f"): _NUMBERS["f"]}
_BOOL: Final = ord("t")
_DECIMAL_OCTET: Final = ord("D")
_TABLE: Final = ord("F")
_ARRAY: Final = ord("A")
_VOID_OCTET: Final = ord("V")
_WIDTHS: Final = {octet: struct.size for octet, (_, struct) in _NUMBERS_BY_OCTET.items()} | {
    _BOOL: 1,
    _DECIMAL_OCTET: _DECIMAL.size,
    _VOID_OCTET: 0,
}

VOID: Final = Field("V", None)


def type_name(tag: str) -> str:
    """Return the name of a `Field`'s type in error texts: 'longstr', 'signedint', …"""
    return TYPE_NAMES[tag]


def longstr(value: str | bytes) -> Field:
    """Return a string field, the type in which clients send text."""
    return Field("S", value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)


def long(value: int) -> Field:
    """Return a signed 64-bit number, the type in which RabbitMQ writes numbers."""
    return Field("l", value)


def boolean(value: bool) -> Field:
    """Return a field that is true or false."""
    return Field("t", value)


def timestamp(seconds: int) -> Field:
    """Return a field with a moment in whole seconds since 1970."""
    return Field("T", seconds)


def table(value: Table) -> Field:
    """Return a field with a table."""
    return Field("F", value)


def array(values: list[Field]) -> Field:
    """Return a field with a list of typed values."""
    return Field("A", values)


def decode_table(data: bytes, pos: int = 0, end: int | None = None) -> tuple[Table, int]:
    """Read the table at `pos`, its size field included; return it and where it ends.

    end: where the table must end at the latest; None: the end of `data`.
    Of a key that comes twice the first value counts, as in RabbitMQ's lookups. Keys may be any bytes: those that are
    not UTF-8 are kept as surrogate escapes.
    Errors: ProtocolError FRAME_ERROR if it is cut short, of an unknown type, nested too deep, or has a float
    that is no number (Erlang has no such floats, RabbitMQ refuses them as well).
    """
    try:
        start, end = _extent(data, pos, len(data) if end is None else end)
        return _decode_table(data, start, end, TABLE_DEPTH_MAX), end
    except (IndexError, struct_error):
        raise _malformed("cut short") from None


def check_table(data: bytes, pos: int = 0, end: int | None = None) -> int:
    """Return where the table at `pos` ends, without building its values.

    Accepts just what `decode_table` accepts, with the same errors.
    """
    try:
        start, end = _extent(data, pos, len(data) if end is None else end)
        _check(data, start, end, TABLE_DEPTH_MAX, keyed=True)
    except (IndexError, struct_error):
        raise _malformed("cut short") from None
    return end


def pick_fields(data: bytes, pos: int, keys: Collection[bytes]) -> Table:
    """Return the fields with these keys from the table at `pos`, decoded. The table passed `check_table`."""
    pos, end = _extent(data, pos, len(data))
    found: Table = {}
    missing = len(keys)
    while pos < end and missing:
        start = pos + 1
        pos = start + data[pos]
        key = data[start:pos]
        if key in keys and (name := key.decode("utf-8", "surrogateescape")) not in found:
            found[name], pos = _decode_field(data, pos, end, TABLE_DEPTH_MAX)
            missing -= 1
            continue
        width = _WIDTHS.get(data[pos])
        # All other values begin with their size.
        pos += 5 + _read_size(data, pos + 1)[0] if width is None else 1 + width
    return found


def encode_table(value: Table) -> bytes:
    """Return the table's bytes with its size field.

    The values must fit their types and keys 255 bytes: all that was decoded does, the rest is our own bug.
    """
    parts: list[bytes] = []
    for key, field in value.items():
        raw_key = key.encode("utf-8", "surrogateescape")
        assert len(raw_key) <= 255, "a key is a shortstr"
        parts += (bytes((len(raw_key),)), raw_key, _encode_field(field))
    return _sized(b"".join(parts))


def _extent(data: bytes, pos: int, limit: int) -> tuple[int, int]:
    """Return where the contents of the table or array at `pos` start and end."""
    start = pos + 4
    end = start + int(_read_size(data, pos)[0])
    if end > limit:
        raise _malformed("cut short")
    return start, end


def _decode_table(data: bytes, pos: int, end: int, depth_left: int) -> Table:
    if not depth_left:
        raise _malformed("nested too deep")
    result: Table = {}
    while pos < end:
        start = pos + 1
        pos = start + data[pos]
        key = data[start:pos].decode("utf-8", "surrogateescape")
        field, pos = _decode_field(data, pos, end, depth_left)
        result.setdefault(key, field)
    # A value that passes `end` was read from bytes that aren't the table's: all is refused, nothing was lost.
    if pos != end:
        raise _malformed("cut short")
    return result


def _decode_array(data: bytes, pos: int, end: int, depth_left: int) -> list[Field]:
    if not depth_left:
        raise _malformed("nested too deep")
    result = []
    while pos < end:
        field, pos = _decode_field(data, pos, end, depth_left)
        result.append(field)
    if pos != end:
        raise _malformed("cut short")
    return result


def _decode_field(data: bytes, pos: int, end: int, depth_left: int) -> tuple[Field, int]:
    """Return the value at `pos` and where it ends, which may be past `end`: the caller checks that."""
    octet = data[pos]
    pos += 1
    if octet in _STRINGS:
        start = pos + 4
        pos = start + _read_size(data, pos)[0]
        return Field(_STRINGS[octet], data[start:pos]), pos
    if octet in _NUMBERS_BY_OCTET:
        tag, struct = _NUMBERS_BY_OCTET[octet]
        (number,) = struct.unpack_from(data, pos)
        if octet in _FLOATS and not isfinite(number):
            raise _malformed("not a number")
        return Field(tag, number), pos + struct.size
    if octet == _BOOL:
        return Field("t", data[pos] != 0), pos + 1
    if octet == _TABLE:
        start, inner_end = _extent(data, pos, end)
        return Field("F", _decode_table(data, start, inner_end, depth_left - 1)), inner_end
    if octet == _ARRAY:
        start, inner_end = _extent(data, pos, end)
        return Field("A", _decode_array(data, start, inner_end, depth_left - 1)), inner_end
    if octet == _DECIMAL_OCTET:
        return Field("D", _DECIMAL.unpack_from(data, pos)), pos + _DECIMAL.size
    if octet == _VOID_OCTET:
        # One shared object: an array of nothing but voids has a byte a value.
        return VOID, pos
    raise _malformed(f"unknown type {octet}")


def _check(data: bytes, pos: int, end: int, depth_left: int, *, keyed: bool) -> None:
    """Walk over the entries of a table (`keyed`) or the values of an array."""
    if not depth_left:
        raise _malformed("nested too deep")
    while pos < end:
        if keyed:
            pos += 1 + data[pos]
        octet = data[pos]
        pos += 1
        if octet in _STRINGS:
            pos += 4 + _read_size(data, pos)[0]
        elif octet in _WIDTHS:
            if octet in _FLOATS and not isfinite(_FLOATS[octet].unpack_from(data, pos)[0]):
                raise _malformed("not a number")
            pos += _WIDTHS[octet]
        elif octet in (_TABLE, _ARRAY):
            start, pos = _extent(data, pos, end)
            _check(data, start, pos, depth_left - 1, keyed=octet == _TABLE)
        else:
            raise _malformed(f"unknown type {octet}")
    if pos != end:
        raise _malformed("cut short")


def _encode_field(field: Field) -> bytes:
    tag, value = field
    head = tag.encode()
    if isinstance(value, bytes):
        return head + _sized(value)
    if isinstance(value, dict):
        return head + encode_table(value)
    if isinstance(value, list):
        return head + _sized(b"".join(map(_encode_field, value)))
    if isinstance(value, tuple):
        return head + _DECIMAL.pack(*value)
    if value is None:
        return head
    if tag == "t":
        return b"t\x01" if value else b"t\x00"
    return head + _NUMBERS[tag].pack(value)


def _sized(raw: bytes) -> bytes:
    return _SIZE.pack(len(raw)) + raw


def _malformed(why: str) -> ProtocolError:
    # RabbitMQ's reader crashes here and the client sees a reset; the text is ours.
    return ProtocolError(ReplyCode.FRAME_ERROR, f"malformed field table: {why}")
