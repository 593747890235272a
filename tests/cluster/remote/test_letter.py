"""What gathers in a turn."""

from cluster.remote.frames import FRAME_MAX_BYTES
from cluster.remote.letter import Letter, Outbox
from cluster.remote.remote_pb2 import Frame, Settle
from node.catalogue.records import QueueRecord

RECORD = QueueRecord("/", "q\udcff", "uid", home="n2")


class Post:
    """Where frames go."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.wakes = 0
        self.outbox = Outbox(lambda raw: self.frames.append(Frame.FromString(raw)), self.wake)

    def wake(self) -> None:
        self.wakes += 1


def test_one_turn_of_a_queue_is_one_frame() -> None:
    """And it wakes the broker once."""
    post = Post()
    letter, other = Letter(post.outbox, RECORD), Letter(post.outbox, None)
    letter.operation().unsubscribe = 5
    letter.settle(Settle.ACK, 1, 2)
    other.operation().credit.amount = 9
    post.outbox.flush()
    assert post.wakes == 1
    assert [(frame.uid, frame.vhost, frame.name, len(frame.operations)) for frame in post.frames] == [
        ("uid", b"/", b"q\xff", 2),
        ("", b"", b"", 1),
    ]
    assert not any(frame.is_for_front_end for frame in post.frames)
    post.outbox.flush()
    assert len(post.frames) == 2
    letter.operation().unsubscribe = 6
    assert post.wakes == 2


def test_front_ends_know_queues_by_their_uids() -> None:
    post = Post()
    Letter(post.outbox, RECORD, is_for_front_end=True).accept(1, 1)
    Letter(post.outbox, None, is_for_front_end=True).operation().answer.request = 1
    post.outbox.flush()
    addresses = [(frame.is_for_front_end, frame.uid, frame.vhost, frame.name) for frame in post.frames]
    assert addresses == [(True, "uid", b"", b""), (True, "", b"", b"")]


def test_settles_are_ranges_and_keep_their_order() -> None:
    post = Post()
    letter = Letter(post.outbox, RECORD)
    for kind, first, last in (
        (Settle.ACK, 1, 1),
        (Settle.ACK, 2, 4),
        (Settle.ACK, 9, 9),
        (Settle.REQUEUE, 5, 5),
        (Settle.ACK, 10, 10),
    ):
        letter.settle(kind, first, last)
    letter.operation().unsubscribe = 1
    letter.settle(Settle.ACK, 11, 11)
    post.outbox.flush()
    (frame,) = post.frames
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
    post = Post()
    letter = Letter(post.outbox, RECORD)
    letter.accept(1, 1)
    letter.accept(2, 3)
    letter.accept(5, 5)
    post.outbox.flush()
    (frame,) = post.frames
    assert [list(item.accepted.bounds) for item in frame.operations] == [[1, 3, 5, 5]]


def test_a_frame_is_cut_when_it_gets_long() -> None:
    post = Post()
    letter = Letter(post.outbox, RECORD)
    for _ in range(3):
        letter.operation(FRAME_MAX_BYTES // 2).publish.run = bytes(FRAME_MAX_BYTES // 2)
    for tag in range(1, 200_001, 2):
        letter.settle(Settle.ACK, tag, tag)
    post.outbox.flush()
    assert len(post.frames) > 3
    for frame in post.frames:
        assert frame.ByteSize() <= FRAME_MAX_BYTES + 1000
        assert frame.uid == "uid"
    bounds = [
        bound for frame in post.frames for item in frame.operations for bound in item.settle.bounds[::2]
    ]
    assert bounds == list(range(1, 200_001, 2))


def test_a_closed_letter_is_not_sent() -> None:
    post = Post()
    letter = Letter(post.outbox, RECORD)
    letter.operation().unsubscribe = 1
    letter.is_closed = True
    post.outbox.flush()
    letter.operation().unsubscribe = 1
    post.outbox.flush()
    assert post.frames == []
    assert post.wakes == 1
