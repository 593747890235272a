"""What a client knows of its messages: which must be in a queue, which may be, which must not.

A message is its *value*, the publisher's name and a number, from which body and properties follow. For each queue
and value there are marks of what was sent and what was answered. A restart tells the truth, and the ledger
begins anew from there: what was found must be found again, what was not must never come back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple
from zlib import crc32

from node.amqp.properties import Properties, decode_properties, encode_properties
from tests.kit.load_client import Delivery

SENT: Final = 1
CONFIRMED: Final = 2
"""By an ack, a commit-ok, or because it was found after a restart."""
DELIVERED: Final = 4
"""A client got it."""
SETTLED: Final = 8
"""An ack, reject or nack without requeue, purge: was sent, or a commit of one. It may be there or not."""
TRANSIENT: Final = 16
UNCOMMITTED: Final = 32
"""In a transaction whose commit was not sent."""
DROPPED: Final = 64
"""Settled, and the node is known to have heard of it."""

FILLER_MAX_BYTES: Final = 300_000
_BLOCK: Final = Random("filler").randbytes(2 * FILLER_MAX_BYTES)

PROBLEMS_MAX: Final = 40
"""That are told in words; all are counted."""


class Value(NamedTuple):
    """Which message it is."""

    publisher: str
    number: int


@dataclass(frozen=True, slots=True)
class Kind:
    """What the messages of a publisher are like.

    sizes: of the filler in bytes, one is chosen by the number.   transient_of: every so many-th is not persistent.
    is_named: they have a message-id.   priorities: one is chosen by the number.   expiration: ms, or "".
    """

    sizes: Sequence[int] = (20,)
    transient_of: int = 0
    is_named: bool = False
    priorities: int = 0
    expiration: str = ""

    def is_transient(self, number: int) -> bool:
        """Whether this message must not survive a restart."""
        return self.transient_of > 0 and number % self.transient_of == 0

    def priority(self, number: int) -> int:
        """The priority of this message."""
        return number % self.priorities if self.priorities else 0

    def properties(self, value: Value) -> bytes:
        """Flags and values on the wire."""
        return encode_properties(
            Properties(
                delivery_mode=1 if self.is_transient(value.number) else 2,
                message_id=f"{value.publisher}/{value.number}" if self.is_named else None,
                priority=self.priority(value.number) if self.priorities else None,
                expiration=self.expiration or None,
            )
        )

    def body(self, value: Value) -> bytes:
        """The bytes of this message."""
        head = f"{value.publisher}:{value.number}|".encode()
        seed = crc32(head)
        start = seed % FILLER_MAX_BYTES
        return head + _BLOCK[start : start + self.sizes[seed % len(self.sizes)]]


def value_of(body: bytes) -> Value:
    """Which message this is. Raises ValueError."""
    publisher, colon, number = body[:100].partition(b"|")[0].decode().rpartition(":")
    if not colon:
        raise ValueError(f"no value in {body[:60]!r}")
    return Value(publisher, int(number))


@dataclass(slots=True)
class Count:
    """What happened in a round. Everything from `lost` on must be 0; `problems` says what, in words."""

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    acked: int = 0
    recovered: int = 0
    copied: int = 0
    """Dead letters that are in both queues: allowed."""
    returned: int = 0
    """Settled messages that were there after all: allowed."""
    early: int = 0
    """Dead letters that are lost, and whose reject was sent before they were confirmed: allowed."""
    lost: int = 0
    twice: int = 0
    ghosts: int = 0
    unmarked: int = 0
    marked: int = 0
    disorder: int = 0
    wrong: int = 0
    other: int = 0
    problems: list[str] = field(default_factory=list)

    def problem(self, what: str, text: str, number: int = 1) -> None:
        """Count something that must not be."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{what.upper()}: {text}")


class QueueLedger:
    """The messages of one queue.   is_priority: order holds for each priority only.

    has_order: False where messages come in another order than they were published in.
    """

    def __init__(self, name: str, *, is_priority: bool = False, has_order: bool = True) -> None:
        self.name = name
        self.is_priority = is_priority
        self.has_order = has_order
        self.had_consumer = False
        self.marks: dict[Value, int] = {}

    def mark(self, value: Value, mark: int) -> None:
        """Something happened to this message."""
        self.marks[value] = self.marks.get(value, 0) | mark

    def settle(self, values: Iterable[Value]) -> None:
        """These were acknowledged or dropped."""
        for value in values:
            self.marks[value] = self.marks.get(value, 0) | SETTLED

    def must(self) -> set[Value]:
        """What must survive."""
        marks = CONFIRMED | SETTLED | TRANSIENT | UNCOMMITTED
        return {value for value, known in self.marks.items() if known & marks == CONFIRMED}

    def may(self, value: Value) -> bool:
        """Whether this message may be there after a restart."""
        known = self.marks.get(value, UNCOMMITTED)
        return not known & (TRANSIENT | UNCOMMITTED | DROPPED)


class Ledger:
    """All queues, and what the publishers' messages are like."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.kinds: dict[str, Kind] = {}
        self.queues: dict[str, QueueLedger] = {}
        self.rejected: dict[Value, bool] = {}
        """Messages whose reject was sent so that they are dead-lettered: were they confirmed then?"""

    def read(self, delivery: Delivery, queue: QueueLedger) -> Value | None:
        """Which message this is; None if its bytes are wrong."""
        try:
            value = value_of(delivery.body)
            kind = self.kinds[value.publisher]
        except (ValueError, KeyError) as error:
            self.count.problem("wrong", f"{queue.name}: {error!r}")
            return None
        if delivery.body != kind.body(value):
            self.count.problem("wrong", f"{queue.name}: body of {value}: {len(delivery.body)} bytes")
            return None
        if not self._properties_are_right(delivery.properties, kind, value, queue):
            self.count.problem("wrong", f"{queue.name}: properties of {value}: {delivery.properties!r}")
            return None
        return value

    def _properties_are_right(self, found: bytes, kind: Kind, value: Value, queue: QueueLedger) -> bool:
        wanted = kind.properties(value)
        if queue.name != DEAD_LETTERS:
            return found == wanted
        properties = decode_properties(found, 0, len(found))
        headers, properties.headers = properties.headers or {}, None
        return (
            encode_properties(properties) == wanted
            and headers["x-first-death-queue"].value == REJECTED_FROM.encode()
        )


REJECTED_FROM: Final = "dl.source"
DEAD_LETTERS: Final = "dl.target"
