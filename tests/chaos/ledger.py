"""What the clients of a cluster know of their messages, and what is counted (reliability §5.3).

A message is its value, the session of its publisher and a number (`tests.durability.ledger`). Each is published once.
"""

import time
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Final, NamedTuple

from tests.durability.ledger import Kind, Value, value_of
from tests.kit.load_client import Delivery

SENT: Final = 1
CONFIRMED: Final = 2
"""By an ack or commit-ok, and it was not returned: it is in the queue."""
RETURNED: Final = 4
NACKED: Final = 8
DELIVERED: Final = 16
SETTLED: Final = 32
"""An ack was sent: it may be there or not."""
MAYBE: Final = 64
"""It may miss this queue although it was confirmed: the queue's home was perhaps down when it was routed."""

PROBLEMS_MAX: Final = 60
SHOWN_MAX: Final = 8


def clock() -> str:
    """The time of day, as in the nodes' logs."""
    now = time.time()
    return time.strftime("%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}"


@dataclass(slots=True)
class Count:
    """What happened. From `lost` on all must be 0, and `problems` says what was wrong, in words.

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
    problems: list[str] = field(default_factory=list)

    def problem(self, what: str, text: str, number: int = 1) -> None:
        """Count something that must not be."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{clock()} {what.upper()}: {text}")


NUMBERS: Final = tuple(each.name for each in fields(Count) if each.name != "problems")
MUST_BE_0: Final = NUMBERS[NUMBERS.index("lost") :]


class Holder(NamedTuple):
    """Who was given a message last."""

    text: str
    at: float


@dataclass(slots=True)
class QueueStory:
    """One queue.   home: index of its node.   is_durable: what is confirmed must stay.

    last_delivery_s: when somebody was last given something.   holders: who was given each last, and when.
    """

    name: str
    home: int
    is_durable: bool = True
    marks: dict[Value, int] = field(default_factory=dict)
    holders: dict[Value, "Holder"] = field(default_factory=dict)
    last_delivery_s: float = 0.0

    def mark(self, value: Value, mark: int) -> None:
        """Something happened to a message."""
        self.marks[value] = self.marks.get(value, 0) | mark


class Session:
    """A consumer of one queue, from its consume-ok (or first get) to its end: what it was given.

    Of two sessions that were there at the same time, one may hear of a delivery late: after the other one was given
    the message again. A session that began later can't.
    """

    def __init__(self, ledger: "Ledger", queue: QueueStory, name: str) -> None:
        self.queue = queue
        self.name = name
        self._ledger = ledger
        self._began = time.monotonic()
        self._seen: dict[Value, bool] = {}  # was it settled?
        self._last: dict[str, int] = {}

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
        elif value in self._seen:
            count.problem("duplicates", f"{where} came twice, without redelivered")
        elif known & DELIVERED and queue.holders[value].at < self._began:
            count.problem(
                "unmarked", f"{where} does not say redelivered, but had been: {queue.holders[value]}"
            )
        if not is_redelivered:
            last = self._last.get(value.publisher, 0)
            if last >= value.number:
                count.problem("disorder", f"{where} after {last}")
            self._last[value.publisher] = value.number
        self._seen[value] = False
        queue.mark(value, DELIVERED)
        text = f"{self.name}, {clock()}" + ", marked" * is_redelivered
        queue.holders[value] = Holder(text, time.monotonic())
        return value

    def settled(self, value: Value) -> None:
        """An ack is about to be sent."""
        self._seen[value] = True
        self.queue.mark(value, SETTLED)


class Ledger:
    """All of it.

    confirms: when confirms came, by (front end, home) of the publish.   declares: when answers came, by node.
    """

    def __init__(self) -> None:
        self.count = Count()
        self.queues: dict[str, QueueStory] = {}
        self.kinds: dict[str, Kind] = {}
        self.confirms: dict[tuple[int, int], list[float]] = {}
        self.declares: dict[int, list[float]] = {}

    def add(self, name: str, home: int, *, is_durable: bool = True) -> QueueStory:
        """A queue."""
        story = self.queues[name] = QueueStory(name, home, is_durable)
        return story

    def read(self, delivery: Delivery, queue: QueueStory) -> Value | None:
        """Which message this is; None if its bytes are wrong."""
        try:
            value = value_of(delivery.body)
            kind = self.kinds[value.publisher]
        except (ValueError, KeyError) as error:
            self.count.problem("wrong", f"{queue.name}: {error!r}")
            return None
        if delivery.body != kind.body(value) or delivery.properties != kind.properties(value):
            self.count.problem(
                "wrong", f"{queue.name}: {value}: {delivery.properties!r} {len(delivery.body)}"
            )
            return None
        return value

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
