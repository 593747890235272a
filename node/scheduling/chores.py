"""Long work that a client can ask for with one method, done in pieces so that it never holds the others up.

    begin ─► worked on at once ─► time over? ─ yes ─► in line ─► a turn ─► worked on ─► … ─► done
                                      └ no ─► done

Chores are the end of a channel with many consumers and deliveries, of a connection with many queues, of a queue with
many consumers, and a message for many queues. A short chore is over before `begin` returns.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

CHORES_S: Final = 0.004
"""The seconds that chores work in one turn, all together; the clock is looked at after each piece.

With a quarter of it deletions of queues lag so far behind their clients that the heap keeps half as much again.
"""

Chore = Iterator[None]
"""Work that gives control back after each piece of some 0.1 ms."""


class _Begun(NamedTuple):
    chore: Chore
    on_done: Callable[[], None]


def _nobody_waits() -> None:
    """Ignore the end of a chore for which nothing waits."""


class Chores:
    """The chores of one broker, in the order in which they were begun.

    clock: seconds, monotonic.   wake: called when there is work for the coming turns.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._line: deque[_Begun] = deque()
        self._taken_s = 0.0  # of the present turn

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(self._line)

    def begin(self, chore: Chore, on_done: Callable[[], None] = _nobody_waits) -> None:
        """Work on the chore at once as far as this turn's time goes, and on in the coming turns."""
        if self._taken_s >= CHORES_S or not self._work(chore):
            if not self._line:
                self._wake()
            self._line.append(_Begun(chore, on_done))
        else:
            on_done()

    def turn(self) -> None:
        """Work on the chores in line: each in turn, so that a short one doesn't wait for a long one."""
        self._taken_s = 0.0
        while self._line and self._taken_s < CHORES_S:
            begun = self._line.popleft()
            try:
                is_done = self._work(begun.chore)
            except BaseException:
                begun.on_done()  # a fault of ours in the chore: its waiter must not wait for ever
                raise
            if is_done:
                begun.on_done()
            else:
                self._line.append(begun)

    def end_turn(self) -> None:
        """Give the next turn its full time."""
        self._taken_s = 0.0

    def _work(self, chore: Chore) -> bool:
        """Work until the turn's time is over; return whether the chore is done."""
        began = self._clock()
        ends_at = began + CHORES_S - self._taken_s
        try:
            return all(self._clock() <= ends_at for _ in chore)
        finally:
            self._taken_s += self._clock() - began
