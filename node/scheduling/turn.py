"""The shares that clients' connections have of one turn of the loop. They are measured by the clock, as the cost of a
message depends on bindings, headers and limits that other clients chose, and no estimate holds against all of them.

    take bytes ─► a message ─► share over? ─ yes ─► in line ─► a turn with room ─► take the rest
                     ▲             └ no ─┐
                     └────────────────────┘

A share is checked between messages, so it is exceeded by one message at most. While connections wait in line, or when
the turn is full, new bytes for a connection that was stopped the last time wait in line, too.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from node.amqp.reader import FrameReader

SHARE_S: Final = 0.002
"""The longest time in seconds for which one connection works at once on its client's bytes."""

TURN_S: Final = 0.010
"""The longest time in seconds for which all stopped connections together work in one turn; one of them always works."""


def _call_nobody() -> None:
    """Do nothing: the connection is gone."""


class Turn:
    """The present turn.

    clock: seconds, monotonic.   wake: called when the first connection gets in line.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self.clock = clock
        self.number = 0
        self.taken_s = 0.0
        self._wake = wake
        self._line: deque[Share] = deque()

    @property
    def has_work(self) -> bool:
        """True if a connection waits in line."""
        return bool(self._line)

    @property
    def is_full(self) -> bool:
        """True if connections have worked for long enough in this turn."""
        return self.taken_s >= TURN_S

    def line_up(self, share: "Share") -> None:
        """Have a connection wait for another turn, behind all that wait already."""
        if not self._line:
            self._wake()
        self._line.append(share)

    def let_go_on(self) -> None:
        """Let the connections in line work, the one that has waited longest first, until the turn is full."""
        for _ in range(len(self._line)):
            self._line.popleft().go_on()
            if self.is_full:
                break

    def end(self) -> None:
        """End this turn and begin the next one."""
        self.number += 1
        self.taken_s = 0.0


class Share:
    """The part of a turn that one connection has.

    ends_at: the time at which it has to stop.   is_over: it has stopped and waits in line.
    """

    __slots__ = (
        "_began_at",
        "_is_heavy",
        "_left_s",
        "_number",
        "_read_on",
        "_reader",
        "_turn",
        "ends_at",
        "is_over",
    )

    def __init__(self, turn: Turn, reader: FrameReader, read_on: Callable[[], None]) -> None:
        self._turn = turn
        self._reader = reader
        self._read_on = read_on
        self._number = -1
        self._left_s = SHARE_S
        self._began_at = 0.0
        self._is_heavy = False  # True if the share was over the last time that bytes came in
        self.ends_at = 0.0
        self.is_over = False

    def begin(self) -> None:
        """Begin to measure the time: the connection is about to work."""
        turn = self._turn
        if self._number != turn.number:
            self._number = turn.number
            self._left_s = SHARE_S
        self._began_at = now = turn.clock()
        self.ends_at = now + self._left_s

    def end(self, *, came_in: bool) -> None:
        """Stop measuring: the connection has worked off its bytes, or was stopped.   came_in: the bytes had just come
        in.
        """
        taken_s = self._turn.clock() - self._began_at
        self._turn.taken_s += taken_s
        self._left_s -= taken_s
        if came_in:
            self._is_heavy = self.is_over

    @property
    def has_to_wait(self) -> bool:
        """True if new bytes of the client wait for another turn, as this one is full or other connections wait."""
        return self._is_heavy and (self._turn.is_full or self._turn.has_work)

    def stop(self) -> None:
        """Read no further in this turn."""
        self._reader.paused = True
        if not self.is_over:
            self.is_over = True
            self._turn.line_up(self)

    def close(self) -> None:
        """Forget the connection, which is gone: it is not called any more, even if it still waits in line."""
        self._read_on = _call_nobody

    def go_on(self) -> None:
        """Let the connection work: it is the first in line."""
        self.is_over = False
        self._number = -1
        self._read_on()
