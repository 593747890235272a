"""Outgoing frames: building them, and handing on the content of a message.

    frame    = type:octet channel:short size:long payload end:octet(206)
    content  = header frame, then as many body frames as the body needs

A message's *content* is kept as the one slice of bytes in which it came, frame headers included, so that a
consumer gets it verbatim. Only a different channel number is patched in, and only a smaller frame_max makes
it be cut again.
Source: AMQP 0-9-1 §2.3, §4.2.
"""

from struct import Struct
from typing import Final

from node.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD_BYTES,
)
from node.amqp.method_codec import encode_method
from node.amqp.methods import Method

FRAME_HEADER_STRUCT: Final = Struct(">BHI")
"""The frame header: type, channel, payload size; the seven bytes before a payload."""

_END: Final = bytes([FRAME_END])
_CHANNEL: Final = Struct(">H")
_BODY_SIZE_AT: Final = slice(11, 19)
"""The place of the body size in a content: after the frame header, class id and weight."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return one whole frame."""
    return FRAME_HEADER_STRUCT.pack(kind, channel, len(payload)) + payload + _END


def method_frame(channel: int, method: Method) -> bytes:
    """Return the frame of a method without content."""
    return frame(FRAME_METHOD, channel, encode_method(method))


HEARTBEAT: Final = frame(FRAME_HEARTBEAT, 0, b"")


def content_frames(channel: int, header: bytes, body: bytes, frame_max_bytes: int) -> bytes:
    """Return a content: its header frame and the body cut to `frame_max_bytes` (0: no limit)."""
    parts = [frame(FRAME_HEADER, channel, header)]
    step = frame_max_bytes - FRAME_OVERHEAD_BYTES if frame_max_bytes else max(1, len(body))
    parts += [frame(FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(parts)


def split_content(content: bytes) -> tuple[bytes, bytes]:
    """Return the parts of a content: the payload of its header frame, and the whole body."""
    _, _, size = FRAME_HEADER_STRUCT.unpack_from(content)
    header = content[7 : 7 + size]
    at = size + FRAME_OVERHEAD_BYTES
    pieces = []
    while at < len(content):
        _, _, size = FRAME_HEADER_STRUCT.unpack_from(content, at)
        pieces.append(content[at + 7 : at + 7 + size])
        at += size + FRAME_OVERHEAD_BYTES
    return header, b"".join(pieces)


def body_size(content: bytes) -> int:
    """Return the bytes of the body, without header and frame overhead."""
    return int.from_bytes(content[_BODY_SIZE_AT])


def with_channel(content: bytes, channel: int) -> bytes:
    """Return the same content for another channel: two bytes a frame change."""
    number = _CHANNEL.pack(channel)
    size = int.from_bytes(content[3:7])
    at = size + FRAME_OVERHEAD_BYTES
    parts = [content[:1], number, content[3 : at + 1]]
    while at < len(content):
        size = int.from_bytes(content[at + 3 : at + 7])
        # From the size field to the type octet of the next frame (at the end of the content there is none).
        parts += (number, content[at + 3 : at + size + FRAME_OVERHEAD_BYTES + 1])
        at += size + FRAME_OVERHEAD_BYTES
    return b"".join(parts)


def recut(content: bytes, channel: int, frame_max_bytes: int) -> bytes:
    """Return the same content in body frames of at most `frame_max_bytes`.

    The peer's limit is lower than that of the publisher.
    """
    header, body = split_content(content)
    return content_frames(channel, header, body, frame_max_bytes)
