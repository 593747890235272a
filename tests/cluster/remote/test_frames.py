"""Runs between nodes: cut, encoded, checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import Malformed
from cluster.remote.frames import FRAME_MAX_BYTES, cut, decode_run, delivered_run, encode_run, ranges
from node.amqp.properties import Properties
from node.amqp.reader import MIXED_SIZES
from node.queue.operations import Remove, encode
from node.queue.run import NEVER
from tests.kit.messages import bodies_of, content, envelope

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


@given(BODIES, st.sampled_from([0, 30, 131072]), st.integers(1, 1 << 40), st.integers(0, 3))
def test_a_run_arrives_as_it_was_sent(
    bodies: list[bytes], frame_max: int, first: int, deliveries: int
) -> None:
    contents = [content(body, 3, frame_max) for body in bodies]
    sizes = set(map(len, bodies))
    size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
    entry = decode_run(encode_run(envelope(priority=4), first, contents, size, deliveries))
    assert entry.contents == contents
    assert entry.envelope.priority == 4
    run = delivered_run(entry)
    assert run.seqs == range(first, first + len(bodies))
    assert bodies_of(run) == bodies
    assert (run.deliveries, run.expiry, run.is_indexed, run.store_id) == (deliveries, NEVER, False, 0)


@given(st.data())
def test_a_damaged_run_is_refused_or_has_sound_frames(data: st.DataObject) -> None:
    """Whatever octet is another one: contents that get through can be taken apart."""
    bodies = data.draw(BODIES)
    size = len(bodies[0]) if len(set(map(len, bodies))) == 1 else MIXED_SIZES
    raw = bytearray(encode_run(envelope(), 1, [content(body, 1, 30) for body in bodies], size))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        entry = decode_run(bytes(raw))
    except Malformed:
        return
    bodies_of(delivered_run(entry))
    assert delivered_run(entry).body_bytes >= 0


def test_contents_alike_are_compared_with_the_first() -> None:
    """One of many contents of equal length is not framed as they are."""
    contents = [content(b"abc") for _ in range(20)]
    contents[7] = contents[7][:-1] + b"\0"
    with pytest.raises(Malformed, match="no content"):
        decode_run(encode_run(envelope(), 1, contents, 3))


def test_contents_of_one_length_need_not_be_framed_alike() -> None:
    """A longer header with a shorter body is as long."""
    contents = [content(b"abcd"), content(b"ab", properties=Properties(content_type="x"))]
    assert len(contents[0]) == len(contents[1])
    assert decode_run(encode_run(envelope(), 1, contents, MIXED_SIZES)).contents == contents


def test_a_body_of_another_size_than_told_is_refused() -> None:
    with pytest.raises(Malformed, match="as long as it says"):
        decode_run(encode_run(envelope(), 1, [content(b"ab"), content(b"ab")], 3))


def test_what_is_no_run_is_refused() -> None:
    for raw in (b"", b"\x09", b"".join(encode(Remove((range(1, 2),))))):
        with pytest.raises(Malformed):
            decode_run(raw)


def test_runs_are_cut_to_fit_frames() -> None:
    """A single message that is too big goes alone."""
    half, big = bytes(FRAME_MAX_BYTES // 2), bytes(FRAME_MAX_BYTES * 2)
    assert cut([b"a", b"b"]) == [[b"a", b"b"]]
    assert cut([big]) == [[big]]
    assert cut([half, half, half]) == [[half, half], [half]]
    assert cut([b"a", big, b"b"]) == [[b"a"], [big], [b"b"]]


@given(st.lists(st.integers(1, FRAME_MAX_BYTES + 5), min_size=1, max_size=12))
def test_pieces_are_everything_in_order(sizes: list[int]) -> None:
    contents = [bytes(size) for size in sizes]
    pieces = cut(contents)
    assert [piece for some in pieces for piece in some] == contents
    for piece in pieces:
        assert len(piece) == 1 or sum(map(len, piece)) <= FRAME_MAX_BYTES


def test_ranges_make_sense_or_are_refused() -> None:
    assert list(ranges([1, 3, 7, 7])) == [(1, 3), (7, 7)]
    for bounds in ([1], [3, 1], [1, 2, 3]):
        with pytest.raises(Malformed):
            list(ranges(bounds))
