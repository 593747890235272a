"""What clients' connections may take of one turn of the loop, by the clock: what a message costs depends on bindings,
headers and limits that other clients chose, and no estimate holds against all of them.

    take bytes ─► a message ─► share over? ─ yes ─► in line ─► a turn with room ─► take the rest
                     ▲             └ no ─┐
                     └────────────────────┘

A share is looked at between messages, so it is exceeded by one message at most. While there is a line, or when a turn
is full, what comes in for those who were stopped the last time waits in it, too.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from node.amqp.reader import FrameReader

SHARE_S: Final = 0.002
"""How long one connection works at once on what its client sent."""

TURN_S: Final = 0.010
"""How long connections that were stopped work in one turn, all together; one of them always goes on."""


def _call_nobody() -> None:
    """There is no connection any more."""


class Turn:
    """The present turn.

    clock: seconds, monotonic.   wake: called when somebody gets in line.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self.clock = clock
        self.number = 0
        self.taken_s = 0.0
        self._wake = wake
        self._line: deque[Share] = deque()

    @property
    def has_work(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._line)

    @property
    def is_full(self) -> bool:
        """Whether connections have worked for long enough in this turn."""
        return self.taken_s >= TURN_S

    def line_up(self, share: "Share") -> None:
        """Wait for another turn, behind all that wait already."""
        if not self._line:
            self._wake()
        self._line.append(share)

    def let_go_on(self) -> None:
        """Those in line work on, who has waited longest first."""
        for _ in range(len(self._line)):
            self._line.popleft().go_on()
            if self.is_full:
                break

    def end(self) -> None:
        """The next turn begins."""
        self.number += 1
        self.taken_s = 0.0


class Share:
    """What one connection takes of a turn.

    ends_at: the time after which it has to stop.   is_over: it has stopped and waits in line.
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
        self._is_heavy = False  # it was stopped the last time that something came in
        self.ends_at = 0.0
        self.is_over = False

    def begin(self) -> None:
        """The connection is about to work: begins the time."""
        turn = self._turn
        if self._number != turn.number:
            self._number = turn.number
            self._left_s = SHARE_S
        self._began_at = now = turn.clock()
        self.ends_at = now + self._left_s

    def end(self, *, came_in: bool) -> None:
        """It has worked off what there was, or was stopped.   came_in: it worked on what had just come in."""
        taken_s = self._turn.clock() - self._began_at
        self._turn.taken_s += taken_s
        self._left_s -= taken_s
        if came_in:
            self._is_heavy = self.is_over

    @property
    def has_to_wait(self) -> bool:
        """Whether new bytes of the client wait for another turn, as this one is full or others wait already."""
        return self._is_heavy and (self._turn.is_full or self._turn.has_work)

    def stop(self) -> None:
        """Read no further in this turn."""
        self._reader.paused = True
        if not self.is_over:
            self.is_over = True
            self._turn.line_up(self)

    def close(self) -> None:
        """The connection is gone: it is not called any more, not even if it still waits in line."""
        self._read_on = _call_nobody

    def go_on(self) -> None:
        """The line has come to this connection."""
        self.is_over = False
        self._number = -1
        self._read_on()
