"""The control stream of one session."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.transport.control import PENDING_BYTES_MAX, ControlReceiver, ControlSender
from cluster.transport.interface import CONTROL_BYTES_MAX, Topic
from cluster.transport.peer_pb2 import Control
from cluster.transport.stream import StreamFault


def test_messages_in_order_by_topic() -> None:
    sender, receiver = ControlSender(), ControlReceiver()
    for topic, message in (
        (Topic.RAFT, b"a"),
        (Topic.RAFT, b"b"),
        (Topic.MEMBERSHIP, b"c"),
        (Topic.RAFT, b"d"),
    ):
        assert sender.push(topic, message)
    assert receiver.receive(sender.next_batch()) == [
        (Topic.RAFT, [b"a", b"b"]),
        (Topic.MEMBERSHIP, [b"c"]),
        (Topic.RAFT, [b"d"]),
    ]
    assert (sender.next_batch(), sender.waiting_bytes) == (b"", 0)


def test_the_biggest_message() -> None:
    sender, receiver = ControlSender(), ControlReceiver()
    message = b"x" * CONTROL_BYTES_MAX
    assert sender.push(Topic.RAFT, message)
    came = []
    while data := sender.next_batch():
        came += receiver.receive(data)
    assert came == [(Topic.RAFT, [message])]
    with pytest.raises(AssertionError):
        sender.push(Topic.RAFT, message + b"x")


def test_what_waits_is_bounded() -> None:
    """A peer that doesn't read costs so much memory and no more; what is refused can be sent later."""
    sender = ControlSender()
    while sender.push(Topic.RAFT, b"x" * CONTROL_BYTES_MAX):
        assert sender.waiting_bytes <= 1.01 * PENDING_BYTES_MAX
    assert sender.waiting_bytes >= PENDING_BYTES_MAX - 2 * CONTROL_BYTES_MAX
    for _ in range(64):
        sender.next_batch()
    assert sender.push(Topic.RAFT, b"x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xff", "cannot be read"),
        (Control(marks=b"\1", pieces=[]).SerializeToString(), "1 marks and 0 pieces"),
        (Control(marks=b"\0", pieces=[b""]).SerializeToString(), "no topic 0"),
        (
            Control(marks=b"\x81" * 9, pieces=[b"x" * 1024 * 1024] * 9).SerializeToString(),
            "more than 8,388,608 bytes",
        ),
    ],
)
def test_what_breaks_the_rules(data: bytes, text: str) -> None:
    with pytest.raises(StreamFault, match=text):
        ControlReceiver().receive(data)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_messages_or_a_fault(data: bytes) -> None:
    with contextlib.suppress(StreamFault):
        ControlReceiver().receive(data)
