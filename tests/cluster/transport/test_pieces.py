"""Frames cut in pieces and joined again."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.transport.interface import Topic
from cluster.transport.pieces import (
    PIECE_BYTES,
    PIECES_PER_MESSAGE,
    Joiner,
    Piece,
    PieceFault,
    split,
    take_message,
)

SIZES = st.sampled_from([0, 1, 100, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
LIMIT = 4 * PIECE_BYTES


def messages(pieces: list[Piece]) -> list[list[Piece]]:
    waiting, taken = deque(pieces), []
    while waiting:
        taken.append(take_message(waiting))
    return taken


@settings(deadline=None)
@given(frames=st.lists(st.tuples(st.sampled_from(Topic), SIZES), max_size=8))
def test_frames_come_out_as_they_went_in(frames: list[tuple[Topic, int]]) -> None:
    sent = [(topic, bytes([index]) * size) for index, (topic, size) in enumerate(frames)]
    joiner, came = Joiner(LIMIT), []
    for message in messages([piece for frame in sent for piece in split(*frame)]):
        assert len(message) == 1 or sum(len(content) for _, content in message) <= PIECE_BYTES
        came += joiner.join(bytes(mark for mark, _ in message), [content for _, content in message])
    assert came == sent


def test_small_frames_share_a_message_up_to_a_number() -> None:
    """ring §1a: the number of messages is what costs."""
    assert [len(message) for message in messages([(1, b"")] * (PIECES_PER_MESSAGE + 1))] == [
        PIECES_PER_MESSAGE,
        1,
    ]
    assert [len(message) for message in messages([(1, b"x" * 100)] * 5000)] == [2621, 2379]


@pytest.mark.parametrize(
    ("marks", "pieces", "text"),
    [
        ([9], [b"x"], "there is no topic 9"),
        ([0], [b"x"], "there is no topic 0"),
        ([0x81, 2], [b"x", b"y"], "continues with another topic"),
        ([0x81, 0x81], [b"x", b""], "an empty piece"),
        ([0x81, 0x81, 1], [b"x" * 5, b"y" * 5, b"z"], "more than 10 bytes"),
    ],
)
def test_pieces_that_make_no_frame(marks: list[int], pieces: list[bytes], text: str) -> None:
    with pytest.raises(PieceFault, match=text):
        Joiner(10).join(bytes(marks), pieces)
