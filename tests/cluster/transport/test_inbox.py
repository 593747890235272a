"""Frames of another node are worked off in slices of time: they never hold the loop for long."""

import asyncio

import pytest

from cluster.transport.inbox import PORTION_BYTES, SLICE_S, Frames, Inbox
from cluster.transport.interface import Topic
from tests.cluster.transport.links import run, until


class Broker:
    """Takes portions of frames, each of which costs it some time."""

    def __init__(self, cost_s: float) -> None:
        self.now = 0.0
        self.cost_s = cost_s
        self.portions: list[list[bytes]] = []
        self.fails_at = ""
        self.empty = 0
        self.inbox = Inbox(self.deliver, lambda: self.now)

    def deliver(self, frames: Frames) -> None:
        self.now += self.cost_s
        self.portions.append([frame for _, frame in frames])
        if self.fails_at.encode() in self.portions[-1]:
            raise AssertionError(self.fails_at)

    def put(self, *frames: bytes) -> None:
        self.inbox.put([(Topic.REMOTE, frame) for frame in frames])

    def emptied(self) -> None:
        self.empty += 1


LARGE = bytes(PORTION_BYTES)


def test_cheap_frames_are_worked_off_at_once() -> None:
    """A usual read takes no further round of the loop."""

    async def story() -> None:
        broker = Broker(cost_s=0.0)
        broker.put(b"a", b"b")
        broker.put(LARGE, b"c", LARGE)
        assert broker.portions == [[b"a", b"b"], [LARGE], [b"c"], [LARGE]]
        assert not broker.inbox.is_busy

    run(story())


def test_the_loop_goes_round_when_the_time_is_over() -> None:
    """Two portions of 3 ms are a slice; in between the loop does other things. The order stays."""

    async def story() -> None:
        broker = Broker(cost_s=0.6 * SLICE_S)
        broker.inbox.on_empty = broker.emptied
        frames = [LARGE + bytes([number]) for number in range(5)]
        broker.put(*frames)
        assert len(broker.portions) == 2
        assert broker.inbox.is_busy
        broker.put(b"later")
        assert len(broker.portions) == 2
        await asyncio.sleep(0)
        assert len(broker.portions) == 4
        await until(lambda: not broker.inbox.is_busy)
        assert [frame for portion in broker.portions for frame in portion] == [*frames, b"later"]
        assert broker.empty == 1

    run(story())


def test_the_last_frame_may_fill_a_slice_too() -> None:
    """The connection must not read on before the loop has gone round, also if nothing waits."""

    async def story() -> None:
        broker = Broker(cost_s=SLICE_S)
        broker.inbox.on_empty = broker.emptied
        broker.put(b"costly")
        assert broker.inbox.is_busy
        assert broker.empty == 0
        await until(lambda: broker.empty == 1)
        assert not broker.inbox.is_busy

    run(story())


def test_what_is_closed_delivers_nothing_more() -> None:
    """Frames for an incarnation that has ended are dropped."""

    async def story() -> None:
        broker = Broker(cost_s=SLICE_S)
        broker.inbox.on_empty = broker.emptied
        broker.put(LARGE, b"b")
        broker.inbox.close()
        for _ in range(3):
            await asyncio.sleep(0)
        assert broker.portions == [[LARGE]]
        assert broker.empty == 0

    run(story())


def test_a_fault_of_ours_costs_one_portion() -> None:
    """Later frames are worked off, and the connection reads on."""

    async def story() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: faults.append(context["exception"])
        )
        broker = Broker(cost_s=SLICE_S)
        broker.inbox.on_empty = broker.emptied
        broker.fails_at = "bad"
        with pytest.raises(AssertionError):
            broker.put(b"bad", LARGE)
        broker.put(b"good", LARGE, b"bad")
        await until(lambda: broker.empty == 1)
        assert broker.portions[-1] == [b"bad"]
        assert len(faults) == 1

    run(story())
