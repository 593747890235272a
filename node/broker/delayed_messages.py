"""Messages that leave an exchange's own queue, on their way to the queues that the exchange routes them to.

    DelayedQueue ─ due ──┬► waiting ─ a turn ─► route, publish to all targets ─ all have it ─► forget
    FilterQueue ─ passed ┘

They go out like publishes with confirms: a message leaves the queue where it waited when each target has it, on its
mirrors and on disk where it belongs there. One that no binding selects is dropped, as nobody can be told. One that a
full target refuses is dropped for that target.
Source: docs/delayed.md, docs/deduplication.md.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from node.amqp.reader import MIXED_SIZES
from node.broker.forwarding import Forwarding, ForwardingHost
from node.broker.full_routes import FullRoutes
from node.catalogue.deduplication import DEDUPLICATION_TYPE
from node.catalogue.delayed import DELAY_HEADER
from node.catalogue.exchange_queues import exchange_of, type_of_owner
from node.catalogue.holding import hold_header, is_holding_exchange
from node.override import override
from node.queue.content import properties_of
from node.queue.delay import due_copy, due_envelope, negated
from node.queue.delayed_queue import DelayedQueue
from node.queue.intake import Targets
from node.queue.pending_publish import PendingPublish
from node.queue.queue import Queue
from node.queue.run import Batch, Envelope, Run
from node.scheduling.turn import TURN_S

DUE_MAX: Final = 4096
"""The most messages of a node that have left their waiting queues and are not forgotten yet; the others stay there."""

PARKED_MAX: Final = 2048
"""The most of these that wait in memory for queues out of reach, and are tried each second, so that others go out."""

PARKED_S: Final = 16.0
"""The seconds for which further ones go back to their delayed exchange. Those of a filter have to stay in it."""

TURN_MAX: Final = 2048
"""The most messages that go out in one turn; a long turn ends before."""

TOGETHER_MAX: Final = 1024
"""The most messages that are published together, between two looks at the clock: at a microsecond each."""

RULED_MAX: Final = 20
"""The same where a queue's rules look at each message, or each is routed by itself, at some 20 us a message."""

ROUTES_MAX: Final = 1024
"""The most routes that are remembered; with more they are all learnt anew."""


class Delayed(NamedTuple):
    """The errand of messages that are due.

    exchange: the delayed one, or the one that they were published to.   is_held: they were held for a queue or passed
    a filter, and go as they came.   past: the exchange whose filter has let them pass.
    """

    vhost: str
    exchange: str
    is_held: bool = False
    past: str | None = None


class Group:
    """Runs that are published together: of one errand, one queue and equal envelopes."""

    __slots__ = ("errand", "queue", "runs")

    def __init__(self, errand: Delayed, queue: Queue, runs: list[Run]) -> None:
        self.errand = errand
        self.queue = queue
        self.runs = runs

    def __len__(self) -> int:
        return sum(map(len, self.runs))


class DelayedMessages(Forwarding[Delayed]):
    """The messages of one broker that are due, in the order in which they became so."""

    def __init__(self, broker: ForwardingHost) -> None:
        super().__init__(broker)
        self._full = FullRoutes(broker)
        self._routes: dict[tuple[Delayed, tuple[str, ...]], Targets | None] = {}
        self._lacking: set[tuple[Delayed, tuple[str, ...]]] = set()
        """Those of them that would lead to a queue which is out of reach, too."""
        self._version = -1
        self._count = 0  # of all that are not forgotten
        self._groups: dict[PendingPublish, Group] = {}
        """The messages that are published, and not at all their targets yet. `_on_way` stays empty."""
        self._held_back: dict[Queue, None] = {}  # queues with more that is due
        self._parked = 0  # of those that are postponed

    def room(self, queue: Queue) -> int:
        """Return how many messages may be added now. With none, the queue is touched when there is room."""
        room = DUE_MAX - self._count
        if self._parked >= PARKED_MAX and not isinstance(queue, DelayedQueue):
            room = 0
        if room <= 0:
            self._held_back[queue] = None
        return room

    def add(self, queue: Queue, run: Run) -> None:
        """Add messages that are due. The queue forgets them when they are where they were to go."""
        self._count += len(run)
        vhost, exchange = queue.record.vhost, exchange_of(queue.record.name)
        if type_of_owner(queue.record.name) == DEDUPLICATION_TYPE:
            self._add(Delayed(vhost, exchange, is_held=True, past=exchange), run, queue)
            return
        is_held = is_holding_exchange(exchange)
        errand = Delayed(vhost, run.envelope.exchange if is_held else exchange, is_held)
        self._add(errand, run, queue)

    @override
    def turn(self) -> None:
        """Publish as many messages as a turn may cost, those with the same way together."""
        left, clock = TURN_MAX, self._broker.turns.clock
        ends_at = clock() + TURN_S
        while self._waiting and left > 0 and clock() <= ends_at:
            errand, run, queue = self._waiting[0]
            if errand.vhost not in self._broker.vhosts or queue.is_deleted:
                self._waiting.popleft()
                self._forget(run, queue)
                continue
            targets = self._targets(errand, _keys(run.envelope), run.contents[0])
            group = self._take(min(left, _at_once(targets)))
            left -= len(group)
            self._publish_group(group, targets)

    def _take(self, limit: int) -> Group:
        """Remove and return the first messages that wait, up to so many, as far as their way is the same."""
        errand, run, queue = self._waiting.popleft()
        envelope = run.envelope
        runs: list[Run] = []
        while True:
            if len(run) > limit:
                self._waiting.appendleft((errand, run[limit:], queue))
                run = run[:limit]
            runs.append(run)
            limit -= len(run)
            if not limit or not self._waiting:
                break
            other, following, origin = self._waiting[0]
            if other != errand or origin is not queue or not envelope.is_like(following.envelope):
                break
            run = following
            self._waiting.popleft()
        return Group(errand, queue, runs)

    @override
    def _publish(self, errand: Delayed, run: Run, queue: Queue) -> bool:
        raise AssertionError("messages are published in groups")

    def _publish_group(self, group: Group, targets: Targets | None) -> None:
        """Publish messages. Their queue keeps them until `_arrived` or `_postpone` has seen to them.

        targets: of all of them; None: each has its own.
        """
        batches = _batches(group, targets) if targets is not None else self._own_batches(group)
        if (
            (group.errand, _keys(group.runs[0].envelope)) in self._lacking
            or not batches
            or any(target.is_out_of_reach for _, found in batches for target in found.away)
        ):
            for run in group.runs:
                self._postpone(group.errand, run, group.queue)
            return
        pending = PendingPublish(len(group))
        intake = self._broker.intake
        for batch, found in batches:
            intake.give(batch, found, pending)
            for target in found.near:
                target.count_letters(len(batch.contents))
                self._congested = target if target.leaves_node else self._congested
        self._groups[pending] = group
        intake.end(pending, self._arrived)

    def _own_batches(self, group: Group) -> list[tuple[Batch, Targets]]:
        """Return messages of which each has targets of its own, as they go out, in order, with these targets; none if a
        queue is out of reach to which one of them goes.
        """
        errand, envelope = group.errand, group.runs[0].envelope
        keys, header = _keys(envelope), self._hold_header(errand)
        envelope = envelope if errand.is_held else due_envelope(envelope)
        found: list[tuple[Batch, Targets]] = []
        for run in group.runs:
            for content in run.contents:
                if errand.is_held:
                    copy, headers = content, properties_of(content).headers or {}
                else:
                    copy, headers = due_copy(content, envelope.channel)
                    headers.pop(header, None)
                if self._full.lack(errand.vhost, errand.exchange, keys, headers, copy, errand.past):
                    return []
                own = Targets(self._route(group.errand, keys, headers, copy))
                found.append((Batch(envelope, [copy], run.size), own))
        return found

    def _targets(self, errand: Delayed, keys: tuple[str, ...], content: bytes) -> Targets | None:
        """Return the targets of messages with these keys, remembered until the catalogue changes; None: they depend
        on each message, by further headers or by a plug-in.   content: of one of them.
        """
        version = self._broker.catalogue.version
        if version != self._version or len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._lacking.clear()
            self._version = version
        known = (errand, keys)
        if known not in self._routes:
            router = self._broker.vhosts[errand.vhost].router
            asked = router.headers_asked(errand.exchange)
            own = () if errand.is_held else (DELAY_HEADER, self._hold_header(errand))
            names = {name.encode("utf-8", "surrogateescape") for name in own}
            depends = router.varies(errand.exchange) or not names.issuperset(asked)
            self._routes[known] = None if depends else Targets(self._route(errand, keys, {}, content))
            if not depends and self._full.lack(errand.vhost, errand.exchange, keys, {}, content, errand.past):
                self._lacking.add(known)
        return self._routes[known]

    @override
    def _past(self, errand: Delayed) -> str | None:
        return errand.past

    def _hold_header(self, errand: Delayed) -> str:
        """Return the name of the header by which an exchange holds messages; empty if there is none."""
        exchange = self._broker.catalogue.exchange(errand.vhost, errand.exchange)
        return "" if exchange is None else hold_header(exchange.arguments) or ""

    def _arrived(self, pending: PendingPublish) -> None:
        """Have the queue forget messages that all targets have. If a target was lost, they are routed anew, all of
        them.

        If their queue has left, they are at its new master again. If this node's disk has failed, they are not tried
        again and again until the node ends.
        """
        group = self._groups.pop(pending)
        errand, queue = group.errand, group.queue
        if queue.successor is not None:
            self._settled(len(group))
        elif pending.is_unkept:
            for run in group.runs:
                self._postpone(errand, run, queue)
        elif pending.is_lost:
            self._waiting.extend((errand, run, queue) for run in group.runs)
            self._broker.wake()
        else:
            for run in joined(group.runs):
                queue.forget(run)
            self._settled(len(group))

    @override
    def _postpone(self, errand: Delayed, run: Run, queue: Queue) -> None:
        if self._parked + len(run) > PARKED_MAX and isinstance(queue, DelayedQueue):
            queue.take_back(run, self._broker.now + PARKED_S)
            self._settled(len(run))
            return
        self._parked += len(run)
        super()._postpone(errand, run, queue)

    @override
    def _resume(self, now: float) -> None:
        self._parked = 0
        super()._resume(now)

    @override
    def _forget(self, run: Run, queue: Queue) -> None:
        super()._forget(run, queue)
        self._settled(len(run))

    @override
    def all_unsettled(self) -> Iterator[tuple[Run, Queue]]:
        for group in self._groups.values():
            for run in group.runs:
                yield run, group.queue
        yield from super().all_unsettled()

    @override
    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        runs = super().unsettled(queue, take=take)
        if take:
            on_way = sum(len(group) for group in self._groups.values() if group.queue is queue)
            self._parked = sum(len(run) for _, run, _ in self._postponed)
            self._settled(sum(map(len, runs)) - on_way)
        return runs

    def _settled(self, count: int) -> None:
        self._count -= count
        assert self._count >= 0
        held_back, self._held_back = self._held_back, {}
        for queue in held_back:
            self._broker.touch(queue)


def _keys(envelope: Envelope) -> tuple[str, ...]:
    return (envelope.routing_key, *envelope.cc, *envelope.bcc)


def _at_once(targets: Targets | None) -> int:
    """Return how many messages may go to these targets between two looks at the clock.   None: to their own."""
    if targets is None or not all(queue.is_plain for queue in targets):
        return RULED_MAX
    return max(RULED_MAX, TOGETHER_MAX // (1 + targets.count))


def _batches(group: Group, targets: Targets) -> list[tuple[Batch, Targets]]:
    """Return messages as they go out to the same targets, in order: in one batch if their frames can stay."""
    runs = group.runs
    contents = runs[0].contents if len(runs) == 1 else [content for run in runs for content in run.contents]
    sizes = {run.size for run in runs}
    size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
    negatives = contents if group.errand.is_held else negated(contents)
    if negatives is not None:
        return [(Batch(runs[0].envelope, negatives, size), targets)]
    envelope = due_envelope(runs[0].envelope)
    copies = [due_copy(content, envelope.channel)[0] for content in contents]
    return [(Batch(envelope, copies, size), targets)]


def joined(runs: list[Run]) -> list[Run]:
    """Return runs without their contents, in the fewest pieces, so that their queue forgets them at once."""
    found: list[Run] = []
    for run in sorted(runs, key=_first):
        last = found[-1] if found else None
        if (
            last is not None
            and last.seqs.stop == run.seqs.start
            and last.is_indexed is run.is_indexed
            and (last.store_id + len(last.seqs) if last.store_id else 0) == run.store_id
        ):
            last.seqs = range(last.seqs.start, run.seqs.stop)
        else:
            found.append(
                Run(run.envelope, run.seqs, [], run.size, store_id=run.store_id, is_indexed=run.is_indexed)
            )
    return found


def _first(run: Run) -> int:
    return run.seqs.start
