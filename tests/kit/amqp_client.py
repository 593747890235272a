"""A synchronous AMQP 0-9-1 client that sends raw frames, also invalid ones.

It hides nothing: every frame that arrives must be asked for, and one that was not expected fails the test
with both spelled out. Methods are the records of `node.amqp.methods`; fields that a test does not name have
the specification's defaults. `Connection` is the socket and channel 0, `Channel` a thin handle on one number.
"""

import contextlib
import re
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from node.amqp import methods
from node.amqp.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    PROTOCOL_HEADER,
)
from node.amqp.field_table import Table
from node.amqp.method_codec import decode_method, encode_method
from node.amqp.properties import Properties, decode_properties, encode_properties

TIMEOUT_S: Final = 10.0
"""An answer may take this long, since the machine may be busy; only a failing test waits so long."""

_FRAME_HEAD: Final = struct.Struct(">BHI")
_CONTENT_HEAD: Final = struct.Struct(">HHQ")

M = TypeVar("M", bound=methods.Method)
MethodType = type[methods.Method]
Text = str | re.Pattern[str]
"""An expected reply text: the whole of it, or a pattern that must match the whole of it."""


class Address(Protocol):
    """The address on which a server listens; `Server` is one."""

    host: str
    port: int


class Frame(NamedTuple):
    """A received frame, without the end octet."""

    type: int
    channel: int
    payload: bytes

    def __str__(self) -> str:
        if self.type == FRAME_METHOD:
            return f"channel {self.channel}: {decode_method(self.payload)}"
        return f"channel {self.channel}: frame of type {self.type}, {self.payload[:40]!r}"


@dataclass(frozen=True, slots=True)
class Content:
    """A message with the method that brought it (basic.deliver, get-ok or return)."""

    method: Any
    properties: Properties
    header: bytes
    """The header frame's payload as it came: class, weight, body size, flags, properties."""
    body: bytes

    @property
    def headers(self) -> Table:
        return self.properties.headers or {}


class ConnectionEnded(AssertionError):
    """The server ended the TCP connection when the test did not expect it."""


class NothingArrived(AssertionError):
    """No frame arrived in time."""


def frame(frame_type: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    """Return the bytes of a frame, which may be invalid."""
    return _FRAME_HEAD.pack(frame_type, channel, len(payload)) + payload + bytes([end])


def content_header(
    body_size: int, properties: Properties | bytes = b"\0\0", class_id: int = 60, weight: int = 0
) -> bytes:
    """Return the payload of a content header frame.   properties: as bytes they are flags and values, unchecked."""
    raw = properties if isinstance(properties, bytes) else encode_properties(properties)
    return _CONTENT_HEAD.pack(class_id, weight, body_size) + raw


class Connection:
    """One TCP connection. With `open=False` it is only connected: the test makes the handshake's steps."""

    def __init__(
        self,
        server: Address,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        *,
        client_properties: Table | None = None,
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat: int = 0,
        open: bool = True,
    ) -> None:
        self.user = user
        self.password = password
        self.vhost = vhost
        self.client_properties = client_properties or {}
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat = heartbeat
        self.socket = socket.create_connection((server.host, server.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._waiting: list[Frame] = []
        self._ended = False
        self._opened = False
        if open:
            self.handshake()

    # The handshake, step by step.

    def handshake(self) -> None:
        """Do all steps of the handshake with the values given to the constructor."""
        self.start()
        self.send_start_ok()
        self.tune()
        self.open_vhost()

    def start(self) -> methods.ConnectionStart:
        """Send the protocol header and receive connection.start."""
        self.send_bytes(PROTOCOL_HEADER)
        return self.expect(methods.ConnectionStart)

    def send_start_ok(
        self, mechanism: str = "PLAIN", response: bytes | None = None, locale: str = "en_US"
    ) -> None:
        if response is None:
            response = f"\0{self.user}\0{self.password}".encode()
        self.send(
            methods.ConnectionStartOk,
            client_properties=self.client_properties,
            mechanism=mechanism,
            response=response,
            locale=locale,
        )

    def tune(self) -> methods.ConnectionTune:
        """Receive connection.tune and answer with the constructor's values."""
        offer = self.expect(methods.ConnectionTune)
        self.send(
            methods.ConnectionTuneOk,
            channel_max=self.channel_max,
            frame_max=self.frame_max,
            heartbeat=self.heartbeat,
        )
        return offer

    def open_vhost(self) -> methods.ConnectionOpenOk:
        self.send(methods.ConnectionOpen, virtual_host=self.vhost)
        opened = self.expect(methods.ConnectionOpenOk)
        self._opened = True
        return opened

    # Sending.

    def send_bytes(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (ConnectionError, TimeoutError) as error:
            raise ConnectionEnded(f"the server ended the connection while we sent: {error!r}") from error

    def send_frame(self, frame_type: int, channel: int, payload: bytes) -> None:
        self.send_bytes(frame(frame_type, channel, payload))

    def send(self, method: methods.Method | MethodType, channel: int = 0, **fields: Any) -> None:
        """Send a method: an instance, or its type and the fields that differ from the defaults."""
        built = method(**fields) if isinstance(method, type) else method
        self.send_frame(FRAME_METHOD, channel, encode_method(built))

    def publish(
        self,
        channel: int,
        exchange: str = "",
        routing_key: str = "",
        body: bytes = b"",
        properties: Properties | bytes = b"\0\0",
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Send basic.publish with its content in one write; the body in frames of the negotiated size."""
        method = methods.BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        parts = [
            frame(FRAME_METHOD, channel, encode_method(method)),
            frame(FRAME_HEADER, channel, content_header(len(body), properties)),
        ]
        step = self.frame_max - 8
        parts += [frame(FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step)]
        self.send_bytes(b"".join(parts))

    # Receiving.

    def read_frame(self, timeout: float = TIMEOUT_S) -> Frame:
        """Return the next frame of any channel, including heartbeats."""
        if self._waiting:
            return self._waiting.pop(0)
        return self._receive_frame(time.monotonic() + timeout)

    def next_frame(self, channel: int, timeout: float = TIMEOUT_S) -> Frame:
        """Return the next frame of this channel but heartbeats; frames of other channels are kept for later.

        A connection.close fails at once whoever waits on another channel than 0.
        """
        deadline = time.monotonic() + timeout
        for index, kept in enumerate(self._waiting):
            if kept.channel == channel and kept.type != FRAME_HEARTBEAT:
                return self._waiting.pop(index)
        while True:
            arrived = self._receive_frame(deadline)
            if arrived.channel == channel and arrived.type != FRAME_HEARTBEAT:
                return arrived
            self._waiting.append(arrived)
            closes = arrived.type == FRAME_METHOD and arrived.payload.startswith(b"\0\x0a\0\x32")
            assert not closes, f"waited on channel {channel}, but {arrived}"

    def expect(self, method_type: type[M], channel: int = 0, timeout: float = TIMEOUT_S) -> M:
        """Check that the next frame of the channel is this method, and return it."""
        arrived = self.next_frame(channel, timeout)
        assert arrived.type == FRAME_METHOD, f"expected {method_type.__name__}, got {arrived}"
        method = decode_method(arrived.payload)
        assert isinstance(method, method_type), f"expected {method_type.__name__}, got {arrived}"
        return method

    def expect_content(self, method_type: MethodType, channel: int, timeout: float = TIMEOUT_S) -> Content:
        """Check that the next frames are this method, a header and the whole body; return the content."""
        method = self.expect(method_type, channel, timeout)
        header = self.next_frame(channel)
        assert header.type == FRAME_HEADER, f"expected a content header, got {header}"
        class_id, weight, body_size = _CONTENT_HEAD.unpack_from(header.payload)
        assert (class_id, weight) == (60, 0)
        properties = decode_properties(header.payload, _CONTENT_HEAD.size, len(header.payload))
        body = b""
        while len(body) < body_size:
            piece = self.next_frame(channel)
            assert piece.type == FRAME_BODY, f"expected a content body, got {piece}"
            assert len(piece.payload) <= self.frame_max - 8
            body += piece.payload
        assert len(body) == body_size
        return Content(method, properties, header.payload, body)

    def expect_nothing(self, seconds: float = 0.2, channel: int | None = None) -> None:
        """No frame (of the channel, if given) comes within the time. `sync` is surer where it serves."""
        try:
            arrived = self.read_frame(seconds) if channel is None else self.next_frame(channel, seconds)
        except NothingArrived:
            return
        raise AssertionError(f"expected nothing, got {arrived}")

    def expect_channel_close(self, channel: int, code: int, text: Text, failed: MethodType | None) -> None:
        """Check that the next frame of the channel is channel.close with these arguments, and answer it.

        failed: the method whose ids the close carries; None for 0, 0.
        """
        close = self.expect(methods.ChannelClose, channel)
        _check_close(close, code, text, failed)
        self.send(methods.ChannelCloseOk, channel)

    def expect_connection_close(
        self, code: int, text: Text, failed: MethodType | None, *, answer: bool = True
    ) -> None:
        """The next frame of channel 0 is connection.close with all of this; answer it, see the socket end."""
        close = self.expect(methods.ConnectionClose)
        self._opened = False
        _check_close(close, code, text, failed)
        if answer:
            with contextlib.suppress(ConnectionEnded):  # it may be gone already, as at a stop
                self.send(methods.ConnectionCloseOk)
            self.expect_end()

    def expect_end(self, within: float = TIMEOUT_S, *, after: bytes = b"", may_close: bool = False) -> None:
        """The server ends the TCP connection (amqp-behaviour §0.3: reset or end of file) in time, with no other frame.

        within: seconds.   after: what must come before the end.
        may_close: a connection.close first is right too (amqp-behaviour §0.4, §1.7); it is answered.
        """
        deadline = time.monotonic() + within
        closed = False
        while self._fill(deadline):
            if may_close and not closed:
                after = bytes(self._received)
                method = decode_method(after[7:-1])
                assert isinstance(method, methods.ConnectionClose), method
                self.send(methods.ConnectionCloseOk)
                closed = True
        assert self._ended, f"the connection was still there after {within} s, with {self._received!r}"
        assert self._received == after

    # The end.

    def close(self) -> None:
        """Close the connection by the protocol."""
        self.send(methods.ConnectionClose, reply_code=200, reply_text="Goodbye")
        self.expect(methods.ConnectionCloseOk)
        self.socket.close()

    def abandon(self) -> None:
        """End it in any state, politely if it is open and the server answers in a second. For teardowns."""
        if self._opened and not self._ended and self.socket.fileno() != -1:
            close_ok = frame(FRAME_METHOD, 0, encode_method(methods.ConnectionCloseOk()))
            with contextlib.suppress(ConnectionEnded):
                self.send(methods.ConnectionClose, reply_code=200, reply_text="Goodbye")
                while close_ok not in self._received and self._fill(time.monotonic() + 1.0):
                    pass
        self.socket.close()

    def channel(self, number: int = 1) -> "Channel":
        """Open a channel."""
        opened = Channel(self, number)
        opened.call(methods.ChannelOpen)
        return opened

    def _receive_frame(self, deadline: float) -> Frame:
        while True:
            if len(self._received) >= _FRAME_HEAD.size:
                frame_type, channel, size = _FRAME_HEAD.unpack_from(self._received)
                if len(self._received) >= size + 8:
                    raw = bytes(self._received[: size + 8])
                    del self._received[: size + 8]
                    assert raw[-1] == FRAME_END, f"bad frame end in {raw!r}"
                    return Frame(frame_type, channel, raw[7:-1])
            if not self._fill(deadline):
                if self._ended:
                    raise ConnectionEnded("the server ended the connection")
                raise NothingArrived(f"no whole frame in time; {bytes(self._received)!r} so far")

    def _fill(self, deadline: float) -> bool:
        """Read what is there, waiting until `deadline`. False: nothing came, or the end did (`_ended`)."""
        try:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self.socket.recv(262144)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        finally:
            self.socket.settimeout(TIMEOUT_S)
        self._ended = self._ended or not data
        self._received += data
        return bool(data)


class Channel:
    """One channel number of a connection, with the calls that most tests make."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number

    def send(self, method: methods.Method | MethodType, **fields: Any) -> None:
        self.connection.send(method, self.number, **fields)

    def expect(self, method_type: type[M], timeout: float = TIMEOUT_S) -> M:
        return self.connection.expect(method_type, self.number, timeout)

    def call(self, method_type: MethodType, **fields: Any) -> Any:
        """Send a method and return its `-ok`."""
        self.send(method_type, **fields)
        return self.expect(getattr(methods, method_type.__name__ + "Ok"))

    def sync(self) -> None:
        """Make a round trip that changes nothing, and check that the next frame of the channel is its answer.

        What the server sends on its own from other processes (RabbitMQ's deliveries) may still come later.
        """
        self.call(methods.AccessRequest)

    def publish(
        self,
        exchange: str = "",
        routing_key: str = "",
        body: bytes = b"",
        properties: Properties | bytes = b"\0\0",
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        self.connection.publish(
            self.number, exchange, routing_key, body, properties, mandatory=mandatory, immediate=immediate
        )

    def declare(self, queue: str = "", **fields: Any) -> str:
        """Declare a queue and return its name."""
        name: str = self.call(methods.QueueDeclare, queue=queue, **fields).queue
        return name

    def consume(self, queue: str, **fields: Any) -> str:
        """Start a consumer and return its tag."""
        tag: str = self.call(methods.BasicConsume, queue=queue, **fields).consumer_tag
        return tag

    def get(self, queue: str, *, no_ack: bool = True) -> Content | None:
        """Return the message of one basic.get; None if the queue is empty."""
        self.send(methods.BasicGet, queue=queue, no_ack=no_ack)
        arrived = self.connection.next_frame(self.number)
        self.connection._waiting.insert(0, arrived)
        if arrived.type == FRAME_METHOD and isinstance(decode_method(arrived.payload), methods.BasicGetEmpty):
            self.expect(methods.BasicGetEmpty)
            return None
        return self.expect_content(methods.BasicGetOk)

    def wait_get(self, queue: str, *, no_ack: bool = True, within: float = TIMEOUT_S) -> Content:
        """Send basic.get repeatedly until there is a message, and return it."""
        deadline = time.monotonic() + within
        while (content := self.get(queue, no_ack=no_ack)) is None:
            assert time.monotonic() < deadline, f"no message in {queue!r} within {within} s"
            time.sleep(0.02)
        return content

    def expect_content(self, method_type: MethodType, timeout: float = TIMEOUT_S) -> Content:
        return self.connection.expect_content(method_type, self.number, timeout)

    def deliver(self, timeout: float = TIMEOUT_S) -> Content:
        """Check that the next frames are a delivery, and return it."""
        return self.expect_content(methods.BasicDeliver, timeout)

    def expect_nothing(self, seconds: float = 0.2) -> None:
        self.connection.expect_nothing(seconds, self.number)

    def expect_close(self, code: int, text: Text, failed: MethodType | None) -> None:
        """Check that the next frame of this channel is channel.close with these arguments, and answer it."""
        self.connection.expect_channel_close(self.number, code, text, failed)

    def close(self) -> None:
        self.send(methods.ChannelClose, reply_code=200, reply_text="Goodbye")
        self.expect(methods.ChannelCloseOk)


def _check_close(close: Any, code: int, text: Text, failed: MethodType | None) -> None:
    ids = (0, 0) if failed is None else (failed.class_id, failed.method_id)
    came = (close.reply_code, close.reply_text, (close.failed_class_id, close.failed_method_id))
    if isinstance(text, str):
        assert came == (code, text, ids)
    else:
        assert (came[0], came[2]) == (code, ids), came
        assert text.fullmatch(close.reply_text), f"{close.reply_text!r} does not match {text.pattern!r}"
