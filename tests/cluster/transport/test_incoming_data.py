"""The session of a data stream that another node has opened."""

from typing import Any

import pytest

from cluster.transport.inbox import PORTION_BYTES, Frames, Inbox
from cluster.transport.incoming_data import IncomingData
from cluster.transport.interface import LinkOptions, Topic
from cluster.transport.stream import Receiver, Sender, StreamFault
from tests.cluster.transport.links import run, until


class Stream:
    """Stands for the stream: it keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_resting = False

    def rest(self) -> None:
        self.is_resting = True

    def read_on(self) -> None:
        self.is_resting = False

    def send(self, message: bytes) -> None:
        self.sent.append(message)


class Scene:
    """A session, and the sender at the other end."""

    def __init__(self, **options: Any) -> None:
        self.stream = Stream()
        self.sender = Sender(1, 2, 1 << 20)
        self.receiver = Receiver(1, 2)
        self.frames: list[Frames] = []
        self.inbox = Inbox(self.frames.append)
        self.openings = 0
        self.data = IncomingData(
            self.stream,  # type: ignore[arg-type]
            LinkOptions(**options),
            self._opened,
        )

    def _opened(self) -> None:
        self.openings += 1

    def begin(self) -> None:
        self.data.begin(self.receiver, self.inbox)

    def batch(self, *frames: bytes) -> bytes:
        for frame in frames:
            self.sender.push(Topic.RING, frame)
        return self.sender.next_batch()

    def received(self) -> int:
        """Tell the sender what was received, and return how many bytes are still unacknowledged."""
        for message in self.stream.sent:
            self.sender.acknowledge(message)
        return self.sender.unacknowledged_bytes


def test_it_begins_when_the_opening_is_for_the_incarnations_that_are_open_here() -> None:
    async def story() -> None:
        scene = Scene()
        scene.begin()
        assert scene.stream.sent == []
        scene.data.take([scene.sender.opening()])
        assert scene.openings == 1
        scene.data.begin(Receiver(1, 3), scene.inbox)
        assert scene.stream.sent == []
        scene.begin()
        scene.begin()
        assert scene.stream.sent == [scene.receiver.acknowledgement()]

    run(story())


def test_nothing_may_come_before_the_answer() -> None:
    async def story() -> None:
        scene = Scene()
        with pytest.raises(StreamFault, match="before its opening was answered"):
            scene.data.take([scene.sender.opening(), scene.batch(b"early")])
        assert scene.frames == []

    run(story())


def test_frames_of_one_read_come_together_and_are_acknowledged_by_size_or_time() -> None:
    async def story() -> None:
        scene = Scene(ack_after_s=0.01, ack_bytes=1000)
        scene.data.take([scene.sender.opening()])
        scene.begin()
        scene.data.take([scene.batch(b"a", b"b"), scene.batch(b"c")])
        assert scene.frames == [[(Topic.RING, b"a"), (Topic.RING, b"b"), (Topic.RING, b"c")]]
        assert len(scene.stream.sent) == 1
        await until(lambda: len(scene.stream.sent) == 2)
        assert scene.received() == 0
        scene.data.take([scene.batch(bytes(2000))])
        assert len(scene.stream.sent) == 3
        assert scene.received() == 0
        scene.data.take([scene.batch(b"last")])
        scene.data.end()
        scene.data.end()

    run(story())


def test_nothing_is_read_while_the_broker_has_enough_to_do() -> None:
    """The stream rests while frames wait, and reads on when they are worked off."""

    async def story() -> None:
        scene = Scene()
        clock = iter(range(100))
        scene.inbox = Inbox(scene.frames.append, lambda: float(next(clock)))  # each portion takes too long
        scene.data.take([scene.sender.opening()])
        scene.begin()
        assert not scene.stream.is_resting
        scene.data.take([scene.batch(b"a")])
        assert scene.stream.is_resting
        await until(lambda: not scene.stream.is_resting)
        assert scene.frames == [[(Topic.RING, b"a")]]

    run(story())


def test_a_new_connection_waits_for_what_a_former_one_brought() -> None:
    """Frames stay in order over connections: those of the former one are worked off first."""

    async def story() -> None:
        scene = Scene()
        clock = iter(range(100))
        scene.inbox = Inbox(scene.frames.append, lambda: float(next(clock)))
        scene.inbox.put([(Topic.RING, bytes(PORTION_BYTES)), (Topic.RING, b"last of the former one")])
        scene.data.take([scene.sender.opening()])
        scene.begin()
        assert scene.stream.is_resting
        await until(lambda: not scene.stream.is_resting)
        assert len(scene.frames) == 2

    run(story())
