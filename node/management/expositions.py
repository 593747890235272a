"""Pages of metrics, for callers without a user: made one at a time, shared for a second, few of them held.

A page of 10,000 queues has 17 MB. A hundred callers that do not read hold one page together; when a third page is
made the oldest one that is still being sent is dropped, and its callers' connections end.
"""

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, overload

SHARED_S: Final = 1.0
"""For how long a page answers all callers that ask for the same."""

HELD_MAX: Final = 2
"""The most pages that are being sent at once, however slowly they are read."""


class Page(Sequence[bytes]):
    """The pieces of one answer. Once it is dropped, reading on raises ConnectionResetError."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces: Sequence[bytes] | None = pieces

    def drop(self) -> None:
        """Drop the pieces, even if they are still being sent."""
        self._pieces = None

    def __len__(self) -> int:
        return len(self._held)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self._held[index]

    @property
    def _held(self) -> Sequence[bytes]:
        if self._pieces is None:
            raise ConnectionResetError("other pages are wanted, and this one is read too slowly")
        return self._pieces


class Expositions:
    """The pages of one node.   clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._shared: dict[Hashable, tuple[float, Page]] = {}
        self._sent: deque[weakref.ref[Page]] = deque()

    async def page(self, wanted: Hashable, make: Callable[[], Awaitable[Sequence[bytes]]]) -> Page:
        """Return the page of that kind: one that is young enough, or a new one when it is its turn."""
        async with self._turn:
            known = self._shared.get(wanted)
            if known is not None and self._clock() - known[0] < SHARED_S:
                return known[1]
            self._shared.pop(wanted, None)
            self._make_room()
            page = Page(await make())
            now = self._clock()
            self._shared[wanted] = now, page
            self._sent.append(weakref.ref(page))
            asyncio.get_running_loop().call_later(SHARED_S, self._forget, wanted, page)
            return page

    def _forget(self, wanted: Hashable, page: Page) -> None:
        """Stop sharing a page that is too old; it is still sent where that has begun."""
        known = self._shared.get(wanted)
        if known is not None and known[1] is page:
            del self._shared[wanted]

    def _make_room(self) -> None:
        """Drop pages so that there is room for one more."""
        held = [(each, page) for each in self._sent if (page := each()) is not None]
        while len(held) > HELD_MAX - 1:
            held.pop(0)[1].drop()
        self._sent = deque(each for each, _ in held)
        dropped = [
            wanted for wanted, (_, page) in self._shared.items() if page not in [each for _, each in held]
        ]
        for wanted in dropped:
            del self._shared[wanted]
