"""Messages on their way from queues to dead-letter exchanges.

It happens in the next turns, so that no number of deaths holds up one. A message leaves its queue only when it is
where it goes: on this node the order in which the disk works sees to that; another node has to answer first, and
so have the mirrors of a queue.
Source: amqp-behaviour §5.5; docs/internals/remote-queues.md, "When a node is lost".
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from node.amqp.errors import ProtocolError
from node.amqp.field_table import Table
from node.client.counters import AT_MOST_ONCE, DISABLED
from node.queue.acceptance import Acceptance
from node.queue.dead_letter import Death, dead_copy, dead_envelope, is_cycle
from node.queue.live_queue import LiveQueue
from node.queue.queue import REJECTED, Queue
from node.queue.run import Batch, Run
from node.scheduling.turn import TURN_S

if TYPE_CHECKING:
    from node.broker.broker import Broker

DEAD_LETTERS_MAX: Final = 500
"""Messages that are dead-lettered in one turn, unless it gets too long before."""

AT_ONCE_MAX: Final = 20
"""Messages that are dead-lettered between two looks at the clock: 25 times that is `DEAD_LETTERS_MAX`."""

RETRY_S: Final = 1.0
"""Before dead letters are routed anew that were to go to a mirrored queue without a master."""


class DeadLetters:
    """Those of one broker that are to be published, in the order in which they died."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: deque[tuple[Death, Run, Queue]] = deque()
        self._postponed: list[tuple[Death, Run, Queue]] = []
        self._on_way: dict[Acceptance, tuple[Run, Queue]] = {}
        self._congested: Queue | None = None  # the last mirrored one that got some

    def add(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        """Messages left a queue: publish them, if they have somewhere to go; then the queue is to forget them."""
        broker, record = self._broker, queue.record
        exchange = queue.settings.dead_letter_exchange
        is_dropped = exchange is None or broker.catalogue.exchange(record.vhost, exchange) is None
        broker.counters.dead_lettered[reason, DISABLED if is_dropped else AT_MOST_ONCE] += len(run)
        if exchange is None or is_dropped:
            queue.forget(run)
            return
        key, died_at_s = queue.settings.dead_letter_routing_key, int(now + broker.epoch_s)
        broker.wake()
        self._waiting.append((Death(record.vhost, record.name, reason, exchange, key, died_at_s), run, queue))

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do. All wait while too much is on its way to other nodes."""
        if not self._waiting or (self._congested is not None and self._congested.is_congested):
            return False
        peers = self._broker.peers
        return not (peers is not None and peers.is_congested)

    def turn(self) -> None:
        """Publish as many as a turn may cost."""
        left, clock = DEAD_LETTERS_MAX, self._broker.turns.clock
        ends_at = clock() + TURN_S
        while self._waiting and left > 0 and clock() <= ends_at:
            death, run, queue = self._waiting.popleft()
            if len(run) > AT_ONCE_MAX:
                self._waiting.appendleft((death, run[AT_ONCE_MAX:], queue))
                run = run[:AT_ONCE_MAX]
            left -= len(run)
            if death.vhost not in self._broker.vhosts or not self._publish(death, run, queue):
                queue.forget(run)  # only now: it is on disk here until it is there

    def _publish(self, death: Death, run: Run, queue: Queue) -> bool:
        """Publish dead messages; whether some are on their way to other nodes, so that the queue keeps them."""
        broker = self._broker
        envelope = dead_envelope(death, run.envelope)
        keys = [envelope.routing_key, *envelope.cc, *envelope.bcc]
        targets: list[tuple[LiveQueue, bytes]] = []
        for content in run.contents:
            copy, headers = dead_copy(content, death, run.envelope)
            for target in self._route(death, keys, headers):
                if death.reason != REJECTED and is_cycle(target.record.name, headers):
                    broker.observer.message_cycled(target.record, keys)
                else:
                    targets.append((target, copy))
        if any(target.is_out_of_reach for target, _ in targets):
            self._postpone(death, run, queue)
            return True
        acceptance = Acceptance(len(run))
        for target, copy in targets:
            batch = Batch(envelope, [copy], run.size)
            if target.leaves_node:
                acceptance.expect()
                target.publish(batch, acceptance)
            else:
                target.publish(batch, None)
            if isinstance(target, Queue):
                target.count_letters(1)
                self._congested = target if target.leaves_node else self._congested
        if not acceptance.is_awaited:
            return False
        self._on_way[acceptance] = run, queue
        acceptance.end(partial(self._accepted, death, run, queue))
        return True

    def _route(self, death: Death, keys: list[str], headers: Table) -> Sequence[LiveQueue]:
        """Where a dead message goes: nowhere where finding out would cost too much, as nobody can be told."""
        try:
            return self._broker.route(death.vhost, death.exchange, keys, headers)
        except ProtocolError:
            return ()

    def _postpone(self, death: Death, run: Run, queue: Queue) -> None:
        """A mirrored queue has no master: publish to nobody yet, or the others would get it again and again."""
        if not self._postponed:
            self._broker.timers.at(self._broker.now + RETRY_S, self._resume)
        self._postponed.append((death, run, queue))

    def _resume(self, now: float) -> None:
        self._waiting.extend(self._postponed)
        self._postponed.clear()
        self._broker.wake()

    def _accepted(self, death: Death, run: Run, queue: Queue, acceptance: Acceptance) -> None:
        """Other nodes have the dead messages, or one of them is lost: then they are routed anew, all of them.

        If their queue has left, they are at its new master again.
        """
        del self._on_way[acceptance]
        if queue.successor is not None:
            return
        if acceptance.is_lost:
            self._waiting.append((death, run, queue))
            self._broker.wake()
        else:
            queue.forget(run)

    def all_unsettled(self) -> Iterator[tuple[Run, Queue]]:
        """Messages that their queues have not been told to forget, and those queues."""
        yield from self._on_way.values()
        for _, run, queue in chain(self._waiting, self._postponed):
            yield run, queue

    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        """Messages of a queue that it has not been told to forget.   take: those that wait are not to be published."""
        runs = [run for run, origin in self.all_unsettled() if origin is queue]
        if take:
            self._waiting = deque(waiting for waiting in self._waiting if waiting[2] is not queue)
            self._postponed = [waiting for waiting in self._postponed if waiting[2] is not queue]
        return runs
