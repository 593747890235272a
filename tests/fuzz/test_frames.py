"""Any bytes on a link, cut in any way, are frames or a fault, and take no more memory than the biggest frame."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.transport.frames import (
    HANDSHAKE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    FrameType,
    encode,
)
from tests.kit.link_frames import read

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


@given(streams, cuts, st.booleans())
def test_any_bytes_in_any_splits_are_the_same_frames(data: bytes, sizes: list[int], is_open: bool) -> None:
    """The reads do not matter, and the frames, encoded again, are the beginning of the stream."""
    found = read(data, sizes, is_open=is_open)
    assert found == read(data, [1 << 20], is_open=is_open) == read(data, [1], is_open=is_open)
    frames, _ = found
    assert data.startswith(b"".join(encode(*frame) for frame in frames))
