"""The load generator's own encoder of AMQP 0-9-1: the frames that it sends, and those that it expects.

Everything is built before the clock starts: sequences of publishes, blocks of acks, and for each
delivery the exact bytes that must arrive. Sources: amqp-behaviour §10 (methods, content header), §0.4.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FRAME_METHOD, FRAME_HEADER, FRAME_BODY = 1, 2, 3
FRAME_END = 206
FRAME_OVERHEAD_BYTES = 8
FRAME_BYTES_MAX = 131_072
"""RabbitMQ's default frame_max, by which the buffers are cut."""
ACK_FRAME_BYTES = 21
ACK_BLOCK_TAGS = 16_384

# The (class, method) ids of the methods that the generator sends or waits for.
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
CONNECTION_CLOSE, CONNECTION_CLOSE_OK = (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 10), (20, 11), (20, 40), (20, 41)
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
EXCHANGE_DELETE, EXCHANGE_DELETE_OK = (40, 20), (40, 21)
QUEUE_DECLARE, QUEUE_DECLARE_OK, QUEUE_BIND, QUEUE_BIND_OK = (50, 10), (50, 11), (50, 20), (50, 21)
QUEUE_DELETE, QUEUE_DELETE_OK = (50, 40), (50, 41)
QOS, QOS_OK, CONSUME, CONSUME_OK = (60, 10), (60, 11), (60, 20), (60, 21)
CANCEL, CANCEL_OK, PUBLISH, DELIVER, ACK = (60, 30), (60, 31), (60, 40), (60, 60), (60, 80)
NACK = (60, 120)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)


def short_string(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def long_string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def string_table(entries: dict[str, str]) -> bytes:
    """Return a field table whose values are all longstr."""
    return long_string(b"".join(short_string(k) + b"S" + long_string(v.encode()) for k, v in entries.items()))


def frame(frame_type: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", frame_type, channel, len(payload)) + payload + bytes([FRAME_END])


def method(channel: int, ids: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(FRAME_METHOD, channel, struct.pack(">HH", *ids) + arguments)


class Properties(NamedTuple):
    """The flag word of a content header and the encoded values of its properties."""

    flags: int = 0
    values: bytes = b""


NO_PROPERTIES = Properties()
PERSISTENT = Properties(1 << 12, b"\x02")


def typical_properties(message_id: str, timestamp_s: int) -> Properties:
    """Return the properties that client libraries usually set: content-type, delivery-mode 1, message-id, timestamp."""
    flags = 1 << 15 | 1 << 12 | 1 << 7 | 1 << 6
    values = short_string("application/json") + b"\x01" + short_string(message_id)
    return Properties(flags, values + struct.pack(">Q", timestamp_s))


def header_properties(headers: dict[str, str]) -> Properties:
    return Properties(1 << 13, string_table(headers))


def content(channel: int, properties: Properties, body: bytes) -> bytes:
    """Return the content header frame and the body frames of one message."""
    header = struct.pack(">HHQH", 60, 0, len(body), properties.flags) + properties.values
    step = FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES
    bodies = (frame(FRAME_BODY, channel, body[at : at + step]) for at in range(0, len(body), step))
    return frame(FRAME_HEADER, channel, header) + b"".join(bodies)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is published and as it must be delivered."""

    exchange: str
    routing_key: str
    body: bytes
    properties: Properties = NO_PROPERTIES

    def publish(self, channel: int = 1) -> bytes:
        arguments = b"\0\0" + short_string(self.exchange) + short_string(self.routing_key) + b"\0"
        return method(channel, PUBLISH, arguments) + content(channel, self.properties, self.body)


def numbered_body(index: int, size_bytes: int) -> bytes:
    """Return a body of `size_bytes`, at least 8, that begins with `index` in hexadecimal to identify the message."""
    stem = b"%08x" % index
    return (stem + b"fluffle-bench-" * (size_bytes // 14 + 1))[:size_bytes]


class DeliveryShape:
    """The form of all deliveries to one consumer channel: they have equal length, and each byte is known.

    The equal length lets a consumer count by bytes; `check` compares a sample with the expected bytes.
    `ordered`: the delivery with tag t has message (t - 1) mod len(messages). Otherwise the message is looked up by
    the number that its body begins with. `consumer_tags_of[i]` names the consumers that may get message i.
    `redelivered_or_not`: the redelivered flag may be set; otherwise it must not be.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        consumer_tag: str = "",
        consumer_tags_of: Sequence[frozenset[bytes]] | None = None,
        channel: int = 1,
        ordered: bool = True,
        redelivered_or_not: bool = False,
    ) -> None:
        self.ordered = ordered
        self._redelivered_or_not = redelivered_or_not
        self._tags_of = consumer_tags_of or [frozenset([consumer_tag.encode()])] * len(messages)
        self._tag_length = len(next(iter(self._tags_of[0])))
        self._tails = [_delivery_tail(message, channel) for message in messages]
        first = messages[0]
        payload_bytes = (
            4 + 1 + self._tag_length + 8 + 1 + 1 + len(first.exchange) + 1 + len(first.routing_key)
        )
        self._head = struct.pack(">BHIHHB", FRAME_METHOD, channel, payload_bytes, *DELIVER, self._tag_length)
        tail_bytes = len(self._tails[0])
        assert {len(tail) for tail in self._tails} == {tail_bytes}, "all deliveries must have one length"
        self.size_bytes = len(self._head) + self._tag_length + 8 + tail_bytes
        self._number_at = self.size_bytes - len(first.body) - 1
        self._redelivered_at = len(self._head) + self._tag_length + 8

    def expected(self, delivery_tag: int, index: int, consumer_tag: bytes) -> bytes:
        return self._head + consumer_tag + struct.pack(">Q", delivery_tag) + self._tails[index]

    def check(self, data: bytes, delivery_tag: int) -> bool:
        """True if `data`, a delivery or the beginning of one, has the expected bytes for `delivery_tag`."""
        if self.ordered:
            index = (delivery_tag - 1) % len(self._tails)
        elif len(data) < self.size_bytes:
            return data[: len(self._head)] == self._head[: len(data)]
        else:
            try:
                index = int(data[self._number_at : self._number_at + 8], 16)
            except ValueError:
                return False
            if not 0 <= index < len(self._tails):
                return False
        at = self._redelivered_at
        if self._redelivered_or_not and data[at : at + 1] == b"\1":
            data = data[:at] + b"\0" + data[at + 1 :]
        return any(
            data == self.expected(delivery_tag, index, tag)[: len(data)] for tag in self._tags_of[index]
        )


def _delivery_tail(message: Message, channel: int) -> bytes:
    """Return the bytes after the delivery tag: redelivered (0), exchange, key, end of frame, content."""
    names = b"\0" + short_string(message.exchange) + short_string(message.routing_key)
    return names + bytes([FRAME_END]) + content(channel, message.properties, message.body)


class Chunk(NamedTuple):
    """A buffer of complete publishes that is sent in one call, and the number of deliveries that it must cause."""

    data: bytes
    message_count: int
    delivery_count: int


def chunks(messages: Iterable[Message], copies: Sequence[int], *, chunk_bytes: int) -> list[Chunk]:
    """Return publishes in buffers of at least `chunk_bytes`.   copies: by message, its number of deliveries."""
    done: list[Chunk] = []
    parts: list[bytes] = []
    size = deliveries = 0
    for message, count in zip(messages, copies, strict=True):
        parts.append(message.publish())
        size += len(parts[-1])
        deliveries += count
        if size >= chunk_bytes:
            done.append(Chunk(b"".join(parts), len(parts), deliveries))
            parts, size, deliveries = [], 0, 0
    if parts:
        done.append(Chunk(b"".join(parts), len(parts), deliveries))
    return done


def ack(channel: int, delivery_tag: int, *, multiple: bool) -> bytes:
    return method(channel, ACK, struct.pack(">QB", delivery_tag, multiple))


def ack_block(channel: int, first_tag: int, count: int) -> bytes:
    """Return `count` basic.ack frames for consecutive tags. Strided copies avoid a loop in Python."""
    block = bytearray(ack(channel, 0, multiple=False) * count)
    tags = array("Q", range(first_tag, first_tag + count))
    tags.byteswap()  # the machines that this runs on are little-endian, the wire is big-endian
    tag_bytes = tags.tobytes()
    for i in range(8):
        block[11 + i :: ACK_FRAME_BYTES] = tag_bytes[i::8]
    return bytes(block)


class AckFrames:
    """Individual acks for any range of delivery tags, cut from blocks that are built in advance."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self._block_index = -1
        self._block = memoryview(b"")

    def frames(self, first_tag: int, count: int) -> bytes:
        """Return acks for `count` tags from `first_tag` on."""
        parts = []
        while count:
            block_index, at = divmod(first_tag - 1, ACK_BLOCK_TAGS)
            if block_index != self._block_index:
                self._block_index = block_index
                first = block_index * ACK_BLOCK_TAGS + 1
                self._block = memoryview(ack_block(self.channel, first, ACK_BLOCK_TAGS))
            taken = min(count, ACK_BLOCK_TAGS - at)
            parts.append(self._block[at * ACK_FRAME_BYTES : (at + taken) * ACK_FRAME_BYTES])
            first_tag += taken
            count -= taken
        return b"".join(parts)


class FrameReader:
    """A parser of frames from a broker. It is for few messages, since it needs time for each frame."""

    _HEAD = struct.Struct(">BHI")

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return type and payload of each complete frame, of any channel."""
        data = self._rest + data
        found = []
        at = 0
        while at + FRAME_OVERHEAD_BYTES <= len(data):
            frame_type, _, size = self._HEAD.unpack_from(data, at)
            end = at + FRAME_OVERHEAD_BYTES + size
            if end > len(data):
                break
            found.append((frame_type, data[at + self._HEAD.size : end - 1]))
            at = end
        self._rest = data[at:]
        return found


class ConfirmTracker:
    """A counter of confirmed publishes, which reads a broker's acks: frames of one fixed size, single or multiple.

    Raises: ValueError for anything that is not a basic.ack, and for a tag confirmed twice or never published.
    """

    _ACKS = struct.Struct(">BHIHHQBB")

    def __init__(self, channel: int = 1) -> None:
        self._constant = (FRAME_METHOD, channel, 13, *ACK)
        self.low = 0  # every tag up to here is confirmed
        self._ahead: set[int] = set()
        self._rest = b""

    @property
    def confirmed_count(self) -> int:
        return self.low + len(self._ahead)

    def confirmed(self, tag: int) -> bool:
        return tag <= self.low or tag in self._ahead

    def feed(self, data: bytes, published_count: int) -> None:
        data = self._rest + data
        whole = len(data) - len(data) % ACK_FRAME_BYTES
        self._rest = data[whole:]
        for *constant, tag, multiple, end in self._ACKS.iter_unpack(data[:whole]):
            if tuple(constant) != self._constant or end != FRAME_END or not self.low < tag <= published_count:
                raise ValueError(f"not an ack of an open publish: {constant} tag {tag}, {self.low} confirmed")
            if multiple:
                self.low = tag
                self._ahead = {t for t in self._ahead if t > tag}
            elif tag in self._ahead:
                raise ValueError(f"publish {tag} confirmed twice")
            else:
                self._ahead.add(tag)
            while self.low + 1 in self._ahead:
                self.low += 1
                self._ahead.remove(self.low)


class ConfirmWaits:
    """The latency of the confirm of every `each`th publish, from the time at which the publish's buffer was sent.

    Publishes are sampled, not buffers, so the number of publishes that a broker confirms at once has no effect.
    """

    def __init__(self, each: int) -> None:
        self._each = each
        self._open: list[tuple[int, float]] = []
        self.waits_s: list[float] = []

    def sent(self, first_tag: int, count: int, at_s: float) -> None:
        """Note that `count` publishes from `first_tag` on were sent in one buffer, whose sending began at `at_s`."""
        first = -(-first_tag // self._each) * self._each
        self._open += [(tag, at_s) for tag in range(first, first_tag + count, self._each)]

    def take(self, tracker: ConfirmTracker, at_s: float) -> None:
        """Record the confirms that `tracker` has read from the bytes that arrived at `at_s`."""
        still_open = []
        for tag, sent_at_s in self._open:
            if tracker.confirmed(tag):
                self.waits_s.append(at_s - sent_at_s)
            else:
                still_open.append((tag, sent_at_s))
        self._open = still_open
