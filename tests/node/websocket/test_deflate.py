"""permessage-deflate: RFC 7692 §7."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.websocket.deflate import (
    DEFLATED_MAX_BYTES,
    DEFLATED_MIN_BYTES,
    INFLATED_PIECE_BYTES,
    OFFERS_MAX,
    DamagedData,
    Inflater,
    agree,
    deflated,
)
from tests.kit.websocket_frames import deflated_message, inflated_message

NO_WINDOWS = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
HELLO = bytes.fromhex("f248cdc9c90700")
"""The message "Hello" of RFC 7692 §7.2.3.1."""


def inflated(data: bytes, size: int = 1 << 20) -> bytes:
    """Return what a message in pieces of a size inflates to."""
    inflater, found = Inflater(), b""
    for at in range(0, max(1, len(data)), size):
        found += b"".join(inflater.feed(data[at : at + size], is_end=at + size >= len(data)))
    return found


@pytest.mark.parametrize(
    ("offers", "header"),
    [
        (["permessage-deflate"], NO_WINDOWS),
        (["permessage-deflate; client_max_window_bits"], NO_WINDOWS),
        (["Permessage-Deflate;client_max_window_bits=8"], NO_WINDOWS),
        (["permessage-deflate; server_no_context_takeover; client_no_context_takeover"], NO_WINDOWS),
        (["permessage-deflate; server_max_window_bits=15"], NO_WINDOWS),
        (['permessage-deflate; server_max_window_bits="10"'], f"{NO_WINDOWS}; server_max_window_bits=10"),
        (["permessage-bzip2", "permessage-deflate"], NO_WINDOWS),
        (
            ["permessage-deflate; server_max_window_bits=8", "permessage-deflate; server_max_window_bits=9"],
            f"{NO_WINDOWS}; server_max_window_bits=9",
        ),
    ],
)
def test_the_first_offer_that_fits_is_taken(offers: list[str], header: str) -> None:
    found = agree(offers)
    assert found is not None
    assert found.header == header


@pytest.mark.parametrize(
    "offer",
    [
        "",
        "x-webkit-deflate-frame",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=8",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=09",
        "permessage-deflate; client_max_window_bits=16",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; client_max_window_bits; client_max_window_bits",
        "permessage-deflate; unknown",
    ],
)
def test_other_offers_are_declined(offer: str) -> None:
    """RFC 7692 §7.1: one with a parameter that is unknown, invalid or there twice is declined."""
    assert agree([offer]) is None
    assert agree([offer, "permessage-deflate"]) is not None


def test_offers_are_bounded() -> None:
    assert agree(["unknown"] * OFFERS_MAX + ["permessage-deflate"]) is None
    assert agree([]) is None


@given(st.binary(max_size=4000), st.integers(9, 15))
def test_what_is_deflated_is_inflated_again(data: bytes, bits: int) -> None:
    data *= 3
    found = deflated(data, bits)
    if found is not None:
        assert len(found) < len(data)
        assert inflated_message(found) == data


def test_sizes_that_are_compressed() -> None:
    for size in (DEFLATED_MIN_BYTES, DEFLATED_MAX_BYTES):
        assert deflated(bytes(size), 15) is not None
    for size in (DEFLATED_MIN_BYTES - 1, DEFLATED_MAX_BYTES + 1):
        assert deflated(bytes(size), 15) is None


def test_what_does_not_become_smaller_is_sent_as_it_is() -> None:
    assert deflated(bytes(range(256)), 15) is None


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_messages_are_inflated_in_any_pieces(data: bytes, size: int) -> None:
    assert inflated(deflated_message(data * 5), size) == data * 5


def test_examples_of_the_standard() -> None:
    """RFC 7692 §7.2.3: compressed, without compression, with a last block, in two blocks."""
    assert inflated(HELLO) == b"Hello"
    assert inflated(bytes.fromhex("000500faff48656c6c6f00")) == b"Hello"
    assert inflated(bytes.fromhex("f348cdc9c9070000")) == b"Hello"
    assert inflated(bytes.fromhex("f248050000 00ffffcac9c90700")) == b"Hello"
    assert inflated(b"\x00") == b"", "7.2.3.6: a message without data"


def test_each_size_around_a_piece_comes_whole() -> None:
    """zlib keeps what does not fit a piece even after it has taken all input."""
    for size in (*range(INFLATED_PIECE_BYTES - 3, INFLATED_PIECE_BYTES + 4), 4 * INFLATED_PIECE_BYTES):
        data = bytes(size)
        assert inflated(deflated_message(data)) == data
        assert inflated(deflated_message(data), 1) == data


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", bytes.fromhex("f348cdc9c9070000") + HELLO, b"\x07" * 20],
)
def test_other_data_are_damaged(data: bytes) -> None:
    for size in (1 << 20, 1):
        with pytest.raises(DamagedData):
            inflated(data, size)


@given(st.binary(max_size=300))
def test_any_bytes_are_inflated_or_damaged(data: bytes) -> None:
    try:
        whole = inflated(data)
    except DamagedData:
        with pytest.raises(DamagedData):
            inflated(data, 1)
    else:
        assert inflated(data, 1) == whole


def test_a_bomb_costs_a_piece_at_a_time() -> None:
    """16 MiB in 16 KiB: the memory is that of a piece, as long as each is dropped."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    bomb = b"".join(packer.compress(block) for _ in range(16)) + packer.flush(zlib.Z_SYNC_FLUSH)
    tracemalloc.start()
    size = sum(len(piece) for piece in Inflater().feed(bomb, is_end=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 16 << 20
    assert peak < 1 << 20
