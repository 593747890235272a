"""What clients' connections may take of one turn of the loop, by the clock: what a message costs depends on bindings,
headers and limits that other clients chose, and no estimate holds against all of them.

    take bytes ─► a message ─► share over? ─ yes ─► in line ─► a turn with room ─► take the rest
        │            ▲             └ no ─┐               ▲
        │            └────────────────────┘               │
        └ turn full? ─ yes ─► in the line of the short ───┘

A share is looked at between messages, so it is exceeded by one message at most. When a turn is full, what comes in
waits for the next one: a hundred clients may wake the node at once. Who sent little and was not stopped the last two
times is *short*: it goes before the others, however many these are. (Once does not count, as the system may have taken
the processor away.) While somebody is in either line, who would belong there waits in it, too.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from node.amqp.reader import FrameReader

SHARE_S: Final = 0.002
"""How long one connection works at once on what its client sent."""

TURN_S: Final = 0.010
"""How long connections work in one turn, all together; one of those that were stopped always goes on."""

SHORT_BYTES: Final = 4096
"""What a client sends that asks for one thing and waits for the answer."""

HEAVY_STOPS: Final = 2
"""Who was stopped so often, one after the other, sends more than a turn can take."""


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
        self._short: deque[Share] = deque()
        self._line: deque[Share] = deque()

    @property
    def has_work(self) -> bool:
        """Whether somebody waits for a turn."""
        return bool(self._line or self._short)

    @property
    def is_full(self) -> bool:
        """Whether connections have worked for long enough in this turn."""
        return self.taken_s >= TURN_S

    def has_to_wait(self, *, is_heavy: bool) -> bool:
        """Whether what has just come in waits for another turn.   is_heavy: it is not short."""
        return self.is_full or bool(self._short or (is_heavy and self._line))

    def line_up(self, share: "Share", *, is_heavy: bool) -> None:
        """Wait for another turn, behind all of that kind that wait already."""
        if not self.has_work:
            self._wake()
        (self._line if is_heavy else self._short).append(share)

    def let_go_on(self) -> None:
        """Those in line work on, who has waited longest first."""
        while self._short and not self.is_full:
            self._short.popleft().go_on()
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
        "_is_in_line",
        "_is_waiting",
        "_left_s",
        "_number",
        "_read_on",
        "_reader",
        "_stops",
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
        self._stops = (
            0  # one after the other, with something that had just come in; no higher than HEAVY_STOPS
        )
        self._is_in_line = False
        self._is_waiting = False  # what came in has not been looked at yet
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
        came_in = came_in or self._is_waiting
        self._is_waiting = False
        taken_s = self._turn.clock() - self._began_at
        self._turn.taken_s += taken_s
        self._left_s -= taken_s
        if self.is_over and not self._is_in_line:
            self._stops = min(self._stops + 1, HEAVY_STOPS)
            self._line_up(is_heavy=self._is_heavy(self._reader.kept_bytes))
        elif came_in and not self.is_over:
            self._stops = 0

    def _is_heavy(self, size: int) -> bool:
        return self._stops >= HEAVY_STOPS or size > SHORT_BYTES

    def wait_if_full(self, size: int) -> bool:
        """Have what there is to work on wait for another turn, if this one is full or others wait already.

        size: its bytes.
        """
        is_heavy = self._is_heavy(size)
        if not self._turn.has_to_wait(is_heavy=is_heavy):
            return False
        self._is_waiting = self.is_over = self._reader.paused = True
        self._line_up(is_heavy=is_heavy)
        return True

    def _line_up(self, *, is_heavy: bool) -> None:
        self._is_in_line = True
        self._turn.line_up(self, is_heavy=is_heavy)

    def stop(self) -> None:
        """Read no further in this turn. Called between `begin` and `end`."""
        self._reader.paused = self.is_over = True

    def close(self) -> None:
        """The connection is gone: it is not called any more, not even if it still waits in line."""
        self._read_on = _call_nobody

    def go_on(self) -> None:
        """The line has come to this connection."""
        self.is_over = self._is_in_line = False
        self._number = -1
        self._read_on()
