"""The frames of publishes: those of messages with the same address, properties and size differ in the body only.

`frames` is hot: called for each message of a plug-in's protocol.
"""

from typing import Final

from node.amqp.constants import FRAME_END
from node.amqp.frames import method_frame
from node.amqp.methods import BasicPublish
from node.amqp.properties import Properties
from node.queue.content import encode_content

_END: Final = bytes((FRAME_END,))
_NO_FRAME_LIMIT: Final = 0


class PublishFrames:
    """Makes the frames of one channel's publishes.   channel: its number."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._address = "", ""
        self._method = method_frame(channel, BasicPublish())
        self._properties: Properties | None = None
        self._size = 0
        self._begin = b""  # all up to the body

    def frames(self, exchange: str, routing_key: str, properties: Properties, body: bytes) -> bytes:
        """Return the frames of a message.   properties: they are not changed afterwards."""
        size = len(body)
        if (exchange, routing_key) != self._address:
            self._address = exchange, routing_key
            self._method = method_frame(self._channel, BasicPublish(0, exchange, routing_key))
            self._properties = None
        if properties is not self._properties or size != self._size:
            whole = self._method + encode_content(properties, body, self._channel, _NO_FRAME_LIMIT)
            if size:
                self._properties, self._size = properties, size
                self._begin = whole[: -size - 1]
            return whole
        return b"".join((self._begin, body, _END))
