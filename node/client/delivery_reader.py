"""Reads deliveries in the broker's output: what is the same as in the delivery before is not decoded again.

    ids, consumer tag | delivery tag, redelivered | exchange, routing key | body size | properties | body
`read` is hot: called for each message that a plug-in's protocol delivers.
"""

from typing import Final

from node.amqp.constants import FRAME_OVERHEAD_BYTES
from node.amqp.methods import BasicDeliver, BasicGetOk
from node.amqp.properties import Properties
from node.client.method_stream import Sent, method_at
from node.extension.protocol import Delivery
from node.queue.content import decode_content

_HEADER_BYTES: Final = FRAME_OVERHEAD_BYTES - 1
_IDS_BYTES: Final = 4
_TAG_BYTES: Final = 8
_SIZE_BYTES: Final = 8


class DeliveryReader:
    """Reads the deliveries of one connection, which are on one channel."""

    def __init__(self) -> None:
        self._begin = b""  # up to the delivery tag
        self._middle = b""  # from behind `redelivered` to the body size
        self._end = b""  # properties, and the end of their frame
        self._consumer = self._exchange = self._routing_key = ""
        self._properties = Properties()

    def read(self, data: bytes, at: int) -> tuple[Delivery, int] | Sent | None:
        """Return the delivery that begins at a place, and its end; or another method; None at the end.

        Deliveries whose properties are equal may share them.
        """
        if not self._begin or not data.startswith(self._begin, at):
            return self._decode(data, at)
        tag_at = at + len(self._begin)
        middle_at = tag_at + _TAG_BYTES + 1
        size_at = middle_at + len(self._middle)
        end_at = size_at + _SIZE_BYTES
        if not data.startswith(self._middle, middle_at) or not data.startswith(self._end, end_at):
            return self._decode(data, at)
        size = int.from_bytes(data[size_at:end_at])
        body_at = end_at + len(self._end)
        end = body_at
        body = b""
        if size:
            begin = body_at + _HEADER_BYTES
            if int.from_bytes(data[begin - 4 : begin]) != size:  # a body of several frames
                return self._decode(data, at)
            body = data[begin : begin + size]
            end = begin + size + 1
        tag = int.from_bytes(data[tag_at : middle_at - 1])
        delivery = Delivery(
            self._consumer,
            tag,
            self._exchange,
            self._routing_key,
            data[middle_at - 1] != 0,
            self._properties,
            body,
        )
        return delivery, end

    def _decode(self, data: bytes, at: int) -> tuple[Delivery, int] | Sent | None:
        sent = method_at(data, at)
        if sent is None or not isinstance(sent.method, BasicDeliver):
            return sent
        method = sent.method
        self._properties, body = decode_content(sent.content)
        self._consumer, self._exchange = method.consumer_tag, method.exchange
        self._routing_key = method.routing_key
        tag_at = at + _HEADER_BYTES + _IDS_BYTES
        tag_at += 1 + data[tag_at]
        content_at = at + FRAME_OVERHEAD_BYTES + int.from_bytes(data[at + 3 : at + _HEADER_BYTES])
        size_at = content_at + _HEADER_BYTES + _IDS_BYTES
        header_end = (
            content_at
            + FRAME_OVERHEAD_BYTES
            + int.from_bytes(data[content_at + 3 : content_at + _HEADER_BYTES])
        )
        self._begin = data[at:tag_at]
        self._middle = data[tag_at + _TAG_BYTES + 1 : size_at]
        self._end = data[size_at + _SIZE_BYTES : header_end]
        delivery = Delivery(
            method.consumer_tag,
            method.delivery_tag,
            method.exchange,
            method.routing_key,
            method.redelivered,
            self._properties,
            body,
        )
        return delivery, sent.end


def got_delivery(got: BasicGetOk, content: bytes) -> Delivery:
    """Return the message of an answer to basic.get."""
    tag, exchange, key = got.delivery_tag, got.exchange, got.routing_key
    return Delivery("", tag, exchange, key, got.redelivered, *decode_content(content))
