"""Who waits for a batch of the journal to be safe."""

from node.queue.storage import Waiter


class Waiting:
    """Ranges of numbers for each waiter, in the order in which they were registered.

    Ranges that follow each other are one, so that a publisher costs one call, however many runs it sent.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[Waiter, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._ranges)

    def add(self, waiter: Waiter, first: int, last: int) -> None:
        """See `Storage.await_safety`."""
        ranges = self._ranges.setdefault(waiter, [])
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    def settle(self, is_safe: bool) -> None:
        """Tell them all. Nobody may be added afterwards."""
        for waiter, ranges in self._ranges.items():
            for first, last in ranges:
                waiter.settle(first, last, is_safe)
