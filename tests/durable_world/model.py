"""Clients of a story know this of their messages and of the queues that there are."""

from dataclasses import dataclass, field

from node.amqp.field_table import Table, long, longstr

DEAD = "dead"
DYING: Table = {"x-dead-letter-exchange": longstr(""), "x-dead-letter-routing-key": longstr(DEAD)}
LAZY: Table = {"x-queue-mode": longstr("lazy")}
TTL_MS = 20_000
RETRY_MS = 1000
RETRY_MAX_MS = 1500

ARGUMENTS: dict[str, Table] = {
    "plain": {},
    "dying": DYING,
    "lazy": LAZY,
    "priority": {"x-max-priority": long(3)},
    "ttl": {"x-message-ttl": long(TTL_MS), **DYING},
    "lazy-dying": {**LAZY, **DYING, "x-max-length": long(12)},
    "small": {"x-max-length": long(6), "x-overflow": longstr("reject-publish")},
    "retry": {
        "x-delayed-retry-type": longstr("all"),
        "x-delayed-retry-min": long(RETRY_MS),
        "x-delayed-retry-max": long(RETRY_MAX_MS),
    },
    "transient": {},
    DEAD: {},
}
"""The queues; all are durable but `transient`."""

DROPPING = ("ttl", "lazy-dying")
"""Queues that drop messages by themselves: to the dead letters."""

MOVING = ("retry",)
"""Queues whose messages wait and come back at the tail: a crash in between may leave one twice."""

PURGEABLE = ("plain", "lazy", "priority", "transient", "small")

SIZES = (0, 5, 60, 240, 300, 900)


@dataclass(eq=False)
class Message:
    """A message as its publisher knows it.

    queue: to which it was published.   publisher: which orders its messages.
    is_sure: confirmed, committed or seen after a restart: it must not be lost.
    is_settled: a client was done with it (acknowledged, purged, deleted …), and the node may have heard of it.
    is_refused: it never was, or will be, in a queue.   may_be_dead: its copy may be among the dead letters.
    is_out: gone for good: it was not there after a start, or its queue was deleted.
    seen_in: the queues from which it was delivered.   fresh_in: not as redelivered, or before the last start.
    """

    number: int
    queue: str
    publisher: int
    body: bytes
    persistent: bool
    priority: int
    is_sure: bool = False
    is_settled: bool = False
    is_refused: bool = False
    is_out: bool = False
    may_be_dead: bool = False
    seen_in: set[str] = field(default_factory=set)
    fresh_in: set[str] = field(default_factory=set)

    def __repr__(self) -> str:
        names = ("persistent", "is_sure", "is_settled", "is_out", "may_be_dead")
        marks = [name for name in names if getattr(self, name)]
        return f"{self.queue}:{self.number} {' '.join(marks)}"


def number_of(body: bytes) -> int:
    """Return the number of the message that a body belongs to."""
    return int(body[:8], 36)


@dataclass(eq=False)
class Channel:
    """A client knows this of each of its channels.

    key: of all channels ever.   kind: plain, confirm or tx.   published: not confirmed yet, by number.
    uncommitted, settled: in the open transaction: publishes, and what was done with which delivery.
    committing: publishes of each commit that was sent.
    unacked: messages by delivery tag, with the queue they came from.
    consumers: their queues by tag.   gets, purges: those that were not answered: queue, and whether gets acknowledge.
    last: of first deliveries, the highest number by publisher, queue and priority.
    """

    key: int
    number: int
    kind: str
    published: dict[int, Message] = field(default_factory=dict)
    next_publish: int = 1
    uncommitted: list[Message] = field(default_factory=list)
    committing: list[list[Message]] = field(default_factory=list)
    unacked: dict[int, tuple[Message, str]] = field(default_factory=dict)
    settled: list[tuple[int, Message, str, str]] = field(default_factory=list)
    consumers: dict[str, str] = field(default_factory=dict)
    no_ack: set[str] = field(default_factory=set)
    gets: list[tuple[str, bool]] = field(default_factory=list)
    purges: list[str] = field(default_factory=list)
    last: dict[tuple[int, str, int], int] = field(default_factory=dict)
    is_recovering: bool = False
    is_closed: bool = False


def head_of(number: int) -> bytes:
    """Return the head of a message's body, which has its number."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return text.rjust(8, "0").encode()
