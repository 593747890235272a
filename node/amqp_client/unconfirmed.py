"""The publishes of one channel that the broker has not answered, as ranges of numbers."""

from bisect import bisect_left, insort

from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError


class Unconfirmed:
    """The numbers from 1 on of the publishes of one channel, and which of them are settled.

    The cost is one range for each gap, however many numbers there are.
    """

    def __init__(self) -> None:
        self.published = 0
        """The number of the last publish."""
        self.lowest = 1
        """The lowest number that is not settled; `published + 1` if all are."""
        self._settled: list[tuple[int, int]] = []  # above `lowest`: sorted, disjoint, with gaps between them

    def __len__(self) -> int:
        return self.published + 1 - self.lowest - sum(last + 1 - first for first, last in self._settled)

    def add(self, count: int) -> int:
        """Note publishes, and return the number of the first."""
        first = self.published + 1
        self.published += count
        return first

    def settle(self, first: int, last: int) -> list[tuple[int, int]]:
        """Settle the numbers from first to last; return the ranges that were not settled before.

        Raises: ProtocolError for numbers that were never published.
        """
        if not 0 < first <= last <= self.published:
            raise ProtocolError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {last}")
        if first <= self.lowest and not self._settled:
            found = [(self.lowest, last)] if last >= self.lowest else []
            self.lowest = max(self.lowest, last + 1)
            return found
        return self._settle_with_gaps(max(first, self.lowest), last)

    def settle_up_to(self, last: int) -> list[tuple[int, int]]:
        """Settle all numbers up to `last`, or all of them if it is 0; return the ranges that were not settled."""
        last = last or self.published
        return self.settle(min(self.lowest, last), last) if last else []

    def _settle_with_gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        at = first
        for known_first, known_last in self._settled[self._place(first) :]:
            if known_first > last:
                break
            if known_first > at:
                found.append((at, known_first - 1))
            at = max(at, known_last + 1)
        if at <= last:
            found.append((at, last))
        for each in found:
            insort(self._settled, each)
        self._join()
        return found

    def _place(self, first: int) -> int:
        """Return the index of the range before `first`, or 0."""
        return max(bisect_left(self._settled, (first, first)) - 1, 0)

    def _join(self) -> None:
        """Join ranges that touch, and raise `lowest` past those that it touches."""
        joined: list[tuple[int, int]] = []
        for first, last in self._settled:
            if first <= self.lowest:
                self.lowest = max(self.lowest, last + 1)
            elif joined and joined[-1][1] + 1 == first:
                joined[-1] = (joined[-1][0], last)
            else:
                joined.append((first, last))
        self._settled = joined
