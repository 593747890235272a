"""Messages for so many queues that one turn is too short for them: put into a part of the queues at a time.

    Channel ─► Spreading.begin ─► a part ─► a part ─► … ─► the last one: the connection is read from again

A connection reads nothing while it spreads, and publishes that it has read already wait behind, so that its messages
keep their order in each queue. Spreading continues after the connection's end, as the messages were accepted.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from node.queue.intake import Targets, tell
from node.queue.live_queue import current
from node.queue.pending_publish import PendingPublish
from node.queue.run import Batch
from node.scheduling.chores import Chore

if TYPE_CHECKING:
    from node.client.base_connection import BaseConnection
    from node.client.channel import Channel
    from node.queue.live_queue import LiveQueue

WIDE_COST: Final = 2000
"""The largest cost of a publish at once, some 4 ms: 1 for a queue here, `AWAY_COST` for one elsewhere or mirrored."""

AWAY_COST: Final = 10

_NEAR_AT_ONCE: Final = 500
"""The queues of a part. Each part has its own copy of a large content in the message store, so parts are not small."""

_AWAY_AT_ONCE: Final = 50


def is_wide(targets: Targets) -> bool:
    """True if a publish to these queues is too much at once."""
    near_cost = AWAY_COST if targets.is_mirrored else 1
    return len(targets.away) * AWAY_COST + len(targets.near) * near_cost > WIDE_COST


class Spreading:
    """The messages that one connection has to spread, in order.   is_on: there is something left."""

    def __init__(self) -> None:
        self.is_on = False
        self._waiting: deque[Chore] = deque()
        self._is_beginning = False

    def begin(self, channel: "Channel", batch: Batch, targets: Targets) -> None:
        """Publish a batch to these queues."""
        at_once = _AWAY_AT_ONCE if targets.leaves_node else _NEAR_AT_ONCE
        first = None if channel.confirms is None else channel.expect(len(batch.contents))
        self._waiting.append(_spread(channel, batch, list(targets), at_once, first))
        self.is_on = True
        if len(self._waiting) > 1:
            return
        connection = channel.connection
        self._is_beginning = True
        connection.broker.chores.begin(self._work_off(), partial(self._done, connection))
        self._is_beginning = False
        if self.is_on:
            connection.stop_reading()

    def _done(self, connection: "BaseConnection") -> None:
        if not self._is_beginning:  # else the connection is reading already
            connection.read_on()

    def _work_off(self) -> Chore:
        while self._waiting:
            yield from self._waiting[0]
            self._waiting.popleft()
        self.is_on = False


def _spread(
    channel: "Channel", batch: Batch, queues: "list[LiveQueue]", at_once: int, first: int | None
) -> Chore:
    """Publish one part after the other.   first: the number of the first message; None: without confirms."""
    intake = channel.broker.intake
    pending = None if first is None else PendingPublish(len(batch.contents))
    for at in range(0, len(queues), at_once):
        part = Targets([current(queue) for queue in queues[at : at + at_once]])
        intake.give(batch, part, pending)
        channel.connection.throttle.hold_for(part)
        yield
    if pending is not None and first is not None:
        intake.end(pending, partial(tell, channel, first))
