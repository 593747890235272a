"""The part of a chaos run's load whose messages wait, come back, die at least once, deduplicate, have groups or a hash.

    Features: declares, publishes and consumes, and in the end waits until all that was confirmed has come

Three publishers send to all kinds in turn; each queue has consumers that acknowledge, return or reject. All queues have
three copies. Fluffle only: RabbitMQ 3.10 has none of it with copies.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pika

from tests.chaos.broker import NodeFailed, OperatorError
from tests.chaos.crew import Crew
from tests.chaos.feature_books import KINDS, RETRY_MAX_S, RETRY_MIN_S, FeatureBooks
from tests.chaos.fluffle_operator import FluffleOperator
from tests.chaos.mirror_ledger import PublisherStory
from tests.chaos.mirror_load import (
    DEPTH_MAX,
    LATE_S,
    NODES,
    OUTCOME_S,
    SMALL,
    TICK_S,
    Load,
    Publisher,
    Style,
)
from tests.chaos.outages import outages_of
from tests.chaos.pika_client import PikaChannel, PikaClient
from tests.kit.ledger import Value
from tests.kit.load_client import Lost
from tests.kit.patience import patience

PREFIX: Final = "feature."
PLUGIN: Final = "rabbitmq_consistent_hash_exchange"
POLICY: Final = {"ha-mode": "all", "ha-sync-mode": "automatic"}
DELAYS_S: Final = (0.01, 0.3, 2.0, 8.0)
GROUPS: Final = 8
KEYS: Final = 30
COPIES_OF_ID: Final = 3
"""So many messages in a row have one id."""
RATE: Final = 40.0
"""Messages a second of each publisher, to all kinds in turn."""
READY_S: Final = 60.0
"""All copies are there after so long."""
LEFT_S: Final = 60.0
"""All that waits has come after so long without a fault: the longest pause between two attempts is 16 s."""

_RETRY: Final[dict[str, Any]] = {
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": int(1000 * RETRY_MIN_S),
    "x-delayed-retry-max": int(1000 * RETRY_MAX_S),
    "x-delivery-limit": 100_000,
}
_QUORUM: Final = {"x-queue-type": "quorum"}


@dataclass(frozen=True, slots=True)
class Own:
    """One queue.   exchange, type, key: it is bound so.   about: arguments of that exchange.

    consumers: how many.   prefetch: of each.   returns, rejects: which part of the messages.
    pause_s: the longest time that a consumer has a message.
    """

    arguments: dict[str, Any]
    exchange: str = ""
    type: str = ""
    about: dict[str, Any] | None = None
    key: str = ""
    consumers: int = 2
    prefetch: int = 20
    returns: float = 0.0
    rejects: float = 0.0
    pause_s: float = 0.05


OWN: Final[dict[str, Own]] = {
    "late": Own({}, "feature.later", "x-delayed-message", {"x-delayed-type": "direct"}, "late"),
    "retry": Own(_RETRY, returns=0.3),
    "safe": Own(
        {
            **_QUORUM,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "feature.graves",
            "x-dead-letter-routing-key": "grave",
        },
        rejects=0.4,
    ),
    # It is full now and then, so letters wait.
    "grave": Own(
        {**_QUORUM, "x-max-length": 20, "x-overflow": "reject-publish"},
        "feature.graves",
        "direct",
        key="grave",
        consumers=1,
        prefetch=4,
        pause_s=0.3,
    ),
    "once": Own({"x-message-deduplication": True, **_RETRY}, returns=0.2, pause_s=0.3),
    "passed": Own(
        _QUORUM,
        "feature.filter",
        "x-message-deduplication",
        {"x-cache-size": 100_000, "x-cache-persistence": "disk"},
    ),
    "grouped": Own({"x-group-header": "g"}, consumers=3, prefetch=5),
    "hash.1": Own({}, "feature.spread", "x-consistent-hash", key="10", consumers=1),
    "hash.2": Own({}, "feature.spread", "x-consistent-hash", key="7", consumers=1),
    "hash.3": Own({}, "feature.spread", "x-consistent-hash", key="10", consumers=1),
}
"""Queues by name, without the prefix."""

EXCHANGES: Final = {"late": "feature.later", "passed": "feature.filter", "hash": "feature.spread"}
"""The exchange of a kind; the others have the default one."""


class Features(Crew):
    """All of it.   load: has the clients' ways to connect, and knows what is being done to the nodes."""

    def __init__(self, load: Load, operator: FluffleOperator, random: Random, *, scale: float = 1.0) -> None:
        super().__init__()
        self.load = load
        self.books = FeatureBooks(load.ledger)
        self.scale = scale
        self._operator = operator
        self._random = random

    async def begin(self) -> None:
        """Declare all, wait for the copies, and begin. Raises: Lost; OperatorError; NodeFailed."""
        await self._operator.enable_plugin(PLUGIN)
        await self._operator.set_policy("features", "^feature[.]", POLICY)
        for number, name in enumerate(OWN):
            client = await self.load.direct(number % len(NODES))
            await _declare(await client.channel(), name)
            await client.leave()
        await self._await_copies()
        for node in NODES:
            self.produce(FeaturePublisher(self, node, Random(self._random.random())).run())
        for name, own in OWN.items():
            for _ in range(own.consumers):
                self.consume(FeatureConsumer(self, name, Random(self._random.random())).run())
        self.consume(self._watch())

    async def _await_copies(self) -> None:
        deadline = time.monotonic() + READY_S * patience()
        while True:
            with contextlib.suppress(OperatorError):
                rings = await self._operator.rings()
                if all(
                    (ring := rings.get(PREFIX + name)) is not None
                    and ring.is_live
                    and len(ring.synchronised) + 1 == len(NODES)
                    for name in OWN
                ):
                    return
            if time.monotonic() > deadline:
                raise NodeFailed("the queues of features have not all their copies")
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        """Note when something is being done to the nodes."""
        while not self.are_consumers_stopping:
            self.look()
            await asyncio.sleep(TICK_S)

    def look(self) -> None:
        """Note whether something is being done to the nodes."""
        fault = None if self.load.nemesis is None else self.load.nemesis.fault
        # A fault object stays when it is over, until the nodes serve again.
        is_over = fault is None or fault.up_s > 0
        self.books.look(None if fault is None or is_over else fault.kind)

    async def finish(self) -> None:
        """End the publishers, wait until all has come, end the consumers, and compare."""
        self.is_stopping = True
        await self._join(self._producing, OUTCOME_S + LEFT_S, self._is_stuck)
        deadline, before = 0.0, None
        # What has no outcome may be there, too.
        while (left := (sum(1 for _ in self.books.left()), await self._waiting())) != (0, 0):
            if left != before:
                before, deadline = left, time.monotonic() + LEFT_S * patience()
            elif time.monotonic() > deadline:
                self._is_stuck(f"{left[0]} confirmed messages have not come, {left[1]} are in the queues")
                break
            await asyncio.sleep(0.2)
        await self.end(LEFT_S, self._is_stuck)
        self.books.judge(await asyncio.to_thread(outages_of, self.load.cluster))
        self.books.compare_all()

    async def _waiting(self) -> int:
        """Return how many messages are in the queues, or wait; -1 if nobody knows."""
        try:
            depths = await self._operator.waiting()
        except OperatorError:
            return -1
        own = (PREFIX, f"amq.delayed.{PREFIX}")
        return sum(depth for name, depth in depths.items() if name.startswith(own))

    def _is_stuck(self, text: str) -> None:
        self.load.ledger.count.problem("stuck", text)


async def _declare(channel: PikaChannel, name: str) -> None:
    """Raises: Lost; Stuck."""
    own = OWN[name]
    await channel.declare(PREFIX + name, durable=True, arguments=own.arguments)
    if not own.exchange:
        return

    def exchange(done: Callable[..., None]) -> object:
        how = {"durable": True, "arguments": own.about or {}, "callback": done}
        return channel.raw.exchange_declare(own.exchange, own.type, **how)

    await channel.call(f"exchange.declare {own.exchange}", exchange)
    await channel.call(
        f"queue.bind {name}",
        lambda done: channel.raw.queue_bind(PREFIX + name, own.exchange, own.key, callback=done),
    )


class FeaturePublisher(Publisher):
    """Publishes to all kinds in turn, with confirms."""

    def __init__(self, features: Features, node: int, random: Random) -> None:
        style = Style("x", KINDS, SMALL, RATE, window=100)
        super().__init__(features.load, style, node, random, features.scale)
        self._ledger = self._books = features.books

    def _is_enough(self, story: PublisherStory) -> bool:
        # What deduplicates settles fewer messages than it confirms.
        plain = [self._books.queues[kind] for kind in ("late", "retry", "grouped", "hash")]
        return sum(queue.confirmed - queue.settled for queue in plain) > DEPTH_MAX

    def _publish(self, channel: PikaChannel, story: PublisherStory) -> None:
        raw = channel.raw
        number = self._books.sent(story)
        value, kind = Value(story.name, number), story.queue(number)
        index = number // len(KINDS)
        key, headers, delay_s, same = PREFIX + kind, {}, 0.0, ""
        match kind:
            case "late":
                delay_s = self._random.choice(DELAYS_S)
                key, headers = "late", {"x-delay": int(1000 * delay_s)}
            case "once" | "passed":
                same = f"{story.name}/{index // COPIES_OF_ID}"
                headers = {"x-deduplication-header": same}
            case "grouped":
                same = f"g{index % GROUPS}"
                headers = {"g": same}
            case "hash":
                key = same = f"k{index % KEYS}"
        self._books.tell(value, kind, delay_s=delay_s, same=same)
        self._open[number] = time.monotonic()
        properties = pika.BasicProperties(delivery_mode=2, headers=headers)
        try:
            raw.basic_publish(
                EXCHANGES.get(kind, ""), key, story.kind.body(value), properties, mandatory=True
            )
        except pika.exceptions.AMQPError as error:
            raise channel.lost or Lost(repr(error)) from error


class FeatureConsumer:
    """Consumes one queue, a session after the other, on any node."""

    def __init__(self, features: Features, queue: str, random: Random) -> None:
        self._features = features
        self._load, self._books = features.load, features.books
        self._queue = queue
        self._own = OWN[queue]
        self._random = random
        self._open: dict[int, tuple[Value, float]] = {}

    async def run(self) -> None:
        """Consume until the load ends."""
        while not self._features.are_consumers_stopping:
            client = await self._load.connect(self._random.choice(NODES), self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._load.note(lost, client.node, f"consumer of {self._queue}")
                await asyncio.sleep(self._random.uniform(0, 0.2))
            finally:
                for value, _ in self._open.values():
                    self._books.returned(value, is_asked=False)
                self._open = {}
                await self._load.leave(client)

    async def _session(self, client: PikaClient) -> None:
        channel = await client.channel()
        session = self._load.name(f"f{client.node + 1}")
        last_s = time.monotonic()

        def take(method: Any, properties: Any, body: bytes) -> None:
            nonlocal last_s
            last_s = time.monotonic()
            self._features.look()
            value = self._books.took(
                self._queue, session, properties.headers or {}, body, is_redelivered=bool(method.redelivered)
            )
            if value is not None:
                self._open[method.delivery_tag] = value, last_s + self._random.uniform(0, self._own.pause_s)

        channel.on_delivery = take
        cancelled = asyncio.Event()
        channel.on_cancel = lambda tag: cancelled.set()
        await channel.consume(PREFIX + self._queue, self._own.prefetch)
        end = time.monotonic() + self._random.uniform(5, 40)
        while time.monotonic() < end and not self._features.are_consumers_stopping and not cancelled.is_set():
            if channel.lost is not None:
                raise channel.lost
            if self._load.is_partial and time.monotonic() - last_s > LATE_S:
                break  # there may be no way to the queue from here
            self._settle(channel)
            await asyncio.sleep(TICK_S)
        # What comes from here on goes back with the channel, and counts for nobody.
        channel.on_delivery = lambda *delivery: None
        while self._open and channel.lost is None and client.lost is None:
            self._settle(channel)
            await asyncio.sleep(TICK_S)

    def _settle(self, channel: PikaChannel) -> None:
        """Settle all whose time has come. Raises: Lost."""
        now = time.monotonic()
        for tag, (value, due_s) in list(self._open.items()):
            if due_s > now or channel.lost is not None or channel.client.lost is not None:
                continue
            del self._open[tag]
            roll = self._random.random()
            if roll < self._own.returns:
                self._books.returned(value, is_asked=True)
                channel.requeue(tag)
            elif roll < self._own.returns + self._own.rejects:
                self._books.died(value)
                channel.reject(tag)
            else:
                if self._queue != "grave":
                    self._books.settled(value)
                channel.ack(tag)
