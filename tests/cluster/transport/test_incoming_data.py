"""The session of a data stream that another node has opened."""

from typing import Any

import pytest

from cluster.transport.incoming_data import IncomingData
from cluster.transport.interface import LinkOptions, Topic
from cluster.transport.stream import Receiver, Sender, StreamFault
from tests.cluster.transport.links import run, until


class Stream:
    """Stands for the stream: it keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)


class Scene:
    """A session, and the sender at the other end."""

    def __init__(self, **options: Any) -> None:
        self.stream = Stream()
        self.sender = Sender(1, 2, 1 << 20)
        self.receiver = Receiver(1, 2)
        self.frames: list[list[tuple[Topic, bytes]]] = []
        self.openings = 0
        self.data = IncomingData(
            self.stream,  # type: ignore[arg-type]
            LinkOptions(**options),
            self.frames.append,
            self._opened,
        )

    def _opened(self) -> None:
        self.openings += 1

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
        scene.data.begin(scene.receiver)
        assert scene.stream.sent == []
        scene.data.take([scene.sender.opening()])
        assert scene.openings == 1
        scene.data.begin(Receiver(1, 3))
        assert scene.stream.sent == []
        scene.data.begin(scene.receiver)
        scene.data.begin(scene.receiver)
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
        scene.data.begin(scene.receiver)
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
