"""An asynchronous AMQP 0-9-1 client that only passes frames on to callbacks, and repeats nothing.

One task may have many calls in flight; answers come in the order of the calls of a channel. When the connection
ends, for whatever reason, everybody who waits gets `Lost`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER
from node.amqp.field_table import boolean, table
from node.amqp.frames import frame
from node.amqp.method_codec import decode_method, encode_method

FRAME_MAX_BYTES: Final = 131072
HEADER_START_BYTES: Final = 12
"""A content header has so many bytes before the flags of the properties."""

_FRAME_HEAD: Final = Struct(">BHI")
_CONTENT_HEAD: Final = Struct(">HHQ")
_DELIVERIES: Final = (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)


class Lost(Exception):
    """The connection or the channel has ended; the text has the node's reason, if it gave one."""


class Delivery(NamedTuple):
    """A received message.   properties: flags and values, as on the wire."""

    method: Any
    properties: bytes
    body: bytes


class Channel:
    """A channel of a connection. Set the callbacks before the methods that may cause them.

    on_delivery: for deliver, get-ok and return.   on_confirm: for (tag, multiple, is it an ack).
    """

    def __init__(self, client: "Client", number: int) -> None:
        self.client = client
        self.number = number
        self.on_delivery: Callable[[Delivery], None] = lambda delivery: None
        self.on_confirm: Callable[[int, bool, bool], None] = lambda tag, multiple, is_ack: None
        self.lost: Lost | None = None
        self._answers: deque[asyncio.Future[methods.Method]] = deque()
        self._method: methods.Method | None = None
        self._header = b""
        self._parts: list[bytes] = []
        self._missing_bytes = 0

    def send(self, method: methods.Method) -> None:
        """Send a method without an answer. Raises: Lost."""
        self._check()
        self.client.write(frame(FRAME_METHOD, self.number, encode_method(method)))

    async def call(self, method: methods.Method) -> Any:
        """Send a method and wait for its answer. Raises: Lost."""
        self.send(method)
        answer: asyncio.Future[methods.Method] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> None:
        """Publish.   properties: flags and values, as on the wire. Raises: Lost."""
        self._check()
        method = methods.BasicPublish(exchange=exchange, routing_key=routing_key)
        parts = [
            frame(FRAME_METHOD, self.number, encode_method(method)),
            frame(FRAME_HEADER, self.number, _CONTENT_HEAD.pack(60, 0, len(body)) + properties),
        ]
        step = FRAME_MAX_BYTES - 8
        parts += [frame(FRAME_BODY, self.number, body[at : at + step]) for at in range(0, len(body), step)]
        self.client.write(b"".join(parts))

    def lose(self, why: Lost) -> None:
        """End all waits with Lost."""
        self.lost = self.lost or why
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(why)
        self._answers.clear()

    def frame_received(self, kind: int, payload: bytes) -> None:
        """Handle a frame of this channel."""
        if kind == FRAME_METHOD:
            self._method_received(decode_method(payload))
        elif kind == FRAME_HEADER:
            self._missing_bytes = _CONTENT_HEAD.unpack_from(payload)[2]
            self._header = payload[HEADER_START_BYTES:]
            self._parts = []
            self._deliver_if_whole()
        elif kind == FRAME_BODY:
            self._parts.append(payload)
            self._missing_bytes -= len(payload)
            self._deliver_if_whole()

    def _method_received(self, method: methods.Method) -> None:
        if isinstance(method, _DELIVERIES):
            self._method = method
        elif isinstance(method, methods.BasicAck):
            self.on_confirm(method.delivery_tag, method.multiple, True)
        elif isinstance(method, methods.BasicNack):
            self.on_confirm(method.delivery_tag, method.multiple, False)
        elif isinstance(method, methods.ChannelClose):
            self.client.write(frame(FRAME_METHOD, self.number, encode_method(methods.ChannelCloseOk())))
            self.lose(Lost(f"{method.reply_code} {method.reply_text}"))
        elif self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(method)

    def _deliver_if_whole(self) -> None:
        assert self._missing_bytes >= 0
        if self._missing_bytes == 0:
            self.on_delivery(Delivery(self._method, self._header, b"".join(self._parts)))

    def _check(self) -> None:
        if self.lost is not None:
            raise self.lost


class Client(asyncio.Protocol):
    """A connection.   blocked: the reason in connection.blocked, or None.   lost: why the connection ended."""

    def __init__(self) -> None:
        self.blocked: str | None = None
        self.lost: Lost | None = None
        self.ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._channels: dict[int, Channel] = {0: Channel(self, 0)}
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, host: str, port: int) -> "Client":
        """Connect, log in as guest. Raises: Lost."""
        try:
            _, client = await asyncio.get_running_loop().create_connection(cls, host, port)
        except OSError as error:
            raise Lost(str(error)) from error
        await client._opened
        return client

    async def channel(self, number: int = 1) -> Channel:
        """Open a channel. Raises: Lost."""
        if self.lost is not None:
            raise self.lost
        opened = self._channels[number] = Channel(self, number)
        await opened.call(methods.ChannelOpen())
        return opened

    async def drain(self) -> None:
        """Wait until the socket takes more. Raises: Lost."""
        await self._can_write.wait()
        if self.lost is not None:
            raise self.lost

    async def drain_or_blocked(self) -> None:
        """Wait until the socket takes more, or the node has said that it doesn't read. Raises: Lost."""
        while not self._can_write.is_set() and self.blocked is None:
            await asyncio.sleep(0.01)
        if self.lost is not None:
            raise self.lost

    async def close(self) -> None:
        """Close the connection by the protocol. It may have ended before."""
        if self.lost is None:
            with contextlib.suppress(Lost):
                await self._channels[0].call(methods.ConnectionClose(reply_code=200, reply_text="bye"))
            self.abort()
            await self.ended.wait()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send bytes. Raises: Lost."""
        if self.lost is not None:
            raise self.lost
        assert self._transport is not None
        if not self._transport.is_closing():  # else `connection_lost` is about to be called
            self._transport.write(data)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(PROTOCOL_HEADER)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) >= at + 8:
            kind, number, size = _FRAME_HEAD.unpack_from(received, at)
            if len(received) < at + size + 8:
                break
            payload = bytes(received[at + 7 : at + 7 + size])
            at += size + 8
            if number:
                self._channels[number].frame_received(kind, payload)
            elif kind == FRAME_METHOD:
                self._connection_method(decode_method(payload))
        del received[:at]

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = self.lost or Lost(f"the connection ended: {error}")
        self._can_write.set()
        for channel in self._channels.values():
            channel.lose(self.lost)
        if not self._opened.done():
            self._opened.set_exception(self.lost)
        self.ended.set()

    def _connection_method(self, method: methods.Method) -> None:
        zero = self._channels[0]
        match method:
            case methods.ConnectionStart():
                capabilities = table({"connection.blocked": boolean(True), "basic.nack": boolean(True)})
                zero.send(
                    methods.ConnectionStartOk(
                        client_properties={"capabilities": capabilities},
                        mechanism="PLAIN",
                        response=b"\0guest\0guest",
                        locale="en_US",
                    )
                )
            case methods.ConnectionTune():
                zero.send(methods.ConnectionTuneOk(channel_max=2047, frame_max=FRAME_MAX_BYTES, heartbeat=0))
                zero.send(methods.ConnectionOpen(virtual_host="/"))
            case methods.ConnectionOpenOk():
                self._opened.set_result(None)
            case methods.ConnectionBlocked():
                self.blocked = method.reason
            case methods.ConnectionUnblocked():
                self.blocked = None
            case methods.ConnectionClose():
                self.lost = Lost(f"{method.reply_code} {method.reply_text}")
                self._write_last(methods.ConnectionCloseOk())
            case _:
                zero.frame_received(FRAME_METHOD, encode_method(method))

    def _write_last(self, method: methods.Method) -> None:
        assert self._transport is not None
        self._transport.write(frame(FRAME_METHOD, 0, encode_method(method)))
        self._transport.close()
