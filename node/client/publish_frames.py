"""The frames of publishes: those of messages with the same address, properties and size differ in the body only.

`frames` and `run` are hot: called for each message, or run of them, of a plug-in's protocol.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from node.amqp.constants import FRAME_END
from node.amqp.field_table import longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicPublish
from node.amqp.properties import Properties
from node.queue.content import encode_content

_END: Final = bytes((FRAME_END,))
_NO_FRAME_LIMIT: Final = 0


class PublishFrames:
    """Makes the frames of one channel's publishes.   channel: its number.

    varying: the name of a header that has another text in each message; empty: there is none.
    """

    def __init__(self, channel: int, varying: str = "") -> None:
        self._channel = channel
        self._varying = varying
        self._address = "", ""
        self._method = method_frame(channel, BasicPublish())
        self._properties: Properties | None = None
        self._size = 0
        self._begin = b""  # all up to the body

    def frames(self, exchange: str, routing_key: str, properties: Properties, body: bytes) -> bytes:
        """Return the frames of a message.   properties: they are not changed afterwards."""
        size = len(body)
        if (exchange, routing_key) != self._address:
            self._turn_to(exchange, routing_key)
        if properties is not self._properties or size != self._size:
            whole = self._method + encode_content(properties, body, self._channel, _NO_FRAME_LIMIT)
            if size:
                self._properties, self._size = properties, size
                self._begin = whole[: -size - 1]
            return whole
        return b"".join((self._begin, body, _END))

    def _turn_to(self, exchange: str, routing_key: str) -> None:
        self._address = exchange, routing_key
        self._method = method_frame(self._channel, BasicPublish(0, exchange, routing_key))
        self._properties = None

    def run(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties,
        bodies: Sequence[bytes],
        values: Sequence[bytes],
    ) -> bytes:
        """Return the frames of messages that have a header of their own.   values: its texts, one for each message."""
        assert self._varying, "the listener names the header"
        if (exchange, routing_key) != self._address:
            self._turn_to(exchange, routing_key)
        size = value_bytes = -1
        begin = middle = b""  # up to the value, and from behind it to the body
        parts: list[bytes] = []
        for body, value in zip(bodies, values, strict=True):
            if len(body) == size and len(value) == value_bytes:
                parts += begin, value, middle, body, _END
                continue
            headers = {self._varying: longstr(value), **(properties.headers or {})}
            given = replace(properties, headers=headers)
            whole = self._method + encode_content(given, body, self._channel, _NO_FRAME_LIMIT)
            parts.append(whole)
            head = whole[: -len(body) - 1] if body else b""
            at = head.find(value, len(self._method)) if value else 0
            if at > 0 and head.count(value) == 1:  # else it may be a part of another value
                size, value_bytes = len(body), len(value)
                begin, middle = head[:at], head[at + value_bytes :]
        return b"".join(parts)
