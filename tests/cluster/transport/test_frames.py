"""The frames of a link's stream: whatever comes is the frames that were sent, or a fault."""

import contextlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.transport.control import ControlSender
from cluster.transport.frames import (
    CALL,
    CALL_PAYLOAD_BYTES_MAX,
    CONTROL,
    DATA,
    FIRST_BYTE,
    HANDSHAKE_BYTES_MAX,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameFault,
    FrameReader,
    FrameType,
    encode,
    preface,
    read_preface,
)
from cluster.transport.interface import CALL_BYTES_MAX, Topic
from cluster.transport.peer_pb2 import Reply, Request
from cluster.transport.pieces import PIECES_PER_MESSAGE
from cluster.transport.stream import Sender


def read(reader: FrameReader, data: bytes, room_max: int = 1 << 30) -> Iterable[Frame]:
    """Read data as a stream does, as much as the reader has room for, and yield its frames."""
    while data:
        room = reader.buffer()
        assert len(room) > 0
        count = min(len(room), len(data), room_max)
        room[:count] = data[:count]
        room.release()
        reader.received(count)
        data = data[count:]
        while (frame := reader.next()) is not None:
            yield frame


def opened() -> FrameReader:
    reader = FrameReader()
    reader.open()
    return reader


payloads = st.binary(max_size=200) | st.integers(0, PAYLOAD_BYTES_MAX).map(bytes)
frames = st.tuples(st.sampled_from(FrameType), payloads)


@settings(max_examples=60, deadline=None)
@given(st.lists(frames, max_size=6), st.integers(1, 300_000))
def test_frames_come_as_they_were_sent_however_they_are_cut(sent: list[Frame], room_max: int) -> None:
    data = b"".join(encode(*frame) for frame in sent)
    # Byte by byte only where there are few.
    room_max = max(room_max, len(data) // 1000)
    assert list(read(opened(), data, room_max)) == sent


@given(st.binary(max_size=100), st.integers(0, 10_000), st.integers(0, 7))
def test_a_bit_that_turned_is_a_fault(payload: bytes, place: int, bit: int) -> None:
    """A frame with a flipped bit is a fault, or one that never ends; nothing is taken for what it is not."""
    data = bytearray(encode(FrameType.MESSAGE, payload))
    data[place % len(data)] ^= 1 << bit
    with contextlib.suppress(FrameFault):
        assert list(read(opened(), bytes(data))) == []


def test_before_the_handshake_has_ended_frames_are_short() -> None:
    reader = FrameReader()
    biggest = bytes(HANDSHAKE_BYTES_MAX)
    assert list(read(reader, encode(FrameType.HANDSHAKE, biggest))) == [(FrameType.HANDSHAKE, biggest)]
    with pytest.raises(FrameFault, match="a frame of 16,385 bytes, more than 16,384"):
        list(read(reader, encode(FrameType.HANDSHAKE, bytes(HANDSHAKE_BYTES_MAX + 1))[:HEADER_BYTES]))


def test_what_follows_the_handshake_at_once_is_read_after_it() -> None:
    """The last message of a handshake and big frames may come in one read."""
    reader = FrameReader()
    data = encode(FrameType.HANDSHAKE, b"accepted") + encode(FrameType.MESSAGE, bytes(100_000))
    room = reader.buffer()
    count = len(room)
    room[:] = data[:count]
    room.release()
    reader.received(count)
    assert reader.next() == (FrameType.HANDSHAKE, b"accepted")
    reader.open()
    assert reader.next() is None
    assert list(read(reader, data[count:])) == [(FrameType.MESSAGE, bytes(100_000))]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (encode(FrameType.PING)[:4] + b"\0" + bytes(4), "no frame of type 0"),
        (encode(FrameType.PING)[:4] + b"\5" + bytes(4), "no frame of type 5"),
        (encode(FrameType.PING)[:5] + b"\1\2\3\4", "a wrong checksum"),
        ((PAYLOAD_BYTES_MAX + 1).to_bytes(4, "big") + bytes(5), "more than"),
    ],
)
def test_faults(data: bytes, text: str) -> None:
    with pytest.raises(FrameFault, match=text):
        list(read(opened(), data))


def test_the_biggest_messages_fit() -> None:
    """Whatever the senders may put into one message."""
    control, data = ControlSender(), Sender(1 << 63, 1 << 63, 1)
    for sender in (control, data):
        for _ in range(PIECES_PER_MESSAGE):
            sender.push(Topic.RING, b"x" * 15)
        assert len(encode(FrameType.MESSAGE, sender.next_batch())) > 290_000
        sender.push(Topic.RING, bytes(1_000_000))
        while batch := sender.next_batch():
            encode(FrameType.MESSAGE, batch)
    for message in (Request(body=bytes(CALL_BYTES_MAX)), Reply(body=bytes(CALL_BYTES_MAX))):
        data, reader = encode(FrameType.MESSAGE, message.SerializeToString()), FrameReader()
        reader.open(CALL_PAYLOAD_BYTES_MAX)
        assert len(list(read(reader, data))) == 1


@pytest.mark.parametrize("kind", [CONTROL, DATA, CALL])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_preface(kind: int, is_encrypted: bool) -> None:
    data = preface(kind, is_encrypted=is_encrypted)
    assert data[:1] == FIRST_BYTE
    assert read_preface(data, is_encrypted=is_encrypted) == kind
    with pytest.raises(FrameFault, match="has certificates and the other one has none"):
        read_preface(data, is_encrypted=not is_encrypted)
    for changed, text in (
        (data[:-1] + bytes([data[-1] + 5]), "no stream of kind"),
        (data[:-2] + b"\x01" + data[-1:], "different protocols, 1 and 3"),
        (b"\0" + data[1:], "no links of protocol 3"),
    ):
        with pytest.raises(FrameFault, match=text):
            read_preface(changed, is_encrypted=is_encrypted)
