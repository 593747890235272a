"""The messages of one queue that a client returned, and that wait before they are ready again.

    requeue ─► hold: due = now + back-off ─► DelayBacklog ─ due ─► the tail of the queue

A message gets a new number when it begins to wait, and another one when it is ready again. Its envelope says that it
waits, and its `expiry` is the time at which it is due. So disk and mirrors know both: after a restart, and at another
master, it waits for the rest of its time. It does not expire meanwhile; its time to live begins anew at the end.
Source: docs/dead_letters.md, "Retries with back-off".
"""

from typing import Final, Protocol

from node.catalogue.policy import QueueSettings
from node.queue.delay_backlog import ROUNDING_S, TIMER_MAX_S, DelayBacklog
from node.queue.number_set import NumberSet
from node.queue.rules import expiry_of
from node.queue.run import NEVER, Absent, Envelope, Run, content_bytes
from node.queue.tail import Numbering, to_tail
from node.scheduling.timers import Timer, Timers

RETRIES_MAX_BYTES: Final = 64 * 1024 * 1024
"""The memory that the waiting messages of a queue may take, about; above it messages come back at once."""

RETRY_BYTES: Final = 450
"""The bytes that a waiting message costs beside its content, about: most came back by themselves, as runs of one."""

READY_MAX: Final = 512
"""The most messages of a queue that become ready again at a time; the others follow in the next turns."""

_ENVELOPES_MAX: Final = 256
"""The envelopes whose counterpart is remembered, so that runs of one route share one."""

_POWER_MAX: Final = 63
"""The highest power of the multiplier that is computed: twice any shortest delay is the longest one by then."""


def delay_ms(settings: QueueSettings, deliveries: int) -> int:
    """Return how long a message waits that came back so many times: at least once.

    Without a multiplier it grows by the shortest delay each time, as in RabbitMQ 4.3; with one it is multiplied by
    that.
    """
    shortest, longest, multiplier = (
        settings.delayed_retry_min,
        settings.delayed_retry_max,
        settings.delayed_retry_multiplier,
    )
    assert shortest is not None, "retries are on"
    if multiplier is None:
        delay = shortest * deliveries
    else:
        delay = shortest * multiplier ** min(deliveries - 1, _POWER_MAX)
    return min(delay, longest)


class RetryingQueue(Numbering, Protocol):
    """The queue of waiting messages, as these use it."""

    settings: QueueSettings

    def came_back(self, run: Run) -> None:
        """Take messages that are ready again; their numbers are above all others."""

    def went_on(self, now: float) -> None:
        """Go on after messages came back: limits apply, and consumers may get them."""


class Retries:
    """The waiting messages of one queue."""

    __slots__ = ("_content_bytes", "_envelopes", "_queue", "_timer", "_timers", "_waiting", "numbers")

    def __init__(self, queue: RetryingQueue, timers: Timers) -> None:
        self._queue = queue
        self._timers = timers
        self._waiting = DelayBacklog(queue.storage, _nothing)
        self._envelopes: dict[Envelope, Envelope] = {}
        self._timer: Timer | None = None
        self._content_bytes = 0
        self.numbers = NumberSet()
        """The numbers of the messages that wait."""

    @property
    def count(self) -> int:
        """The number of messages that wait."""
        return self._waiting.count

    @property
    def body_bytes(self) -> int:
        """The number of bytes of their bodies."""
        return self._waiting.body_bytes

    @property
    def memory_bytes(self) -> int:
        """The bytes that they take in memory, about: properties count, as they may be larger than bodies."""
        return self._content_bytes + self._waiting.count * RETRY_BYTES

    def runs(self) -> list[Run]:
        """Return the messages that wait."""
        return list(self._waiting.in_memory(0))

    def hold(self, run: Run, now: float) -> bool:
        """Have messages wait that came back. Returns: False: they may not, as too many do."""
        queue = self._queue
        if self.memory_bytes > RETRIES_MAX_BYTES:
            return False
        due = now + delay_ms(queue.settings, run.deliveries) / 1000 + ROUNDING_S
        for new in to_tail(queue, run, self._counterpart(run.envelope), due):
            self.add(new, now)
        return True

    def add(self, run: Run, now: float) -> None:
        """Add messages that wait already, as the disk or an earlier master says."""
        self.numbers.add(run.seqs)
        self._content_bytes += content_bytes(run)
        self._waiting.add(run)
        self._arm(now)

    def drop(self, number: int) -> None:
        """Let go of a message, if it waits here; disk and mirrors are told by the caller."""
        if number in self.numbers:
            self._waiting.withdraw(number, self._taken)
            self.numbers.discard(range(number, number + 1))

    def clear(self) -> int:
        """Drop all messages, and have disk and mirrors forget them; return how many there were."""
        count = self.count
        for run in self.runs():
            self._queue.forget(run)
        self._waiting.abandon()
        self._content_bytes = 0
        self.numbers = NumberSet()
        return count

    def close(self) -> None:
        """Let go of all messages: the queue is gone, or has moved."""
        self._waiting.close()
        if self._timer is not None:
            self._timer.cancel()

    def _taken(self, run: Run | Absent | None) -> None:
        assert isinstance(run, Run), "all that waits is in memory"
        self._content_bytes -= content_bytes(run)

    def _counterpart(self, envelope: Envelope) -> Envelope:
        """Return the same envelope of messages that wait, or of those that no longer do."""
        found = self._envelopes.get(envelope)
        if found is None:
            if len(self._envelopes) >= _ENVELOPES_MAX:
                self._envelopes.clear()
            found = self._envelopes[envelope] = envelope.counterpart()
        return found

    def _arm(self, now: float) -> None:
        due = self._waiting.head_expiry
        if due == NEVER:
            return
        when = min(max(due, now), now + TIMER_MAX_S)
        if self._timer is not None:
            if self._timer.when <= when:
                return  # the timer will set the next one when it goes off
            self._timer.cancel()
        self._timer = self._timers.at(when, self._due)

    def _due(self, now: float) -> None:
        self._timer = None
        waiting, queue, left = self._waiting, self._queue, READY_MAX
        while left > 0 and waiting.head_expiry <= now:
            run = waiting.take(left)
            left -= len(run)
            self.numbers.discard(run.seqs)
            self._content_bytes -= content_bytes(run)
            envelope = self._counterpart(run.envelope)
            for new in to_tail(queue, run, envelope, expiry_of(queue.settings, envelope, now)):
                queue.came_back(new)
        queue.went_on(now)
        self._arm(now)


def _nothing() -> None:
    """Do nothing: no message comes from disk."""
