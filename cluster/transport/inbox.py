"""Frames of a data stream that have come, on their way to the broker: they are worked off in slices of time.

    read ─► frames ─► put ─► worked off, a portion at a time ─► time over? ─ no ─► read on
                                      ▲                             │
                                      └── one round of the loop ◄── yes: the stream is not read meanwhile

What a frame costs depends on the queue that it is for, and the sender's clients chose both. Without slices, one busy
client of another node could hold the loop for seconds, and this node would seem to hang.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from cluster.transport.interface import Topic

SLICE_S: Final = 0.005
"""The time in seconds for which frames of one stream are worked off before the loop does other things: half of what
all clients of this node together have in a turn (node/scheduling/turn.py)."""

PORTION_BYTES: Final = 16 * 1024
"""The clock is looked at after so many bytes, or after a single larger frame. Frames together cost less than one by
one, as the broker is woken once."""

Frames = list[tuple[Topic, bytes]]


def _nothing() -> None:
    """Do nothing: no stream waits."""


class Inbox:
    """The frames of one data stream between two incarnations, in order. It outlives the connections that bring them.

    deliver: gets a portion of frames.   clock: seconds, monotonic.
    on_empty: called when all frames are worked off after `is_busy`; a connection sets it.
    """

    def __init__(
        self, deliver: Callable[[Frames], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.on_empty: Callable[[], None] = _nothing
        self.is_busy = False
        """True if frames wait for the next round of the loop, or one has to pass before more are read."""
        self._deliver = deliver
        self._clock = clock
        self._frames: deque[tuple[Topic, bytes]] = deque()
        self._is_closed = False

    def put(self, frames: Frames) -> None:
        """Take frames, and work them off as far as the time goes. The caller reads no more while `is_busy`."""
        self._frames.extend(frames)
        if not self.is_busy:
            self._work()

    def close(self) -> None:
        """Drop all frames that wait: one of the incarnations has ended."""
        self._is_closed = True
        self._frames.clear()
        self.on_empty = _nothing

    def _work(self) -> None:
        ends_at = self._clock() + SLICE_S
        while self._frames:
            self._deliver(self._portion())
            if self._clock() >= ends_at:
                self._go_on_soon()
                return

    def _go_on_soon(self) -> None:
        self.is_busy = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self.is_busy = False
        if self._is_closed:
            return
        try:
            self._work()
        finally:
            if (
                self._frames and not self.is_busy
            ):  # a fault of ours, which the loop reports, costs one portion
                self._go_on_soon()
            elif not self.is_busy:
                on_empty, self.on_empty = self.on_empty, _nothing
                on_empty()

    def _portion(self) -> Frames:
        frames = self._frames
        portion = [frames.popleft()]
        size = len(portion[0][1])
        while frames and size + len(frames[0][1]) <= PORTION_BYTES:
            portion.append(frames.popleft())
            size += len(portion[-1][1])
        return portion
