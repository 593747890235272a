"""Any bytes on a link, cut in any way, are frames or a fault, and take no more memory than the biggest frame."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from cluster.transport.frames import (
    HANDSHAKE_BYTES_MAX,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameFault,
    FrameReader,
    FrameType,
    encode,
)

OPENED_BYTES = 64 * 1024
"""The buffer of an open stream before a bigger frame comes."""

whole = st.builds(encode, st.sampled_from(FrameType), st.binary(max_size=60))
damaged = st.tuples(whole, st.integers(0, 1 << 16), st.integers(1, 255)).map(
    lambda each: bytes(
        octet ^ each[2] if place == each[1] % len(each[0]) else octet for place, octet in enumerate(each[0])
    )
)
headers = st.builds(
    lambda size, type_, crc: size.to_bytes(4, "big") + bytes([type_]) + crc,
    st.sampled_from([0, 1, HANDSHAKE_BYTES_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, (1 << 32) - 1])
    | st.integers(0, (1 << 32) - 1),
    st.integers(0, 255),
    st.binary(min_size=4, max_size=4),
)
streams = st.lists(whole | damaged | headers | st.binary(max_size=60), max_size=8).map(b"".join)
cuts = st.lists(st.integers(1, 200), min_size=1, max_size=20)


def read(data: bytes, sizes: list[int], *, is_open: bool) -> tuple[list[Frame], str]:
    """Return the frames and the fault of a stream that comes in reads of these sizes, over and over."""
    reader = FrameReader()
    most = HEADER_BYTES + HANDSHAKE_BYTES_MAX
    if is_open:
        reader.open()
        most = max(OPENED_BYTES, HEADER_BYTES + PAYLOAD_BYTES_MAX)
    frames: list[Frame] = []
    turn = 0
    try:
        while data:
            room = reader.buffer()
            assert len(cast(bytearray, room.obj)) <= most
            count = min(len(room), len(data), sizes[turn % len(sizes)])
            assert count, "no room"
            room[:count] = data[:count]
            room.release()
            reader.received(count)
            data, turn = data[count:], turn + 1
            while (frame := reader.next()) is not None:
                frames.append(frame)
    except FrameFault as error:
        return frames, str(error)
    return frames, ""


@given(streams, cuts, st.booleans())
def test_any_bytes_in_any_splits_are_the_same_frames(data: bytes, sizes: list[int], is_open: bool) -> None:
    """The reads do not matter, and the frames, encoded again, are the beginning of the stream."""
    found = read(data, sizes, is_open=is_open)
    assert found == read(data, [1 << 20], is_open=is_open) == read(data, [1], is_open=is_open)
    frames, _ = found
    assert data.startswith(b"".join(encode(*frame) for frame in frames))
