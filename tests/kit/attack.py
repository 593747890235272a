"""Hostile clients send buffers that are built before the attack, and floods of them."""

import socket
import time
from collections.abc import Iterable
from typing import Final

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from node.amqp.method_codec import encode_method
from node.amqp.properties import Properties
from tests.kit.amqp_client import Connection, content_header, frame
from tests.kit.node_process import NodeProcess

STALL_S: Final = 1.0
"""A node that has taken nothing for so long has stopped reading from us."""

DEAF_BUFFER_BYTES: Final = 16 * 1024
"""The receive buffer of a client that does not read: what the kernel hides from the node stays small."""

_PIECE_BYTES: Final = 64 * 1024


def method(channel: int, sent: methods.Method) -> bytes:
    """Return the frame of a method."""
    return frame(FRAME_METHOD, channel, encode_method(sent))


def many(channel: int, sent: Iterable[methods.Method]) -> bytes:
    """Return the frames of methods on one channel."""
    return b"".join(method(channel, each) for each in sent)


def announce(channel: int, body_size: int, routing_key: str = "nowhere") -> bytes:
    """Return a publish up to its content header, without the body."""
    head = method(channel, methods.BasicPublish(routing_key=routing_key))
    return head + frame(FRAME_HEADER, channel, content_header(body_size))


def publish(
    channel: int,
    body: bytes = b"",
    *,
    exchange: str = "",
    routing_key: str = "",
    properties: Properties | bytes = b"\0\0",
    mandatory: bool = False,
) -> bytes:
    """Return a publish whose body fits one frame."""
    head = methods.BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    whole = method(channel, head) + frame(FRAME_HEADER, channel, content_header(len(body), properties))
    return whole + (frame(FRAME_BODY, channel, body) if body else b"")


def flood(victim: socket.socket, data: bytes, *, seconds: float, most: int = 1 << 62) -> int:
    """Send `data` again and again, always whole, until the node takes no more, ends the connection, or it is enough.

    seconds, most: when it is enough; most is in bytes.   Returns: the bytes sent.
    """
    victim.settimeout(STALL_S)
    end = time.monotonic() + seconds
    view = memoryview(data)
    sent = 0
    try:
        while time.monotonic() < end and sent < most:
            at = 0
            while at < len(data):
                taken = victim.send(view[at : at + _PIECE_BYTES])
                at += taken
                sent += taken
    except (TimeoutError, ConnectionError):
        pass
    return sent


def deaf(node: NodeProcess) -> Connection:
    """Return an open connection with channel 1, whose client reads nothing more."""
    connection = Connection(node)
    connection.channel(1)
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, DEAF_BUFFER_BYTES)
    return connection


def settled(connection: Connection, channel: int = 1, within: float = 60.0) -> None:
    """Wait until the node has handled everything that was sent on the channel and has nothing to answer."""
    connection.send(methods.AccessRequest, channel)
    connection.expect(methods.AccessRequestOk, channel, within)
