"""Clients of a cluster know this of their messages, and this is counted (reliability §5.3).

A message is its value, the session of its publisher and a number (`tests.kit.ledger`). Each is published once.
"""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from tests.kit import ledger
from tests.kit.ledger import DELIVERED, SENT, SETTLED, QueueLedger, Tally, Value, clock
from tests.kit.load_client import Delivery

SHOWN_MAX: Final = 8


@dataclass(slots=True)
class Count(Tally):
    """Counts what happened. From `lost` on all must be 0, and `problems` says what was wrong, in words.

    unknown: publishes whose outcome nobody told, as the connection was lost.   recovered: of those and the nacked,
    how many were delivered.   redelivered: deliveries of what somebody had before, which say so.   again: settled
    ones among them: the ack was lost.   unmarked: such ones that don't say so.   twice: two copies in a queue.
    stale: a node did not know what another one had answered.
    """

    attempted: int = 0
    confirmed: int = 0
    nacked: int = 0
    returned: int = 0
    unknown: int = 0
    delivered: int = 0
    redelivered: int = 0
    again: int = 0
    recovered: int = 0
    declares: int = 0
    refused: int = 0
    lost: int = 0
    unexpected: int = 0
    duplicates: int = 0
    unmarked: int = 0
    twice: int = 0
    disorder: int = 0
    wrong: int = 0
    stale: int = 0
    differs: int = 0
    stuck: int = 0
    leaks: int = 0
    other: int = 0


NUMBERS: Final = Count.numbers()
MUST_BE_0: Final = Count.must_be_0()


class Holder(NamedTuple):
    """Names the session that was given a message last."""

    text: str
    at: float


class QueueStory(QueueLedger):
    """One queue.   home: index of its node.   is_durable: what is confirmed must stay.

    last_delivery_s: when somebody was last given something.   holders: who was given each last, and when.
    """

    def __init__(self, name: str, home: int, is_durable: bool = True) -> None:
        super().__init__(name)
        self.home = home
        self.is_durable = is_durable
        self.holders: dict[Value, Holder] = {}
        self.last_delivery_s = 0.0


class ConsumerSession:
    """A consumer of one queue, from its consume-ok (or first get) to its end: what it was given.

    Of two sessions that were there at the same time, one may hear of a delivery late: after the other one was given
    the message again. A session that began later can't.
    """

    def __init__(self, count: Tally, name: str) -> None:
        self.name = name
        self._count = count
        self._began = time.monotonic()
        self._seen: dict[Value, bool] = {}
        """The session was given these messages; the value tells if it settled them."""
        self._last: dict[tuple[str, int], int] = {}

    def _judge_new(self, value: Value, priority: int, where: str, had: str) -> None:
        """A delivery does not say redelivered.   had: who had it before; empty: nobody who matters."""
        if value in self._seen:
            self._tell("duplicates", f"{where} came twice, without redelivered", value)
        elif had:
            self._tell("unmarked", f"{where} does not say redelivered, but had been: {had}", value)
        order = value.publisher, priority
        last = self._last.get(order, 0)
        if last >= value.number:
            self._tell("disorder", f"{where} after {last}", value)
        self._last[order] = value.number

    def _tell(self, what: str, text: str, value: Value) -> None:
        self._count.problem(what, text)


class Session(ConsumerSession):
    """A consumer of a queue without mirrors."""

    def __init__(self, ledger: "Ledger", queue: QueueStory, name: str) -> None:
        super().__init__(ledger.count, name)
        self.queue = queue
        self._ledger = ledger

    def take(self, delivery: Delivery) -> Value | None:
        """A delivery; None if it is not what it should be."""
        count, queue = self._ledger.count, self.queue
        value = self._ledger.read(delivery, queue)
        if value is None:
            return None
        count.delivered += 1
        queue.last_delivery_s = time.monotonic()
        known = queue.marks.get(value, 0)
        is_redelivered = delivery.method.redelivered
        where = f"{queue.name} {self.name}: {value.publisher}:{value.number}"
        if not known & SENT:
            count.problem("unexpected", f"{where} was never published to it")
        if is_redelivered:
            count.redelivered += 1
            count.again += bool(known & SETTLED)
            if self._seen.get(value):
                count.problem("duplicates", f"{where} was acknowledged in this session, and came again")
        else:
            had = ""
            if known & DELIVERED and queue.holders[value].at < self._began:
                had = str(queue.holders[value])
            self._judge_new(value, self._ledger.kinds[value.publisher].priority(value.number), where, had)
        self._seen[value] = False
        queue.mark(value, DELIVERED)
        text = f"{self.name}, {clock()}" + ", marked" * is_redelivered
        queue.holders[value] = Holder(text, time.monotonic())
        return value

    def settled(self, value: Value) -> None:
        """An ack is about to be sent."""
        self._seen[value] = True
        self.queue.mark(value, SETTLED)


class Ledger(ledger.Ledger[Count, QueueStory]):
    """All of it.

    confirms: when confirms came, by (front end, home) of the publish.   declares: when answers came, by node.
    """

    def __init__(self) -> None:
        super().__init__(Count())
        self.confirms: dict[tuple[int, int], list[float]] = {}
        self.declares: dict[int, list[float]] = {}

    def add(self, name: str, home: int, *, is_durable: bool = True) -> QueueStory:
        """A queue."""
        story = self.queues[name] = QueueStory(name, home, is_durable)
        return story

    def longest_gap(
        self, times: dict[tuple[int, int], list[float]], victims: set[int], since: float, until: float
    ) -> float:
        """The longest time without a confirm between two nodes that nothing was done to."""
        gaps = [
            gap_in(found, since, until) for pair, found in times.items() if not victims.intersection(pair)
        ]
        return max(gaps, default=0.0)

    def longest_declare(self, victims: set[int], since: float, until: float) -> float:
        """The longest time without a metadata change, on the best of the nodes that nothing was done to."""
        gaps = [gap_in(found, since, until) for node, found in self.declares.items() if node not in victims]
        return min(gaps, default=until - since)


def gap_in(times: list[float], since: float, until: float) -> float:
    """The longest time between two of these within a span, which itself begins and ends one."""
    inside = [since, *(each for each in times if since < each < until), until]
    return max(later - earlier for earlier, later in pairwise(inside))
