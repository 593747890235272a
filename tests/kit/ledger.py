"""A ledger records what a client knows of its messages: which must, may or must not be in a queue.

A message is its *value*, the publisher's name and a number, from which body and properties follow. For each queue
and value there are marks of what was sent and what was answered. What counts as wrong is the business of the ledgers
that are made of this: `tests.durability.ledger` of one node over restarts, `tests.chaos.ledger` of a cluster,
`tests.chaos.mirror_ledger` of mirrored queues.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar
from zlib import crc32

from node.amqp.field_table import long
from node.amqp.properties import Properties, encode_properties
from tests.kit.load_client import Delivery

SENT: Final = 1
CONFIRMED: Final = 2
"""By an ack or a commit-ok, and it was not returned; or it was found after a restart: it is in the queue."""
NACKED: Final = 4
RETURNED: Final = 8
DELIVERED: Final = 16
"""A client got it."""
SETTLED: Final = 32
"""An ack, reject or nack without requeue, or a purge was sent, or a commit of one: it may be there or not."""
SPARED: Final = 64
"""A message may be missing from this queue although it was confirmed."""
FRESH: Final = 128
"""A client got it without `redelivered`."""

FILLER_MAX_BYTES: Final = 300_000
_BLOCK: Final = Random("filler").randbytes(2 * FILLER_MAX_BYTES)

PROBLEMS_MAX: Final = 60
"""Problems that are told in words; all are counted."""


def clock() -> str:
    """The time of day, as in the nodes' logs."""
    now = time.time()
    return time.strftime("%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}"


class Value(NamedTuple):
    """The identity of a message."""

    publisher: str
    number: int


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a publisher's messages.

    sizes: of the filler in bytes, one is chosen by the number.   transient_of: every so many-th is not persistent.
    is_named: they have a message-id.   priorities: one is chosen by the number.   expiration: ms, or "".
    delay_ms: for a delayed exchange.
    """

    sizes: Sequence[int] = (20,)
    transient_of: int = 0
    is_named: bool = False
    priorities: int = 0
    expiration: str = ""
    delay_ms: int = 0

    def is_transient(self, number: int) -> bool:
        """Return whether this message must not survive a restart."""
        return self.transient_of > 0 and number % self.transient_of == 0

    def priority(self, number: int) -> int:
        """The priority of this message."""
        return number % self.priorities if self.priorities else 0

    def properties(self, value: Value, *, is_bare: bool = False) -> bytes:
        """Flags and values on the wire.   is_bare: without headers."""
        return encode_properties(
            Properties(
                delivery_mode=1 if self.is_transient(value.number) else 2,
                message_id=f"{value.publisher}/{value.number}" if self.is_named else None,
                priority=self.priority(value.number) if self.priorities else None,
                expiration=self.expiration or None,
                headers={"x-delay": long(self.delay_ms)} if self.delay_ms and not is_bare else None,
            )
        )

    def body(self, value: Value) -> bytes:
        """The bytes of this message."""
        head = f"{value.publisher}:{value.number}|".encode()
        seed = crc32(head)
        start = seed % FILLER_MAX_BYTES
        return head + _BLOCK[start : start + self.sizes[seed % len(self.sizes)]]


def value_of(body: bytes) -> Value:
    """Return the identity of a message. Raises ValueError."""
    publisher, colon, number = body[:100].partition(b"|")[0].decode().rpartition(":")
    if not colon:
        raise ValueError(f"no value in {body[:60]!r}")
    return Value(publisher, int(number))


@dataclass(slots=True)
class Tally:
    """Counts of events; each ledger has its own fields. `problems` describes errors in words."""

    FIRST_PROBLEM: ClassVar[str] = "lost"
    """From this field on all must be 0."""

    problems: list[str] = field(default_factory=list)

    def problem(self, what: str, text: str, number: int = 1) -> None:
        """Count an error.   what: the field."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{clock()} {what.upper()}: {text}")

    @classmethod
    def numbers(cls) -> tuple[str, ...]:
        """Return the names of the fields that are numbers."""
        return tuple(each.name for each in fields(cls) if each.name != "problems")

    @classmethod
    def must_be_0(cls) -> tuple[str, ...]:
        """Return the names of those that must be 0."""
        numbers = cls.numbers()
        return numbers[numbers.index(cls.FIRST_PROBLEM) :]


T = TypeVar("T", bound=Tally)
Q = TypeVar("Q", bound="QueueLedger")


class QueueLedger:
    """The messages of one queue, each with its marks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.marks: dict[Value, int] = {}

    def mark(self, value: Value, mark: int) -> None:
        """Record an event of a message."""
        self.marks[value] = self.marks.get(value, 0) | mark


class Ledger(Generic[T, Q]):
    """All queues, and the kinds of the publishers' messages."""

    def __init__(self, count: T) -> None:
        self.count = count
        self.kinds: dict[str, Kind] = {}
        self.queues: dict[str, Q] = {}

    def read(self, delivery: Delivery, queue: Q) -> Value | None:
        """Return the identity of a message; None if its bytes are wrong."""
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

    def _properties_are_right(self, found: bytes, kind: Kind, value: Value, queue: Q) -> bool:
        return found == kind.properties(value)
