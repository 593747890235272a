"""Decoding and encoding of whole contents, which the broker does only where it must rewrite a message."""

from collections.abc import Collection
from typing import Final

from node.amqp.constants import FRAME_OVERHEAD_BYTES
from node.amqp.field_table import Field, Table
from node.amqp.frames import content_frames, split_content
from node.amqp.properties import Properties, content_header, decode_properties, read_headers

_FLAGS_AT: Final = 12
"""The offset of the property flags in the payload of a content header."""
_FLAGS_OF_CONTENT_AT: Final = FRAME_OVERHEAD_BYTES - 1 + _FLAGS_AT
_SIZE_AT: Final = slice(3, 7)
"""The place of the size of the first frame's payload."""


def decode_content(content: bytes) -> tuple[Properties, bytes]:
    """Return the properties and the body of a content, decoded."""
    header, body = split_content(content)
    return decode_properties(header, _FLAGS_AT, len(header)), body


def properties_of(content: bytes) -> Properties:
    """Return the properties of a content, decoded; nothing else of it is read."""
    size = int.from_bytes(content[_SIZE_AT], "big")
    return decode_properties(content, _FLAGS_OF_CONTENT_AT, FRAME_OVERHEAD_BYTES - 1 + size)


def chosen_headers(content: bytes, names: Collection[bytes]) -> Table:
    """Return the headers of a content that have these names; the fewer they are the less it costs."""
    return read_headers(content, _FLAGS_OF_CONTENT_AT, names) if names else {}


def encode_content(properties: Properties, body: bytes, channel: int, frame_max_bytes: int) -> bytes:
    """Return a content for a channel, its body in frames of at most `frame_max_bytes` (0: in one)."""
    return content_frames(channel, content_header(len(body), properties), body, frame_max_bytes)


def with_header(content: bytes, name: str, value: Field, channel: int, frame_max_bytes: int) -> bytes:
    """Return the content with one of its headers set."""
    properties, body = decode_content(content)
    properties.headers = {**(properties.headers or {}), name: value}
    return encode_content(properties, body, channel, frame_max_bytes)
