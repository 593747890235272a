"""Operations of one turn gather into frames."""

from cluster.remote.frames import FRAME_MAX_BYTES
from cluster.remote.outgoing_frames import Outbox, OutgoingFrames
from cluster.remote.remote_pb2 import Frame, Settle
from node.catalogue.records import QueueRecord

RECORD = QueueRecord("/", "q\udcff", "uid", home="n2")


class Link:
    """Gathers the frames that are sent and counts the wakes."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.wakes = 0
        self.outbox = Outbox(lambda raw: self.frames.append(Frame.FromString(raw)), self.wake)

    def wake(self) -> None:
        self.wakes += 1


def test_one_turn_of_a_queue_is_one_frame() -> None:
    """All operations of a queue in one turn go in one frame, and the broker is woken once."""
    link = Link()
    outgoing, other = OutgoingFrames(link.outbox, RECORD), OutgoingFrames(link.outbox, None)
    outgoing.operation().unsubscribe = 5
    outgoing.settle(Settle.ACK, 1, 2)
    other.operation().credit.amount = 9
    link.outbox.flush()
    assert link.wakes == 1
    assert [(frame.uid, frame.vhost, frame.name, len(frame.operations)) for frame in link.frames] == [
        ("uid", b"/", b"q\xff", 2),
        ("", b"", b"", 1),
    ]
    assert not any(frame.is_for_front_end for frame in link.frames)
    link.outbox.flush()
    assert len(link.frames) == 2
    outgoing.operation().unsubscribe = 6
    assert link.wakes == 2


def test_front_ends_know_queues_by_their_uids() -> None:
    link = Link()
    OutgoingFrames(link.outbox, RECORD, is_for_front_end=True).accept(1, 1)
    OutgoingFrames(link.outbox, None, is_for_front_end=True).operation().answer.request = 1
    link.outbox.flush()
    addresses = [(frame.is_for_front_end, frame.uid, frame.vhost, frame.name) for frame in link.frames]
    assert addresses == [(True, "uid", b"", b""), (True, "", b"", b"")]


def test_settles_are_ranges_and_keep_their_order() -> None:
    link = Link()
    outgoing = OutgoingFrames(link.outbox, RECORD)
    for kind, first, last in (
        (Settle.ACK, 1, 1),
        (Settle.ACK, 2, 4),
        (Settle.ACK, 9, 9),
        (Settle.REQUEUE, 5, 5),
        (Settle.ACK, 10, 10),
    ):
        outgoing.settle(kind, first, last)
    outgoing.operation().unsubscribe = 1
    outgoing.settle(Settle.ACK, 11, 11)
    link.outbox.flush()
    (frame,) = link.frames
    settles = [
        (item.settle.kind, list(item.settle.bounds)) for item in frame.operations if item.HasField("settle")
    ]
    assert settles == [
        (Settle.ACK, [1, 4, 9, 9]),
        (Settle.REQUEUE, [5, 5]),
        (Settle.ACK, [10, 10]),
        (Settle.ACK, [11, 11]),
    ]


def test_answers_are_ranges() -> None:
    link = Link()
    outgoing = OutgoingFrames(link.outbox, RECORD)
    outgoing.accept(1, 1)
    outgoing.accept(2, 3)
    outgoing.accept(5, 5)
    link.outbox.flush()
    (frame,) = link.frames
    assert [list(item.accepted.bounds) for item in frame.operations] == [[1, 3, 5, 5]]


def test_a_frame_is_cut_when_it_gets_long() -> None:
    link = Link()
    outgoing = OutgoingFrames(link.outbox, RECORD)
    for _ in range(3):
        outgoing.operation(FRAME_MAX_BYTES // 2).publish.run = bytes(FRAME_MAX_BYTES // 2)
    for tag in range(1, 200_001, 2):
        outgoing.settle(Settle.ACK, tag, tag)
    link.outbox.flush()
    assert len(link.frames) > 3
    for frame in link.frames:
        assert frame.ByteSize() <= FRAME_MAX_BYTES + 1000
        assert frame.uid == "uid"
    bounds = [
        bound for frame in link.frames for item in frame.operations for bound in item.settle.bounds[::2]
    ]
    assert bounds == list(range(1, 200_001, 2))


def test_frames_of_a_closed_queue_are_not_sent() -> None:
    link = Link()
    outgoing = OutgoingFrames(link.outbox, RECORD)
    outgoing.operation().unsubscribe = 1
    outgoing.is_closed = True
    link.outbox.flush()
    outgoing.operation().unsubscribe = 1
    link.outbox.flush()
    assert link.frames == []
    assert link.wakes == 1
