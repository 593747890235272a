"""Runs of single acknowledgements: the part of a reader that is the same for what clients and brokers send.

`basic.ack` settles deliveries from a client, and confirms publishes from a broker. A run of them is one call.
"""

from struct import Struct
from typing import Final, Protocol

from node.amqp.constants import FRAME_END, FRAME_OVERHEAD_BYTES

BASIC_ACK: Final = b"\x00\x3c\x00\x50"
"""The ids of `basic.ack`."""

ACK_PAYLOAD_BYTES: Final = 13

_FRAME_BYTES: Final = ACK_PAYLOAD_BYTES + FRAME_OVERHEAD_BYTES
_REST: Final = Struct(">QBB")


class AckSink(Protocol):
    """The receiver of runs."""

    def on_acks(self, channel: int, first: int, last: int) -> None:
        """Take a `basic.ack` without `multiple` for each number from first to last, both included."""


class AckRuns:
    """A reader that hands on runs to its sink."""

    _sink: AckSink

    def _acks(self, data: bytes, pos: int, end: int, channel: int) -> int:
        """Hand on the run of single acknowledgements with rising numbers at `pos`.

        Returns: the position behind it, or `pos` if the first is not whole, not single or flawed.
        """
        if end - pos < _FRAME_BYTES:
            return pos
        prefix = data[pos : pos + 11]
        first, multiple, frame_end = _REST.unpack_from(data, pos + 11)
        if multiple or frame_end != FRAME_END:
            return pos
        last = first
        pos += _FRAME_BYTES
        while end - pos >= _FRAME_BYTES and data.startswith(prefix, pos):
            tag, multiple, frame_end = _REST.unpack_from(data, pos + 11)
            if tag != last + 1 or multiple or frame_end != FRAME_END:
                break
            last = tag
            pos += _FRAME_BYTES
        self._sink.on_acks(channel, first, last)
        return pos
