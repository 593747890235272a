"""The ledger records what clients of the simulation did and saw, and has the checks that need nothing else.

Each check is a function whose name says what must hold; it raises `Violation`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.sim.mirror_world import Timeline, Violation

SETTLED_S: Final = 6.0
"""After so long without trouble everybody has heard of an acknowledgement."""


_BYTES: Final = bytes(range(251))


def pattern(first: int, size: int) -> bytes:
    """Return so many bytes, each one more than that before it, modulo 251; none if the size is not positive."""
    begin = first % len(_BYTES)
    return (_BYTES * (size // len(_BYTES) + 2))[begin : begin + max(0, size)]


@dataclass(eq=False)
class Seen:
    """One delivery.   session: of the client, in which deliveries have one order."""

    at: float
    session: object
    redelivered: bool


@dataclass(eq=False)
class Message:
    """One message in one queue.

    state: published, confirmed, nacked, returned; of a publisher without confirms it stays published.
    excuse: why it may be lost.
    """

    id: int
    queue: str
    publisher: object
    index: int
    persistent: bool
    at: float
    size: int
    priority: int = 0
    state: str = "published"
    excuse: str = ""
    consumed_at: float | None = None
    purged_at: float | None = None
    """A purge that began when this was confirmed was answered at this time."""
    seen: list[Seen] = field(default_factory=list)
    confirmed_at: float = 0.0

    @property
    def body(self) -> bytes:
        """Return the body that the message must have."""
        head = b"%d|%s|" % (self.id, self.queue.encode())
        return head + pattern(self.id, self.size - len(head))

    def __repr__(self) -> str:
        return (
            f"#{self.id} {self.queue} p={self.persistent} i={self.index} {self.state}@{self.confirmed_at:.3f} "
            f"published@{self.at:.3f} consumed={self.consumed_at} excuse={self.excuse!r} "
            f"seen={[(round(s.at, 4), s.redelivered) for s in self.seen]}"
        )


class Ledger:
    """All messages of a run."""

    def __init__(self, world: Timeline) -> None:
        self.world = world
        self.messages: list[Message] = []
        self.by_queue: dict[str, list[Message]] = {}
        self.troubles: list[float] = []
        """At these times something happened for which an acknowledgement may be lost."""
        self.last_first: dict[tuple[object, str, object, int], int] = {}
        self.strays: dict[str, int] = {}
        self.unordered: set[str] = set()
        """Queues where order of first deliveries says nothing: priorities, dead letters."""
        self.dead: dict[int, Message] = {}
        """Dead letters that came."""
        self.ambush: tuple[str, Callable[[str], None]] | None = None
        """Called with the queue when the next "delivery" or "confirm" comes."""
        self.deliveries = 0
        self.confirmed = 0
        self.moves: Counter[str] = Counter()
        """Each queue got another master so often."""
        self.gone_since: Callable[[Any], float | None] = lambda node: None
        """Since when a node that serves counts as down, as it has not heard; None: it does not."""
        self._excuses: dict[str, list[tuple[float, str, bool]]] = {}
        """For what all that was published to a queue until then may be lost: when, why, and `transient_only`."""

    def publish(
        self, queue: str, publisher: object, index: int, *, persistent: bool, size: int, priority: int
    ) -> Message:
        """A client is about to publish."""
        message = Message(
            len(self.messages), queue, publisher, index, persistent, self.world.now, size, priority
        )
        if queue in ("ttl", "drop", "noack"):
            message.excuse = "it is that kind of queue"
        self.messages.append(message)
        self.by_queue.setdefault(queue, []).append(message)
        return message

    def excuse(self, queue: str, why: str, *, transient_only: bool = False) -> None:
        """All that was published to a queue until now may be lost."""
        self._excuses.setdefault(queue, []).append((self.world.now, why, transient_only))
        for message in self.by_queue.get(queue, ()):
            if not message.excuse and not (transient_only and message.persistent):
                message.excuse = why

    def trouble(self) -> None:
        """Acknowledgements of the last seconds may be lost."""
        self.troubles.append(self.world.now)

    def is_calm_around(self, at: float) -> bool:
        """Whether nothing went wrong then, nor shortly before or after."""
        index = bisect_left(self.troubles, at)
        return all(abs(trouble - at) > SETTLED_S for trouble in self.troubles[max(0, index - 1) : index + 1])

    def _excuse_late(self, message: Message, since: float) -> None:
        """A node that counts as down confirms a message: what went with the node may take that along (mirrors.md, A7).

        It was frozen, and looks at its clients before it looks at its lease: as far as they can tell it ends a moment
        later. What did not go with it still has to be there.   since: when it was declared down.
        """
        for at, why, transient_only in self._excuses.get(message.queue, ()):
            if at >= since and not message.excuse and not (transient_only and message.persistent):
                message.excuse = why

    def confirm(self, message: Message, state: str, node: Any = None) -> None:
        """An answer to a publish.   node: that gives it."""
        if message.state == "returned":
            return
        message.state = state
        message.confirmed_at = self.world.now
        if state == "confirmed":
            if (since := self.gone_since(node)) is not None:
                self._excuse_late(message, since)
            self.confirmed += 1
            self._spring("confirm", message.queue)

    def _spring(self, what: str, queue: str) -> None:
        if self.ambush is not None and self.ambush[0] == what:
            (_, act), self.ambush = self.ambush, None
            act(queue)

    def deliver(self, queue: str, body: bytes, session: object, *, redelivered: bool) -> Message:
        """A client got this from a queue: all that can be checked at once."""
        self.deliveries += 1
        self._spring("delivery", queue)
        message = message_is_known(self, queue, body)
        seen = Seen(self.world.now, session, redelivered)
        if message.queue == "dlq":
            return message  # a new master may find once more that a message is dead
        first_delivery_comes_once(message, seen)
        acknowledged_stays_away(self, message, seen)
        purged_stays_away(self, message, seen)
        first_deliveries_are_in_order(self, message, seen)
        message.seen.append(seen)
        return message

    def consumed(self, message: Message) -> None:
        """A client has acknowledged it, or got it without."""
        if message.consumed_at is None:
            message.consumed_at = self.world.now


def message_is_known(ledger: Ledger, queue: str, body: bytes) -> Message:
    """Messages of the wrong queue or with other bytes never come."""
    head = body.split(b"|", 2)
    try:
        message = ledger.messages[int(head[0])]
    except (ValueError, IndexError):
        raise Violation(f"{queue}: nobody published {body[:60]!r}") from None
    if queue != "dlq" and message.queue != queue:
        raise Violation(f"{queue}: got {message}")
    if message.body != body:
        raise Violation(f"{queue}: other bytes in {message}: {body[:60]!r}")
    if message.queue != queue:  # a dead letter: what it was is known, not in which order it comes
        return ledger.dead.setdefault(message.id, replace(message, queue=queue, seen=[], consumed_at=None))
    return message


def first_delivery_comes_once(message: Message, seen: Seen) -> None:
    """Nothing is delivered twice as if it were new.

    The first delivery may be seen after later ones: it was on its way to a node that was frozen or far away, and never
    on the same channel.
    """
    if not seen.redelivered and any(each.session == seen.session for each in message.seen):
        raise Violation(f"delivered as new after it was delivered again, at {seen.at:.4f}: {message}")
    if not seen.redelivered and not all(each.redelivered for each in message.seen):
        raise Violation(f"delivered again, and not as redelivered, at {seen.at:.4f}: {message}")


def acknowledged_stays_away(ledger: Ledger, message: Message, seen: Seen) -> None:
    """A message that was acknowledged well before the last trouble doesn't come back."""
    at = message.consumed_at
    if at is None:
        return
    if ledger.is_calm_around(at):
        raise Violation(f"acknowledged, and came back at {seen.at:.4f}: {message}")


def purged_stays_away(ledger: Ledger, message: Message, seen: Seen) -> None:
    """A message that a purge has dropped doesn't come back, unless its master died soon after."""
    if message.purged_at is not None and ledger.is_calm_around(message.purged_at):
        raise Violation(f"purged, and came at {seen.at:.4f}: {message}")


def first_deliveries_are_in_order(ledger: Ledger, message: Message, seen: Seen) -> None:
    """Messages published in one go come to a consumer in that order, unless they are redelivered."""
    if seen.redelivered or message.queue in ledger.unordered:
        return
    key = seen.session, message.queue, message.publisher, message.priority
    last = ledger.last_first.get(key, -1)
    if message.index <= last:
        raise Violation(f"after index {last} of the same publisher at {seen.at:.4f}: {message}")
    ledger.last_first[key] = message.index


def nothing_confirmed_is_lost(ledger: Ledger, found: dict[str, set[int]], down: Iterable[str]) -> None:
    """A confirmed message is in the queue, or was consumed."""
    out_of_reach = set(down)
    for message in ledger.messages:
        if message.state != "confirmed" or message.consumed_at is not None or message.excuse:
            continue
        if message.queue not in out_of_reach and message.id not in found.get(message.queue, ()):
            raise Violation(f"confirmed and lost: {message}")


def dead_letters_arrive(ledger: Ledger, found: dict[str, set[int]]) -> None:
    """An expired or surplus message came to the queue for dead letters. True while no node goes down."""
    for message in ledger.messages:
        if (
            message.queue not in ("ttl", "drop")
            or message.state != "confirmed"
            or message.consumed_at is not None
        ):
            continue
        if message.id not in found.get(message.queue, ()) and message.id not in ledger.dead:
            raise Violation(f"dead and lost: {message}")


def rest_is_in_order(ledger: Ledger, queue: str, ids: list[int], moves: int) -> None:
    """Messages left in a queue at the end are in each publisher's order.

    moves: how often another node went on while it was read, as reading may find that the master's disk cannot. What was
        under way to the consumer then comes again, with all that follows it: so often it may begin again.

    A quorum queue puts a message that a client gives back at its end: there only those that had no client before count.
    """
    if queue == "quorum":
        ids = [id_ for id_ in ids if len(ledger.messages[id_].seen) <= 1]
    _is_in_order(ledger, queue, ids, moves)
    _is_in_order(ledger, queue, list(dict.fromkeys(ids)), 0)


def _is_in_order(ledger: Ledger, queue: str, ids: list[int], moves: int) -> None:
    """moves: how often it may begin again with a lower one."""
    last: dict[tuple[Any, int], int] = {}
    begun: Counter[tuple[Any, int]] = Counter()
    for id_ in ids:
        message = ledger.messages[id_]
        key = message.publisher, message.priority
        if message.index <= last.get(key, -1):
            begun[key] += 1
            if begun[key] > moves:
                raise Violation(f"{queue}: at the end after index {last[key]}: {message}")
        last[key] = message.index
