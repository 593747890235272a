"""The ledger of one node over its restarts.

A restart tells the truth, and the ledger begins anew from there: what was found must be found again, what was not must
never come back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from node.amqp.properties import decode_properties, encode_properties
from tests.kit import ledger
from tests.kit.ledger import CONFIRMED, SETTLED, Kind, Tally, Value

TRANSIENT: Final = 256
UNCOMMITTED: Final = 512
"""In a transaction whose commit was not sent."""
DROPPED: Final = 1024
"""Settled, and the node is known to have heard of it."""


@dataclass(slots=True)
class Count(Tally):
    """Counts the events of a round. Everything from `lost` on must be 0; `problems` says what, in words."""

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    acked: int = 0
    recovered: int = 0
    copied: int = 0
    """Dead letters that are in both queues, and messages that were there twice as they moved: allowed."""
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


class QueueLedger(ledger.QueueLedger):
    """The messages of one queue.   is_priority: order holds for each priority only.

    has_order: False where messages come in another order than they were published in.
    moves: its messages wait, and move then: a crash in between may leave one twice (docs/delayed.md).
    """

    def __init__(
        self, name: str, *, is_priority: bool = False, has_order: bool = True, moves: bool = False
    ) -> None:
        super().__init__(name)
        self.moves = moves
        self.is_priority = is_priority
        self.has_order = has_order
        self.had_consumer = False

    def settle(self, values: Iterable[Value]) -> None:
        """These were acknowledged or dropped."""
        for value in values:
            self.mark(value, SETTLED)

    def must(self) -> set[Value]:
        """Return the messages that must survive."""
        marks = CONFIRMED | SETTLED | TRANSIENT | UNCOMMITTED
        return {value for value, known in self.marks.items() if known & marks == CONFIRMED}

    def may(self, value: Value) -> bool:
        """Whether this message may be there after a restart."""
        known = self.marks.get(value, UNCOMMITTED)
        return not known & (TRANSIENT | UNCOMMITTED | DROPPED)


class Ledger(ledger.Ledger[Count, QueueLedger]):
    """All queues, some of which get dead letters."""

    def __init__(self, count: Count) -> None:
        super().__init__(count)
        self.rejected: dict[Value, bool] = {}
        """Messages whose reject was sent so that they are dead-lettered: were they confirmed then?"""

    def _properties_are_right(self, found: bytes, kind: Kind, value: Value, queue: QueueLedger) -> bool:
        source = LETTERS.get(queue.name)
        if source is None and queue.name not in (DELAYED, SAFE_FROM):
            return found == kind.properties(value)
        properties = decode_properties(found, 0, len(found))
        headers, properties.headers = properties.headers or {}, None
        return (
            encode_properties(properties) == kind.properties(value, is_bare=True)
            and (source is None or headers["x-first-death-queue"].value == source.encode())
            and (not kind.delay_ms or headers["x-delay"].value == -kind.delay_ms)
        )


REJECTED_FROM: Final = "dl.source"
DEAD_LETTERS: Final = "dl.target"
SAFE_FROM: Final = "safe.source"
SAFE_LETTERS: Final = "safe.target"
LETTERS: Final = {DEAD_LETTERS: REJECTED_FROM, SAFE_LETTERS: SAFE_FROM}
"""The queues of dead letters, and the one where each dies. Those of the second pair go at least once."""

DELAYED: Final = "delayed"
MOVING: Final = (DELAYED, "retry")
UNORDERED: Final = (*LETTERS, SAFE_FROM, *MOVING)
"""The queues where messages come in another order than they were published in."""
