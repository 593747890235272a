"""Reads deliveries in the broker's output: what is the same as in the delivery before is not decoded again.

    ids, consumer tag | delivery tag, redelivered | exchange, routing key | body size | properties | body
                                                                    with a value of its own ─┘
`read` and `more` are hot: `read` takes the first message that a plug-in's protocol delivers, and `more` those behind it
that are as long.
"""

from struct import iter_unpack
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

_ALIKE_MIN: Final = 4
"""So many deliveries of one length in a row are unpacked at once; for fewer the format costs more than it saves."""


class DeliveryReader:
    """Reads the deliveries of one connection, which are on one channel.

    varying: the name of a header whose texts differ from message to message; empty: there is none.
    """

    def __init__(self, varying: str = "") -> None:
        self._varying = varying
        raw = varying.encode()
        self._entry = bytes((len(raw),)) + raw + b"S"
        self._begin = b""  # up to the delivery tag
        self._middle = b""  # from behind `redelivered` to the body size
        self._end = b""  # properties, up to the value that varies, or to the end of their frame
        self._value_bytes = 0
        self._tail = b""  # from behind that value to the end of the frame; empty: there is no such value
        self._consumer = self._exchange = self._routing_key = ""
        self._properties = Properties()

    def read(self, data: bytes, at: int) -> tuple[Delivery, int] | Sent | None:
        """Return the delivery that begins at a place, and its end; or another method; None at the end.

        Deliveries whose properties are equal, but for the header that varies, may share them.
        """
        if not self._begin or not data.startswith(self._begin, at):
            return self._decode(data, at)
        tag_at = at + len(self._begin)
        middle_at = tag_at + _TAG_BYTES + 1
        size_at = middle_at + len(self._middle)
        end_at = size_at + _SIZE_BYTES
        value_at = end_at + len(self._end)
        tail_at = value_at + self._value_bytes
        if (
            not data.startswith(self._middle, middle_at)
            or not data.startswith(self._end, end_at)
            or not data.startswith(self._tail, tail_at)
        ):
            return self._decode(data, at)
        size = int.from_bytes(data[size_at:end_at])
        end = body_at = tail_at + len(self._tail)
        body = b""
        if size:
            begin = body_at + _HEADER_BYTES
            if int.from_bytes(data[begin - 4 : begin]) != size:  # a body of several frames
                return self._decode(data, at)
            body = data[begin : begin + size]
            end = begin + size + 1
        delivery = Delivery(
            self._consumer,
            int.from_bytes(data[tag_at : middle_at - 1]),
            self._exchange,
            self._routing_key,
            data[middle_at - 1] != 0,
            self._properties,
            body,
            data[value_at:tail_at] if self._tail else None,
        )
        return delivery, end

    def more(self, data: bytes, start: int, at: int, found: list[Delivery]) -> int:
        """Add the deliveries that follow the last one and are like it in all but their own values.

        start, at: where the last one begins and ends.   Returns: where the next one begins.
        """
        body_bytes, size, begin = len(found[-1].body), at - start, self._begin
        count = (len(data) - at) // size
        if count < _ALIKE_MIN or not data.startswith(begin, at + (_ALIKE_MIN - 1) * size):
            return at
        between_at = len(begin) + _TAG_BYTES + 1
        value_at = between_at + len(self._middle) + _SIZE_BYTES + len(self._end)
        tail_at = value_at + self._value_bytes
        body_at = tail_at + len(self._tail) + _HEADER_BYTES
        if not body_bytes or body_at + body_bytes + 1 != size:  # it has another number of frames
            return at
        consumer, exchange, key = self._consumer, self._exchange, self._routing_key
        properties, add = self._properties, found.append
        view = memoryview(data)[at : at + count * size]
        ids = f">{len(begin)}sQB"
        if not self._tail:
            between = data[start + between_at : start + body_at]
            for first, tag, again, middle, body, _ in iter_unpack(
                f"{ids}{len(between)}s{body_bytes}sB", view
            ):
                if first != begin or middle != between:
                    break
                add(Delivery(consumer, tag, exchange, key, again != 0, properties, body))
                at += size
            return at
        between, rest = data[start + between_at : start + value_at], data[start + tail_at : start + body_at]
        for first, tag, again, middle, value, last, body, _ in iter_unpack(
            f"{ids}{len(between)}s{self._value_bytes}s{len(rest)}s{body_bytes}sB", view
        ):
            if first != begin or middle != between or last != rest:
                break
            add(Delivery(consumer, tag, exchange, key, again != 0, properties, body, value))
            at += size
        return at

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
        self._value_bytes, self._tail = 0, b""
        delivery = Delivery(
            method.consumer_tag,
            method.delivery_tag,
            method.exchange,
            method.routing_key,
            method.redelivered,
            self._properties,
            body,
            self._take_varying() if self._varying else None,
        )
        return delivery, sent.end

    def _take_varying(self) -> bytes | None:
        """Take the header that varies out of the properties, and note where its value stands."""
        headers = self._properties.headers
        field = headers.pop(self._varying, None) if headers else None
        if field is None or field.tag != "S":
            return None
        value, end = field.value, self._end
        assert isinstance(value, bytes)
        entry = self._entry + len(value).to_bytes(4) + value
        if end.count(entry) == 1:  # else it may be a part of another value
            at = end.index(entry) + len(entry)
            self._end, self._value_bytes, self._tail = end[: at - len(value)], len(value), end[at:]
        return value


def got_delivery(got: BasicGetOk, content: bytes) -> Delivery:
    """Return the message of an answer to basic.get."""
    tag, exchange, key = got.delivery_tag, got.exchange, got.routing_key
    return Delivery("", tag, exchange, key, got.redelivered, *decode_content(content))
