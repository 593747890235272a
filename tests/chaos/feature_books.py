"""Books of what clients of a chaos run know of messages that wait, return, die, deduplicate, have groups or a hash.

    early: before its time             twice: again, though nothing was wrong     shared: a group at two consumers
    forgotten: a return is not counted     lost: confirmed, and nobody got it         disorder: of a group

`lost` and what deduplicating exchanges promise is checked whatever happened; the rest where no fault was near, as the
docs allow a message to come twice, or a count to be forgotten, when a master is lost. A master may be lost without any
fault, when nodes of a busy machine lose their leases. So what is wrong without a fault is a suspicion until the end,
when the nodes' logs tell whether one of them was without a broker: then it counts as `stated`, else as a problem.
Source: docs/delayed.md, docs/dead_letters.md, docs/deduplication.md, docs/groups.md.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.chaos.mirror_ledger import Ledger, PublisherStory, QueueStory
from tests.chaos.outages import Outages
from tests.chaos.timeline import Latencies
from tests.kit.ledger import CONFIRMED, PROBLEMS_MAX, Value, value_of

KINDS: Final = ("late", "retry", "safe", "once", "passed", "grouped", "hash")
DEDUPLICATED: Final = ("once", "passed")
MARGIN_S: Final = 5.0
"""So long after a fault whatever it left under way has arrived: letters and delayed messages are tried each second."""

SETTLED_S: Final = 1.0
"""So long after a fault messages are in time again: `RETRY_S` of node/broker/forwarding.py."""

CLOCK_S: Final = 0.002
"""Nodes know times to the nearest millisecond."""

RETRY_MIN_S: Final = 0.5
RETRY_MAX_S: Final = 4.0
TOLD_MAX: Final = 8


@dataclass(slots=True)
class Fact:
    """One message.   same: its id, group or key.   came_s: when a client got it first.   grave_s: as a dead letter.

    holder: the session that has it.   held_s: since when.   count: how often it had come back then.
    returned_s: when its last client gave it back; 0: it did not.   queue: the one that it came from.
    """

    kind: str
    sent_s: float
    delay_s: float = 0.0
    same: str = ""
    is_confirmed: bool = False
    confirmed_s: float = 0.0
    came_s: float = 0.0
    grave_s: float = 0.0
    holder: str = ""
    held_s: float = 0.0
    count: int = 0
    returned_s: float = 0.0
    queue: str = ""
    is_settled: bool = False

    @property
    def is_done(self) -> bool:
        """True if a client was done with it."""
        return self.is_settled or self.grave_s > 0


class Suspicion(NamedTuple):
    """Something is wrong unless a node was without a broker within this time.   what: the count.   text: in words."""

    what: str
    text: str
    since_s: float
    until_s: float


class Late(NamedTuple):
    """A delayed message that came.   since_s: it waited from then on.   is_quiet: no fault was there meanwhile."""

    since_s: float
    came_s: float
    late_s: float
    is_quiet: bool


class FeatureBooks(Ledger):
    """The books of the clients of these queues.

    late, late_in_faults: of delayed messages that no fault or outage was near, and of others, in seconds, once judged.
    trouble_s: the last time at which a fault was there, monotonic.   clock_s: the same of a fault of a clock.
    """

    def __init__(self, main: Ledger) -> None:
        super().__init__(main.trace)
        self.count = main.count
        self.facts: dict[Value, Fact] = {}
        self.late, self.late_in_faults = Latencies(), Latencies()
        self.trouble_s = self.clock_s = -1e9
        self._left: dict[Value, None] = {}
        """Confirmed messages that no client is done with."""
        self._current: dict[tuple[str, str], Value] = {}
        self._held: dict[str, dict[Value, str]] = {}
        self._routes: dict[str, str] = {}
        self._same: dict[tuple[str, str], int] = {}
        """The number of messages of an id that have come."""
        self._suspicions: list[Suspicion] = []
        self._late: list[Late] = []
        for kind in KINDS:
            self.queues[kind] = QueueStory(kind)

    def look(self, fault: str | None) -> None:
        """Note whether something is wrong just now.   fault: its kind."""
        if fault is not None:
            self.trouble_s = time.monotonic()
            if fault == "clock":
                self.clock_s = self.trouble_s

    def is_quiet(self, since_s: float) -> bool:
        """True if no fault was there from a while before a time until now."""
        return self.trouble_s < since_s - MARGIN_S

    # --- publishers ---

    def tell(self, value: Value, kind: str, *, delay_s: float = 0.0, same: str = "") -> None:
        """A client is about to publish a message."""
        self.facts[value] = Fact(kind, time.monotonic(), delay_s, same)

    def outcome(self, story: PublisherStory, number: int, mark: int, waited_s: float) -> None:
        super().outcome(story, number, mark, waited_s)
        value = Value(story.name, number)
        fact = self.facts[value]
        if mark == CONFIRMED:
            fact.is_confirmed, fact.confirmed_s = True, time.monotonic()
            if not fact.is_done:
                self._left[value] = None

    # --- consumers ---

    def took(
        self, queue: str, session: str, headers: Mapping[str, Any], body: bytes, *, is_redelivered: bool
    ) -> Value | None:
        """A client got this.   queue: without its prefix.   Returns: None if it is not what it should be."""
        try:
            value = value_of(body)
            fact = self.facts[value]
            is_right = body == self.publishers[value.publisher].kind.body(value)
        except (ValueError, KeyError) as error:
            self.count.problem("wrong", f"{queue} {session}: {error!r} {body[:60]!r}")
            return None
        if not is_right:
            self.count.problem("wrong", f"{queue} {session}: {value}: {len(body)} bytes")
            return None
        self.trace.write("redelivered" if is_redelivered else "delivered", queue, *value, f"to {session}")
        if queue == "grave":
            self._died(value, fact, is_redelivered=is_redelivered)
            return value
        if queue.partition(".")[0] != fact.kind or (fact.queue and fact.queue != queue):
            self._tell("unexpected", f"{queue} {session}: {value} was for {fact.queue or fact.kind}", value)
        self._with_two(queue, value, fact, session)
        match fact.kind:
            case "late":
                self._take_late(value, fact, is_redelivered=is_redelivered)
            case "retry":
                self._take_retry(value, fact, headers)
            case "once" | "passed":
                self._take_once(value, fact)
            case "grouped":
                self._take_grouped(value, fact, session, is_redelivered=is_redelivered)
            case "hash":
                self._take_hash(value, fact, queue)
        fact.queue, fact.holder, fact.held_s = queue, session, time.monotonic()
        fact.came_s = fact.came_s or fact.held_s
        return value

    def settled(self, value: Value) -> None:
        """An ack is about to be sent."""
        fact = self.facts[value]
        self._let_go(value, fact)
        if not fact.is_settled:
            self.queues[fact.kind].settled += 1
        fact.is_settled = True
        self._left.pop(value, None)
        self.trace.write("ack", fact.kind, *value, "")

    def returned(self, value: Value, *, is_asked: bool) -> None:
        """A nack with requeue is about to be sent; or else the session has ended."""
        fact = self.facts[value]
        self._let_go(value, fact)
        # A node may have noticed before its client that a session is lost.
        fact.returned_s = time.monotonic() if is_asked else 0.0
        self.trace.write("requeue" if is_asked else "lost-session", fact.kind, *value, "")

    def died(self, value: Value) -> None:
        """A reject without requeue is about to be sent."""
        self._let_go(value, self.facts[value])
        self.trace.write("reject", self.facts[value].kind, *value, "")

    def _let_go(self, value: Value, fact: Fact) -> None:
        fact.holder = ""
        self._held.get(fact.same, {}).pop(value, None)

    # --- the rules ---

    def _with_two(self, queue: str, value: Value, fact: Fact, session: str) -> None:
        if fact.holder and fact.holder != session:
            text = f"{queue}: {value} to {session}, and {fact.holder} has it"
            self._suspect("twice", text, value, fact.held_s)

    def _take_late(self, value: Value, fact: Fact, *, is_redelivered: bool) -> None:
        now, due = time.monotonic(), fact.sent_s + fact.delay_s
        if now < due - CLOCK_S and self.clock_s < fact.sent_s - MARGIN_S:
            self._tell("early", f"late: {value} {due - now:.4f} s", value)
        if fact.came_s and not is_redelivered:
            self._suspect("twice", f"late: {value} as new, once more", value, due)
        if not fact.came_s:
            self.count.delayed += 1
            if fact.is_confirmed:
                is_quiet = self.trouble_s < fact.sent_s - SETTLED_S
                late_s = now - max(due, fact.confirmed_s)
                self._late.append(Late(fact.sent_s - SETTLED_S, now, late_s, is_quiet))

    def _take_retry(self, value: Value, fact: Fact, headers: Mapping[str, Any]) -> None:
        now, count = time.monotonic(), int(headers.get("x-delivery-count", 0))
        if fact.returned_s:
            due = fact.returned_s + min(RETRY_MIN_S * (fact.count + 1), RETRY_MAX_S)
            if now < due - CLOCK_S:
                text = f"retry: {value} {due - now:.4f} s, returned {count} times"
                self._suspect("early", text, value, fact.held_s)
            if count < fact.count + 1:
                text = f"retry: {value} has {count} returns, had {fact.count}"
                self._suspect("forgotten", text, value, fact.held_s)
        self.count.retried += bool(fact.returned_s)
        fact.count = count

    def _take_once(self, value: Value, fact: Fact) -> None:
        key = fact.kind, fact.same
        other = self._current.get(key, value)
        known = self.facts[other]
        if other != value:
            text = f"{fact.kind}: {value} of id {fact.same}, as {other}"
            if fact.kind == "once" and known.is_settled:
                pass  # the queue does not know the id any more
            elif known.is_confirmed:
                self._tell("twice", text, value)
            else:  # it may have been lost with its master
                self._suspect("twice", text, value, known.sent_s)
        self._current[key] = value
        self._same[key] = self._same.get(key, 0) + (not fact.came_s)

    def _take_grouped(self, value: Value, fact: Fact, session: str, *, is_redelivered: bool) -> None:
        held = self._held.setdefault(fact.same, {})
        for other, holder in held.items():
            if holder != session:
                text = f"group {fact.same}: {value} to {session}, {holder} has {other}"
                self._suspect("shared", text, value, self.facts[other].held_s)
        key = value.publisher, fact.same
        last = self._current.get(key)
        is_first = not is_redelivered and not fact.came_s
        if last is not None and is_first and last.number > value.number:
            self._suspect("disorder", f"group {fact.same}: {value} after {last}", value, fact.sent_s)
        if last is None or last.number < value.number:
            self._current[key] = value
        held[value] = session

    def _take_hash(self, value: Value, fact: Fact, queue: str) -> None:
        known = self._routes.setdefault(fact.same, queue)
        if known != queue:
            self._tell("unexpected", f"key {fact.same} leads to {known}, and {value} to {queue}", value)

    def _died(self, value: Value, fact: Fact, *, is_redelivered: bool) -> None:
        if fact.grave_s and not is_redelivered:
            # A letter whose queue has moved meanwhile is ready there again, and dies once more.
            self._suspect("twice", f"grave: {value}", value, fact.held_s)
        self.count.letters += not fact.grave_s
        fact.grave_s = fact.grave_s or time.monotonic()
        self._left.pop(value, None)

    def _tell(self, what: str, text: str, value: Value) -> None:
        self.count.problem(what, self._with_history(text, value))

    def _suspect(self, what: str, text: str, value: Value, since_s: float) -> None:
        """Note what is wrong unless a fault was near since a time, or a node was without a broker."""
        if self.is_quiet(since_s):
            if len(self._suspicions) < PROBLEMS_MAX:
                text = self._with_history(text, value)  # which takes long
            self._suspicions.append(Suspicion(what, text, since_s - MARGIN_S, time.monotonic()))

    def _with_history(self, text: str, value: Value) -> str:
        return "\n".join([text, *self.trace.histories([value])[-12:]])

    def judge(self, outages: Outages) -> None:
        """Count each suspicion: as stated where a node was without a broker, else as a problem.

        Whether delayed messages came in time is told in two parts likewise.   outages: in monotonic time.
        """
        lates, self._late = self._late, []
        for late in lates:
            is_quiet = late.is_quiet and not outages.is_near(late.since_s, late.came_s)
            (self.late if is_quiet else self.late_in_faults).add(late.late_s)
        suspicions, self._suspicions = self._suspicions, []
        for each in suspicions:
            if outages.is_near(each.since_s, each.until_s):
                self.count.stated += 1
            else:
                self.count.problem(each.what, each.text)

    # --- the end ---

    def left(self) -> Iterator[Value]:
        """Yield the confirmed messages that have not come, and are no duplicates of some that have."""
        for value in self._left:
            fact = self.facts[value]
            if fact.kind not in DEDUPLICATED or not self._same.get((fact.kind, fact.same)) or fact.came_s:
                yield value

    def compare_all(self) -> None:
        """Count what is lost, and what was dropped as a duplicate. All queues were drained."""
        missing: dict[str, list[Value]] = {}
        for value in self.left():
            missing.setdefault(self.facts[value].kind, []).append(value)
        for kind, values in missing.items():
            names = ", ".join(f"{value.publisher}:{value.number}" for value in values[:TOLD_MAX])
            lines = "\n".join(self.trace.histories(values[:TOLD_MAX]))
            self.count.problem("lost", f"{kind}: {len(values)}, as {names}\n{lines}", len(values))
        self.count.dropped += sum(
            fact.kind in DEDUPLICATED and fact.is_confirmed and not fact.came_s
            for fact in self.facts.values()
        )
        self.count.dequeued += sum(fact.is_done for fact in self.facts.values())

    def note(self) -> str:
        """Return how late delayed messages were."""
        parts = []
        for what, late in (("no fault was near", self.late), ("others", self.late_in_faults)):
            texts = [f"{name} {1000 * late.quantile(part):.0f} ms" for name, part in QUANTILES.items()]
            parts.append(f"{what}: {', '.join(texts)}, of {len(late):,}")
        return f"delayed messages were late, {'; '.join(parts)}"


QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}
