"""The messages of a link that were published here and have no confirm yet, by the numbers of both sides.

Publishes are numbered from 1 on, deliveries by their tags upstream, and messages that are not passed on leave gaps in
the tags. All up to the first unconfirmed message are settled by one `basic.ack`; confirms out of order wait for it.
"""

from collections import deque


class Unsettled:
    """The unconfirmed publishes of one channel, as ranges: first number, count, first tag.

    Memory follows the number of ranges, and the confirms that came out of order, so the prefetch count bounds it.
    """

    def __init__(self) -> None:
        self._ranges: deque[list[int]] = deque()
        self._early: dict[int, bool] = {}
        """Settled numbers behind the front; True: confirmed, False: refused."""
        self.count = 0
        """The number of messages that are neither confirmed nor refused."""
        self._published = 0

    def add(self, first_tag: int, count: int) -> None:
        """Note that so many messages were published, whose deliveries have consecutive tags."""
        assert count > 0
        first = self._published + 1
        self._published += count
        self.count += count
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last[2] + last[1] == first_tag:
            last[1] += count
        else:
            self._ranges.append([first, count, first_tag])

    def confirmed(self, first: int, last: int) -> int:
        """Return the tag up to which deliveries are to be acknowledged; 0: none yet.   first, last: publishes."""
        self.count -= last + 1 - first
        if not self._early and self._ranges and self._ranges[0][0] == first:
            return self._advance_to(last)
        self._early.update(dict.fromkeys(range(first, last + 1), True))
        return self._advance()

    def refused(self, first: int, last: int) -> tuple[list[int], int]:
        """Return the tags of refused publishes, to be given back first, and then what `confirmed` does."""
        self.count -= last + 1 - first
        tags = [self._tag_of(number) for number in range(first, last + 1)]
        self._early.update(dict.fromkeys(range(first, last + 1), False))
        return tags, self._advance()

    def _advance_to(self, last: int) -> int:
        tag = 0
        while self._ranges and self._ranges[0][0] <= last:
            front = self._ranges[0]
            count = min(front[1], last - front[0] + 1)
            tag = front[2] + count - 1
            self._shorten(front, count)
        return tag

    def _advance(self) -> int:
        tag = 0
        while self._ranges and (number := self._ranges[0][0]) in self._early:
            front = self._ranges[0]
            if self._early.pop(number):
                tag = front[2]
            self._shorten(front, 1)
        return tag

    def _shorten(self, front: list[int], count: int) -> None:
        front[0], front[1], front[2] = front[0] + count, front[1] - count, front[2] + count
        if not front[1]:
            self._ranges.popleft()

    def _tag_of(self, number: int) -> int:
        return next(
            tag + number - first for first, count, tag in self._ranges if first <= number < first + count
        )
