"""The load under which a node is killed: publishers, consumers, transactions, queues that come and go.

Everything that is sent is in the ledger before it is sent, everything that is answered when the answer came. The
tasks end when the connection does, or when `stopping` is set.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from node.amqp import methods
from node.amqp.field_table import Table, boolean, long, longstr
from tests.durability.ledger import (
    DEAD_LETTERS,
    DELAYED,
    LETTERS,
    REJECTED_FROM,
    SAFE_FROM,
    SAFE_LETTERS,
    TRANSIENT,
    UNCOMMITTED,
    Ledger,
    QueueLedger,
)
from tests.kit.ledger import CONFIRMED, DELIVERED, SENT, Kind, Value
from tests.kit.load_client import Channel, Client, Delivery, Lost

KIB: Final = 1024
FAN: Final = "fan"
"""A durable fanout exchange."""
HOUR_MS: Final = 3_600_000

SMALL: Final = (0, 20, 100, 700)
LARGE: Final = (4 * KIB, 5 * KIB, 8 * KIB, 20 * KIB)
MIXED: Final = (10, 300, 3 * KIB, 6 * KIB, 12 * KIB)
HUGE: Final = (20, 200, 100 * KIB, 290 * KIB)

QUEUES: Final[dict[str, Table]] = {
    "small": {},
    "large": {},
    "mixed": {},
    "fan.1": {},
    "fan.2": {},
    "fan.3": {},
    "ttl": {"x-message-ttl": long(HOUR_MS)},
    "lazy": {"x-queue-mode": longstr("lazy")},
    "prio": {"x-max-priority": long(5)},
    REJECTED_FROM: {
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr(DEAD_LETTERS),
    },
    DEAD_LETTERS: {},
    SAFE_FROM: {
        "x-queue-type": longstr("quorum"),
        "x-dead-letter-strategy": longstr("at-least-once"),
        "x-overflow": longstr("reject-publish"),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr(SAFE_LETTERS),
    },
    SAFE_LETTERS: {},
    DELAYED: {},
    "retry": {
        "x-delayed-retry-type": longstr("all"),
        "x-delayed-retry-min": long(50),
        "x-delayed-retry-max": long(200),
    },
    "once": {"x-message-deduplication": boolean(True)},
    "tx.small": {},
    "tx.large": {},
}
FANNED: Final = ("fan.1", "fan.2", "fan.3")
LATER: Final = "later"
"""A durable delayed exchange, which leads to the queue of delayed messages."""
LATER_TYPE: Final = "x-delayed-message"
LATER_ARGUMENTS: Final[Table] = {"x-delayed-type": longstr("fanout")}


@dataclass(frozen=True, slots=True)
class Source:
    """A publisher with confirms.   queues: where its messages go; `exchange` and `key` lead there."""

    name: str
    exchange: str
    key: str
    queues: tuple[str, ...]
    kind: Kind
    window: int = 200
    most: int = 4000
    """Messages in one load, so that a check stays short."""


def _to(name: str, queue: str, kind: Kind, *, window: int = 200, most: int = 4000) -> Source:
    return Source(name, "", queue, (queue,), kind, window, most)


SOURCES: Final = (
    _to("small-1", "small", Kind(SMALL)),
    _to("small-2", "small", Kind(SMALL, is_named=True), window=50),
    _to("large-1", "large", Kind(LARGE), most=1500),
    _to("mixed-1", "mixed", Kind(MIXED, transient_of=5, is_named=True), most=2000),
    _to("mixed-2", "mixed", Kind(MIXED, expiration=str(HOUR_MS)), window=500, most=2000),
    _to("mixed-3", "mixed", Kind(HUGE), window=10, most=100),
    Source("fan-1", FAN, "", FANNED, Kind(SMALL), most=2000),
    Source("fan-2", FAN, "", FANNED, Kind(LARGE, transient_of=7), most=600),
    _to("ttl-1", "ttl", Kind((20,)), window=1000),
    _to("lazy-1", "lazy", Kind(MIXED), most=1500),
    _to("prio-1", "prio", Kind(MIXED, priorities=7), most=1500),
    _to("dead-1", REJECTED_FROM, Kind(SMALL), most=2000),
    _to("dead-2", REJECTED_FROM, Kind(LARGE), most=500),
    _to("safe-1", SAFE_FROM, Kind(MIXED), most=1000),
    Source("later-1", LATER, "", (DELAYED,), Kind(MIXED, delay_ms=100), most=1500),
    Source("later-2", LATER, "", (DELAYED,), Kind(SMALL, delay_ms=400), most=1500),
    _to("retry-1", "retry", Kind(MIXED), most=1000),
    _to("once-1", "once", Kind(SMALL), most=1000),
)


@dataclass(frozen=True, slots=True)
class Taste:
    """A consumer treats messages in these shares of 1; the rest is acknowledged.

    batch: settles so many at once, at random.   holds: never settles some of them.
    """

    queue: str
    prefetch: int = 100
    requeues: float = 0.0
    rejects: float = 0.0
    batch: int = 1
    holds: float = 0.0


CONSUMERS: Final = (
    Taste("small", batch=50),
    Taste("small", prefetch=0, requeues=0.05, batch=10),
    Taste("large", prefetch=30, rejects=0.1, requeues=0.1),
    Taste("mixed", prefetch=200, requeues=0.2, holds=0.02),
    Taste("fan.1", prefetch=0, batch=20),
    Taste("fan.2", prefetch=50, requeues=0.1, holds=0.05),
    Taste("lazy", prefetch=20, batch=5),
    Taste("prio", prefetch=50, requeues=0.1, batch=3),
    Taste(REJECTED_FROM, prefetch=100, rejects=0.7, requeues=0.05),
    Taste(DEAD_LETTERS, prefetch=100, batch=10),
    Taste(SAFE_FROM, prefetch=100, rejects=0.7),
    Taste(SAFE_LETTERS, prefetch=100, batch=10),
    Taste(DELAYED, prefetch=50, batch=5),
    Taste("retry", prefetch=100, requeues=0.3, holds=0.02),
    Taste("once", prefetch=50, requeues=0.1, batch=3),
)


@dataclass(slots=True)
class Churn:
    """Queues that come and go.   state: of a name: "there", "gone", or "maybe" while an answer is due."""

    state: dict[str, str] = field(default_factory=dict)
    count: int = 0


class Load:
    """All the tasks of one load.   generation: makes the names of its publishers new."""

    def __init__(self, ledger: Ledger, churn: Churn, generation: str, random: Random) -> None:
        self.stopping = False
        self.errors: list[BaseException] = []
        self._ledger = ledger
        self._churn = churn
        self._generation = generation
        self._random = random
        self._clients: list[Client] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._paused = asyncio.Event()
        self._paused.set()

    async def start(self, host: str, port: int) -> None:
        """Connect and begin."""
        random = self._random
        self._clients = [await Client.open(host, port) for _ in range(4)]
        numbers = [0] * len(self._clients)

        async def channel() -> Channel:
            which = random.randrange(len(self._clients))
            numbers[which] += 1
            return await self._clients[which].channel(numbers[which])

        for source in SOURCES:
            if random.random() < 0.85:
                self._spawn(self._publish(await channel(), source, Random(random.random())))
        for taste in CONSUMERS:
            if random.random() < 0.7:
                self._spawn(self._consume(await channel(), taste, Random(random.random())))
        self._spawn(self._publish_tx(await channel(), Random(random.random())))
        if random.random() < 0.7:
            self._spawn(self._consume_tx(await channel(), Random(random.random())))
        self._spawn(self._come_and_go(await channel(), Random(random.random())))

    async def end(self) -> None:
        """Wait for all tasks: the node is gone, or `stopping` was set."""
        for task in self._tasks:
            if self.stopping:
                task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, Lost | asyncio.CancelledError):
                self.errors.append(outcome)
        for client in self._clients:
            if self.stopping:
                await client.close()
            client.abort()
            await client.ended.wait()
            if client.lost is not None and str(client.lost)[:3].isdigit() and "320" not in str(client.lost):
                self.errors.append(client.lost)

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    # --- publishers ---

    async def _publish(self, channel: Channel, source: Source, random: Random) -> None:
        publisher = Publisher(self._ledger, channel, f"{source.name}.{self._generation}", source)
        await publisher.begin()
        while not self.stopping and publisher.number < source.most:
            for _ in range(random.randint(1, 40)):
                publisher.publish()
                if publisher.number >= source.most or publisher.is_full:
                    break
            await publisher.wait_for_room()
        await publisher.wait_for_all()

    async def _publish_tx(self, channel: Channel, random: Random) -> None:
        ledger = self._ledger
        small, large = f"tx-small.{self._generation}", f"tx-large.{self._generation}"
        ledger.kinds[small], ledger.kinds[large] = Kind(SMALL), Kind(LARGE)
        await channel.call(methods.TxSelect())
        number = 0
        while not self.stopping and number < 1500:
            values: list[tuple[str, Value]] = []
            for _ in range(random.randint(1, 20)):
                number += 1
                name, queue = (small, "tx.small") if random.random() < 0.7 else (large, "tx.large")
                value = Value(name, number)
                values.append((queue, value))
                ledger.queues[queue].mark(value, SENT | UNCOMMITTED)
                ledger.count.published += 1
                kind = ledger.kinds[name]
                channel.publish("", queue, kind.properties(value), kind.body(value))
            if random.random() < 0.2:
                await channel.call(methods.TxRollback())
                continue
            for queue, value in values:
                ledger.queues[queue].marks[value] &= ~UNCOMMITTED
            await channel.call(methods.TxCommit())
            ledger.count.confirmed += len(values)
            for queue, value in values:
                ledger.queues[queue].mark(value, CONFIRMED)

    # --- consumers ---

    async def _consume(self, channel: Channel, taste: Taste, random: Random) -> None:
        consumer = Consumer(self._ledger, channel, taste, random)
        await consumer.begin()
        await channel.client.ended.wait()

    async def _consume_tx(self, channel: Channel, random: Random) -> None:
        """Acknowledge in transactions; some are rolled back."""
        ledger, queue = self._ledger, self._ledger.queues["tx.small"]
        arrived: asyncio.Queue[tuple[int, Value]] = asyncio.Queue()

        def on_delivery(delivery: Delivery) -> None:
            value = ledger.read(delivery, queue)
            if value is not None:
                queue.mark(value, DELIVERED)
                arrived.put_nowait((delivery.method.delivery_tag, value))

        channel.on_delivery = on_delivery
        queue.had_consumer = True
        await channel.call(methods.TxSelect())
        await channel.call(methods.BasicQos(prefetch_count=100))
        await channel.call(methods.BasicConsume(queue="tx.small"))
        held: list[tuple[int, Value]] = []
        while not self.stopping:
            while len(held) < random.randint(1, 10):
                held.append(await self._get(arrived, channel))
            for tag, _ in held:
                channel.send(methods.BasicAck(delivery_tag=tag))
            if random.random() < 0.1:
                # They are as before; the next transaction acknowledges them.
                await channel.call(methods.TxRollback())
                continue
            queue.settle(value for _, value in held)
            await channel.call(methods.TxCommit())
            ledger.count.acked += len(held)
            held.clear()

    async def _get(self, arrived: asyncio.Queue[Any], channel: Channel) -> Any:
        get = asyncio.ensure_future(arrived.get())
        end = asyncio.ensure_future(channel.client.ended.wait())
        await asyncio.wait({get, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if not get.done():
            get.cancel()
            raise channel.client.lost or Lost("ended")
        return get.result()

    # --- queues that come and go ---

    async def _come_and_go(self, channel: Channel, random: Random) -> None:
        ledger, churn = self._ledger, self._churn
        name = f"churn.{self._generation}"
        source = Source(f"churn-pub.{self._generation}", "", "", (), Kind(MIXED))
        publisher = Publisher(ledger, channel, source.name, source)
        await publisher.begin()
        while not self.stopping and churn.count < 400:
            await asyncio.sleep(random.random() * 0.1)
            there = [each for each, state in churn.state.items() if state == "there"]
            deed = random.random()
            if deed < 0.4 or not there:
                churn.count += 1
                again = [each for each, state in churn.state.items() if state == "gone"]
                queue = random.choice(again) if again and random.random() < 0.5 else f"{name}.{churn.count}"
                churn.state[queue] = "maybe"
                ledger.queues[queue] = QueueLedger(queue)
                await channel.call(methods.QueueDeclare(queue=queue, durable=True))
                churn.state[queue] = "there"
            elif deed < 0.8:
                queue = random.choice(there)
                publisher.target("", queue, (queue,))
                for _ in range(random.randint(1, 60)):
                    publisher.publish()
                await publisher.wait_for_all()
            elif deed < 0.9:
                queue = random.choice(there)
                ledger.queues[queue].settle(list(ledger.queues[queue].marks))
                await channel.call(methods.QueuePurge(queue=queue))
            else:
                queue = random.choice(there)
                churn.state[queue] = "maybe"
                await channel.call(methods.QueueDelete(queue=queue))
                churn.state[queue] = "gone"


class Publisher:
    """Publishes with confirms, and tells the ledger.   number: of the last message."""

    def __init__(self, ledger: Ledger, channel: Channel, name: str, source: Source) -> None:
        self.number = 0
        self.nacked = 0
        self.client = channel.client
        self._ledger = ledger
        self._channel = channel
        self._name = name
        self._kind = source.kind
        self._window = source.window
        self.target(source.exchange, source.key, source.queues)
        self._unconfirmed: dict[int, tuple[Value, tuple[QueueLedger, ...]]] = {}  # by tag, rising
        self._changed = asyncio.Event()
        ledger.kinds[name] = source.kind

    def target(self, exchange: str, key: str, queues: Iterable[str]) -> None:
        """Set the exchange, the key and the queues to which the next messages go."""
        self._exchange, self._key = exchange, key
        self._queues = tuple(self._ledger.queues[name] for name in queues)

    async def begin(self) -> None:
        """Ask for confirms."""
        self._channel.on_confirm = self._confirm
        await self._channel.call(methods.ConfirmSelect())

    @property
    def unconfirmed(self) -> int:
        """Return how many publishes wait for a confirm."""
        return len(self._unconfirmed)

    @property
    def is_full(self) -> bool:
        """Whether as many as may be wait for their confirms."""
        return len(self._unconfirmed) >= self._window

    def publish(self) -> Value:
        """Publish the next message. Raises: Lost."""
        self.number += 1
        value = Value(self._name, self.number)
        mark = SENT | (TRANSIENT if self._kind.is_transient(self.number) else 0)
        for queue in self._queues:
            queue.mark(value, mark)
        self._unconfirmed[self.number] = (value, self._queues)
        self._ledger.count.published += 1
        self._channel.publish(self._exchange, self._key, self._kind.properties(value), self._kind.body(value))
        return value

    async def wait_for_room(self) -> None:
        """Wait until less than the window is unconfirmed. Raises: Lost."""
        await self._wait_until(self._window - 1)

    async def wait_for_all(self) -> None:
        """Wait for all confirms. Raises: Lost."""
        await self._wait_until(0)

    async def _wait_until(self, most: int) -> None:
        client = self._channel.client
        await client.drain()
        await asyncio.sleep(0)
        while len(self._unconfirmed) > most:
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            ended = asyncio.ensure_future(client.ended.wait())
            await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            ended.cancel()
            if client.lost is not None:
                raise client.lost
            if self._channel.lost is not None:
                raise self._channel.lost

    def _confirm(self, tag: int, multiple: bool, is_ack: bool) -> None:
        waiting = self._unconfirmed
        if multiple:
            while waiting and next(iter(waiting)) <= tag:
                self._note(*waiting.pop(next(iter(waiting))), is_ack)
        elif tag in waiting:
            self._note(*waiting.pop(tag), is_ack)
        else:
            self._ledger.count.problem(
                "other", f"{self._name}: a confirm of {tag}, which doesn't wait for one"
            )
        self._changed.set()

    def _note(self, value: Value, queues: tuple[QueueLedger, ...], is_ack: bool) -> None:
        if is_ack:
            self._ledger.count.confirmed += 1
            for queue in queues:
                queue.mark(value, CONFIRMED)
        else:
            self.nacked += 1
            self._ledger.count.nacked += 1


class Consumer:
    """Consumes by its taste, and tells the ledger. First deliveries must come in the order of publishing."""

    def __init__(self, ledger: Ledger, channel: Channel, taste: Taste, random: Random) -> None:
        self._ledger = ledger
        self._channel = channel
        self._taste = taste
        self._random = random
        self._queue = ledger.queues[taste.queue]
        self._open: list[tuple[int, Value]] = []
        self._held: set[Value] = set()
        self._last: dict[str, int] = {}

    async def begin(self) -> None:
        """Consume."""
        self._channel.on_delivery = self._take
        self._queue.had_consumer = True
        await self._channel.call(methods.BasicQos(prefetch_count=self._taste.prefetch))
        await self._channel.call(methods.BasicConsume(queue=self._taste.queue))

    def _take(self, delivery: Delivery) -> None:
        queue, count = self._queue, self._ledger.count
        value = self._ledger.read(delivery, queue)
        if value is None:
            return
        known = queue.marks.get(value, 0)
        if not known and queue.name not in LETTERS:
            count.problem("ghosts", f"{queue.name}: {value} was delivered under load, nobody published it")
        is_new_again = queue.name in LETTERS or queue.moves
        if known & DELIVERED and not delivery.method.redelivered and not is_new_again:
            count.problem("unmarked", f"{queue.name}: {value} came again under load without redelivered")
        if not delivery.method.redelivered and queue.has_order and not queue.is_priority:
            if self._last.get(value.publisher, 0) >= value.number:
                count.problem(
                    "disorder", f"{queue.name}: {value} under load after {self._last[value.publisher]}"
                )
            self._last[value.publisher] = value.number
        queue.mark(value, DELIVERED)
        self._settle(delivery.method.delivery_tag, value)

    def _settle(self, tag: int, value: Value) -> None:
        taste, chance = self._taste, self._random.random()
        if chance < taste.holds and len(self._held) * 3 < (taste.prefetch or 1000):
            self._held.add(value)
        elif chance < taste.holds + taste.requeues:
            self._channel.send(
                methods.BasicNack(delivery_tag=tag, multiple=False, requeue=True)
                if tag % 2
                else methods.BasicReject(delivery_tag=tag, requeue=True)
            )
        elif chance < taste.holds + taste.requeues + taste.rejects:
            if taste.queue in LETTERS.values():
                is_confirmed = bool(self._queue.marks[value] & CONFIRMED)
                self._ledger.rejected[value] = self._ledger.rejected.get(value, False) or is_confirmed
            self._queue.settle([value])
            self._ledger.count.acked += 1
            self._channel.send(methods.BasicReject(delivery_tag=tag, requeue=False))
        else:
            self._open.append((tag, value))
            if len(self._open) >= self._random.randint(1, taste.batch):
                self._ack()

    def _ack(self) -> None:
        """Acknowledge what is open, at once where that is nobody else's."""
        self._queue.settle(value for _, value in self._open)
        self._ledger.count.acked += len(self._open)
        if self._taste.batch > 1 and not self._held:
            # All older deliveries are settled: whatever is not open was settled before.
            self._channel.send(methods.BasicAck(delivery_tag=self._open[-1][0], multiple=True))
        else:
            for tag, _ in self._open:
                self._channel.send(methods.BasicAck(delivery_tag=tag))
        self._open.clear()
