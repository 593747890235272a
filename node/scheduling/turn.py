"""The shares that clients' connections have of one turn of the loop. They are measured by the clock, as the cost of a
message depends on bindings, headers and limits that other clients chose, and no estimate holds against all of them.

    take bytes ─► turn full? ─ no ─► a message ─► share over? ─ no ─┐
                     │                   ▲            │             │
                    yes                  └────────────┼─────────────┘
                     ▼                               yes
                  in line ◄───────────────────────────┘
                     └─► a turn with room ─► take the rest

A share is looked at between messages, so it is exceeded by one message at most. A turn is full when all connections
together have worked for `TURN_S`: a hundred clients may wake the node at once.

There are two lines. Input is *short* if it is at most `SHORT_BYTES` and its connection was not stopped `HEAVY_STOPS`
times in a row. The short line works at the beginning of a turn, however many others wait. The long line works at its
end, when all others have their answers. New input waits while its line is not empty.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from node.override import override

SHARE_S: Final = 0.002
"""The longest time in seconds for which one connection works at once on its client's bytes."""

TURN_S: Final = 0.010
"""The longest time in seconds for which all connections together work in a turn, those of the long line left out."""

LONG_S: Final = 0.001
"""The time in seconds after which no other connection of the long line works in a turn; one always does.

Everybody else waits so long. It is half of `SHARE_S`: a share that was cut by its time is the only one of a turn.
"""

SHORT_BYTES: Final = 4096
"""More than a client sends that asks for one thing and waits for the answer."""

HEAVY_STOPS: Final = 2
"""A connection that was stopped so often in a row sends more than a turn can take. One stop proves nothing: the system
may have given the processor to another process."""


class Input(Protocol):
    """The input of a connection.   paused: nothing more is taken from it."""

    paused: bool

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that were read and not taken."""


def _call_nobody() -> None:
    """Do nothing: the connection is gone."""


class Turn:
    """The present turn.

    clock: seconds, monotonic.   wake: called when a connection gets in line.   has_work: True if one is in line.
    """

    def __init__(self, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self.clock = clock
        self.number = 0
        self.taken_s = 0.0
        self.has_work = False
        self._wake = wake
        self._short: deque[Share] = deque()
        self._long: deque[Share] = deque()

    @property
    def is_full(self) -> bool:
        """True if connections have worked for long enough in this turn."""
        return self.taken_s >= TURN_S

    def has_room(self, *, is_short: bool) -> bool:
        """True if new input may be worked on at once, in this turn and before all connections in line."""
        return not (self.taken_s >= TURN_S or self._short or (self._long and not is_short))

    def line_up(self, share: "Share", *, is_short: bool) -> None:
        """Have a connection wait for another turn, at the end of one of the lines."""
        if not self.has_work:
            self.has_work = True
            self._wake()
        (self._short if is_short else self._long).append(share)

    def serve_short(self) -> None:
        """Let connections of the short line work on, as long as the turn has room."""
        while self._short and not self.is_full:
            self._short.popleft().go_on()
        self.has_work = bool(self._short or self._long)

    def end(self) -> None:
        """End this turn: let connections of the long line work, and begin the next one."""
        self.taken_s = 0.0
        for _ in range(len(self._long)):
            self._long.popleft().go_on()
            if self.taken_s >= LONG_S:
                break
        self.has_work = bool(self._short or self._long)
        self.number += 1
        self.taken_s = 0.0


class Share:
    """The part of a turn that one connection has.

    ends_at: the time after which it has to stop.   is_over: it has to stop, or waits in line; its reader is paused.
    """

    __slots__ = (
        "_began_at",
        "_is_cut",
        "_left_s",
        "_number",
        "_read_on",
        "_reader",
        "_stops",
        "_turn",
        "ends_at",
        "is_over",
    )

    def __init__(self, turn: Turn, reader: Input, read_on: Callable[[], None]) -> None:
        self._turn = turn
        self._reader = reader
        self._read_on = read_on
        self._number = -1
        self._left_s = SHARE_S
        self._began_at = 0.0
        self._stops = 0  # since all of an input was last worked off at once; HEAVY_STOPS at most
        self._is_cut = False  # the present input was stopped
        self.ends_at = 0.0
        self.is_over = False

    def has_to_wait(self, size: int) -> bool:
        """Get in line with input of so many bytes, unless this turn has room for it. Returns: whether it is in line."""
        turn = self._turn
        if not turn.has_work and turn.taken_s < TURN_S:
            return False
        is_short = size <= SHORT_BYTES and self._stops < HEAVY_STOPS
        if turn.has_room(is_short=is_short):
            return False
        self.is_over = self._reader.paused = True
        turn.line_up(self, is_short=is_short)
        return True

    def begin(self) -> None:
        """Begin to measure the time: the connection is about to work."""
        turn = self._turn
        if self._number != turn.number:
            self._number = turn.number
            self._left_s = SHARE_S
        self._began_at = now = turn.clock()
        self.ends_at = now + self._left_s

    def stop(self) -> None:
        """Read no further in this turn. Called between `begin` and `end`."""
        self._reader.paused = self.is_over = True

    def end(self) -> None:
        """Stop measuring: the connection has worked off its input, or was stopped and gets in line with the rest."""
        taken_s = self._turn.clock() - self._began_at
        self._turn.taken_s += taken_s
        self._left_s -= taken_s
        if self.is_over:
            self._is_cut = True
            self._stops = min(self._stops + 1, HEAVY_STOPS)
            is_short = self._stops < HEAVY_STOPS and self._reader.kept_bytes <= SHORT_BYTES
            self._turn.line_up(self, is_short=is_short)
        else:
            if not self._is_cut:
                self._stops = 0
            self._is_cut = False

    def close(self) -> None:
        """Forget the connection, which is gone: it is not called any more, even if it still waits in line."""
        self._read_on = _call_nobody

    def go_on(self) -> None:
        """Let the connection work: it is the first in line."""
        self.is_over = False
        self._number = -1
        self._read_on()


class UnboundedShare(Share):
    """A share that is never over: operators send few requests, and their client may leave right behind the last one."""

    __slots__ = ()

    @override
    def has_to_wait(self, size: int) -> bool:
        return False

    @override
    def begin(self) -> None:
        super().begin()
        self.ends_at = inf
