"""Records: what is good comes back whatever is wrong around it, and a client cannot smuggle some in."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from node.store.records import (
    HEADER_BYTES,
    JOURNAL_HEADER,
    MESSAGES_HEADER,
    RECORD_HEAD_BYTES,
    SEGMENT_HEADER,
    End,
    EndState,
    NewerFormat,
    check_header,
    payload_at,
    read_records,
    record,
)

payloads_strategy = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


def file_of(*payloads: bytes) -> bytes:
    return SEGMENT_HEADER + b"".join(part for payload in payloads for part in record([payload]))


def read(data: bytes) -> tuple[list[bytes], End]:
    records = read_records(data)
    payloads = [payload for _, payload in records]
    assert records.end is not None
    return payloads, records.end


def test_header() -> None:
    """A file says what it is; one of another kind or with a damaged header isn't it."""
    assert check_header(SEGMENT_HEADER + b"more", SEGMENT_HEADER)
    assert not check_header(SEGMENT_HEADER[:-1], SEGMENT_HEADER)
    assert not check_header(JOURNAL_HEADER, SEGMENT_HEADER)
    assert not check_header(b"FLFS\0\0\0\0", SEGMENT_HEADER)
    assert not check_header(b"", SEGMENT_HEADER)
    assert len(MESSAGES_HEADER) == HEADER_BYTES


def test_a_later_version_is_told_apart() -> None:
    """A header of a later version is refused as such, and not taken for damage."""
    with pytest.raises(NewerFormat, match="format 2 of FLFJ, known up to 1"):
        check_header(b"FLFJ\0\0\0\2", JOURNAL_HEADER)
    assert not check_header(b"FLFJ\0\0\1\1", JOURNAL_HEADER), "a flipped bit"


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=9).filter(any))
def test_a_record_of_parts_is_that_of_the_whole(parts: list[bytes]) -> None:
    """However a payload was cut, its record has the same bytes."""
    raw = b"".join(record(parts))
    assert raw == b"".join(record([b"".join(parts)]))
    assert payload_at(raw) == b"".join(parts)
    assert payload_at(b"xyz" + raw, 3) == b"".join(parts)


def test_large_parts_are_not_copied() -> None:
    """A message of many MiB is written as it is."""
    content = b"x" * 1000
    assert record([b"id", content])[-1] is content


@given(st.binary(max_size=60), st.integers(0, 70))
def test_there_is_no_record_in_other_bytes(data: bytes, offset: int) -> None:
    """No error, whatever the bytes are; that a crc fits by chance is out of the question."""
    assert payload_at(data, offset) is None


@given(payloads_strategy)
def test_records_come_back(payloads: list[bytes]) -> None:
    """In order, each with its offset, and the end is clean."""
    data = file_of(*payloads)
    found = list(read_records(data))
    assert [payload for _, payload in found] == payloads
    assert [payload_at(data, offset) for offset, _ in found] == payloads
    assert read(data)[1] == End(len(data), EndState.CLEAN)


@given(payloads_strategy, st.integers(1, 60), st.booleans())
def test_a_torn_end(payloads: list[bytes], missing: int, is_zeroed: bool) -> None:
    """A crash leaves a prefix, or zeros behind one: what is whole comes back."""
    data = file_of(*payloads)
    kept = max(HEADER_BYTES, len(data) - missing)
    torn = data[:kept] + (bytes(len(data) - kept) if is_zeroed else b"")
    found, end = read(torn)
    assert found == payloads[: len(found)]
    whole = len(file_of(*found))
    assert end == End(whole, EndState.CLEAN if whole == len(torn) else EndState.TORN)
    # A zero that was one before is no damage.
    assert whole <= kept or data[kept:whole] == bytes(whole - kept)
    assert len(found) == len(payloads) or len(file_of(*payloads[: len(found) + 1])) > kept


def test_zeros_behind_the_records() -> None:
    """Blocks that were allocated and never written."""
    assert read(file_of(b"a") + bytes(100)) == ([b"a"], End(len(file_of(b"a")), EndState.TORN))


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=6), st.data())
def test_one_damaged_byte_costs_one_record(payloads: list[bytes], data: st.DataObject) -> None:
    """The others come back, and the report says where the bad one stood."""
    raw = bytearray(file_of(*payloads))
    at = data.draw(st.integers(HEADER_BYTES, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    starts = [offset for offset, _ in read_records(file_of(*payloads))]
    hit = max(index for index, start in enumerate(starts) if start <= at)
    # A length that by chance reaches the file's last byte makes it a torn record, of which nothing inside is believed.
    assume(
        starts[hit] + RECORD_HEAD_BYTES + int.from_bytes(raw[starts[hit] : starts[hit] + 4]) != len(raw)
        or hit == len(starts) - 1
    )
    found, end = read(bytes(raw))
    assert found == payloads[:hit] + payloads[hit + 1 :]
    if hit == len(payloads) - 1:
        assert end == End(starts[hit], EndState.TORN)
    else:
        assert end.state is EndState.CORRUPT
        assert end.bad == ((starts[hit], starts[hit + 1] - starts[hit]),)


@given(st.binary(min_size=1, max_size=200))
def test_what_was_overwritten_is_skipped(garbage: bytes) -> None:
    """A whole stretch, of another length than what stood there."""
    head, tail = file_of(b"first"), file_of(b"second", b"third")[HEADER_BYTES:]
    found, end = read(head + garbage + tail)
    if end.state is EndState.CORRUPT:
        assert (found, end.bad) == ([b"first", b"second", b"third"], ((len(head), len(garbage)),))
    else:
        # The garbage says that it is a record which ends where the file does.
        assert found == [b"first"]


def test_a_bad_stretch_and_a_torn_end() -> None:
    """Both are told."""
    raw = bytearray(file_of(b"a", b"b", b"c") + b"\0\0\0\5torn")
    raw[HEADER_BYTES + RECORD_HEAD_BYTES] ^= 1
    assert read(bytes(raw)) == (
        [b"b", b"c"],
        End(len(file_of(b"a", b"b", b"c")), EndState.CORRUPT, ((HEADER_BYTES, RECORD_HEAD_BYTES + 1),)),
    )


def test_what_a_client_publishes_is_not_taken_for_records() -> None:
    """A message may contain what looks like records: neither a torn nor a damaged one lets them out."""
    forged = b"".join(record([b"forged"])) * 3
    data = file_of(b"good", forged + b"!", b"good too")
    last = file_of(b"good", forged + b"!")
    assert read(last[:-1])[0] == [b"good"] + [b"forged"] * 3, "only what ends with the file may be one"
    for cut in range(2, len(forged)):
        if (cut - 1) % (len(forged) // 3):
            assert read(last[:-cut])[0] == [b"good"]
    assert read(last[:-5] + bytes(5))[0] == [b"good"]
    damaged = bytearray(data)
    damaged[len(file_of(b"good")) + 4] ^= 1
    assert read(bytes(damaged))[0] == [b"good", b"good too"]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5000))
def test_large_records_are_found_too(seed: int, size: int) -> None:
    """Behind a length that can't be believed, whatever the sizes."""
    large = seed.to_bytes(4) * (size * 100)
    raw = bytearray(file_of(b"a", large, b"b"))
    raw[HEADER_BYTES] = 0xFF
    found, end = read(bytes(raw))
    assert found == [large, b"b"]
    assert end.bad == ((HEADER_BYTES, RECORD_HEAD_BYTES + 1),)


@pytest.mark.parametrize("unit", [b"\0\0\0\1", b"\0\1ab", b"\0\0\0\0\0\0\0\x09", b"\xff"])
def test_a_file_of_garbage_is_given_up(unit: bytes) -> None:
    """The search is bounded also where everything looks like the beginning of a record."""
    data = SEGMENT_HEADER + unit * (64 * 1024 // len(unit)) + b"\1"
    assert read(data) == ([], End(HEADER_BYTES, EndState.TORN))
