"""Messages on their way from a queue of this node to an exchange, as the broker publishes them itself.

They are published in the next turns, so that no number of them holds up one turn. A message leaves its queue only
when its targets have it. If a target was lost, or can't be reached yet, it is routed anew.
Source: docs/internals/remote-queues.md, "When a node is lost".
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.client.host import ClientHost
from node.queue.live_queue import LiveQueue, Peers
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Run
from node.routing.exchange_types import ExchangeTypes
from node.scheduling.turn import TURN_S

FORWARDED_MAX: Final = 500
"""The most messages that are published in one turn; a long turn ends before."""

AT_ONCE_MAX: Final = 20
"""The messages that are published between two looks at the clock: a 25th of `FORWARDED_MAX`."""

RETRY_S: Final = 1.0
"""The seconds before messages for a mirrored queue without a master are routed anew."""


class ForwardingHost(ClientHost, Protocol):
    """The broker, as messages on their way use it."""

    peers: Peers | None
    exchange_types: ExchangeTypes


class Errand(Protocol):
    """The errand of messages: the exchange to which they go, and what the subclass needs to know."""

    @property
    def vhost(self) -> str:
        """The vhost of the queue and the exchange."""

    @property
    def exchange(self) -> str:
        """The exchange to which they go."""


ErrandT = TypeVar("ErrandT", bound=Errand)


class Forwarding(ABC, Generic[ErrandT]):
    """The messages of one broker that are to be published, in the order in which they came."""

    def __init__(self, broker: ForwardingHost) -> None:
        self._broker = broker
        self._waiting: deque[tuple[ErrandT, Run, Queue]] = deque()
        self._postponed: list[tuple[ErrandT, Run, Queue]] = []
        self._on_way: dict[PendingPublish, tuple[Run, Queue]] = {}
        self._congested: Queue | None = None  # the last mirrored queue that got some, which may be congested

    def _add(self, errand: ErrandT, run: Run, queue: Queue) -> None:
        """Publish messages that left a queue. The queue forgets them when that is done."""
        self._broker.wake()
        self._waiting.append((errand, run, queue))

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do. All messages wait while too much is on its way to other nodes."""
        if not self._waiting or (self._congested is not None and self._congested.is_congested):
            return False
        peers = self._broker.peers
        return not (peers is not None and peers.is_congested)

    def turn(self) -> None:
        """Publish as many messages as a turn may cost."""
        left, clock = FORWARDED_MAX, self._broker.turns.clock
        ends_at = clock() + TURN_S
        while self._waiting and left > 0 and clock() <= ends_at:
            errand, run, queue = self._waiting.popleft()
            if len(run) > AT_ONCE_MAX:
                self._waiting.appendleft((errand, run[AT_ONCE_MAX:], queue))
                run = run[:AT_ONCE_MAX]
            left -= len(run)
            if errand.vhost not in self._broker.vhosts or not self._publish(errand, run, queue):
                self._forget(run, queue)  # only now, so that one of the two queues always has it on disk

    @abstractmethod
    def _publish(self, errand: ErrandT, run: Run, queue: Queue) -> bool:
        """Publish messages. True: their queue keeps them until `_accepted` or `_postpone` has seen to them."""

    def _forget(self, run: Run, queue: Queue) -> None:
        """Have the queue forget messages that have gone where they were to go."""
        queue.forget(run)

    def _route(
        self, errand: ErrandT, keys: Sequence[str], headers: Table, content: bytes
    ) -> Sequence[LiveQueue]:
        """Return the targets of a message; none if routing would cost too much or a plug-in fails.

        No client can be told of that.
        """
        try:
            return self._broker.route(
                errand.vhost, errand.exchange, keys, headers, content, self._past(errand)
            )
        except ProtocolError:
            return ()

    def _past(self, errand: ErrandT) -> str | None:
        """Return the exchange whose filter has let the messages pass; None: there is none."""
        return None

    def _send(self, pending: PendingPublish, errand: ErrandT, run: Run, queue: Queue) -> None:
        """Wait until the targets have all of the messages, which have been published to them."""
        self._on_way[pending] = run, queue
        pending.end(partial(self._accepted, errand, run, queue))

    def _postpone(self, errand: ErrandT, run: Run, queue: Queue) -> None:
        """Publish to no queue yet, as a mirrored target has no master: the other targets would get it again and
        again.
        """
        if not self._postponed:
            self._broker.timers.at(self._broker.now + RETRY_S, self._resume)
        self._postponed.append((errand, run, queue))

    def _resume(self, now: float) -> None:
        self._waiting.extend(self._postponed)
        self._postponed.clear()
        self._broker.wake()

    def _accepted(self, errand: ErrandT, run: Run, queue: Queue, pending: PendingPublish) -> None:
        """Have the queue forget messages that all targets have. If a target was lost, they are routed anew, all of
        them.

        If their queue has left, they are at its new master again.
        """
        del self._on_way[pending]
        if queue.successor is not None:
            return
        if pending.is_lost:
            self._waiting.append((errand, run, queue))
            self._broker.wake()
        else:
            self._forget(run, queue)

    def all_unsettled(self) -> Iterator[tuple[Run, Queue]]:
        """Yield the messages that their queues have not been told to forget, each with its queue."""
        yield from self._on_way.values()
        for _, run, queue in chain(self._waiting, self._postponed):
            yield run, queue

    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        """Return messages of a queue that it has not been told to forget.   take: do not publish those that wait."""
        runs = [run for run, origin in self.all_unsettled() if origin is queue]
        if take:
            self._waiting = deque(waiting for waiting in self._waiting if waiting[2] is not queue)
            self._postponed = [waiting for waiting in self._postponed if waiting[2] is not queue]
        return runs
