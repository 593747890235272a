"""Changes of the properties of a content, without a look at its body.

    content    = header frame, body frames        header frame = frame head, class, weight, body size, properties
    properties = short:flags values

The bytes of properties that stay the same are copied as they are.
Source: AMQP 0-9-1 §4.2.6.
"""

from collections.abc import Callable
from typing import Final

from node.amqp.constants import FRAME_HEADER, ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table, encode_table
from node.amqp.frames import FRAME_HEADER_STRUCT
from node.amqp.properties import Properties, decode_properties, encode_properties

PROPERTIES_AT: Final = 19
"""The offset of the properties in a content: after frame head, class, weight and body size."""

_FRAME_HEAD_BYTES: Final = 7
_FRAME_SIZE: Final = slice(3, 7)
_CONTENT_TYPE: Final = 0x80
_CONTENT_ENCODING: Final = 0x40
_HEADERS: Final = 0x20


def properties_end(content: bytes) -> int:
    """Return the offset behind the properties."""
    return _FRAME_HEAD_BYTES + int.from_bytes(content[_FRAME_SIZE])


def raw_properties(content: bytes) -> bytes:
    """Return the encoded properties."""
    return content[PROPERTIES_AT : properties_end(content)]


def properties(content: bytes) -> Properties:
    """Return the decoded properties.   Raises: ProtocolError if they are malformed."""
    return decode_properties(content, PROPERTIES_AT, properties_end(content))


def with_properties(content: bytes, raw: bytes) -> bytes:
    """Return the same content with other encoded properties."""
    end = properties_end(content)
    size = PROPERTIES_AT - _FRAME_HEAD_BYTES + len(raw)
    head = FRAME_HEADER_STRUCT.pack(FRAME_HEADER, int.from_bytes(content[1:3]), size)
    return b"".join((head, content[_FRAME_HEAD_BYTES:PROPERTIES_AT], raw, content[end:]))


def encoded_fields(fields: Table) -> bytes:
    """Return entries of a table without its size, for `with_headers`."""
    return encode_table(fields)[4:]


def with_headers(raw: bytes, fields: bytes) -> bytes:
    """Return encoded properties with more headers, at the end of the table. None of them may be there already.

    Raises: ProtocolError if the table, or what stands before it, goes beyond the end.
    """
    first = raw[0]
    pos = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if first & flag:
            pos += 1 + int.from_bytes(raw[pos : pos + 1])
    if not first & _HEADERS:
        if pos > len(raw):
            raise _malformed()
        head = bytes((first | _HEADERS,)) + raw[1:pos]
        return b"".join((head, len(fields).to_bytes(4), fields, raw[pos:]))
    size = int.from_bytes(raw[pos : pos + 4])
    end = pos + 4 + size
    if end > len(raw):
        raise _malformed()
    return b"".join((raw[:pos], (size + len(fields)).to_bytes(4), raw[pos + 4 : end], fields, raw[end:]))


def _malformed() -> ProtocolError:
    return ProtocolError(ReplyCode.INTERNAL_ERROR, "malformed properties")


class PropertyChange:
    """Changes the properties of many contents in the same way; those of the last content are kept.

    change: changes the decoded properties in place. It must depend on nothing but them and what `forget` follows.
    Raises: ProtocolError if properties are malformed.
    """

    def __init__(self, change: Callable[[Properties], None]) -> None:
        self._change = change
        self._before = self._after = b""

    def forget(self) -> None:
        """Note that `change` gives other results from now on."""
        self._before = b""

    def of(self, content: bytes) -> bytes:
        """Return the content with changed properties."""
        raw = raw_properties(content)
        if raw != self._before:
            decoded = decode_properties(raw, 0, len(raw))
            self._change(decoded)
            self._before, self._after = raw, encode_properties(decoded)
        return with_properties(content, self._after)
