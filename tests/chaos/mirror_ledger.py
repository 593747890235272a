"""Clients of mirrored queues know this of their messages: Jepsen's total-queue, and more (reliability §5.3).

A message is its value: the session of its publisher, and a number, from which its queue and its bytes follow. Each is
published once. What happened to each is in a file, from which the history of those that are lost is taken.
"""

import time
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.ledger import ConsumerSession, gap_in
from tests.chaos.outages import Span
from tests.chaos.timeline import Timeline
from tests.kit.ledger import (
    CONFIRMED,
    DELIVERED,
    FRESH,
    NACKED,
    RETURNED,
    SENT,
    SETTLED,
    SPARED,
    Kind,
    Tally,
    Value,
    value_of,
)

HISTORIES_MAX: Final = 10
ANCHOR: Final = "hot"
"""The queue whose gaps are measured, and whose master is the one to be killed."""


@dataclass(slots=True)
class Count(Tally):
    """Counts what happened. From `lost` on all must be 0, and `problems` says what was wrong, in words.

    unknown: publishes whose outcome nobody told.   dequeued: messages that were delivered and acknowledged.
    redelivered: duplicates that say so.   again: those among them that had been acknowledged: the ack was lost.
    recovered: delivered although their outcome was unknown.   nacked_delivered: although it was a nack.
    vanished: of publishers without confirms whose node died.   spared: see `SPARED`.   unread: confirmed, in a queue
    that could not be emptied, so that nobody knows.   unmarked: duplicates that don't say redelivered.
    delayed, retried, letters: deliveries of delayed messages, of such that had waited to be retried, of dead letters.
    dropped: confirmed duplicates.   early, twice, forgotten, shared: see `tests.chaos.feature_books`.
    stated: the same where a node was without a broker, after which docs/ allow it.
    duplicates: those within one session.   unconfirmed_lost: of publishers without confirms whose node lived on.
    """

    attempt: int = 0
    acknowledged: int = 0
    nacked: int = 0
    returned: int = 0
    unknown: int = 0
    unconfirmed: int = 0
    dequeued: int = 0
    redelivered: int = 0
    again: int = 0
    recovered: int = 0
    nacked_delivered: int = 0
    vanished: int = 0
    spared: int = 0
    unread: int = 0
    delayed: int = 0
    retried: int = 0
    letters: int = 0
    dropped: int = 0
    stated: int = 0
    lost: int = 0
    unconfirmed_lost: int = 0
    unexpected: int = 0
    unmarked: int = 0
    duplicates: int = 0
    disorder: int = 0
    wrong: int = 0
    unsynchronised: int = 0
    differs: int = 0
    stuck: int = 0
    leaks: int = 0
    early: int = 0
    twice: int = 0
    forgotten: int = 0
    shared: int = 0
    other: int = 0


NUMBERS: Final = Count.numbers()
MUST_BE_0: Final = Count.must_be_0()


@dataclass(slots=True)
class QueueStory:
    """One queue.   is_durable: what is confirmed survives all nodes' end.   has_priorities: order is per priority.

    confirmed, settled: how many; their difference is about what is in it.   last_confirm_s, last_delivery_s: monotonic.
    """

    name: str
    is_durable: bool = True
    has_priorities: bool = False
    confirmed: int = 0
    settled: int = 0
    last_confirm_s: float = 0.0
    last_delivery_s: float = 0.0


@dataclass(slots=True)
class PublisherStory:
    """A session of a publisher. Its numbers begin at 1; number n goes to the n-th queue in turn.

    node: that it is connected to.   began, ended: monotonic.   is_whole: it was closed in peace.
    is_confirmed: it is told of outcomes.   delivered_s: when each was last delivered.
    """

    name: str
    node: int
    kind: Kind
    queues: Sequence[str]
    is_confirmed: bool = True
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    is_whole: bool = False
    marks: bytearray = field(default_factory=lambda: bytearray(1))
    delivered_s: "array[float]" = field(default_factory=lambda: array("d", (0.0,)))

    def queue(self, number: int) -> str:
        """Return the queue to which the message of that number goes."""
        return self.queues[number % len(self.queues)]


class Trace:
    """The file: a line for each thing that happened to a message."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w", buffering=1 << 16)

    def write(self, what: str, queue: str, name: str, number: int, where: str) -> None:
        """A line."""
        self._file.write(f"{time.time():.3f} {what} {queue} {name}:{number} {where}\n")

    def histories(self, values: Iterable[Value]) -> list[str]:
        """All lines of these messages, in order of message and time."""
        self._file.flush()
        wanted: dict[str, list[str]] = {f"{value.publisher}:{value.number}": [] for value in values}
        with self._path.open() as file:
            for line in file:
                lines = wanted.get(line.split(" ", 4)[3])
                if lines is not None:
                    stamp, _, rest = line.rstrip().partition(" ")
                    at = time.strftime("%H:%M:%S", time.gmtime(float(stamp)))
                    lines.append(f"{at}{stamp[stamp.index('.') :]} {rest}")
        return [line for lines in wanted.values() for line in lines]

    def sent_s(self, values: Iterable[Value]) -> dict[Value, float]:
        """Return when these messages were about to be published, monotonic."""
        self._file.flush()
        offset_s = time.time() - time.monotonic()
        wanted = {f"{value.publisher}:{value.number}": value for value in values}
        found = {}
        with self._path.open() as file:
            for line in file:
                stamp, what, _, name, _ = line.split(" ", 4)
                if what == "sent" and name in wanted:
                    found[wanted[name]] = float(stamp) - offset_s
        return found

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


class Ledger:
    """All of it.

    confirm_times, delivery_times: of the anchor, by node of the client.   latencies: of its confirms, by node, in s.
    timeline: is told of all confirms and deliveries, if somebody wants them second by second.
    """

    timeline: Timeline | None = None

    def __init__(self, trace: Trace) -> None:
        self.count = Count()
        self.trace = trace
        self.queues: dict[str, QueueStory] = {}
        self.publishers: dict[str, PublisherStory] = {}
        self.confirm_times: dict[int, list[float]] = {}
        self.delivery_times: dict[int, list[float]] = {}
        self.latencies: dict[int, list[float]] = {}

    def forget_times(self) -> None:
        """A round begins."""
        for times in (self.confirm_times, self.delivery_times, self.latencies):
            times.clear()

    # --- publishers ---

    def sent(self, story: PublisherStory) -> int:
        """The next message is about to be published. Returns: its number."""
        story.marks.append(SENT)
        story.delivered_s.append(0.0)
        number = len(story.marks) - 1
        self.count.attempt += 1
        if not story.is_confirmed:
            self.count.unconfirmed += 1
        self.trace.write("sent", story.queue(number), story.name, number, f"on n{story.node + 1}")
        return number

    def outcome(self, story: PublisherStory, number: int, mark: int, waited_s: float) -> None:
        """The node has told.   mark: CONFIRMED, NACKED or RETURNED."""
        count, now = self.count, time.monotonic()
        story.marks[number] |= mark
        queue = self.queues[story.queue(number)]
        if mark == CONFIRMED:
            count.acknowledged += 1
            queue.confirmed += 1
            queue.last_confirm_s = now
            if self.timeline is not None:
                self.timeline.confirmed(now, waited_s, is_anchor=queue.name == ANCHOR)
            if queue.name == ANCHOR:
                self.confirm_times.setdefault(story.node, []).append(now)
                self.latencies.setdefault(story.node, []).append(waited_s)
        elif mark == NACKED:
            count.nacked += 1
        else:
            count.returned += 1
        what = {CONFIRMED: "confirmed", NACKED: "nacked", RETURNED: "returned"}[mark]
        self.trace.write(what, queue.name, story.name, number, f"after {waited_s:.3f} s")

    # --- the end ---

    def values(self) -> Iterator[tuple[PublisherStory, int, int]]:
        """All messages: publisher, number, marks."""
        for story in self.publishers.values():
            for number in range(1, len(story.marks)):
                yield story, number, story.marks[number]

    def spare(self, queue: str) -> None:
        """Whatever was sent to it so far may be missing."""
        for story, number, _ in self.values():
            if story.queue(number) == queue:
                story.marks[number] |= SPARED

    def compare(
        self,
        deaths: Sequence[tuple[int, float, float]],
        unread: Container[str] = frozenset(),
        all_down: Sequence[Span] = (),
    ) -> None:
        """All queues were drained: what is missing?

        deaths: node, began, ended of each fault that may have taken from it what its clients had published.
        unread: queues that could not be drained.   all_down: when no node had a broker.
        """
        count = self.count
        lost: dict[str, list[Value]] = {}
        for story, number, marks in self.values():
            had = bool(marks & DELIVERED)
            if marks & RETURNED:
                if had:
                    count.problem("other", f"{story.name}:{number} was returned, and was in the queue")
                continue
            if had:
                count.recovered += story.is_confirmed and not marks & (CONFIRMED | NACKED)
                count.nacked_delivered += bool(marks & NACKED)
            count.dequeued += had and bool(marks & SETTLED)
            if had and marks & SETTLED:
                continue
            if marks & SPARED:
                count.spared += 1
            elif story.queue(number) in unread:
                count.unread += bool(marks & CONFIRMED)
            elif marks & CONFIRMED:
                lost.setdefault(story.queue(number), []).append(Value(story.name, number))
            elif not story.is_confirmed:
                self._without_confirm(story, number, deaths, lost)
        for queue, values in lost.items():
            if not self.queues[queue].is_durable:
                values = self._that_were_safe(values, all_down)
            self._tell_missing(queue, values)

    def _that_were_safe(self, values: list[Value], all_down: Sequence[Span]) -> list[Value]:
        """Count those as spared that were in memory when all copies went down (A7), and return the others.

        A queue gives its messages in their order: one that a later message of its publisher had overtaken before that
        time was lost before.
        """
        sent_s = self.trace.sent_s(values) if all_down else {}
        left = [
            value
            for value in values
            if not any(
                sent_s[value] < span.began and not self._was_overtaken(value, span.began) for span in all_down
            )
        ]
        self.count.spared += len(values) - len(left)
        return left

    def _was_overtaken(self, value: Value, before_s: float) -> bool:
        """Whether the next messages of its publisher to the same queue came before a time, and this one never."""
        story = self.publishers[value.publisher]
        if story.marks[value.number] & DELIVERED:
            return False
        return any(
            story.queue(later) == story.queue(value.number) and 0 < story.delivered_s[later] < before_s
            for later in range(value.number + 1, len(story.marks))
        )

    def _without_confirm(
        self,
        story: PublisherStory,
        number: int,
        deaths: Sequence[tuple[int, float, float]],
        lost: dict[str, list[Value]],
    ) -> None:
        ended = story.ended or time.monotonic()
        if story.is_whole and not any(
            story.node in (node, -1) and began < ended + 30 and until > story.began
            for node, began, until in deaths
        ):
            lost.setdefault(story.queue(number), []).append(Value(story.name, number))
        else:
            self.count.vanished += 1

    def _tell_missing(self, queue: str, values: list[Value]) -> None:
        are_confirmed = [value for value in values if self.publishers[value.publisher].is_confirmed]
        for what, own in (
            ("lost", are_confirmed),
            ("unconfirmed_lost", [value for value in values if value not in set(are_confirmed)]),
        ):
            if own:
                names = ", ".join(f"{value.publisher}:{value.number}" for value in own[:HISTORIES_MAX])
                lines = "\n".join(self.trace.histories(own[:HISTORIES_MAX]))
                self.count.problem(what, f"{queue}: {len(own)}, as {names}\n{lines}", len(own))

    # --- gaps ---

    @staticmethod
    def longest_gap(
        times: dict[int, list[float]], survivors: Iterable[int], since: float, until: float
    ) -> float:
        """The longest time with nothing at the worst of these nodes' clients."""
        return max((gap_in(times.get(node, []), since, until) for node in survivors), default=0.0)


class Session(ConsumerSession):
    """A consumer of a mirrored queue. Only one delivery of a message may be without `redelivered`: the first."""

    def __init__(self, ledger: Ledger, queue: QueueStory, node: int, name: str) -> None:
        super().__init__(ledger.count, f"{name} on n{node + 1}")
        self.queue = queue
        self.node = node
        self._ledger = ledger

    def take(self, method: Any, properties: Any, body: bytes) -> Value | None:
        """A delivery; None if it is not what it should be."""
        ledger, queue, now = self._ledger, self.queue, time.monotonic()
        try:
            value = value_of(body)
            story = ledger.publishers[value.publisher]
            marks = story.marks[value.number]
        except (ValueError, KeyError, IndexError) as error:
            ledger.count.problem("wrong", f"{queue.name} {self.name}: {error!r} {body[:60]!r}")
            return None
        is_redelivered = bool(method.redelivered)
        self._judge(story, value, marks, properties, body, is_redelivered=is_redelivered)
        queue.last_delivery_s = now
        if ledger.timeline is not None:
            ledger.timeline.delivered(now)
        if queue.name == ANCHOR:
            ledger.delivery_times.setdefault(self.node, []).append(now)
        self._seen[value] = False
        story.marks[value.number] |= DELIVERED if is_redelivered else DELIVERED | FRESH
        story.delivered_s[value.number] = now
        what = "redelivered" if is_redelivered else "delivered"
        where = f"tag {method.delivery_tag} to {self.name}"
        ledger.trace.write(what, queue.name, story.name, value.number, where)
        return value

    def _judge(
        self,
        story: PublisherStory,
        value: Value,
        marks: int,
        properties: Any,
        body: bytes,
        *,
        is_redelivered: bool,
    ) -> None:
        count, number = self._ledger.count, value.number
        where = f"{self.queue.name} {self.name}: {value.publisher}:{number}"
        kind = story.kind
        mode = 1 if kind.is_transient(number) else 2
        if body != kind.body(value) or properties.delivery_mode != mode:
            count.problem("wrong", f"{where}: {properties!r}, {len(body)} bytes")
        if story.queue(number) != self.queue.name:
            count.problem("unexpected", f"{where} was never published to it")
        if is_redelivered:
            count.redelivered += bool(marks & DELIVERED)
            count.again += bool(marks & SETTLED)
            return
        had = "somebody got it so" if marks & FRESH else ""
        if marks & DELIVERED and story.delivered_s[number] < self._began:
            had = had or "a session that had ended"
        self._judge_new(value, kind.priority(number), where, had)

    def _tell(self, what: str, text: str, value: Value) -> None:
        lines = self._ledger.trace.histories([value])[-12:]
        self._ledger.count.problem(what, "\n".join([text, *lines]))

    def settled(self, value: Value) -> None:
        """An ack is about to be sent."""
        story = self._ledger.publishers[value.publisher]
        if not story.marks[value.number] & SETTLED:
            self.queue.settled += 1
        story.marks[value.number] |= SETTLED
        self._ledger.trace.write("ack", self.queue.name, story.name, value.number, self.name)

    def requeued(self, value: Value) -> None:
        """A nack with requeue is about to be sent."""
        self._ledger.trace.write("requeue", self.queue.name, value.publisher, value.number, self.name)
