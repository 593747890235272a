"""A ledger of what clients know of messages that wait, return, die, deduplicate or have groups, and of what must hold.

    early: nothing comes before its time     twice: no message is with two clients      lost: nothing confirmed is gone
    counts: a return is never forgotten      ids: one message of an id at a time         groups: one consumer at a time

Most rules have exceptions while a master is lost or moves; the docs say which. So the ledger knows when the ring of a
queue changed, and a rule holds strictly where it did not for `MARGIN_S`.
Source: docs/delayed.md, docs/dead_letters.md, docs/deduplication.md, docs/groups.md.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from node.amqp.field_table import Table
from tests.sim.mirror_ledger import Ledger, Message, Seen, acknowledged_stays_away, pattern
from tests.sim.mirror_world import Timeline, Violation

MARGIN_S: Final = 6.0
"""So long after a change of its ring a queue's clients know nothing of an earlier master: frames are held for 2.5 s."""

LATE_S: Final = 3.0
"""A message that nothing delayed but its own delay may come so late: disks are slow, and logs apply in 0.1 s."""

CLOCK_S: Final = 0.002
"""Copies know times to the nearest millisecond."""

RETRY_MIN_MS: Final = 400
RETRY_MAX_MS: Final = 4000


class Early(Violation):
    """A message came before its time."""


class Late(Violation):
    """A message came long after its time, though nothing was wrong."""


class Twice(Violation):
    """A message came twice, though nothing was wrong."""


class Lost(Violation):
    """A confirmed message did not come."""


class Disorder(Violation):
    """Messages came in another order than they should."""


class Forgotten(Violation):
    """The number of a message's returns has become smaller."""


class Duplicate(Violation):
    """A message came though another one with its id had come, or was in the queue."""


class Shared(Violation):
    """Two consumers have messages of one group."""


class Misrouted(Violation):
    """A message came to another queue than those with the same key."""


@dataclass(eq=False)
class Story(Message):
    """One message of a kind of its own.   body: names its kind, as its queue may not be known.

    kind: the queue, or those of a hash exchange; `queue` is known then when it comes.
    delay_s: as its publisher asked for.   same: its id, its group or its key; None: it has none.
    holder: the session that has it unsettled, since `held_at`.   count: of its returns, at its last delivery.
    returned_at: when its last client gave it back or was lost; 0: never.   least: all copies know of so many returns.
    came_at: when it was delivered first.   grave_at: when it came to the queue of dead letters first.
    may_be_twice: a master was lost while it changed its number.
    """

    kind: str = ""
    delay_s: float = 0.0
    same: str | None = None
    holder: object = None
    held_at: float = 0.0
    count: int = 0
    returned_at: float = 0.0
    least: int = 0
    came_at: float = 0.0
    grave_at: float = 0.0
    may_be_twice: bool = False

    @property
    def body(self) -> bytes:
        head = b"%d|%s|" % (self.id, self.kind.encode())
        return head + pattern(self.id, self.size - len(head))


def retry_s(count: int) -> float:
    """Return how long a message waits that has come back so often: docs/dead_letters.md, the linear back-off."""
    return min(RETRY_MIN_MS * count, RETRY_MAX_MS) / 1000


@dataclass
class Kept:
    """The last messages that were seen of one id or group.   since: the queue's ring has not changed."""

    current: dict[str, Story] = field(default_factory=dict)
    held: dict[str, dict[Story, object]] = field(default_factory=dict)


class FeatureLedger(Ledger):
    """All messages of a run.   latest: the headers of the delivery that is being looked at.   late: in seconds, of all
    delayed messages that nothing else held up.
    """

    messages: list[Story]  # type: ignore[assignment]

    def __init__(self, world: Timeline) -> None:
        super().__init__(world)
        self.latest: Table = {}
        self.late: list[float] = []
        self.after_s = MARGIN_S
        """So long after it was sent a frame has arrived, and all copies know what it did."""
        self.changes: dict[str, list[float]] = {}
        """When the ring of a queue changed, or its only node went down."""
        self._kept: dict[str, Kept] = {}
        self._routes: dict[str, str] = {}
        self._rules = {
            "late": self._late,
            "retry": self._retry,
            "once": self._once,
            "passed": self._passed,
            "grouped": self._grouped,
            "hash": self._hash,
        }

    # --- when a queue was as ever ---

    def change(self, queue: str, *, is_reset: bool = False) -> None:
        """Note that the ring of a queue changes.   is_reset: what its copies know may be of any age."""
        self.changes.setdefault(queue, []).append(self.world.now)
        if is_reset:
            for story in self.by_queue.get(queue, ()):
                story.least = 0

    def loss(self) -> None:
        """Note that a node is lost: what it told its mirrors last may be lost, too."""
        for story in self.messages:
            if story.held_at > self.world.now - MARGIN_S:
                story.least = 0

    def is_steady(self, queues: Sequence[str], since: float, until: float | None = None) -> bool:
        """True if no ring of these queues changed from `after_s` before a time on.

        until: the end, until all copies know of it; None: now.
        """
        end = self.world.now if until is None else until + self.after_s
        return not any(
            self._is_in(self.changes.get(queue, ()), since - self.after_s, end) for queue in queues
        )

    @staticmethod
    def _is_in(times: Sequence[float], since: float, until: float) -> bool:
        index = bisect_left(times, since)
        return index < len(times) and times[index] <= until

    # --- publishers ---

    def tell(
        self,
        kind: str,
        publisher: object,
        index: int,
        *,
        size: int,
        delay_s: float = 0.0,
        same: str | None = None,
    ) -> Story:
        """A client is about to publish a message, which is persistent."""
        story = Story(
            len(self.messages), kind, publisher, index, persistent=True, at=self.world.now, size=size
        )
        story.kind, story.delay_s, story.same = kind, delay_s, same
        self.messages.append(story)
        self.by_queue.setdefault(kind, []).append(story)
        return story

    def excuse(self, queue: str, why: str, *, transient_only: bool = False) -> None:
        super().excuse(
            queue.partition(".")[0] if queue.startswith("hash.") else queue,
            why,
            transient_only=transient_only,
        )

    # --- consumers ---

    def deliver(self, queue: str, body: bytes, session: object, *, redelivered: bool) -> Story:
        """A client got this from a queue."""
        self.deliveries += 1
        self._spring("delivery", queue)
        story = self._known(queue, body)
        if queue == "grave":
            self._died(story, redelivered=redelivered)
            return story
        seen = Seen(self.world.now, session, redelivered)
        self._not_with_two(queue, story)
        if not story.may_be_twice:
            acknowledged_stays_away(self, story, seen)
        if (rule := self._rules.get(story.kind)) is not None:
            rule(queue, story, session, redelivered)
        story.came_at = story.came_at or self.world.now
        story.holder, story.held_at = session, self.world.now
        story.seen.append(seen)
        return story

    def consumed(self, message: Message) -> None:
        super().consumed(message)
        assert isinstance(message, Story)
        self._let_go(message)

    def returned(self, message: Message) -> None:
        """A client is about to give a message back, or is lost with it."""
        assert isinstance(message, Story)
        if message.holder is None:
            return
        self._let_go(message)
        message.returned_at = self.world.now

    def dies(self, message: Message) -> None:
        """A client is about to reject a message for good."""
        assert isinstance(message, Story)
        self._let_go(message)

    def _let_go(self, story: Story) -> None:
        story.holder = None
        if story.same is not None:
            self._kept_of(story.queue).held.get(story.same, {}).pop(story, None)

    def _kept_of(self, queue: str) -> Kept:
        return self._kept.setdefault(queue, Kept())

    # --- what must hold ---

    def _known(self, queue: str, body: bytes) -> Story:
        """Messages of another queue or with other bytes never come."""
        try:
            story = self.messages[int(body.split(b"|", 1)[0])]
        except (ValueError, IndexError):
            raise Violation(f"{queue}: nobody published {body[:60]!r}") from None
        if story.kind == "hash" and story.queue == "hash":
            story.queue = queue
        expected = "safe" if queue == "grave" else queue
        if story.queue != expected:
            raise Misrouted(f"{queue}: got {story}")
        if story.body != body:
            raise Violation(f"{queue}: other bytes in {story}: {body[:60]!r}")
        return story

    def _not_with_two(self, queue: str, story: Story) -> None:
        if story.holder is None or not self.is_steady(WAYS.get(queue, (queue,)), story.held_at):
            return
        if not self._is_unsteady_return(queue, story):
            raise Twice(f"{queue}: with two clients at {self.world.now:.4f}: {story}")

    def _is_unsteady_return(self, queue: str, story: Story) -> bool:
        """A message that changes its number while a master is lost may be there twice from then on."""
        since = story.returned_at or story.at
        if not self.is_steady(WAYS.get(queue, (queue,)), since):
            story.may_be_twice = True
        return story.may_be_twice

    def _late(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """A delayed message comes at its time, once, and before those that are due later."""
        now = self.world.now
        due = story.at + story.delay_s
        if now < due - CLOCK_S:
            raise Early(f"{due - now:.4f} s early at {now:.4f}: {story}")
        if story.came_at and not redelivered and self.is_steady(WAYS[queue], due, story.came_at):
            raise Twice(f"{queue}: as new, once more, at {now:.4f}: {story}")
        if story.came_at or redelivered or not self.is_steady(WAYS[queue], story.at):
            return
        if story.state == "confirmed" and self.is_calm_around(due) and self.is_calm_around(story.at):
            late = now - max(due, story.confirmed_at)
            self.late.append(late)
            if late > LATE_S:
                raise Late(f"{late:.3f} s late at {now:.4f}: {story}")
        last = self._kept_of(queue).current.get("last")
        # It was due at some time between these two, as its master knows.
        if (
            last is not None
            and story.state == last.state == "confirmed"
            and self.is_steady(WAYS[queue], last.at)
        ):
            latest = story.confirmed_at + story.delay_s + CLOCK_S
            if last.seen and last.seen[-1].session is session and last.at + last.delay_s > latest:
                raise Disorder(f"{queue}: at {now:.4f} {story} comes after {last}, which is due later")
        self._kept_of(queue).current["last"] = story

    def _retry(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """A message that came back comes again when its time is over, and tells how often it came back."""
        now = self.world.now
        field_ = self.latest.get("x-delivery-count")
        count = 0 if field_ is None else int(field_.value)  # type: ignore[call-overload]
        if count < story.least:
            raise Forgotten(f"{queue}: {count} returns at {now:.4f}, {story.least} are known: {story}")
        # What a client still has did not wait: it comes at once from the next master. A second copy has its own time.
        is_return = story.returned_at > 0 and story.holder is None and not story.may_be_twice
        self._is_unsteady_return(queue, story)
        # Also if its master is lost later, while it waits.
        if is_return and self.is_steady((queue,), story.held_at, story.returned_at):
            due = story.returned_at + retry_s(story.count + 1)
            if now < due - CLOCK_S:
                raise Early(f"{due - now:.4f} s early at {now:.4f}, count {count}: {story}")
        story.count = story.least = count

    def _once(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """No two messages with one id are in a queue that deduplicates."""
        self._retry(queue, story, session, redelivered)
        assert story.same is not None
        current = self._kept_of(queue).current
        other = current.get(story.same)
        current[story.same] = story
        if other is None or other is story or other.consumed_at is not None or other.excuse:
            return
        # A message that was not confirmed may have been lost with its master.
        if other.state == "confirmed" or self.is_steady((queue,), other.at):
            raise Duplicate(f"{queue}: at {self.world.now:.4f} {story}, and this is there: {other}")

    def _passed(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """One message of an id passes an exchange that deduplicates, once."""
        now = self.world.now
        assert story.same is not None
        other = self._kept_of(queue).current.setdefault(story.same, story)
        # The id of a message that was not confirmed may have been lost with its master.
        is_sure = other.state == "confirmed" or self.is_steady(WAYS[queue], other.at)
        if other is not story and not other.excuse and is_sure:
            raise Duplicate(f"{queue}: at {now:.4f} {story}, and this has passed: {other}")
        if story.came_at and not redelivered and self.is_steady(WAYS[queue], story.at, story.came_at):
            raise Twice(f"{queue}: as new, once more, at {now:.4f}: {story}")

    def _grouped(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """All unsettled messages of a group are with one consumer, and come to it in order."""
        assert story.same is not None
        held = self._kept_of(queue).held.setdefault(story.same, {})
        for other, holder in held.items():
            if holder is not session and self.is_steady((queue,), other.held_at):
                raise Shared(f"{queue}: at {self.world.now:.4f} {story} to {session}, {holder} has {other}")
        if not redelivered and self.is_steady((queue,), story.at):
            key = f"{story.same} {story.publisher}"
            last = self._kept_of(queue).current.get(key)
            if last is not None and last.index > story.index:
                raise Disorder(f"{queue}: at {self.world.now:.4f} {story} comes after {last}")
            self._kept_of(queue).current[key] = story
        held[story] = session

    def _hash(self, queue: str, story: Story, session: object, redelivered: bool) -> None:
        """All messages with one key come to one queue."""
        assert story.same is not None
        known = self._routes.setdefault(story.same, queue)
        if known != queue:
            raise Misrouted(f"{story.same} leads to {known} and to {queue}: {story}")

    def _died(self, story: Story, *, redelivered: bool) -> None:
        """A dead letter has come: as a new one twice only if a master was lost."""
        if (
            story.grave_at
            and not redelivered
            and self.is_steady(WAYS["grave"], story.held_at, story.grave_at)
        ):
            raise Twice(f"grave: once more at {self.world.now:.4f}: {story}")
        story.grave_at = story.grave_at or self.world.now

    # --- the end ---

    def judge(self, found: dict[str, set[int]]) -> None:
        """All has come that was confirmed, but duplicates of what has."""
        by_id: dict[tuple[str, str | None], list[Story]] = {}
        for story in self.messages:
            by_id.setdefault((story.kind, story.same), []).append(story)
        for story in self.messages:
            if story.state != "confirmed" or story.excuse or story.consumed_at is not None or story.grave_at:
                continue
            if story.id in found.get(story.queue, ()):
                continue
            if story.kind in ("once", "passed") and self._has_another(story, by_id[story.kind, story.same]):
                continue
            raise Lost(f"confirmed, and did not come: {story}")

    @staticmethod
    def _has_another(story: Story, those: Sequence[Story]) -> bool:
        """True if a message with the same id was, or has been, in the queue when this one came."""
        for other in those:
            if other is story or not (other.came_at or other.excuse) or other.at > story.confirmed_at:
                continue
            is_over = other.consumed_at is not None and other.seen[-1].at + 2 * MARGIN_S < story.at
            if story.kind == "passed" or not is_over:
                return True
        return False


WAYS: Final[dict[str, tuple[str, ...]]] = {
    "late": ("late", "amq.delayed.later"),
    "passed": ("passed", "amq.deduplication.filter"),
    "grave": ("grave", "safe"),
}
"""All queues by which a message comes to this one."""
