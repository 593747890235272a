"""Messages for so many queues that one turn is too short for them: put into a part of the queues at a time.

    Channel ─► Spreading.begin ─► a part ─► a part ─► … ─► the last one: the connection is read from again

A connection reads nothing while it spreads, and what it publishes meanwhile waits behind, so that its messages keep
their order in each queue. It goes on when the connection ends: the messages were accepted.
"""

from collections import deque
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from node.client.away import send_away
from node.queue.acceptance import Acceptance
from node.queue.live_queue import current, local_and_remote
from node.queue.run import Envelope
from node.queue.safety import is_any_durable
from node.scheduling.chores import Chore

if TYPE_CHECKING:
    from node.client.channel import Channel
    from node.client.connection import Connection
    from node.queue.live_queue import LiveQueue

WIDE_COST: Final = 2000
"""What may be published at once, some 4 ms: one for a queue here, `AWAY_COST` for one elsewhere or with copies."""

AWAY_COST: Final = 10

_NEAR_AT_ONCE: Final = 500
"""Queues of a part: each part of a large content has a copy of its own in the message store."""

_AWAY_AT_ONCE: Final = 50


def is_wide(near: int, away: int, *, is_mirrored: bool) -> bool:
    """Whether that is too much at once.   near, away: queues of this node, and on others."""
    return away * AWAY_COST + near * (AWAY_COST if is_mirrored else 1) > WIDE_COST


class Spreading:
    """What one connection has to spread, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Chore] = deque()
        self._is_beginning = False

    @property
    def is_on(self) -> bool:
        """Whether there is something left."""
        return bool(self._waiting)

    def begin(
        self,
        channel: "Channel",
        envelope: Envelope,
        contents: list[bytes],
        size: int,
        queues: "Collection[LiveQueue]",
        *,
        is_away: bool,
    ) -> None:
        """Publish a run to these queues.   is_away: some are on other nodes, or mirrored."""
        at_once = _AWAY_AT_ONCE if is_away else _NEAR_AT_ONCE
        acceptance = None
        if channel.confirms is not None:
            first = channel.confirms.expect(len(contents))
            acceptance = Acceptance(len(contents), 1, partial(channel.accepted, first))
        self._waiting.append(_spread(channel, envelope, contents, size, list(queues), at_once, acceptance))
        if len(self._waiting) > 1:
            return
        connection = channel.connection
        self._is_beginning = True
        connection.broker.chores.begin(self._work_off(), partial(self._done, connection))
        self._is_beginning = False
        if self._waiting:
            connection.stop_reading()

    def _done(self, connection: "Connection") -> None:
        if not self._is_beginning:  # else the connection is at work and goes on by itself
            connection.read_on()

    def _work_off(self) -> Chore:
        while self._waiting:
            yield from self._waiting[0]
            self._waiting.popleft()


def _spread(
    channel: "Channel",
    envelope: Envelope,
    contents: list[bytes],
    size: int,
    queues: "list[LiveQueue]",
    at_once: int,
    acceptance: Acceptance | None,
) -> Chore:
    """Publish a part after the other. The acceptance has one party more until the last part is out."""
    broker = channel.broker
    is_kept = False
    for at in range(0, len(queues), at_once):
        near, away = local_and_remote([current(queue) for queue in queues[at : at + at_once]])
        refused = broker.enqueue(envelope, contents, size, near)
        mirrors = [(queue, queue.mirror) for queue in near if queue.mirror is not None]
        if acceptance is not None:
            acceptance.parties += len(away) + len(mirrors)
            acceptance.refused.update(refused or ())
            is_kept = is_kept or is_any_durable(queue for queue in near if queue.mirror is None)
        for queue in away:
            send_away(channel, queue, envelope, contents, size, acceptance)
        for queue, mirror in mirrors:
            if mirror.is_congested:
                channel.connection.throttle.hold_for_peer(mirror)
            if acceptance is not None:
                mirror.await_stable(acceptance, 0, 0, is_kept=envelope.persistent and queue.is_durable)
        yield
    if acceptance is not None and is_kept and envelope.persistent:
        broker.storage.await_safety(acceptance, 0, 0)
    elif acceptance is not None:
        acceptance.accept()
