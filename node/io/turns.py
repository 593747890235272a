"""Long work on the loop that serves AMQP is done in slices of a few ms, and other tasks run between them."""

import asyncio
import time
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

SLICE_S: Final = 0.002
"""The time for which such work may hold the loop."""
BETWEEN_LOOKS: Final = 50
"""Values taken between two checks of the clock: a row of a queue takes some 20 µs."""

T = TypeVar("T")


class Turns:
    """Yields the loop when it has been held for `SLICE_S`."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give(self) -> None:
        """Let other tasks run if it is time."""
        if time.monotonic() - self._began >= SLICE_S:
            await asyncio.sleep(0)
            self._began = time.monotonic()


async def taken(values: Iterable[T], *, between_looks: int = BETWEEN_LOOKS) -> list[T]:
    """Return all values of an iterator that does the work, in slices.   between_looks: as `BETWEEN_LOOKS`."""
    turns, found, each = Turns(), list[T](), iter(values)
    while part := list(islice(each, between_looks)):
        found += part
        await turns.give()
    return found
