"""An AMQP connection of the load generator: a blocking socket, the handshake, and calls that wait for a reply.

It is for setup and teardown only. During a measurement, workloads use `Connection.socket` directly.
"""

import socket
import struct
from types import TracebackType
from typing import Self

from bench import frames as f

REPLY_TIMEOUT_S = 60.0


class BenchError(Exception):
    """The broker did something wrong: lost, duplicated or corrupted a message, refused a call, or stalled."""


class Connection:
    """An open connection with one open channel. Heartbeats are off unless `heartbeat` accepts the broker's offer.

    user: the user name, which is also the password.
    """

    def __init__(
        self, port: int, *, channel: int = 1, heartbeat: bool = False, user: str = "guest", vhost: str = "/"
    ) -> None:
        self.channel = channel
        self._user, self._vhost = user, vhost
        self.server_properties = b""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        try:
            self._handshake(heartbeat)
            self.call(f.CHANNEL_OPEN, b"\0", f.CHANNEL_OPEN_OK)
        except BaseException:
            self.socket.close()
            raise

    def _handshake(self, heartbeat: bool) -> None:
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.server_properties = self._read(0, f.START)
        arguments = f.string_table({"product": "fluffle-bench"}) + f.short_string("PLAIN")
        arguments += f.long_string(f"\0{self._user}\0{self._user}".encode()) + f.short_string("en_US")
        self.socket.sendall(f.method(0, f.START_OK, arguments))
        channel_max, frame_bytes_max, heartbeat_s = struct.unpack(">HIH", self._read(0, f.TUNE))
        if frame_bytes_max != f.FRAME_BYTES_MAX:
            raise BenchError(f"frame_max is {frame_bytes_max}, the prepared buffers need {f.FRAME_BYTES_MAX}")
        tune = struct.pack(">HIH", channel_max, frame_bytes_max, heartbeat_s if heartbeat else 0)
        opening = f.method(0, f.OPEN, f.short_string(self._vhost) + b"\0\0")
        self.socket.sendall(f.method(0, f.TUNE_OK, tune) + opening)
        self._read(0, f.OPEN_OK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def call(self, ids: tuple[int, int], arguments: bytes, reply_ids: tuple[int, int]) -> bytes:
        """Send a method and return the arguments of its reply, which must be the next frame on the wire."""
        self.socket.sendall(f.method(self.channel, ids, arguments))
        return self._read(self.channel, reply_ids)

    def take_received(self) -> bytes:
        """Return and forget the bytes that were read together with the last reply; they may be the first deliveries."""
        data = bytes(self._received)
        self._received.clear()
        return data

    def close(self) -> None:
        """Close the connection by the protocol; when this returns, the broker has requeued all unacknowledged messages.

        No other frame may arrive meanwhile; `abandon` is for connections with deliveries under way.
        """
        self.socket.sendall(f.method(0, f.CONNECTION_CLOSE, struct.pack(">HBHH", 200, 0, 0, 0)))
        self._read(0, f.CONNECTION_CLOSE_OK)
        self.socket.close()

    def reopen(self) -> None:
        """Open the channel again after the broker has closed it."""
        self.socket.sendall(f.method(self.channel, f.CHANNEL_CLOSE_OK))
        self.call(f.CHANNEL_OPEN, b"\0", f.CHANNEL_OPEN_OK)

    def abandon(self) -> None:
        """Close a consumer's connection while deliveries arrive; the last frame that was read may be incomplete."""
        self.socket.sendall(f.method(0, f.CONNECTION_CLOSE, struct.pack(">HBHH", 200, 0, 0, 0)))
        end = f.method(0, f.CONNECTION_CLOSE_OK)
        tail = b""
        while not tail.endswith(end):
            data = self.socket.recv(1 << 18)
            if not data:
                raise BenchError("the broker closed the connection")
            tail = (tail + data)[-len(end) :]
        self.socket.close()

    def _read(self, channel: int, ids: tuple[int, int]) -> bytes:
        """Return the arguments of the next frame, which must be the method `ids` on `channel`."""
        head = self._take(7)
        frame_type, got_channel, size = struct.unpack(">BHI", head)
        payload = self._take(size + 1)[:-1]
        got = struct.unpack_from(">HH", payload) if size >= 4 else ()
        if got in (f.CONNECTION_CLOSE, f.CHANNEL_CLOSE):
            code, length = struct.unpack_from(">HB", payload, 4)
            raise BenchError(f"closed by the broker: {code} {payload[7 : 7 + length].decode()}")
        if (frame_type, got_channel, got) != (f.FRAME_METHOD, channel, ids):
            raise BenchError(
                f"expected method {ids}, got frame type {frame_type} with {payload[:16].hex(' ')}"
            )
        return payload[4:]

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(65_536)
            if not data:
                raise BenchError("the broker closed the connection")
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    # -- the calls of the workloads --------------------------------------------------------------------

    def declare_queue(self, queue: str, *, durable: bool = False, passive: bool = False) -> int:
        """Declare a queue. Returns: its number of ready messages."""
        arguments = b"\0\0" + f.short_string(queue) + bytes([passive | durable << 1]) + f.string_table({})
        reply = self.call(f.QUEUE_DECLARE, arguments, f.QUEUE_DECLARE_OK)
        return int(struct.unpack(">I", reply[-8:-4])[0])

    def delete_queue(self, queue: str) -> int:
        """Delete a queue. Returns: the number of messages that it had."""
        reply = self.call(f.QUEUE_DELETE, b"\0\0" + f.short_string(queue) + b"\0", f.QUEUE_DELETE_OK)
        return int(struct.unpack(">I", reply)[0])

    def declare_exchange(
        self, exchange: str, kind: str, *, durable: bool = False, arguments: bytes | None = None
    ) -> None:
        """Declare an exchange.   arguments: an encoded field table."""
        names = f.short_string(exchange) + f.short_string(kind)
        table = f.string_table({}) if arguments is None else arguments
        self.call(f.EXCHANGE_DECLARE, b"\0\0" + names + bytes([durable << 1]) + table, f.EXCHANGE_DECLARE_OK)

    def delete_exchange(self, exchange: str) -> None:
        self.call(f.EXCHANGE_DELETE, b"\0\0" + f.short_string(exchange) + b"\0", f.EXCHANGE_DELETE_OK)

    def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", *, arguments: bytes | None = None
    ) -> None:
        """Bind a queue to an exchange.   arguments: an encoded field table."""
        names = f.short_string(queue) + f.short_string(exchange) + f.short_string(routing_key)
        table = f.string_table({}) if arguments is None else arguments
        self.call(f.QUEUE_BIND, b"\0\0" + names + b"\0" + table, f.QUEUE_BIND_OK)

    def set_prefetch(self, count: int) -> None:
        self.call(f.QOS, struct.pack(">IHB", 0, count, 0), f.QOS_OK)

    def consume(self, queue: str, consumer_tag: str, *, no_ack: bool) -> None:
        names = f.short_string(queue) + f.short_string(consumer_tag)
        arguments = b"\0\0" + names + bytes([no_ack << 1]) + f.string_table({})
        self.call(f.CONSUME, arguments, f.CONSUME_OK)

    def cancel(self, consumer_tag: str) -> None:
        """Cancel a consumer. Raises: BenchError if a frame arrives before the reply, such as a surplus delivery."""
        self.call(f.CANCEL, f.short_string(consumer_tag) + b"\0", f.CANCEL_OK)

    def select_confirms(self) -> None:
        self.call(f.CONFIRM_SELECT, b"\0", f.CONFIRM_SELECT_OK)
