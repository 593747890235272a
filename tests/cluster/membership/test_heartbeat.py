"""Heartbeats in bytes: what is written is read, and all else is refused by what is wrong with it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.membership import membership_pb2
from cluster.membership.heartbeat import (
    HEARTBEAT_MAX_BYTES,
    NAME_MAX_BYTES,
    REACHABLE_MAX,
    STATUS_MAX_BYTES,
    Heartbeat,
    HeartbeatUnreadable,
    decode_heartbeat,
    decode_status,
    encode_heartbeat,
    encode_status,
)

_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@given(
    st.builds(
        Heartbeat,
        st.integers(0, 2**64 - 1),
        st.floats(0, 1e12),
        st.none() | _NAMES,
        st.frozensets(_NAMES, max_size=5),
        st.integers(1, 2**64 - 1),
        st.none() | st.binary(max_size=100),
        st.booleans(),
    )
)
def test_what_is_written_is_read(heartbeat: Heartbeat) -> None:
    assert decode_heartbeat(encode_heartbeat(heartbeat)) == heartbeat


@given(st.binary(max_size=300))
def test_any_bytes_are_a_heartbeat_or_refused(message: bytes) -> None:
    with contextlib.suppress(HeartbeatUnreadable):
        decode_heartbeat(message)


def test_the_largest_heartbeat_fits() -> None:
    names = [f"{number:0{NAME_MAX_BYTES}}" for number in range(REACHABLE_MAX)]
    largest = Heartbeat(
        2**64 - 1, 1e300, names[0], frozenset(names), 2**64 - 1, b"x" * STATUS_MAX_BYTES, True
    )
    message = encode_heartbeat(largest)
    assert HEARTBEAT_MAX_BYTES - 64 < len(message) <= HEARTBEAT_MAX_BYTES
    assert decode_heartbeat(message) == largest


def test_a_large_cluster_is_not_listed_whole() -> None:
    names = frozenset(f"n{number:03}" for number in range(REACHABLE_MAX + 10))
    read = decode_heartbeat(encode_heartbeat(Heartbeat(1, 1.0, reachable=names)))
    assert read.reachable == frozenset(sorted(names)[:REACHABLE_MAX])


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\xff", "not a heartbeat"),
        (b"\x1a\x01\xff", "not a heartbeat"),  # a leader's name that isn't UTF-8
        (bytes(HEARTBEAT_MAX_BYTES + 1), f"a heartbeat of {HEARTBEAT_MAX_BYTES + 1} bytes"),
        (membership_pb2.Heartbeat(sent_s=float("nan")), "a heartbeat that was sent at nan"),
        (membership_pb2.Heartbeat(sent_s=float("inf")), "a heartbeat that was sent at inf"),
        (membership_pb2.Heartbeat(sent_s=-1.0), "a heartbeat that was sent at -1.0"),
        (membership_pb2.Heartbeat(reachable=["a"] * 129), "a heartbeat that lists 129 nodes"),
        (membership_pb2.Heartbeat(leader="é" * 128), "a node's name of more than 255 bytes"),
        (membership_pb2.Heartbeat(reachable=["x" * 256]), "a node's name of more than 255 bytes"),
        (membership_pb2.Heartbeat(status=b"{}"), "version 0 of a status, 2 bytes"),
        (
            membership_pb2.Heartbeat(status=bytes(STATUS_MAX_BYTES + 1), status_version=3),
            "version 3 of a status, 65537 bytes",
        ),
    ],
)
def test_what_is_wrong_is_said(message: "bytes | membership_pb2.Heartbeat", text: str) -> None:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    with pytest.raises(HeartbeatUnreadable) as error:
        decode_heartbeat(raw)
    assert str(error.value) == text


def test_statuses() -> None:
    assert encode_status({"b": [1, 2.5, None], "a": {"é": True}}) == encode_status(
        {"a": {"é": True}, "b": [1, 2.5, None]}
    )
    assert decode_status(encode_status({"a": {"é": True}})) == {"a": {"é": True}}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "a status that isn't JSON"),
        (b"{", "a status that isn't JSON"),
        (b"\xff\xff", "a status that isn't JSON"),
        (b'{"a":NaN}', "a status that isn't JSON"),
        (b'{"a":1e999}', "a status that isn't JSON"),
        (b'{"a":' + b"9" * 5000 + b"}", "a status that isn't JSON"),
        (b'{"a":"\\ud800"}', "a status that isn't JSON"),
        (b"[" * STATUS_MAX_BYTES, "a status that isn't JSON"),
        (b"[1]", "a status that isn't a JSON object"),
        (b"null", "a status that isn't a JSON object"),
    ],
)
def test_what_is_no_status(raw: bytes, text: str) -> None:
    with pytest.raises(HeartbeatUnreadable) as error:
        decode_status(raw)
    assert str(error.value) == text
