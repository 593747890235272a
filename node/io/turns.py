"""Long work on the loop that serves AMQP: done in slices of a few ms, with turns of the others between."""

import asyncio
import time
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

SLICE_S: Final = 0.002
"""How long the loop may be held at once."""
BETWEEN_LOOKS: Final = 50
"""Values taken between two looks at the clock: a row of a queue takes some 20 µs."""

T = TypeVar("T")


class Turns:
    """Gives the loop to others when it has been held for a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def give(self) -> None:
        """Let others run if it is time."""
        if time.monotonic() - self._began >= SLICE_S:
            await asyncio.sleep(0)
            self._began = time.monotonic()


async def taken(values: Iterable[T], *, between_looks: int = BETWEEN_LOOKS) -> list[T]:
    """All that an iterator gives, which does the work.   between_looks: as `BETWEEN_LOOKS`."""
    turns, found, each = Turns(), list[T](), iter(values)
    while part := list(islice(each, between_looks)):
        found += part
        await turns.give()
    return found
