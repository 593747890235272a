"""The data stream: each frame once and in order, between two incarnations, over any number of broken sessions."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.transport.interface import FRAME_BYTES_MAX, Topic
from cluster.transport.peer_pb2 import Ack, Batch
from cluster.transport.pieces import PIECE_BYTES, PIECE_COST
from cluster.transport.stream import Receiver, Sender, StreamFault

LIMIT = 1000


def pair() -> tuple[Sender, Receiver]:
    return Sender(3, 8, LIMIT), Receiver(3, 8)


def begin(sender: Sender, receiver: Receiver) -> None:
    assert receiver.opens(sender.opening())
    sender.resume(receiver.acknowledgement())


def ack(received: int, incarnations: tuple[int, int] = (3, 8)) -> bytes:
    return Ack(
        from_incarnation=incarnations[0], to_incarnation=incarnations[1], received=received
    ).SerializeToString()


def batch(
    first: int, *contents: bytes, incarnations: tuple[int, int] = (3, 8), marks: bytes | None = None
) -> bytes:
    return Batch(
        from_incarnation=incarnations[0],
        to_incarnation=incarnations[1],
        first=first,
        marks=bytes([1] * len(contents)) if marks is None else marks,
        pieces=contents,
    ).SerializeToString()


def test_frames_are_joined_and_kept_until_acknowledged() -> None:
    sender, receiver = pair()
    begin(sender, receiver)
    for number in range(3):
        sender.push(Topic.REMOTE, bytes([number]))
    message = sender.next_batch()
    assert sender.next_batch() == b""
    assert receiver.receive(message) == [(Topic.REMOTE, b"\0"), (Topic.REMOTE, b"\1"), (Topic.REMOTE, b"\2")]
    assert sender.unacknowledged_bytes == 3 * (1 + PIECE_COST)
    sender.acknowledge(receiver.acknowledgement())
    assert sender.unacknowledged_bytes == 0


def test_what_came_before_a_reset_is_not_sent_again() -> None:
    """Contract: frames are numbered, kept until acknowledged, resumed."""
    sender, receiver = pair()
    begin(sender, receiver)
    sender.push(Topic.REMOTE, b"one")
    receiver.receive(sender.next_batch())
    sender.push(Topic.REMOTE, b"two")
    lost = sender.next_batch()
    begin(sender, receiver)
    assert receiver.receive(sender.next_batch()) == [(Topic.REMOTE, b"two")]
    assert receiver.receive(lost) == []  # the old session's message comes late


def test_a_big_frame_goes_on_where_it_was() -> None:
    sender, receiver = pair()
    begin(sender, receiver)
    frame = b"".join(bytes([number]) * PIECE_BYTES for number in range(3))
    sender.push(Topic.RING, frame)
    assert receiver.receive(sender.next_batch()) == []
    sender.next_batch()
    begin(sender, receiver)
    assert receiver.receive(sender.next_batch()) == []
    assert receiver.receive(sender.next_batch()) == [(Topic.RING, frame)]


@pytest.mark.parametrize("incarnations", [(2, 8), (4, 8), (3, 7), (3, 9), (8, 3)])
def test_another_incarnation_changes_nothing(incarnations: tuple[int, int]) -> None:
    """reliability §4.0: each frame carries both incarnations; a mismatch is dropped."""
    sender, receiver = pair()
    assert not receiver.opens(Sender(*incarnations, LIMIT).opening())
    assert receiver.receive(batch(1, b"x", incarnations=incarnations)) == []
    assert receiver.received == 0
    sender.push(Topic.REMOTE, b"x")
    sender.next_batch()
    sender.acknowledge(ack(1, incarnations))
    assert sender.unacknowledged_bytes > 0
    with pytest.raises(StreamFault, match="other incarnations"):
        sender.resume(ack(0, incarnations))


def test_a_late_acknowledgement_of_the_session_before() -> None:
    """A late acknowledgement may be about pieces that were going to be sent again."""
    sender, receiver = pair()
    begin(sender, receiver)
    for content in (b"1", b"2", b"3"):
        sender.push(Topic.REMOTE, content)
    message = sender.next_batch()
    opening = receiver.acknowledgement()
    receiver.receive(message)
    late = receiver.acknowledgement()
    sender.resume(opening)
    sender.acknowledge(late)
    assert (sender.unacknowledged_bytes, sender.next_batch()) == (0, b"")
    sender.acknowledge(ack(1))
    sender.push(Topic.REMOTE, b"4")
    assert receiver.receive(sender.next_batch()) == [(Topic.REMOTE, b"4")]


def test_congestion_is_told_and_relief_once() -> None:
    sender, receiver = pair()
    begin(sender, receiver)
    while not sender.is_congested:
        assert not sender.take_relieved()
        sender.push(Topic.REMOTE, b"x" * 100)
    frames = round(sender.unacknowledged_bytes / (100 + PIECE_COST))
    assert frames == 7
    sender.next_batch()
    relieved = []
    for number in range(1, frames + 1):
        sender.acknowledge(ack(number))
        relieved.append(sender.take_relieved())
    assert relieved == [False, False, False, True, False, False, False]


def test_empty_frames_count() -> None:
    """A bound that empty frames don't reach would be none."""
    sender, _ = pair()
    for _ in range(LIMIT // PIECE_COST + 1):
        sender.push(Topic.REMOTE, b"")
    assert sender.is_congested


def test_too_big_a_frame_is_our_own_error() -> None:
    class Big(bytes):
        def __len__(self) -> int:
            return FRAME_BYTES_MAX + 1

    with pytest.raises(AssertionError):
        pair()[0].push(Topic.REMOTE, Big())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\xff", "cannot be read"),
        (batch(2, b"x"), "piece 2 follows piece 0"),
        (batch(0, b"x"), "piece 0 follows piece 0"),
        (batch(1, b"x", marks=b""), "0 marks and 1 pieces"),
        (batch(1, b"x", marks=b"\x7f"), "there is no topic 127"),
    ],
)
def test_batches_that_break_the_rules(message: bytes, text: str) -> None:
    with pytest.raises(StreamFault, match=text):
        pair()[1].receive(message)


def test_acknowledgements_that_break_the_rules() -> None:
    sender, _ = pair()
    sender.push(Topic.REMOTE, b"x")
    sender.next_batch()
    for message, text in ((b"\xff", "cannot be read"), (ack(2), "acknowledges piece 2, 1 is the last one")):
        with pytest.raises(StreamFault, match=text):
            sender.acknowledge(message)
        with pytest.raises(StreamFault, match=text):
            sender.resume(message)
    sender.acknowledge(ack(1))
    with pytest.raises(StreamFault, match="forgotten pieces 1 to 1"):
        sender.resume(ack(0))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_fault(message: bytes) -> None:
    for read in (Receiver(3, 8).receive, Receiver(3, 8).opens, pair()[0].acknowledge, pair()[0].resume):
        with contextlib.suppress(StreamFault):
            read(message)


class Sessions(RuleBasedStateMachine):
    """Sessions break at any moment; what is still under way of an old one may come at any later one, or twice."""

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = pair()
        self.sent: list[bytes] = []
        self.came: list[bytes] = []
        self.forward: list[bytes] = []  # of this session, in order
        self.back: list[bytes] = []
        self.stale_forward: list[bytes] = []  # of older ones
        self.stale_back: list[bytes] = []
        begin(self.sender, self.receiver)

    def receive(self, message: bytes) -> None:
        self.came += [frame for _, frame in self.receiver.receive(message)]

    @rule(size=st.sampled_from([0, 1, 50, PIECE_BYTES + 1]))
    def push(self, size: int) -> None:
        frame = len(self.sent).to_bytes(4, "big") + bytes(size)
        self.sent.append(frame)
        self.sender.push(Topic.REMOTE, frame)

    @rule()
    def write(self) -> None:
        message = self.sender.next_batch()
        if message:
            self.forward.append(message)

    @precondition(lambda self: self.forward)
    @rule(again=st.booleans())
    def deliver(self, again: bool) -> None:
        message = self.forward.pop(0)
        self.receive(message)
        if again:
            self.receive(message)

    @rule()
    def acknowledge(self) -> None:
        self.back.append(self.receiver.acknowledgement())

    @precondition(lambda self: self.back)
    @rule()
    def take_acknowledgement(self) -> None:
        self.sender.acknowledge(self.back.pop(0))

    @rule(is_late=st.booleans())
    def reset(self, is_late: bool) -> None:
        """is_late: after its answer to the new session the receiver gets some more of the old one."""
        opening = self.receiver.acknowledgement()
        if is_late and self.forward:
            self.receive(self.forward.pop(0))
        self.stale_forward += self.forward
        self.stale_back += self.back
        self.forward, self.back = [], []
        self.sender.resume(opening)

    @precondition(lambda self: self.stale_forward)
    @rule(data=st.data())
    def a_stale_batch_comes(self, data: Any) -> None:
        message = data.draw(st.sampled_from(self.stale_forward))
        # One that lies ahead is a fault, which ends the old session and nothing else.
        with contextlib.suppress(StreamFault):
            self.receive(message)

    @precondition(lambda self: self.stale_back)
    @rule(data=st.data())
    def a_stale_acknowledgement_comes(self, data: Any) -> None:
        self.sender.acknowledge(data.draw(st.sampled_from(self.stale_back)))

    @invariant()
    def each_once_in_order(self) -> None:
        assert self.came == self.sent[: len(self.came)]

    def teardown(self) -> None:
        self.sender.resume(self.receiver.acknowledgement())
        while message := self.sender.next_batch():
            self.receive(message)
        assert self.came == self.sent
        self.sender.acknowledge(self.receiver.acknowledgement())
        assert self.sender.unacknowledged_bytes == 0


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=40, deadline=None)
