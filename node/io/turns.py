"""Long work on the loop that serves AMQP is done in slices, and the loop does other things between them.

    a slice is over ─► in line ─► first in line, and the loop has gone round once ─► another slice

All such work of a loop has one line: lists that ten clients ask for hold the loop no longer at once than one does.
"""

import asyncio
import time
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

SLICE_S: Final = 0.001
"""The time in seconds for which such work may hold the loop."""
BETWEEN_LOOKS: Final = 20
"""Values taken between two checks of the clock: a row of a queue takes some 20 µs."""

T = TypeVar("T")


class _Line:
    """The tasks of a loop that wait for their next slice. Each round of the loop wakes one of them."""

    def __init__(self) -> None:
        self._waiting: deque[Future[None]] = deque()
        self._is_moving = False

    def join(self, loop: AbstractEventLoop) -> "Future[None]":
        """Return what to await: it is done when this task is first in line."""
        turn = loop.create_future()
        self._waiting.append(turn)
        if not self._is_moving:
            self._is_moving = True
            loop.call_soon(self._move, loop)
        return turn

    def _move(self, loop: AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled: its task has gone
                turn.set_result(None)
                break
        self._is_moving = bool(self._waiting)
        if self._is_moving:
            loop.call_soon(self._move, loop)


_lines: Final[WeakKeyDictionary[AbstractEventLoop, _Line]] = WeakKeyDictionary()
"""A line does not know its loop, or the loop would never be freed."""


class Turns:
    """Gives the loop back when one task has held it for `SLICE_S`."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give(self) -> None:
        """Wait in line for another slice if this one is over."""
        if time.monotonic() - self._began >= SLICE_S:
            await next_slice()
            self._began = time.monotonic()


async def next_slice() -> None:
    """Wait in line for another slice. For work whose pieces are known to take about as long as one."""
    loop = asyncio.get_running_loop()
    line = _lines.get(loop)
    if line is None:
        line = _lines[loop] = _Line()
    await line.join(loop)


async def taken(values: Iterable[T], *, between_looks: int = BETWEEN_LOOKS) -> list[T]:
    """Return all values of an iterator that does the work, in slices.   between_looks: as `BETWEEN_LOOKS`."""
    turns, found, each = Turns(), list[T](), iter(values)
    while part := list(islice(each, between_looks)):
        found += part
        await turns.give()
    return found
