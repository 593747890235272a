"""Lists of objects that nobody needs any more, freed in pieces: to free a million messages holds the loop for half a
second. All lists of one broker are one chore, so that other chores get their turns however many queues are deleted.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from node.scheduling.chores import Chore

FREED_AT_ONCE: Final = 200
"""The objects freed between two looks at the clock, at some 0.4 us each. Shorter lists are freed by the caller."""


class Waste:
    """The lists of one broker that are to be freed.   begin: works on a chore, in pieces."""

    def __init__(self, begin: Callable[[Chore], None]) -> None:
        self._begin = begin
        self._lists: deque[list[Any]] = deque()

    def add(self, objects: list[Any]) -> None:
        """Free the objects of a list in the coming turns; the list must be the last one that has them."""
        if len(objects) <= FREED_AT_ONCE:
            return
        self._lists.append(objects)
        if len(self._lists) == 1:
            self._begin(self._free())

    def _free(self) -> Chore:
        while self._lists:
            objects = self._lists[0]
            while objects:
                del objects[-FREED_AT_ONCE:]
                yield
            self._lists.popleft()
