"""The bytes that the load generator builds and expects."""

import struct

import pytest

from bench.frames import (
    ACK_BLOCK_TAGS,
    ACK_FRAME_BYTES,
    AckFrames,
    ConfirmTracker,
    ConfirmWaits,
    DeliveryShape,
    FrameReader,
    Message,
    Properties,
    ack,
    ack_block,
    chunks,
    content,
    header_properties,
    numbered_body,
    string_table,
    typical_properties,
)


def test_publish_is_method_header_and_body_frames() -> None:
    method = b"\x01\0\x01\0\0\0\x0a\0\x3c\0\x28\0\0\0\x01q\0\xce"
    header = b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\x02\0\0\xce"
    assert Message("", "q", b"ab").publish() == method + header + b"\x03\0\x01\0\0\0\x02ab\xce"


def test_frames_are_read_from_any_pieces() -> None:
    """A frame counts when its last byte is there."""
    data = Message("", "q", b"ab").publish()
    reader = FrameReader()
    found = [frame for at in range(len(data)) for frame in reader.feed(data[at : at + 1])]
    assert [frame_type for frame_type, _ in found] == [1, 2, 3]
    assert found[2][1] == b"ab"
    assert FrameReader().feed(data) == found


def test_content_is_cut_at_frame_max() -> None:
    data = content(1, Properties(), bytes(131_065))
    # amqp-behaviour §1.4, the trap: frame_max less 8.
    assert data[22:29] == b"\x03\0\x01" + (131_064).to_bytes(4, "big")
    assert data[-9:] == b"\x03\0\x01\0\0\0\x01\0\xce"


def test_empty_body_has_no_body_frame() -> None:
    assert content(1, Properties(), b"") == b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0" + bytes(8) + b"\0\0\xce"


def test_typical_properties() -> None:
    properties = typical_properties("id", 1)
    assert properties.flags == 0b1001_0000_1100_0000
    assert properties.values == b"\x10application/json\x01\x02id" + struct.pack(">Q", 1)


def test_header_properties() -> None:
    assert header_properties({"a": "b"}) == (1 << 13, b"\0\0\0\x08\x01aS\0\0\0\x01b")
    assert string_table({}) == b"\0\0\0\0"


def test_ack_block_equals_single_acks() -> None:
    first = (1 << 40) - 3  # carries into every byte
    assert ack_block(2, first, 7) == b"".join(ack(2, first + i, multiple=False) for i in range(7))


def test_ack_frames_across_blocks() -> None:
    frames = AckFrames(1).frames(ACK_BLOCK_TAGS - 1, 5)
    expected = [ack(1, ACK_BLOCK_TAGS - 1 + i, multiple=False) for i in range(5)]
    assert frames == b"".join(expected)
    assert len(frames) == 5 * ACK_FRAME_BYTES


def delivery(tag: int, message: Message, consumer_tag: str = "c", channel: int = 1) -> bytes:
    """An independent spelling of basic.deliver with content."""
    payload = b"\0\x3c\0\x3c" + bytes([len(consumer_tag)]) + consumer_tag.encode() + struct.pack(">Q", tag)
    payload += b"\0" + bytes([len(message.exchange)]) + message.exchange.encode()
    payload += bytes([len(message.routing_key)]) + message.routing_key.encode()
    method = b"\x01" + struct.pack(">HI", channel, len(payload)) + payload + b"\xce"
    return method + content(channel, message.properties, message.body)


MESSAGES = [Message("x", f"k{i}", numbered_body(i, 20)) for i in range(3)]


@pytest.mark.parametrize("channel", [1, 2])
def test_ordered_shape_knows_each_delivery(channel: int) -> None:
    shape = DeliveryShape(MESSAGES, consumer_tag="c", channel=channel)
    for tag in range(1, 8):
        data = delivery(tag, MESSAGES[(tag - 1) % 3], channel=channel)
        assert len(data) == shape.size_bytes
        assert shape.check(data, tag)
        assert shape.check(data[:17], tag)
        assert not shape.check(data, tag + 3), "another delivery tag"
        assert not shape.check(delivery(tag, MESSAGES[tag % 3], channel=channel), tag), "out of order"


@pytest.mark.parametrize("at", [0, 2, 11, 12, 20, 21, 30, 45, -2, -1])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_changed_byte_is_seen(at: int, ordered: bool) -> None:
    data = bytearray(delivery(2, MESSAGES[1]))
    data[at] ^= 0x40
    assert not DeliveryShape(MESSAGES, consumer_tag="c", ordered=ordered).check(bytes(data), 2)


def test_unordered_shape_finds_the_message_and_its_consumer() -> None:
    allowed = [frozenset([b"c0"]), frozenset([b"c1", b"c2"]), frozenset([b"c2"])]
    shape = DeliveryShape(MESSAGES, consumer_tags_of=allowed, ordered=False)
    assert shape.check(delivery(9, MESSAGES[1], "c1"), 9)
    assert shape.check(delivery(9, MESSAGES[1], "c2"), 9)
    assert not shape.check(delivery(9, MESSAGES[1], "c0"), 9), "not bound to that queue"
    assert not shape.check(delivery(9, MESSAGES[1], "c1"), 8)
    assert not shape.check(delivery(9, Message("x", "k1", numbered_body(7, 20)), "c1"), 9), "never published"


@pytest.mark.parametrize("ordered", [True, False])
def test_redelivered_is_an_error_unless_it_may_be(ordered: bool) -> None:
    """After a restart the flag may be set; nothing else may differ."""
    strict = DeliveryShape(MESSAGES, consumer_tag="c", ordered=ordered)
    lenient = DeliveryShape(MESSAGES, consumer_tag="c", ordered=ordered, redelivered_or_not=True)
    data = bytearray(delivery(2, MESSAGES[1]))
    assert lenient.check(bytes(data), 2)
    data[21] = 1  # frame 7, method 4, tag 2, delivery tag 8
    assert lenient.check(bytes(data), 2)
    assert lenient.check(bytes(data[:10]), 2)
    assert not strict.check(bytes(data), 2)
    data[21] = 2
    assert not lenient.check(bytes(data), 2)


def test_chunks_hold_whole_publishes() -> None:
    size = len(MESSAGES[0].publish())
    found = chunks(MESSAGES, [1, 2, 4], chunk_bytes=size + 1)
    assert [(c.message_count, c.delivery_count) for c in found] == [(2, 3), (1, 4)]
    assert b"".join(c.data for c in found) == b"".join(message.publish() for message in MESSAGES)


def test_confirms_single_and_multiple_byte_by_byte() -> None:
    tracker = ConfirmTracker()
    data = ack(1, 2, multiple=False) + ack(1, 4, multiple=False) + ack(1, 3, multiple=True)
    counts = []
    for i in range(len(data)):
        tracker.feed(data[i : i + 1], 5)
        counts.append(tracker.confirmed_count)
    assert counts[20::21] == [1, 2, 4]
    assert tracker.low == 4


@pytest.mark.parametrize(
    "data",
    [
        ack(1, 1, multiple=False) * 2,
        ack(1, 2, multiple=False) * 2,
        ack(1, 6, multiple=False),
        ack(2, 1, multiple=False),
        ack(1, 0, multiple=True),
        ack(1, 1, multiple=False).replace(b"\0\x3c\0\x50", b"\0\x3c\0\x78"),
    ],
    ids=["twice", "twice ahead", "never published", "channel", "tag 0", "nack"],
)
def test_wrong_confirms_are_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match="confirm"):
        ConfirmTracker().feed(data, 5)


def test_waits_of_every_hundredth_publish() -> None:
    """Each from the sending of its buffer to the arrival of its confirm, whatever the order."""
    waits, tracker = ConfirmWaits(100), ConfirmTracker()
    waits.sent(1, 250, 10.0)  # 100, 200
    waits.sent(251, 49, 11.0)  # none
    waits.sent(300, 1, 12.0)  # 300
    tracker.feed(ack(1, 99, multiple=True) + ack(1, 200, multiple=False), 300)
    waits.take(tracker, 13.0)
    assert waits.waits_s == [3.0]
    tracker.feed(ack(1, 100, multiple=False), 300)
    waits.take(tracker, 15.0)
    tracker.feed(ack(1, 300, multiple=True), 300)
    waits.take(tracker, 16.0)
    waits.take(tracker, 17.0)
    assert waits.waits_s == [3.0, 5.0, 4.0]
