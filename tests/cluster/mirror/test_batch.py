"""A master's steps of a turn survive the way as bytes; anything else is Malformed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import Malformed
from cluster.mirror.batch import (
    Batch,
    Clock,
    Handover,
    Inventory,
    SenderGone,
    Step,
    SyncMode,
    decode_batch,
    encode_batch,
)
from node.queue.operations import Delivered, Enqueue, Remove
from node.queue.run import Envelope

NUMBERS = st.integers(1, 2**40)


def enqueue(first: int, *contents: bytes) -> Enqueue:
    envelope = Envelope("x", "key", channel=1, frame_max_bytes=4096)
    return Enqueue(envelope, first, list(contents), len(contents), 7, 7 * len(contents))


def steps() -> st.SearchStrategy[list[Step]]:
    ranges = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=5).map(_apart)
    return st.lists(
        st.one_of(
            NUMBERS.map(lambda first: enqueue(first, b"one", b"two")),
            ranges.map(Remove),
            ranges.map(lambda parts: Delivered(parts, 3)),
            st.builds(Inventory, NUMBERS, ranges, st.dictionaries(NUMBERS, NUMBERS, max_size=3)),
            NUMBERS.map(Handover),
            st.booleans().map(SyncMode),
            st.integers(0, 2**63).map(Clock),
            NUMBERS.map(SenderGone),
        ),
        max_size=5,
    )


def _apart(pairs: list[tuple[int, int]]) -> tuple[range, ...]:
    """Rising ranges that do not touch."""
    at, found = 0, []
    for gap, length in pairs:
        found.append(range(at + gap, at + gap + length))
        at = found[-1].stop
    return tuple(found)


def _shape(step: Step) -> object:
    if isinstance(step, Enqueue):
        return step.first_seq, step.contents, step.size, step.envelope.address
    return step


@given(
    next_seq=NUMBERS, mastership=NUMBERS, senders=st.dictionaries(NUMBERS, NUMBERS, max_size=4), said=steps()
)
def test_round_trip(next_seq: int, mastership: int, senders: dict[int, int], said: list[Step]) -> None:
    batch = decode_batch(encode_batch(Batch(next_seq, mastership, senders, said)))
    assert (batch.next_seq, batch.mastership, batch.senders) == (next_seq, mastership, senders)
    assert list(map(_shape, batch.steps)) == list(map(_shape, said))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_batch_or_malformed(raw: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode_batch(raw)


@given(said=steps(), cut=st.integers(1, 40))
def test_what_is_cut_off_is_malformed(said: list[Step], cut: int) -> None:
    raw = encode_batch(Batch(1, 0, {}, [*said, enqueue(1, b"last")]))
    with pytest.raises(Malformed):
        decode_batch(raw[:-cut])


def test_roll_of_an_empty_queue() -> None:
    batch = decode_batch(encode_batch(Batch(5, 0, {}, [Inventory(3, (), {})])))
    assert batch.steps == [Inventory(3, (), {})]


@pytest.mark.parametrize("step", [b"", bytes([16]), bytes([17]), bytes([18]), bytes([19]), bytes([99])])
def test_unknown_or_short_steps_are_malformed(step: bytes) -> None:
    raw = encode_batch(Batch(1, 0)) + len(step).to_bytes(4, "big") + step
    with pytest.raises(Malformed):
        decode_batch(raw)
