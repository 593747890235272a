"""The frames of a delivery on one channel.

The method frame around the delivery tag is the same for all that a consumer is given from one address, so it is made
once. Contents are given as they came, unless their frames are too large for the channel's client.
Source: amqp-behaviour §4.6, §4.11.
"""

from typing import TYPE_CHECKING, Final

from node.amqp.constants import FRAME_END, FRAME_METHOD
from node.amqp.field_table import long
from node.amqp.frames import FRAME_HEADER_STRUCT, recut, with_channel
from node.queue.consumer import Consumer
from node.queue.content import with_header
from node.queue.run import Run

if TYPE_CHECKING:
    from node.queue.live_queue import LiveQueue

DELIVERY_COUNT: Final = "x-delivery-count"
"""The header that tells consumers of a quorum queue, or of one with a delivery limit, how often a message came
back."""

_DELIVER: Final = b"\x00\x3c\x00\x3c"
_TAG_BYTES: Final = 8
_CACHED_MAX: Final = 256
"""The keys for which a consumer remembers the constant parts of its frames; with more it starts over."""


def deliver_frame(consumer: Consumer, run: Run, channel: int) -> tuple[bytes, bytes]:
    """Return the frame of basic.deliver before and after the delivery tag."""
    address = run.envelope.address
    key = (address, run.deliveries > 0)
    frame = consumer.frames.get(key)
    if frame is None:
        tag = consumer.tag.encode("utf-8", "surrogateescape")
        start = _DELIVER + bytes([len(tag)]) + tag
        rest = bytes([run.deliveries > 0]) + address
        size = len(start) + _TAG_BYTES + len(rest)
        frame = (
            FRAME_HEADER_STRUCT.pack(FRAME_METHOD, channel, size) + start,
            rest + bytes([FRAME_END]),
        )
        if len(consumer.frames) >= _CACHED_MAX:
            consumer.frames.clear()
        consumer.frames[key] = frame
    return frame


def _counts_deliveries(queue: "LiveQueue") -> bool:
    return queue.record.type == "quorum" or queue.settings.delivery_limit is not None


def fitting(
    run: Run, queue: "LiveQueue | None", channel: int, frame_max_bytes: int, *, is_got: bool = False
) -> list[bytes]:
    """Return the contents of a run for a channel whose client takes frames of at most so many bytes; 0: of any size.

    queue: the queue that they come from; None: from none.
    is_got: by basic.get, for which x-delivery-count is set on the first delivery as well, as in RabbitMQ 3.10.
    """
    envelope, contents = run.envelope, run.contents
    if (run.deliveries or is_got) and queue is not None and _counts_deliveries(queue):
        count = long(run.deliveries)
        contents = [
            with_header(content, DELIVERY_COUNT, count, envelope.channel, envelope.frame_max_bytes)
            for content in contents
        ]
    if frame_max_bytes and (not envelope.frame_max_bytes or envelope.frame_max_bytes > frame_max_bytes):
        return [
            recut(content, channel, frame_max_bytes)
            if len(content) > frame_max_bytes
            else with_channel(content, channel)
            for content in contents
        ]
    if envelope.channel != channel:
        return [with_channel(content, channel) for content in contents]
    return contents
