"""Messages of delayed exchanges whose time has come, on their way to the queues that the exchange routes them to.

    DelayedQueue ─ due ─► waiting ─ a turn ─► route, publish to all targets ─ all have it ─► DelayedQueue.forget

They go out like publishes with confirms: a message leaves the queue where it waited when each target has it, on its
mirrors and on disk where it belongs there. One that no binding selects is dropped, as nobody can be told. One that a
full target refuses is dropped for that target.
Source: docs/delayed.md.
"""

from functools import partial
from typing import Final, NamedTuple

from node.broker.forwarding import Forwarding, ForwardingHost
from node.catalogue.delayed import DELAY_HEADER, exchange_of
from node.override import override
from node.queue.delay import due_copy, due_envelope, negated
from node.queue.intake import Targets
from node.queue.live_queue import LiveQueue
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Batch, Run

DUE_MAX: Final = 4096
"""The most messages of a node that have left their waiting queues and are not forgotten yet; the others stay there."""


ROUTES_MAX: Final = 1024
"""The most routes that are remembered; with more they are all learnt anew."""


class Delayed(NamedTuple):
    """The errand of messages that are due."""

    vhost: str
    exchange: str


class DelayedMessages(Forwarding[Delayed]):
    """The messages of one broker that are due, in the order in which they became so."""

    def __init__(self, broker: ForwardingHost) -> None:
        super().__init__(broker)
        self._routes: dict[tuple[Delayed, tuple[str, ...]], Targets | None] = {}
        self._version = -1
        self._count = 0  # of all that are not forgotten
        self._held_back: dict[Queue, None] = {}  # queues with more that is due

    def room(self, queue: Queue) -> int:
        """Return how many messages may be added now. With none, the queue is touched when there is room."""
        room = DUE_MAX - self._count
        if room <= 0:
            self._held_back[queue] = None
        return room

    def add(self, queue: Queue, run: Run) -> None:
        """Add messages that are due. The queue forgets them when they are where they were to go."""
        self._count += len(run)
        record = queue.record
        self._add(Delayed(record.vhost, exchange_of(record.name)), run, queue)

    @override
    def _publish(self, errand: Delayed, run: Run, queue: Queue) -> bool:
        """Publish messages. True: their targets do not all have them yet, so the queue keeps them."""
        if queue.is_deleted:
            return False
        batches = self._batches(errand, run)
        targets: list[LiveQueue] = [target for _, found in batches for target in found]
        if any(target.is_out_of_reach for target in targets):
            self._postpone(errand, run, queue)
            return True
        pending = PendingPublish(len(run))
        intake = self._broker.intake
        for batch, found in batches:
            intake.give(batch, found, pending)
            for target in found:
                if isinstance(target, Queue):
                    target.count_letters(len(batch.contents))
                    self._congested = target if target.leaves_node else self._congested
        self._on_way[pending] = run, queue
        intake.end(pending, partial(self._accepted, errand, run, queue))
        return True

    def _batches(self, errand: Delayed, run: Run) -> list[tuple[Batch, Targets]]:
        """Return the messages as they go out, in order, with the queues that they go to."""
        envelope = run.envelope
        keys = (envelope.routing_key, *envelope.cc, *envelope.bcc)
        targets = self._targets(errand, keys, run.contents[0])
        if targets is not None:
            negatives = list(map(negated, run.contents))
            contents = [content for content in negatives if content is not None]
            if len(contents) == len(negatives):
                return [(Batch(envelope, contents, run.size), targets)]
        envelope = due_envelope(envelope)
        found: list[tuple[Batch, Targets]] = []
        for content in run.contents:
            copy, headers = due_copy(content, envelope.channel)
            own = Targets(self._route(errand, keys, headers, copy)) if targets is None else targets
            found.append((Batch(envelope, [copy], run.size), own))
        return found

    def _targets(self, errand: Delayed, keys: tuple[str, ...], content: bytes) -> Targets | None:
        """Return the targets of messages with these keys, remembered until the catalogue changes; None: they depend
        on each message, by further headers or by a plug-in.   content: of one of them.
        """
        version = self._broker.catalogue.version
        if version != self._version or len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._version = version
        known = (errand, keys)
        if known not in self._routes:
            router = self._broker.vhosts[errand.vhost].router
            asked = router.headers_asked(errand.exchange)
            depends = router.varies(errand.exchange) or any(name != DELAY_HEADER.encode() for name in asked)
            self._routes[known] = None if depends else Targets(self._route(errand, keys, {}, content))
        return self._routes[known]

    @override
    def _accepted(self, errand: Delayed, run: Run, queue: Queue, pending: PendingPublish) -> None:
        if queue.successor is not None:
            self._settled(len(run))
        elif (
            pending.is_unkept
        ):  # this node's disk has failed: not at once again and again until the node ends
            del self._on_way[pending]
            self._postpone(errand, run, queue)
            return
        super()._accepted(errand, run, queue, pending)

    @override
    def _forget(self, run: Run, queue: Queue) -> None:
        super()._forget(run, queue)
        self._settled(len(run))

    @override
    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        runs = super().unsettled(queue, take=take)
        if take:
            on_way = sum(len(run) for run, origin in self._on_way.values() if origin is queue)
            self._settled(sum(map(len, runs)) - on_way)
        return runs

    def _settled(self, count: int) -> None:
        self._count -= count
        assert self._count >= 0
        held_back, self._held_back = self._held_back, {}
        for queue in held_back:
            self._broker.touch(queue)
