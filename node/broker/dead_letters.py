"""Messages on their way from queues to dead-letter exchanges.

They are published in the next turns, so that no number of deaths holds up one turn. A message leaves its queue only
when its target has it: on this node the order of disk writes ensures that; another node, or a queue's mirrors, must
answer first. A broker with a meter counts those that no queue has in the end (`node.broker.letter_fates`).
Source: amqp-behaviour §5.5; docs/internals/remote-queues.md, "When a node is lost".
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.broker.letter_fates import LetterFates
from node.client.counters import AT_MOST_ONCE, DISABLED
from node.queue.dead_letter import NO_EXCHANGE, NO_ROUTE, Death, dead_copy, dead_envelope, is_cycle
from node.queue.live_queue import LiveQueue
from node.queue.pending_publish import PendingPublish
from node.queue.queue import REJECTED, Queue
from node.queue.run import Batch, Run
from node.scheduling.turn import TURN_S

if TYPE_CHECKING:
    from node.broker.broker import Broker

DEAD_LETTERS_MAX: Final = 500
"""The most messages that are dead-lettered in one turn; a long turn ends before."""

AT_ONCE_MAX: Final = 20
"""The messages that are dead-lettered between two looks at the clock: a 25th of `DEAD_LETTERS_MAX`."""

RETRY_S: Final = 1.0
"""The seconds before dead letters for a mirrored queue without a master are routed anew."""


class DeadLetters:
    """The dead letters of one broker that are to be published, in the order in which they died."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: deque[tuple[Death, Run, Queue]] = deque()
        self._postponed: list[tuple[Death, Run, Queue]] = []
        self._on_way: dict[PendingPublish, tuple[Run, Queue]] = {}
        self._congested: Queue | None = None  # the last mirrored queue that got some, which may be congested

    def add(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        """Add messages that left a queue. The queue forgets them when they are published, or at once if they go
        nowhere.
        """
        broker, record = self._broker, queue.record
        exchange = queue.settings.dead_letter_exchange
        is_dropped = exchange is None or broker.catalogue.exchange(record.vhost, exchange) is None
        broker.counters.dead_lettered[reason, DISABLED if is_dropped else AT_MOST_ONCE] += len(run)
        if exchange is None or is_dropped:
            if exchange is not None and broker.meter is not None:
                broker.meter.letters_lost(queue, {NO_EXCHANGE: len(run)})
            queue.forget(run)
            return
        key, died_at_s = queue.settings.dead_letter_routing_key, int(now + broker.epoch_s)
        broker.wake()
        self._waiting.append((Death(record.vhost, record.name, reason, exchange, key, died_at_s), run, queue))

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do. All messages wait while too much is on its way to other nodes."""
        if not self._waiting or (self._congested is not None and self._congested.is_congested):
            return False
        peers = self._broker.peers
        return not (peers is not None and peers.is_congested)

    def turn(self) -> None:
        """Publish as many messages as a turn may cost."""
        left, clock = DEAD_LETTERS_MAX, self._broker.turns.clock
        ends_at = clock() + TURN_S
        while self._waiting and left > 0 and clock() <= ends_at:
            death, run, queue = self._waiting.popleft()
            if len(run) > AT_ONCE_MAX:
                self._waiting.appendleft((death, run[AT_ONCE_MAX:], queue))
                run = run[:AT_ONCE_MAX]
            left -= len(run)
            if death.vhost not in self._broker.vhosts or not self._publish(death, run, queue):
                queue.forget(run)  # only now, so that one of the two queues always has it on disk

    def _publish(self, death: Death, run: Run, queue: Queue) -> bool:
        """Publish dead messages. True: some are on their way to other nodes, so the queue keeps them."""
        broker = self._broker
        envelope = dead_envelope(death, run.envelope)
        keys = [envelope.routing_key, *envelope.cc, *envelope.bcc]
        fates = None if broker.meter is None else LetterFates(len(run), self._unrouted(death))
        targets: list[tuple[int, LiveQueue, bytes]] = []
        for index, content in enumerate(run.contents):
            copy, headers = dead_copy(content, death, run.envelope)
            for target in self._route(death, keys, headers):
                if death.reason != REJECTED and is_cycle(target.record.name, headers):
                    broker.observer.message_cycled(target.record, keys)
                    if fates is not None:
                        fates.cycled(index)
                else:
                    targets.append((index, target, copy))
        if any(target.is_out_of_reach for _, target, _ in targets):
            self._postpone(death, run, queue)
            return True
        pending = PendingPublish(len(run))
        for index, target, copy in targets:
            batch = Batch(envelope, [copy], run.size)
            if target.leaves_node:
                pending.expect()
                target.publish(batch, pending if fates is None else fates.waiter(index, pending))
            else:
                refused = target.publish(batch, None)
                if fates is not None:
                    fates.accepted(index, refused)
            if isinstance(target, Queue):
                target.count_letters(1)
                self._congested = target if target.leaves_node else self._congested
        if not pending.is_awaited:
            self._count_lost(queue, fates)
            return False
        self._on_way[pending] = run, queue
        pending.end(partial(self._accepted, death, run, queue, fates))
        return True

    def _unrouted(self, death: Death) -> str:
        """Return why a dead message goes to no queue, if it goes to none."""
        found = self._broker.catalogue.exchange(death.vhost, death.exchange)
        return NO_EXCHANGE if found is None else NO_ROUTE

    def _count_lost(self, queue: Queue, fates: LetterFates | None) -> None:
        """Count dead messages that no queue has. All targets have answered."""
        meter = self._broker.meter
        if fates is not None and meter is not None and (lost := fates.lost()):
            meter.letters_lost(queue, lost)

    def _route(self, death: Death, keys: list[str], headers: Table) -> Sequence[LiveQueue]:
        """Return the targets of a dead message; none if routing would cost too much, as no client can be told."""
        try:
            return self._broker.route(death.vhost, death.exchange, keys, headers)
        except ProtocolError:
            return ()

    def _postpone(self, death: Death, run: Run, queue: Queue) -> None:
        """Publish to no queue yet, as a mirrored target has no master: the other targets would get it again and
        again.
        """
        if not self._postponed:
            self._broker.timers.at(self._broker.now + RETRY_S, self._resume)
        self._postponed.append((death, run, queue))

    def _resume(self, now: float) -> None:
        self._waiting.extend(self._postponed)
        self._postponed.clear()
        self._broker.wake()

    def _accepted(
        self, death: Death, run: Run, queue: Queue, fates: LetterFates | None, pending: PendingPublish
    ) -> None:
        """Have the queue forget dead messages that all targets have. If a target was lost, they are routed anew, all
        of them.

        If their queue has left, they are at its new master again.
        """
        del self._on_way[pending]
        if queue.successor is not None:
            return
        if pending.is_lost:
            self._waiting.append((death, run, queue))
            self._broker.wake()
        else:
            self._count_lost(queue, fates)
            queue.forget(run)

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
