"""The frames of publishes: those of messages with the same address, properties and size differ in the body only.

`frames`, `run_of_one`, `adds_to` and `run` are hot: called for each message, or run of them, of a plug-in's protocol.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from node.amqp.constants import FRAME_END
from node.amqp.field_table import longstr
from node.amqp.frames import method_frame
from node.amqp.methods import BasicPublish
from node.amqp.properties import TRANSIENT, Properties, Traits, read_traits
from node.amqp.reader import MIXED_SIZES
from node.client.session_input import PublishRun
from node.queue.content import encode_content

_END: Final = bytes((FRAME_END,))
_NO_FRAME_LIMIT: Final = 0

_SIZE_AT: Final = slice(3, 7)
_PAYLOAD_AT: Final = 7
_FLAGS_AT: Final = _PAYLOAD_AT + 12
"""The places of the size of a content header's payload, of the payload, and of the property flags in it."""


class PublishFrames:
    """Makes the frames of one channel's publishes.   channel: its number.

    varying: the name of a header that has another text in each message; empty: there is none.
    """

    def __init__(self, channel: int, varying: str = "") -> None:
        self._channel = channel
        self._varying = varying
        self._address: tuple[str, str] | None = None
        self._method = b""
        self._properties: Properties | None = None
        self._size = 0
        self._begin = b""  # all up to the body
        self._content_of: Properties | None = None
        self._content_size = 0
        self._content_begin = b""  # the same without the method
        self._traits_of: Properties | None = None
        self._traits = TRANSIENT

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

    def run_of_one(self, exchange: str, routing_key: str, properties: Properties, body: bytes) -> PublishRun:
        """Return the publish of one message."""
        if (exchange, routing_key) != self._address:
            self._turn_to(exchange, routing_key)
        content = self._content(properties, body)
        return PublishRun(
            self._channel, self._method, self._traits_for(properties, content), [content], len(body)
        )

    def adds_to(
        self, run: PublishRun, exchange: str, routing_key: str, properties: Properties, body: bytes
    ) -> bool:
        """Add a message to a run that has its address and properties. Returns: whether the run has them.

        Nothing is added where a header varies: the traits of a run may depend on it.
        """
        is_alike = (exchange, routing_key) == self._address and run.method_frame is self._method
        has_traits = properties is self._traits_of and run.traits is self._traits and not self._varying
        if not is_alike or not has_traits:
            return False
        run.contents.append(self._content(properties, body))
        if run.size != len(body):
            run.size = MIXED_SIZES
        return True

    def run(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties,
        bodies: Sequence[bytes],
        values: Sequence[bytes] = (),
    ) -> PublishRun:
        """Return publishes that differ in their bodies only.

        values: the texts of the header that varies, one for each message; empty: the messages have no such header.
        """
        if (exchange, routing_key) != self._address:
            self._turn_to(exchange, routing_key)
        if values:
            assert self._varying, "the listener names the header"
            contents = self._varying_contents(properties, bodies, values)
        else:
            contents = self._contents(properties, bodies)
        traits = self._traits_for(properties, contents[0])
        sizes = set(map(len, bodies))
        size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
        return PublishRun(self._channel, self._method, traits, contents, size)

    def _traits_for(self, properties: Properties, content: bytes) -> Traits:
        if properties is not self._traits_of:
            head_end = _PAYLOAD_AT + int.from_bytes(content[_SIZE_AT])
            self._traits_of, self._traits = properties, read_traits(content, _FLAGS_AT, head_end)
        return self._traits

    def _content(self, properties: Properties, body: bytes) -> bytes:
        size = len(body)
        if size and properties is self._content_of and size == self._content_size:
            return b"".join((self._content_begin, body, _END))
        content = encode_content(properties, body, self._channel, _NO_FRAME_LIMIT)
        if size:
            self._content_of, self._content_size = properties, size
            self._content_begin = content[: -size - 1]
        return content

    def _contents(self, properties: Properties, bodies: Sequence[bytes]) -> list[bytes]:
        if len(bodies) == 1:
            return [self._content(properties, bodies[0])]
        size, begin = -1, b""
        contents: list[bytes] = []
        for body in bodies:
            if len(body) == size:
                contents.append(b"".join((begin, body, _END)))
                continue
            content = encode_content(properties, body, self._channel, _NO_FRAME_LIMIT)
            contents.append(content)
            if body:
                size, begin = len(body), content[: -len(body) - 1]
        return contents

    def _varying_contents(
        self, properties: Properties, bodies: Sequence[bytes], values: Sequence[bytes]
    ) -> list[bytes]:
        size = value_bytes = -1
        begin = middle = b""  # up to the value, and from behind it to the body
        contents: list[bytes] = []
        for body, value in zip(bodies, values, strict=True):
            if len(body) == size and len(value) == value_bytes:
                contents.append(b"".join((begin, value, middle, body, _END)))
                continue
            # The header comes first, so that a queue that looks for it finds it at once.
            headers = {self._varying: longstr(value), **(properties.headers or {})}
            given = replace(properties, headers=headers)
            content = encode_content(given, body, self._channel, _NO_FRAME_LIMIT)
            contents.append(content)
            head = content[: -len(body) - 1] if body else b""
            if value and head.count(value) == 1:  # else it may be a part of another value
                at = head.index(value)
                size, value_bytes = len(body), len(value)
                begin, middle = head[:at], head[at + value_bytes :]
        return contents
