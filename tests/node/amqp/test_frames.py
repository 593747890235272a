"""Frames out: contents are built, taken apart, renumbered, cut anew (AMQP 0-9-1 §2.3, §4.2; amqp-behaviour §1.7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.frames import (
    HEARTBEAT,
    body_size,
    content_frames,
    frame,
    method_frame,
    recut,
    split_content,
    with_channel,
)
from node.amqp.methods import TxSelect
from node.amqp.properties import Properties, content_header

channel = st.integers(0, 65535)
header = st.binary(min_size=12, max_size=40)
body = st.binary(max_size=120)
frame_max = st.sampled_from([0, 9, 10, 24, 4096])


def test_a_frame_by_hand() -> None:
    assert frame(2, 0x0102, b"abc") == b"\x02\x01\x02\0\0\0\x03abc\xce"


def test_a_method_frame_by_hand() -> None:
    assert method_frame(7, TxSelect()) == b"\x01\0\x07\0\0\0\x04\0\x5a\0\x0a\xce"


def test_a_heartbeat_by_hand() -> None:
    assert HEARTBEAT == b"\x08\0\0\0\0\0\0\xce"


@pytest.mark.parametrize(
    ("size", "limit", "cuts"),
    [
        pytest.param(0, 4096, [], id="no body, no body frame (§1.7 row `body size 0`)"),
        pytest.param(4088, 4096, [4088], id="just fits"),
        pytest.param(4089, 4096, [4088, 1], id="one too many"),
        pytest.param(300_000, 131072, [131064, 131064, 37872], id="§1.4 trap: 300 kB in three frames"),
        pytest.param(300_000, 0, [300_000], id="no limit"),
    ],
)
def test_a_body_is_cut_to_frame_max(size: int, limit: int, cuts: list[int]) -> None:
    content = content_frames(1, b"h" * 14, b"b" * size, limit)
    assert content.startswith(frame(2, 1, b"h" * 14))
    rest = content[22:]
    for cut in cuts:
        assert rest.startswith(frame(3, 1, b"b" * cut))
        rest = rest[cut + 8 :]
    assert rest == b""


@given(channel, header, body, frame_max)
def test_a_content_comes_apart_as_it_was_put_together(
    number: int, head: bytes, text: bytes, limit: int
) -> None:
    assert split_content(content_frames(number, head, text, limit)) == (head, text)


@given(body, frame_max)
def test_the_body_size_is_read_from_the_header(text: bytes, limit: int) -> None:
    content = content_frames(3, content_header(len(text), Properties(message_id="m")), text, limit)
    assert body_size(content) == len(text)


@given(channel, channel, header, body, frame_max)
def test_another_channel_changes_every_frame_and_nothing_else(
    old: int, new: int, head: bytes, text: bytes, limit: int
) -> None:
    assert with_channel(content_frames(old, head, text, limit), new) == content_frames(new, head, text, limit)


@given(channel, channel, header, body, frame_max, frame_max)
def test_a_content_cut_anew_is_as_if_made_so(
    old: int, new: int, head: bytes, text: bytes, before: int, after: int
) -> None:
    content = content_frames(old, head, text, before)
    assert recut(content, new, after) == content_frames(new, head, text, after)
