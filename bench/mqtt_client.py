"""A client of MQTT 3.1.1 for the load generator: prepared packets out, packets of one length in.

All messages of a workload have one topic and one length, so a packet's place in what was read follows from its number,
and acknowledgements of many messages are made with a few slices.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from bench.client import BenchError
from bench.flow import RECEIVE_BUFFER_BYTES, STALL_S
from bench.frames import numbered_body

PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70

ACK_BYTES: Final = 4
PACKET_IDS: Final = 60_000
"""The packet identifiers of publishes, from 1 on, in turn."""

BODY_BYTES: Final = 100


def string(text: str) -> bytes:
    """Return a text with its length in front."""
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    """Return a packet.   first: its first byte."""
    size = len(body)
    length = bytes((size,)) if size < 128 else bytes((size & 0x7F | 0x80, size >> 7))
    assert size < 16_384, "two bytes of length are enough here"
    return bytes((first,)) + length + body


def connect_packet(client_id: str, keep_alive_s: int = 0) -> bytes:
    """Return a CONNECT of the user guest with a clean session."""
    head = string("MQTT") + bytes((4, 0xC2)) + struct.pack(">H", keep_alive_s)
    return packet(0x10, head + string(client_id) + string("guest") + string("guest"))


CONNACK: Final = b"\x20\x02\0\0"


def publish_packet(topic: str, qos: int, packet_id: int, body: bytes) -> bytes:
    """Return a PUBLISH.   packet_id: not used with QoS 0."""
    identifier = struct.pack(">H", packet_id) if qos else b""
    return packet(PUBLISH | qos << 1, string(topic) + identifier + body)


class Shape(NamedTuple):
    """The form of all PUBLISH packets of a topic and QoS.   id_at: where the packet identifier stands."""

    size_bytes: int
    id_at: int


def shape(topic: str, qos: int) -> Shape:
    """Return the shape of messages of `BODY_BYTES`."""
    size_bytes = len(publish_packet(topic, qos, 1, bytes(BODY_BYTES)))
    return Shape(size_bytes, size_bytes - BODY_BYTES - 2)


def cycle(topic: str, qos: int, count: int) -> bytes:
    """Return PUBLISH packets with numbered bodies, and the packet identifiers from 1 on."""
    return b"".join(publish_packet(topic, qos, i + 1, numbered_body(i, BODY_BYTES)) for i in range(count))


def acks(first: int, data: bytes | bytearray, shape: Shape) -> bytearray:
    """Return the acknowledgements of PUBLISH packets.   first: their first byte.   data: whole packets, one by one."""
    size, at = shape
    count = len(data) // size
    found = bytearray(ACK_BYTES * count)
    found[0::4] = bytes((first,)) * count
    found[1::4] = b"\x02" * count
    found[2::4] = data[at::size]
    found[3::4] = data[at + 1 :: size]
    return found


class Split(NamedTuple):
    """The packets that were read, by kind.   publishes, acks: whole packets.   rest: the begin of one."""

    publishes: bytes
    acks: bytes
    rest: bytes


def split(data: bytes, shape: Shape) -> Split:
    """Take PUBLISH packets and acknowledgements apart. Raises: BenchError for any other packet."""
    publishes: list[bytes] = []
    answers: list[bytes] = []
    at, end, size = 0, len(data), shape.size_bytes
    while at < end:
        start = at
        kind = data[at] & 0xF0
        step = size if kind == PUBLISH else ACK_BYTES
        if kind not in (PUBLISH, PUBACK, PUBREC, PUBREL & 0xF0, PUBCOMP):
            raise BenchError(f"a packet that was not expected: {data[at : at + 64]!r}")
        first = data[at]
        while at + step <= end and data[at] == first:
            at += step
        if at == start:
            break
        (publishes if kind == PUBLISH else answers).append(data[start:at])
    return Split(b"".join(publishes), b"".join(answers), data[at:])


def kinds(answers: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield runs of acknowledgements of one kind: their first byte, and the packets."""
    at, end = 0, len(answers)
    while at < end:
        start, first = at, answers[at]
        while at < end and answers[at] == first:
            at += ACK_BYTES
        yield first, answers[start:at]


def turned(first: int, answers: bytes) -> bytearray:
    """Return acknowledgements with the same packet identifiers and another first byte."""
    found = bytearray(answers)
    found[0::4] = bytes((first,)) * (len(answers) // ACK_BYTES)
    return found


class MqttSocket:
    """A connection that is logged in, with a clean session."""

    def __init__(self, port: int, client_id: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STALL_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        self.socket.sendall(connect_packet(client_id))
        self._expect(CONNACK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def subscribe(self, filter_: str, qos: int) -> None:
        """Subscribe, and wait for the answer. Raises: BenchError if another QoS is granted."""
        self.socket.sendall(packet(0x82, b"\0\x01" + string(filter_) + bytes((qos,))))
        self._expect(bytes((0x90, 3, 0, 1, qos)))

    def _expect(self, answer: bytes) -> None:
        found = b""
        while len(found) < len(answer):
            data = self.socket.recv(len(answer) - len(found))
            if not data:
                break
            found += data
        if found != answer:
            raise BenchError(f"{answer!r} was expected, and {found!r} came")

    def close(self) -> None:
        """Disconnect in good order."""
        try:
            self.socket.sendall(b"\xe0\0")
        finally:
            self.socket.close()
