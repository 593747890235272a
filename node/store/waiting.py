"""The waiters for a batch of the journal."""

from node.queue.storage import Waiter


class Waiting:
    """Ranges of numbers for each waiter, in the order in which they were registered.

    Ranges that follow each other are one, so that a publisher costs one call, however many runs it sent.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[Waiter, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        """The number of waiters."""
        return len(self._ranges)

    def add(self, waiter: Waiter, first: int, last: int) -> None:
        """Register a range of numbers for a waiter, joined to its last range if it follows that."""
        ranges = self._ranges.setdefault(waiter, [])
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def settle(self, is_safe: bool) -> None:
        """Tell all waiters whether their ranges are safe. None may be added afterwards."""
        for waiter, ranges in self._ranges.items():
            for first, last in ranges:
                waiter.settle(first, last, is_safe)
