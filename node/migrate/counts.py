"""The account of one queue at one end: what was there, what came in, what went out, what waits.

A broker's counters begin at 0 when the queue's master moves or its node restarts. A counter that is less than the last
reading has begun anew, so that all of it is added. What happened between the last reading and that start is not
counted: the account says so (`restarts`), and lengths stay exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from node.migrate.queues import Key, Queue

Side = Literal["rabbitmq", "fluffle"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a queue at a moment.   publish, out: None if the broker does not count."""

    key: Key
    messages: int
    publish: int | None
    out: int | None
    redelivered: int = 0

    @property
    def publish_less_out(self) -> int:
        """The messages that are there by the counters."""
        return (self.publish or 0) - (self.out or 0)


def reading(queue: Queue) -> Reading:
    """Return the counters of a queue."""
    return Reading(queue.key, queue.messages, queue.publish, queue.out, queue.redelivered)


@dataclass(slots=True)
class Account:
    """The sums of a queue since its first reading.

    before: what waited then; None without a reading.   came, went: in and out since.   waiting: at the last reading.
    restarts: how often the counters began anew.   is_counted: True once a reading had counters.
    rate: how fast `waiting` shrinks, in messages a second; negative while it grows. None before two readings.
    """

    before: int | None = None
    came: int = 0
    went: int = 0
    redelivered: int = 0
    waiting: int = 0
    restarts: int = 0
    is_counted: bool = False
    rate: float | None = None
    _first: Reading | None = None
    _last: Reading | None = None
    _raw: Reading | None = None
    _at_s: float = 0.0

    def take(self, found: Reading, at_s: float) -> None:
        """Take a reading into account.   at_s: seconds, of any clock that goes on."""
        self.is_counted = self.is_counted or found.publish is not None
        self._raw = found
        if found.publish is None or found.out is None:
            # RabbitMQ shows no counters of a queue before its first message.
            found = Reading(found.key, found.messages, 0, 0, found.redelivered)
        last = self._last
        if last is None:
            self.before, self._first = found.messages, found
        else:
            self.came += self._grown(last.publish, found.publish)
            self.went += _grown(last.out, found.out)
            self.redelivered += _grown(last.redelivered, found.redelivered)
            passed_s = at_s - self._at_s
            if passed_s > 0:
                self.rate = (last.messages - found.messages) / passed_s
        self.waiting = found.messages
        self._last, self._at_s = found, at_s

    def _grown(self, before: int | None, now: int | None) -> int:
        if (now or 0) < (before or 0):
            self.restarts += 1
        return _grown(before, now)

    def is_news(self, found: Reading) -> bool:
        """True if a reading differs from the last one."""
        return found != self._raw

    @property
    def begin(self) -> int:
        """The messages that were there at the first reading.

        RabbitMQ's publishers and consumers report at different times, so that a length and two counters that are read
        together are not of one moment. If all that ever came has gone or waits now, the counters say what was there.
        """
        return max(0, self._by_counters)

    @property
    def arrived(self) -> int:
        """The messages that came in, without those that had gone already when they were counted."""
        return self.came + min(0, self._by_counters)

    @property
    def _by_counters(self) -> int:
        if self._first is not None and self._is_whole:
            return self._first.publish_less_out
        return self.before or 0

    @property
    def _is_whole(self) -> bool:
        """True if the counters explain the length, from the queue's beginning on."""
        last = self._last
        return last is not None and not self.restarts and last.publish_less_out == last.messages

    @property
    def unexplained(self) -> int:
        """Messages that were there or came, and neither went nor wait: expired, dropped, purged, dead-lettered, or
        under way while counters lag.
        """
        return self.begin + self.arrived - self.went - self.waiting


def _grown(before: int | None, now: int | None) -> int:
    """Return by how much a counter has grown."""
    was, is_ = before or 0, now or 0
    return is_ - was if is_ >= was else is_


def readings(queues: Iterable[Queue]) -> list[Reading]:
    """Return the readings of queues."""
    return [reading(queue) for queue in queues]
