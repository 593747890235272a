"""Encoding and decoding of methods.

    payload = short:class-id short:method-id fields      consecutive bits share octets, the lowest bit first

A layout for each method is built once, from the annotations in `methods`: a list of steps, each of which
reads or writes a run of numbers, a run of bits, or one string or table. The end of the last step shows whether a
payload was cut short or too long: slices past the end are short, not errors.
Source: amqp-behaviour §0.4, §1.7, §10.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, TypeAlias

from node.amqp.constants import ReplyCode
from node.amqp.erlang import octet_list
from node.amqp.errors import REPLY_TEXT_MAX_BYTES, ProtocolError
from node.amqp.field_table import decode_table, encode_table
from node.amqp.methods import (
    METHODS,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionUpdateSecret,
    FieldType,
    Method,
)

Decoder: TypeAlias = Callable[[bytes, int, list[Any]], int]
"""Reads at a position, appends the values found, returns the position after them."""

Encoder: TypeAlias = Callable[[Method], bytes]

_IDS: Final = Struct(">HH")
_LONGSTR_SIZE: Final = Struct(">I")
_NUMBER_FORMATS: Final = {
    FieldType.OCTET: "B",
    FieldType.SHORT: "H",
    FieldType.LONG: "I",
    FieldType.LONGLONG: "Q",
}
_BITS_PER_OCTET: Final = 8
_WITH_SECRETS: Final = frozenset({ConnectionStartOk, ConnectionSecureOk, ConnectionUpdateSecret})
"""The methods with passwords in their arguments, which therefore are never shown."""


class UnknownMethod(ProtocolError):
    """A class or method id that isn't AMQP 0-9-1. RabbitMQ resets the connection without a word (§1.7)."""

    def __init__(self, class_id: int, method_id: int) -> None:
        super().__init__(ReplyCode.COMMAND_INVALID, "unimplemented method", class_id, method_id)


class _Layout(NamedTuple):
    method: type[Method]
    decoders: list[Decoder]
    encoders: list[Encoder]


def decode_method(payload: bytes) -> Method:
    """Read the payload of a method frame.

    Errors: UnknownMethod; ProtocolError FRAME_ERROR with the ids of the method if fields are cut short or
    bytes are left over; with ids 0, 0 for a shortstr that isn't UTF-8 and for a malformed table.
    RabbitMQ doesn't look at the strings of methods with content (`basic.publish`), so there any bytes pass.
    """
    layout = _LAYOUTS.get(payload[:4])
    if layout is None:
        raise UnknownMethod(int.from_bytes(payload[:2]), int.from_bytes(payload[2:4]))
    values: list[Any] = []
    pos = 4
    try:
        for decode in layout.decoders:
            pos = decode(payload, pos, values)
    except (IndexError, struct_error):
        raise _cannot_decode(layout.method, payload) from None
    except UnicodeDecodeError:
        raise ProtocolError(ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr") from None
    if pos != len(payload):
        raise _cannot_decode(layout.method, payload)
    return layout.method(*values)


def encode_method(method: Method) -> bytes:
    """Return the payload of a method frame.

    Values must fit their fields: shortstrs have at most 255 bytes, numbers are unsigned.
    """
    ids = _IDS.pack(method.class_id, method.method_id)
    return ids + b"".join([encode(method) for encode in _LAYOUTS[ids].encoders])


def _cannot_decode(method: type[Method], payload: bytes) -> ProtocolError:
    """Return the error for a payload that cannot be decoded; its text goes to the log."""
    # Every octet takes a character or more: what follows the first 255 would be cut off the text anyway.
    octets = octet_list(payload[4 : 4 + REPLY_TEXT_MAX_BYTES])
    what = f"the arguments of {method.name}" if method in _WITH_SECRETS else octets
    return ProtocolError(ReplyCode.FRAME_ERROR, f"cannot decode {what}", method.class_id, method.method_id)


def _runs(fields: dict[str, FieldType]) -> Iterator[tuple[str, list[str]]]:
    """Group consecutive fields that are read at once: each group is a kind and the names of its fields."""

    def kind(item: tuple[str, FieldType]) -> str:
        return "numbers" if item[1] in _NUMBER_FORMATS else item[1].name

    for name, group in groupby(fields.items(), kind):
        names = [field for field, _ in group]
        together = name in ("numbers", "BIT")
        yield from [(name, names)] if together else [(name, [one]) for one in names]


def _layout(method: type[Method]) -> _Layout:
    fields: dict[str, FieldType] = {
        name: hint.__metadata__[0] for name, hint in method.__annotations__.items()
    }
    decoders: list[Decoder] = []
    encoders: list[Encoder] = []
    for kind, names in _runs(fields):
        if kind == "numbers":
            struct = Struct(">" + "".join(_NUMBER_FORMATS[fields[name]] for name in names))
            decoders.append(_number_decoder(struct))
            encoders.append(_number_encoder(struct, names))
        elif kind == "BIT":
            assert len(names) <= _BITS_PER_OCTET, "no method has more bits in a row than an octet"
            decoders.append(_bit_decoder(len(names)))
            encoders.append(_bit_encoder(names))
        elif kind == "SHORTSTR":
            decoders.append(_shortstr_decoder("surrogateescape" if method.has_content else "strict"))
            encoders.append(_shortstr_encoder(names[0]))
        elif kind == "LONGSTR":
            decoders.append(_decode_longstr)
            encoders.append(_longstr_encoder(names[0]))
        else:
            decoders.append(_decode_table_field)
            encoders.append(_table_encoder(names[0]))
    return _Layout(method, decoders, encoders)


def _number_decoder(struct: Struct) -> Decoder:
    def decode(data: bytes, pos: int, values: list[Any]) -> int:
        values += struct.unpack_from(data, pos)
        return pos + struct.size

    return decode


def _number_encoder(struct: Struct, names: list[str]) -> Encoder:
    if len(names) == 1:
        get_one = attrgetter(*names)
        return lambda method: struct.pack(get_one(method))
    get_all = attrgetter(*names)
    return lambda method: struct.pack(*get_all(method))


def _bit_decoder(count: int) -> Decoder:
    masks = [1 << place for place in range(count)]

    def decode(data: bytes, pos: int, values: list[Any]) -> int:
        octet = data[pos]
        values += [octet & mask != 0 for mask in masks]
        return pos + 1

    return decode


def _bit_encoder(names: list[str]) -> Encoder:
    bits = [(1 << place, name) for place, name in enumerate(names)]
    return lambda method: bytes((sum(mask for mask, name in bits if getattr(method, name)),))


def _shortstr_decoder(errors: str) -> Decoder:
    def decode(data: bytes, pos: int, values: list[Any]) -> int:
        start = pos + 1
        end = start + data[pos]
        if end > len(data):
            raise IndexError  # a string cut within a character is cut short, not malformed
        values.append(data[start:end].decode("utf-8", errors))
        return end

    return decode


def _shortstr_encoder(name: str) -> Encoder:
    get = attrgetter(name)

    def encode(method: Method) -> bytes:
        raw: bytes = get(method).encode("utf-8", "surrogateescape")
        assert len(raw) <= 255, f"{method.name}: {name} is a shortstr"
        return bytes((len(raw),)) + raw

    return encode


def _decode_longstr(data: bytes, pos: int, values: list[Any]) -> int:
    start = pos + 4
    end = start + int(_LONGSTR_SIZE.unpack_from(data, pos)[0])
    values.append(data[start:end])
    return end


def _longstr_encoder(name: str) -> Encoder:
    get = attrgetter(name)

    def encode(method: Method) -> bytes:
        raw: bytes = get(method)
        return _LONGSTR_SIZE.pack(len(raw)) + raw

    return encode


def _decode_table_field(data: bytes, pos: int, values: list[Any]) -> int:
    if pos + 4 + _LONGSTR_SIZE.unpack_from(data, pos)[0] > len(data):
        raise IndexError  # a fault of the method, not of the table's contents
    value, end = decode_table(data, pos)
    values.append(value)
    return end


def _table_encoder(name: str) -> Encoder:
    get = attrgetter(name)
    return lambda method: encode_table(get(method))


_LAYOUTS: Final = {_IDS.pack(*ids): _layout(method) for ids, method in METHODS.items()}
