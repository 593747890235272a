"""Runs and envelopes."""

import pytest

from node.amqp.reader import MIXED_SIZES
from node.queue.run import NEVER, Envelope, Run, bytes_of
from tests.kit.messages import bodies_of, content, envelope, run_of


def test_the_address_is_two_shortstrs() -> None:
    made = Envelope("x", "é", channel=1, frame_max_bytes=0)
    assert made.address == b"\x01x\x02\xc3\xa9"


def test_a_key_that_is_not_utf_8_goes_out_as_it_came() -> None:
    made = Envelope("", b"\xff".decode("utf-8", "surrogateescape"), channel=1, frame_max_bytes=0)
    assert made.address == b"\0\x01\xff"


@pytest.mark.parametrize(
    ("part", "seqs", "bodies"),
    [
        (slice(0, 2), [10, 11], [b"a", b"b"]),
        (slice(1, None, 2), [11, 13], [b"b", b"d"]),
        (slice(0, None, 3), [10, 13], [b"a", b"d"]),
        (slice(4, None), [], []),
    ],
)
def test_a_part_keeps_numbers_and_everything_shared(
    part: slice, seqs: list[int], bodies: list[bytes]
) -> None:
    run = run_of(b"a", b"b", b"c", b"d", first_seq=10, expiry=7.0, deliveries=2)
    cut = run[part]
    assert (list(cut.seqs), bodies_of(cut)) == (seqs, bodies)
    assert (cut.envelope, cut.size, cut.expiry, cut.deliveries) == (run.envelope, 1, 7.0, 2)


def test_a_part_has_a_list_of_its_own() -> None:
    run = run_of(b"a", b"b")
    run[0:1].contents.clear()
    assert len(run) == 2


def test_bytes_of_bodies_without_frames_and_headers() -> None:
    same, mixed = run_of(b"abc", b"def"), run_of(b"a", b"bcd", b"")
    assert (same.size, same.body_bytes) == (3, 6)
    assert (mixed.size, mixed.body_bytes) == (MIXED_SIZES, 4)
    assert bytes_of([], MIXED_SIZES) == bytes_of([], 5) == 0


def test_pieces_have_consecutive_numbers() -> None:
    plain = run_of(b"a", b"b", first_seq=3)
    assert plain.pieces() == [plain]
    assert len(run_of(b"a", b"b", step=2).pieces()) == 2
    strided = run_of(b"a", b"b", b"c", first_seq=3, step=4)
    assert [(list(piece.seqs), bodies_of(piece)) for piece in strided.pieces()] == [
        ([3], [b"a"]),
        ([7], [b"b"]),
        ([11], [b"c"]),
    ]


def test_singles() -> None:
    assert [list(single.seqs) for single in run_of(b"a", b"b", first_seq=5).singles()] == [[5], [6]]


def test_a_new_run_is_neither_expiring_nor_redelivered() -> None:
    run = Run(envelope(), range(1, 2), [content(b"x")], 1)
    assert (run.expiry, run.deliveries) == (NEVER, 0)
