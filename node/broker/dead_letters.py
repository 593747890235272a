"""Messages on their way from queues to dead-letter exchanges.

It happens in the next turns, so that no number of deaths holds up one. A message leaves its queue only when it is
where it goes: on this node the order in which the disk works sees to that; another node has to answer first.
Source: amqp-behaviour §5.5; architecture §4 (at least once inside the cluster).
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from node.broker.acceptance import Acceptance
from node.broker.dead_letter import Death, dead_copy, dead_envelope, is_cycle
from node.broker.live_queue import RemoteQueue
from node.broker.queue import REJECTED, Queue
from node.broker.run import Run

if TYPE_CHECKING:
    from node.broker.broker import Broker

DEAD_LETTERS_MAX: Final = 500
"""Messages that are dead-lettered in one turn: at some 20 us each, what a turn may cost in all."""


class DeadLetters:
    """Those of one broker that are to be published, in the order in which they died."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: deque[tuple[Death, Run, Queue]] = deque()

    def add(self, queue: Queue, run: Run, reason: str, now: float) -> None:
        """Messages left a queue: publish them, if they have somewhere to go; then the queue is to forget them."""
        broker, record = self._broker, queue.record
        exchange = queue.settings.dead_letter_exchange
        if exchange is None or broker.catalogue.exchange(record.vhost, exchange) is None:
            queue.forget(run)
            return
        key, died_at_s = queue.settings.dead_letter_routing_key, int(now + broker.epoch_s)
        broker.wake()
        self._waiting.append((Death(record.vhost, record.name, reason, exchange, key, died_at_s), run, queue))

    @property
    def has_work(self) -> bool:
        """Whether `turn` has something to do. All wait while too much is on its way to other nodes."""
        peers = self._broker.peers
        return bool(self._waiting) and not (peers is not None and peers.is_congested)

    def turn(self) -> None:
        """Publish as many as a turn may cost."""
        left = DEAD_LETTERS_MAX
        while self._waiting and left > 0:
            death, run, queue = self._waiting.popleft()
            if len(run) > left:
                self._waiting.appendleft((death, run[left:], queue))
                run = run[:left]
            left -= len(run)
            if death.vhost not in self._broker.vhosts or not self._publish(death, run, queue):
                queue.forget(run)  # only now: it is on disk here until it is there

    def _publish(self, death: Death, run: Run, queue: Queue) -> bool:
        """Publish dead messages; whether some are on their way to other nodes, so that the queue keeps them."""
        broker = self._broker
        envelope = dead_envelope(death, run.envelope)
        keys = [envelope.routing_key, *envelope.cc, *envelope.bcc]
        remote: list[tuple[RemoteQueue, bytes]] = []
        for content in run.contents:
            copy, headers = dead_copy(content, death, run.envelope)
            for target in broker.route(death.vhost, death.exchange, keys, headers):
                if death.reason != REJECTED and is_cycle(target.record.name, headers):
                    broker.observer.message_cycled(target.record, keys)
                elif isinstance(target, Queue):
                    broker.enqueue(envelope, [copy], run.size, (target,))
                else:
                    remote.append((cast(RemoteQueue, target), copy))
        if not remote:
            return False
        acceptance = Acceptance(len(run), len(remote), partial(self._accepted, death, run, queue))
        for away, copy in remote:
            away.send(envelope, [copy], run.size, acceptance)
        return True

    def _accepted(self, death: Death, run: Run, queue: Queue, acceptance: Acceptance) -> None:
        """Other nodes have the dead messages, or one of them is lost: then they are routed anew, all of them."""
        if acceptance.is_lost:
            self._waiting.append((death, run, queue))
            self._broker.wake()
        else:
            queue.forget(run)
