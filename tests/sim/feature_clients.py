"""Applications of the simulation that use what waits, comes back, dies, deduplicates or has groups.

FeaturePublisher: to one kind, by its exchange and headers     FeatureConsumer: acknowledges, returns, rejects
Setup: declares, binds and unbinds, one thing after the other, with as many connections as that takes
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import BasicAck, BasicDeliver, BasicNack, BasicPublish, BasicReject, Method
from node.amqp.properties import Properties
from node.override import override
from tests.kit.world import Received
from tests.sim.feature_ledger import FeatureLedger, Story
from tests.sim.mirror_clients import App, Consumer, Publisher
from tests.sim.mirror_world import Timeline

DELAYS_MS: Final = (1, 20, 200, 200, 1000, 3000)
QUORUM_QUEUES: Final = ("safe", "grave", "passed")
"""Consumers of these may not ask to be cancelled when the master changes."""

SAMES: Final = 6
"""So many ids, groups or keys are in use at a time."""


@dataclass(frozen=True)
class Way:
    """The way in which messages of a kind are published.   header: the one with the id, the group or the delay."""

    exchange: str = ""
    key: str | None = None
    header: str = ""
    sames: int = 0


WAYS_IN: Final[dict[str, Way]] = {
    "late": Way("later", header="x-delay"),
    "retry": Way(),
    "safe": Way(),
    "once": Way(header="x-deduplication-header", sames=SAMES),
    "passed": Way("filter", header="x-deduplication-header", sames=SAMES),
    "grouped": Way(header="g", sames=SAMES),
    "hash": Way("spread", sames=4 * SAMES),
}
"""Kinds of messages."""


class FeaturePublisher(Publisher):
    """Publishes messages of some kinds, all persistent."""

    ledger: FeatureLedger

    @override
    def _one(self) -> None:
        kind = self.random.choice(self.queues)
        way = WAYS_IN[kind]
        size = self.random.choice((10, 10, 40, 40, 300, 900))
        delay_ms, same, headers = 0, None, Table()
        if kind == "late":
            delay_ms = self.random.choice(DELAYS_MS)
            headers = {way.header: long(delay_ms)}
        elif way.sames:
            same = self._same(kind, way)
            headers = {way.header: longstr(same)} if way.header else {}
        story = self.ledger.tell(
            kind, self.session, self._index, size=size, delay_s=delay_ms / 1000, same=same
        )
        self._index += 1
        self._tag += 1
        if self.mode == "confirm":
            self.unconfirmed[self._tag] = story
            self.since[story.id] = self.world.now
        self.pending.append(story)
        key = same if kind == "hash" and same is not None else kind
        method = BasicPublish(exchange=way.exchange, routing_key=key, mandatory=True)
        self.send(method, story.body, Properties(delivery_mode=2, message_id=str(story.id), headers=headers))

    def _same(self, kind: str, way: Way) -> str:
        number = self.random.randrange(way.sames)
        if kind == "passed":
            # An id is used again for a while only, so that some messages always pass.
            number += len(self.ledger.messages) // 8
        return f"{kind}{number}"


class FeatureConsumer(Consumer):
    """Consumes one queue.   way: `ack`, `slow`, `return` (gives some back), or `kill` (rejects some for good)."""

    ledger: FeatureLedger

    def __init__(
        self, world: Timeline, ledger: FeatureLedger, name: str, queue: str, prefetch: int, way: str
    ) -> None:
        super().__init__(world, ledger, name, queue, prefetch, way)
        self.is_exclusive = False
        self.dies_on_failover = self.dies_on_failover and queue not in QUORUM_QUEUES

    @override
    def took(self, method: Method, item: Received) -> None:
        if isinstance(method, BasicDeliver):
            self.ledger.latest = (item.properties.headers if item.properties is not None else None) or {}
        super().took(method, item)

    @override
    def broken(self) -> None:
        for message in self.open_.values():
            self.ledger.returned(message)
        super().broken()

    @override
    def settle(self, tag: int) -> None:
        message = self.open_.get(tag)
        if message is None:
            return
        roll = self.random.random()
        if self.way == "return" and roll < 0.4:
            self.ledger.returned(self.open_.pop(tag))
            self.send(BasicNack(delivery_tag=tag, requeue=True))
        elif self.way == "kill" and roll < 0.6:
            assert isinstance(message, Story)
            self.ledger.dies(self.open_.pop(tag))
            self.send(BasicReject(delivery_tag=tag, requeue=False))
        else:
            self.ledger.consumed(self.open_.pop(tag))
            self.send(BasicAck(delivery_tag=tag))


class Setup(App):
    """Has methods carried out in order, each until it is answered, and calls back."""

    def __init__(
        self,
        world: Timeline,
        ledger: FeatureLedger,
        name: str,
        methods: Sequence[Method],
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(world, ledger, name)
        self.left = list(methods)
        self.is_done = False
        self._on_done = on_done

    @override
    def opened(self) -> None:
        self._go_on()

    @override
    def took(self, method: Method, item: Received) -> None:
        self.left.pop(0)
        self._go_on()

    def _go_on(self) -> None:
        if self.left:
            self.send(self.left[0])
        else:
            self.is_done = True
            self._on_done()
            self.finish()
