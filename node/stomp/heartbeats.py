"""Heart-beats of one connection: ours when nothing was sent, and a look whether the client is silent.

A client says what it sends and what it wants: `heart-beat:5000,10000`, in milliseconds. As RabbitMQ's plug-in the node
does what the client wants, in whole seconds and at least one; a client that is silent for two intervals is lost.
Source: STOMP 1.2, "Heart-beating"; RabbitMQ 3.10.8, `rabbit_stomp_processor`, `rabbit_heartbeat`.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from node.plugins import Session
from node.stomp.errors import bad_value

_DIGITS_MAX: Final = 9
"""The most digits of an interval: 11 days."""


class Intervals(NamedTuple):
    """The intervals in seconds; 0: none.   sent: by the node.   expected: from the client."""

    sent: int
    expected: int

    @property
    def header(self) -> str:
        """The header `heart-beat` of CONNECTED."""
        return f"{self.sent * 1000},{self.expected * 1000}"


def parse_intervals(text: str) -> Intervals:
    """Return the intervals for a client's header `heart-beat`. Raises: StompError."""
    numbers = text.split(",")
    if len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise bad_value("heart-beat", "two numbers of milliseconds with a comma between")
    if max(map(len, numbers)) > _DIGITS_MAX:
        raise bad_value("heart-beat", f"numbers of at most {_DIGITS_MAX} digits")
    expected, sent = (_seconds(int(each)) for each in numbers)
    return Intervals(sent, expected)


def _seconds(milliseconds: int) -> int:
    return 0 if milliseconds == 0 else max(1, milliseconds // 1000)


class Heartbeats:
    """Sends heart-beats and finds a silent client.

    has_heard, has_spoken: set by the connection whenever bytes come or go.   beat: sends a heart-beat.
    lost: called when the client has been silent for two intervals while the node was reading.
    """

    def __init__(self, session: Session, beat: Callable[[], None], lost: Callable[[], None]) -> None:
        self.has_heard = False
        self.has_spoken = False
        self._session = session
        self._beat = beat
        self._lost = lost
        self._intervals = Intervals(0, 0)
        self._has_been_silent = False

    def let_go(self) -> None:
        """Forget the connection: it is gone."""
        self._beat = self._lost = _nothing

    def start(self, intervals: Intervals) -> None:
        """Begin; called once."""
        self._intervals = intervals
        if intervals.sent:
            self._session.after(intervals.sent / 2, self._speak)
        if intervals.expected:
            self._session.after(intervals.expected, self._listen)

    def _speak(self) -> None:
        if not self.has_spoken:
            self._beat()
        self.has_spoken = False
        self._session.after(self._intervals.sent / 2, self._speak)

    def _listen(self) -> None:
        is_silent = not self.has_heard and not self._session.is_held_back
        if is_silent and self._has_been_silent:
            self._lost()
            return
        self._has_been_silent = is_silent
        self.has_heard = False
        self._session.after(self._intervals.expected, self._listen)


def _nothing() -> None:
    """Do nothing: there is no connection any more."""
