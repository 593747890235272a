"""Bound the memory of long lists: few are made at once, and few of those that are read slowly are held.

    asked ─► in line ─► made, as JSON ─► held while it is sent ─► all of it sent
                                            └ others are asked for, and there is too much ─► dropped

The rows of 10,000 queues take more memory than the 30 MB of JSON that they become. Both would add up with the number
of callers.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from node.io.json_pieces import is_long
from node.management import encoding
from node.management.expositions import Page
from node.management.reply import Reply

MADE_AT_ONCE: Final = 2
"""The most lists that are made at once; others wait. Pages of lists (`page=`) are short and don't."""

HELD_MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of answers that are being sent. The oldest is dropped first, and the newest is held however long it
is.
"""


class LongAnswers:
    """The long answers of one node."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MADE_AT_ONCE)
        self._held: deque[tuple[weakref.ref[Page], int]] = deque()

    async def make(self, handler: Callable[[], Awaitable[Reply]]) -> Reply:
        """Return the handler's answer, when it is its turn. A list comes as JSON in pieces, and its rows are freed."""
        async with self._turns:
            reply = await handler()
            if not is_long(reply.value):
                return reply
            pieces = [piece async for piece in encoding.as_json(reply.value)]
        return reply._replace(value=None, body=self._hold(pieces))

    def _hold(self, pieces: list[bytes]) -> Page:
        page, size = Page(pieces), sum(map(len, pieces))
        held = [(each, bytes_) for each, bytes_ in self._held if each() is not None]
        total = size + sum(bytes_ for _, bytes_ in held)
        while held and total > HELD_MAX_BYTES:
            oldest, freed = held.pop(0)
            total -= freed
            if (dropped := oldest()) is not None:
                dropped.drop()
        self._held = deque([*held, (weakref.ref(page), size)])
        return page
