"""The broker's output to a client, read again: whole methods with their contents, for clients in this process."""

from typing import NamedTuple

from node.amqp.constants import FRAME_METHOD, FRAME_OVERHEAD_BYTES
from node.amqp.frames import FRAME_HEADER_STRUCT, body_size
from node.amqp.method_codec import decode_method
from node.amqp.methods import METHODS, Method


class Sent(NamedTuple):
    """A method that the broker sent.   end: where the next one begins."""

    method: Method
    content: bytes
    channel: int
    end: int


def method_at(data: bytes | bytearray, at: int) -> Sent | None:
    """Return the method that begins at a place; None while it is not whole.

    A broker's output is well formed, and a method's content follows it at once.
    """
    frame = _frame_at(data, at)
    if frame is None:
        return None
    kind, channel, payload, end = frame
    assert kind == FRAME_METHOD, kind
    method = decode_method(payload)
    if not METHODS[method.class_id, method.method_id].has_content:
        return Sent(method, b"", channel, end)
    header = _frame_at(data, end)
    if header is None:
        return None
    content_end = header[3]
    left = body_size(bytes(data[end:content_end]))
    while left:
        body = _frame_at(data, content_end)
        if body is None:
            return None
        left -= len(body[2])
        content_end = body[3]
    return Sent(method, bytes(data[end:content_end]), channel, content_end)


def _frame_at(data: bytes | bytearray, at: int) -> tuple[int, int, bytes, int] | None:
    """Return kind, channel and payload of a frame, and where the next one begins; None while it is not whole."""
    if len(data) < at + FRAME_HEADER_STRUCT.size:
        return None
    kind, channel, size = FRAME_HEADER_STRUCT.unpack_from(data, at)
    end = at + size + FRAME_OVERHEAD_BYTES
    if len(data) < end:
        return None
    start = at + FRAME_HEADER_STRUCT.size
    return kind, channel, bytes(data[start : start + size]), end
