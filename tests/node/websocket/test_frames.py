"""Frames: RFC 6455 §5 and §8.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.websocket.frames import (
    BAD_DATA,
    NO_CODE,
    PROTOCOL_ERROR,
    Closing,
    Event,
    FrameDecoder,
    Opcode,
    Payload,
    Ping,
    WebSocketError,
    close_frame,
    frame,
    masked,
)
from tests.kit.websocket_frames import (
    BINARY,
    CLOSE,
    MASK,
    PING,
    PONG,
    TEXT,
    ServerFrame,
    client_frame,
    deflated_message,
    server_frames,
)


def decoded(data: bytes, size: int = 1 << 20, *, can_inflate: bool = False) -> list[Event]:
    """Return the events of data in pieces, with payloads that follow each other as one."""
    decoder, found = FrameDecoder(can_inflate=can_inflate), list[Event]()
    for at in range(0, len(data), size):
        for event in decoder.feed(data[at : at + size]):
            if isinstance(event, Payload) and found and isinstance(found[-1], Payload):
                found[-1] = Payload(found[-1].data + event.data, event.is_inflated)
            else:
                found.append(event)
    return found


def fault(data: bytes) -> int:
    with pytest.raises(WebSocketError) as error:
        decoded(data)
    with pytest.raises(WebSocketError):
        decoded(data, 1)
    return error.value.code


@given(st.binary(max_size=70), st.binary(min_size=4, max_size=4))
def test_masking_twice_changes_nothing(data: bytes, mask: bytes) -> None:
    assert masked(data, mask) == bytes(octet ^ mask[at % 4] for at, octet in enumerate(data))
    assert masked(masked(data, mask), mask) == data


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_of_all_lengths(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    assert server_frames(frame(Opcode.BINARY, payload)) == [ServerFrame(BINARY, payload)]
    assert (
        b"".join(e.data for e in decoded(client_frame(BINARY, payload)) if isinstance(e, Payload)) == payload
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 1000])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    data = (
        client_frame(TEXT, "grün".encode()[:3], final=False)
        + client_frame(PING, b"in between")
        + client_frame(0, "grün".encode()[3:] + b"!", final=False)
        + client_frame(PONG, b"")
        + client_frame(0, b"")
        + client_frame(BINARY, b"\xff" * 300)
        + client_frame(CLOSE, (1000).to_bytes(2, "big"))
        + b"what comes after it is not looked at"
    )
    events = decoded(data, size)
    payloads = b"".join(event.data for event in events if isinstance(event, Payload))
    assert payloads == "grün!".encode() + b"\xff" * 300
    assert [event for event in events if not isinstance(event, Payload)] == [
        Ping(b"in between"),
        Closing(1000),
    ]


@pytest.mark.parametrize(
    "data",
    [
        bytes((0x82, 0x01)) + b"x",
        client_frame(0x40 | TEXT, b"a"),
        client_frame(3, b""),
        client_frame(11, b""),
        client_frame(0, b"nothing to continue"),
        client_frame(TEXT, b"a", final=False) + client_frame(TEXT, b"b"),
        client_frame(PING, b"", final=False),
        client_frame(PING, b"a" * 126),
        bytes((0x82, 0xFF)) + b"\xff" * 8 + MASK,
        client_frame(CLOSE, b"\x03"),
        client_frame(CLOSE, (1005).to_bytes(2, "big")),
        client_frame(CLOSE, (999).to_bytes(2, "big")),
        client_frame(CLOSE, (5000).to_bytes(2, "big")),
    ],
)
def test_faults_of_the_protocol(data: bytes) -> None:
    assert fault(data) == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "data",
    [
        client_frame(TEXT, b"\xff"),
        client_frame(TEXT, b"\xc3"),
        client_frame(TEXT, b"\xc3", final=False) + client_frame(0, b""),
        client_frame(TEXT, b"\xed\xa0\x80"),
        client_frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff"),
    ],
)
def test_texts_are_utf_8(data: bytes) -> None:
    assert fault(data) == BAD_DATA


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_compressed_messages(size: int) -> None:
    """RFC 7692 §6.1: the first frame has RSV1; control frames may come between, and other messages need not be
    compressed.
    """
    text = "grün".encode() * 100
    packed = deflated_message(text)
    data = (
        client_frame(TEXT, packed[:5], final=False, is_deflated=True)
        + client_frame(PING, b"in between")
        + client_frame(0, b"", final=False)
        + client_frame(PONG, b"")
        + client_frame(0, packed[5:], final=False)
        + client_frame(0, b"")
        + client_frame(PING, b"as it is")
        + client_frame(TEXT, b"plain")
        + client_frame(PING, b"empty")
        + client_frame(BINARY, b"\0", is_deflated=True)
        + client_frame(BINARY, deflated_message(b"\xff" * 300), is_deflated=True)
    )
    events = decoded(data, size, can_inflate=True)
    others = [event for event in events if not isinstance(event, Payload)]
    assert others == [Ping(b"in between"), Ping(b"as it is"), Ping(b"empty")]
    payloads = [event for event in events if isinstance(event, Payload)]
    assert b"".join(event.data for event in payloads) == text + b"plain" + b"\xff" * 300
    assert [event.is_inflated for event in payloads[-2:]] == [False, True]


@pytest.mark.parametrize(
    "data",
    [
        client_frame(0x20 | TEXT, b"a"),
        client_frame(PING, b"", is_deflated=True),
        client_frame(CLOSE, b"", is_deflated=True),
        client_frame(TEXT, b"\0", final=False, is_deflated=True) + client_frame(0, b"\0", is_deflated=True),
        client_frame(TEXT, b"a", final=False) + client_frame(TEXT, b"\0", is_deflated=True),
    ],
)
def test_the_bit_of_compression_is_for_first_frames(data: bytes) -> None:
    for size in (1 << 20, 1):
        with pytest.raises(WebSocketError) as error:
            decoded(data, size, can_inflate=True)
        assert error.value.code == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "data",
    [
        client_frame(BINARY, b"\xff" * 9, is_deflated=True),
        client_frame(TEXT, deflated_message(b"\xff"), is_deflated=True),
        client_frame(TEXT, deflated_message(b"\xc3"), is_deflated=True),
    ],
)
def test_damaged_messages(data: bytes) -> None:
    for size in (1 << 20, 1):
        with pytest.raises(WebSocketError) as error:
            decoded(data, size, can_inflate=True)
        assert error.value.code == BAD_DATA


def test_a_close_frame_may_have_no_code() -> None:
    assert decoded(client_frame(CLOSE, b"")) == [Closing(NO_CODE)]
    assert decoded(client_frame(CLOSE, (4000).to_bytes(2, "big") + b"why")) == [Closing(4000)]


def test_our_close_frame_is_short() -> None:
    (found,) = server_frames(close_frame(1002, "x" * 500))
    assert found.opcode == CLOSE
    assert len(found.payload) == 125


frames = st.builds(
    client_frame,
    st.sampled_from([0, TEXT, BINARY, CLOSE, PING, PONG, 3]),
    st.binary(max_size=20) | st.sampled_from([b"a" * 130, "ä€😀".encode()]),
    final=st.booleans(),
    mask=st.binary(min_size=4, max_size=4),
    is_deflated=st.booleans(),
)
deflated_frames = st.builds(
    client_frame,
    st.sampled_from([TEXT, BINARY]),
    st.binary(max_size=20).map(deflated_message),
    final=st.booleans(),
    is_deflated=st.just(True),
)


@given(
    st.lists(frames | deflated_frames | st.binary(max_size=20), max_size=8).map(b"".join),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_bytes_in_any_pieces_are_the_same_events(data: bytes, size: int, can_inflate: bool) -> None:
    def outcome(size: int) -> object:
        try:
            return decoded(data, size, can_inflate=can_inflate)
        except WebSocketError as error:
            return error.code

    assert outcome(size) == outcome(1) == outcome(1 << 20)
