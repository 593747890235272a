"""Messages on their way from queues to dead-letter exchanges.

On this node the order of disk writes ensures that one of the two queues has a message; another node, or a queue's
mirrors, must answer first. A broker with a meter counts those that no queue has in the end
(`node.broker.letter_fates`). Those of queues with the strategy `at-least-once` go another way
(`node.broker.safe_letters`). Source: amqp-behaviour §5.5.
"""

from collections.abc import Iterator

from node.broker.forwarding import Forwarding, ForwardingHost
from node.broker.letter_fates import LetterFates
from node.broker.safe_letters import SafeLetters
from node.client.counters import AT_MOST_ONCE, DISABLED
from node.override import override
from node.queue.dead_letter import (
    NO_EXCHANGE,
    NO_ROUTE,
    REJECTED,
    Death,
    dead_copy,
    dead_envelope,
    is_cycle,
)
from node.queue.live_queue import LiveQueue
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Batch, Run


class DeadLetters(Forwarding[Death]):
    """The dead letters of one broker that are to be published, in the order in which they died."""

    def __init__(self, broker: ForwardingHost) -> None:
        super().__init__(broker)
        self._fates: dict[PendingPublish, LetterFates] = {}
        """What became of the messages on their way, in a broker with a meter."""
        self.safe = SafeLetters(broker, self._add_at_most_once)
        """Those that no target may miss."""

    def add(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        """Add messages that left a queue. The queue forgets them when they are published, or at once if they go
        nowhere.
        """
        if queue.settings.keeps_dead_letters:
            self.safe.add(queue, run, reason)
        else:
            self._add_at_most_once(queue, run, reason, now)

    @property
    @override
    def has_work(self) -> bool:
        return super().has_work or self.safe.has_work

    @override
    def turn(self) -> None:
        if super().has_work:
            super().turn()
        if self.safe.has_work:
            self.safe.turn()

    @override
    def all_unsettled(self) -> Iterator[tuple[Run, Queue]]:
        yield from super().all_unsettled()
        yield from self.safe.all_unsettled()

    @override
    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        runs = super().unsettled(queue, take=take)
        if take:
            self.safe.unsettled(queue, take=True)
        return runs

    def _add_at_most_once(self, queue: Queue, run: Run, reason: str, now: float) -> None:
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
        self._add(Death(record.vhost, record.name, reason, exchange, key, died_at_s), run, queue)

    @override
    def _publish(self, errand: Death, run: Run, queue: Queue) -> bool:
        """Publish dead messages. True: some are on their way to other nodes, so the queue keeps them."""
        envelope = dead_envelope(errand, run.envelope)
        keys = [envelope.routing_key, *envelope.cc, *envelope.bcc]
        fates = None if self._broker.meter is None else LetterFates(len(run), self._unrouted(errand))
        targets: list[tuple[int, LiveQueue, bytes]] = []
        for index, content in enumerate(run.contents):
            copy, headers = dead_copy(content, errand, run.envelope)
            for target in self._route(errand, keys, headers, copy):
                if errand.reason != REJECTED and is_cycle(target.record.name, headers):
                    self._broker.observer.message_cycled(target.record, keys)
                    if fates is not None:
                        fates.cycled(index)
                else:
                    targets.append((index, target, copy))
        if any(target.is_out_of_reach for _, target, _ in targets):
            self._postpone(errand, run, queue)
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
        if fates is not None:
            self._fates[pending] = fates
        self._send(pending, errand, run, queue)
        return True

    @override
    def _accepted(self, errand: Death, run: Run, queue: Queue, pending: PendingPublish) -> None:
        fates = self._fates.pop(pending, None)
        if not pending.is_lost and queue.successor is None:
            self._count_lost(queue, fates)
        super()._accepted(errand, run, queue, pending)

    def _unrouted(self, death: Death) -> str:
        """Return why a dead message goes to no queue, if it goes to none."""
        found = self._broker.catalogue.exchange(death.vhost, death.exchange)
        return NO_EXCHANGE if found is None else NO_ROUTE

    def _count_lost(self, queue: Queue, fates: LetterFates | None) -> None:
        """Count dead messages that no queue has. All targets have answered."""
        meter = self._broker.meter
        if fates is not None and meter is not None and (lost := fates.lost()):
            meter.letters_lost(queue, lost)
