"""The load on mirrored queues while things happen to their nodes: clients of pika that reconnect anywhere."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pika

from tests.chaos.broker import BrokerCluster
from tests.chaos.crew import Crew
from tests.chaos.mirror_ledger import Ledger, PublisherStory, QueueStory, Session
from tests.chaos.nemesis import Nemesis
from tests.chaos.pika_client import CALL_S, WRITTEN_MAX_BYTES, PikaChannel, PikaClient
from tests.kit.cluster_client import Stuck, code_of
from tests.kit.ledger import CONFIRMED, NACKED, RETURNED, Kind, Value
from tests.kit.load_client import Lost
from tests.kit.patience import patience

NODES: Final = range(3)
TICK_S: Final = 0.025
OUTCOME_S: Final = 60.0
"""A publish may be without an outcome for this long. It is nacked when there was no master for 30 s."""
LATE_S: Final = 5.0
"""A client whose own node is frozen or cut off gives it up after so long."""
PARTIAL_LATE_S: Final = 30.0
"""While two nodes are cut off from each other a publish may wait this long: longer than it takes to evict a mirror."""
DEPTH_MAX: Final = 3000
"""A queue with so many messages has enough: from there on it gets only some."""

SMALL: Final = Kind((20, 100, 700))
MIXED: Final = Kind((20, 300, 5000, 20000))
TRANSIENT: Final = Kind((20, 100), transient_of=1)
ORDERED: Final = Kind((20, 100), priorities=4)

HELD: Final = "held"
"""The queue that nobody takes from until the end: each message must be there, once, in order."""
LAZY: Final = "lazy"
"""The queue whose messages are on disk, and are read when somebody takes them."""
SLOW: Final = "slow"
IDLE: Final = "idle"
DURABLE: Final = ("hot", HELD, "deep", "two", "three", "single", "ranked", LAZY, SLOW, IDLE)
TRANSIENT_QUEUE: Final = "brief"
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "single": {"x-single-active-consumer": True},
    "ranked": {"x-max-priority": 5},
    LAZY: {"x-queue-mode": "lazy"},
}

SOMEWHERE: Final = -1
"""The node of clients that a balancer connects to any."""


@dataclass(frozen=True, slots=True)
class Style:
    """A publisher behaves by these.   rate: messages a second.   window: of unconfirmed ones.   lasts_s: a session.

    is_scaled: a run with less load has less of it.
    """

    name: str
    queues: tuple[str, ...]
    kind: Kind
    rate: float
    is_confirmed: bool = True
    window: int = 200
    lasts_s: tuple[float, float] = (5, 30)
    is_scaled: bool = True


@dataclass(frozen=True, slots=True)
class Taste:
    """A consumer behaves by these.

    prefetch: 1 or 50.   requeues: which part it gives back.   batch: settles so many at once.   lasts_s: a session.
    wants_cancel: has x-cancel-on-ha-failover.   node: where it wants to be; None: anywhere.
    """

    queue: str
    prefetch: int = 50
    requeues: float = 0.0
    batch: int = 1
    lasts_s: tuple[float, float] = (5, 40)
    wants_cancel: bool = False
    node: int | None = None


class Load(Crew):
    """All clients.

    nemesis: who knows which nodes something is done to now.   front: host and port of a balancer that clients are to
    go through; then nobody knows which node they are on, and none may be let down because something is done to it.
    """

    nemesis: Nemesis | None = None

    def __init__(
        self,
        cluster: BrokerCluster,
        ledger: Ledger,
        random: Random,
        *,
        scale: float = 1.0,
        front: tuple[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self.front = front
        self.ledger = ledger
        self._random = random
        self._scale = scale
        self._names = 0

    @property
    def victims(self) -> set[int]:
        """Indexes of the nodes that something is done to."""
        fault = None if self.nemesis is None else self.nemesis.fault
        return set() if fault is None else fault.victims

    def waits_s(self, node: int) -> float:
        """Return how long a client of this node waits for the outcome of a publish before it goes elsewhere."""
        if node in self.victims:
            return LATE_S
        return PARTIAL_LATE_S if self.is_partial else OUTCOME_S * patience()

    @property
    def is_partial(self) -> bool:
        """Whether a client may have to wait on any node that it has come to: it is to go elsewhere."""
        fault = None if self.nemesis is None else self.nemesis.fault
        return fault is not None and fault.is_partial

    async def declare(self) -> None:
        """Make the queues, each on one of the nodes. Raises: Lost."""
        for number, name in enumerate(DURABLE):
            node = number % len(NODES)
            client = await self.direct(node)
            channel = await client.channel()
            await channel.declare(name, durable=True, arguments=ARGUMENTS.get(name))
            self.ledger.queues[name] = QueueStory(name, has_priorities=name == "ranked")
            await client.leave()
        self.ledger.queues[TRANSIENT_QUEUE] = QueueStory(TRANSIENT_QUEUE, is_durable=False)

    def start(self, styles: Sequence[Style], tastes: Sequence[Taste], getters: Sequence[str]) -> None:
        """Begin.   styles: one publisher of each on each node.   getters: queues that basic.get takes from."""
        for node in NODES:
            for style in styles:
                publisher = Publisher(self, style, node, self._new_random(), self._scale)
                self.produce(publisher.run())
        for taste in tastes:
            self.consume(Consumer(self, taste, self._new_random()).run())
        for queue in getters:
            self.consume(Getter(self, queue, self._new_random()).run())

    async def stop(self) -> None:
        """End all."""
        await self.end(OUTCOME_S + 30, lambda text: self.ledger.count.problem("stuck", text))

    def _new_random(self) -> Random:
        return Random(self._random.random())

    # --- for the tasks ---

    def name(self, stem: str) -> str:
        """One that nobody had."""
        self._names += 1
        return f"{stem}.{self._names}"

    async def direct(self, node: int) -> PikaClient:
        """A client of this node, whatever stands before it. Raises: Lost; Stuck."""
        place = self.cluster.nodes[node].place
        return await PikaClient.connect(place.host, place.port, node)

    async def connect(self, node: int, random: Random) -> PikaClient | None:
        """A client of this node, or of another one; None if there is none just now."""
        others = [each for each in NODES if each != node]
        random.shuffle(others)
        order = [node, *others] if self.front is None else [SOMEWHERE]
        order.sort(key=lambda each: each in self.victims)  # a frozen process answers nobody
        for each in order:
            try:
                if self.front is not None:
                    return await PikaClient.connect(*self.front, SOMEWHERE)
                return await self.direct(each)
            except Lost as lost:
                self.note(lost, each, f"connecting to n{each + 1}")
        await asyncio.sleep(random.uniform(0.1, 0.3))
        return None

    async def leave(self, client: PikaClient) -> None:
        """Close a connection."""
        if client.node in self.victims:
            client.abort()
            return
        try:
            await client.leave()
        except Stuck as stuck:
            self.note(stuck, client.node, "closing")

    def note(self, lost: Lost, node: int, who: str) -> None:
        """Count the end of a session as a problem unless it is something that may happen."""
        code = code_of(lost)
        if isinstance(lost, Stuck):
            if node not in self.victims and not self.is_partial:
                self.ledger.count.problem("stuck", f"{who}: {lost}")
        elif code >= 300 and not any(text in str(lost) for text in self.cluster.expected.get(code, ())):
            self.ledger.count.problem("other", f"{who} on n{node + 1}: {lost}")

    async def declare_brief(self, channel: PikaChannel, queue: str) -> None:
        """The transient queue may be gone. Raises: Lost; Stuck."""
        if queue == TRANSIENT_QUEUE:
            await channel.declare(TRANSIENT_QUEUE, durable=False)


class Publisher:
    """One publisher, a session after the other, on its own node or, while that is away, on another one."""

    def __init__(self, load: Load, style: Style, node: int, random: Random, scale: float) -> None:
        self._load = load
        self._ledger = load.ledger
        self._style = style
        self._node = node if load.front is None else SOMEWHERE
        self._random = random
        self._rate = style.rate * (scale if style.is_scaled else 1)
        self._open: dict[int, float] = {}
        self._returned: set[int] = set()
        self._properties: dict[tuple[int, int], pika.BasicProperties] = {}

    async def run(self) -> None:
        """Publish until the load ends."""
        while not self._load.is_stopping:
            client = await self._load.connect(self._node, self._random)
            if client is None:
                continue
            name = self._load.name(f"{self._style.name}{client.node + 1}")
            style = self._style
            story = PublisherStory(name, client.node, style.kind, style.queues, style.is_confirmed)
            self._ledger.publishers[name] = story
            try:
                await self._session(client, story)
                story.is_whole = True
            except Lost as lost:
                self._load.note(lost, client.node, f"publisher {name}")
                await asyncio.sleep(self._random.uniform(0, 0.1))
            finally:
                story.ended = time.monotonic()
                self._ledger.count.unknown += len(self._open)
                self._open = {}
                await self._load.leave(client)
                story.is_whole = story.is_whole and (client.lost is None or "200" in str(client.lost))

    async def _session(self, client: PikaClient, story: PublisherStory) -> None:
        channel = await client.channel()
        await self._load.declare_brief(channel, story.queues[0])
        if story.is_confirmed:
            channel.on_confirm = lambda tag, multiple, is_ack: self._confirmed(
                story, tag, is_multiple=multiple, is_ack=is_ack
            )
            channel.on_return = lambda method, properties, body: self._was_returned(body)
            await channel.confirm()
        self._open = {}
        self._returned = set()
        self._number_before_confirms = 0
        end = time.monotonic() + self._random.uniform(*self._style.lasts_s)
        due, last = 0.0, time.monotonic()
        while not self._load.is_stopping and time.monotonic() < end:
            if client.node != self._node and not self._load.victims:
                break  # home again
            now = time.monotonic()
            rate = self._rate * (0.05 if self._is_enough(story) else 1)
            due, last = min(due + (now - last) * rate, self._style.window / 2), now
            while due >= 1 and len(self._open) < self._style.window:
                self._publish(channel, story)
                due -= 1
            self._look(client)
            await asyncio.sleep(TICK_S)
        while self._open:
            await asyncio.sleep(TICK_S)
            if channel.lost is not None:
                raise channel.lost
            self._look(client)

    def _is_enough(self, story: PublisherStory) -> bool:
        queues = [self._ledger.queues[name] for name in story.queues]
        return any(queue.confirmed - queue.settled > DEPTH_MAX for queue in queues if queue.name != HELD)

    def _publish(self, channel: PikaChannel, story: PublisherStory) -> None:
        raw = channel.raw
        number = self._ledger.sent(story)
        kind = story.kind
        key = kind.is_transient(number), kind.priority(number)
        properties = self._properties.get(key)
        if properties is None:
            properties = self._properties[key] = pika.BasicProperties(
                delivery_mode=1 if key[0] else 2, priority=key[1] if kind.priorities else None
            )
        if story.is_confirmed:
            self._open[number] = time.monotonic()
        body = kind.body(Value(story.name, number))
        try:
            raw.basic_publish("", story.queue(number), body, properties, mandatory=story.is_confirmed)
        except pika.exceptions.AMQPError as error:
            raise channel.lost or Lost(repr(error)) from error

    def _look(self, client: PikaClient) -> None:
        """Raises: Stuck if what is published has no outcome; Lost."""
        if client.lost is not None:
            raise client.lost
        if client.written_bytes > WRITTEN_MAX_BYTES:
            raise Stuck(f"n{client.node + 1} does not read")
        if not self._open:
            return
        number, since = next(iter(self._open.items()))
        waited_s = time.monotonic() - since
        if waited_s > self._load.waits_s(client.node):
            raise Stuck(f"publish {number} to {self._style.queues} has no outcome after {waited_s:.0f} s")

    def _was_returned(self, body: bytes) -> None:
        self._returned.add(int(body[:100].partition(b"|")[0].rpartition(b":")[2]))

    def _confirmed(self, story: PublisherStory, tag: int, *, is_multiple: bool, is_ack: bool) -> None:
        now = time.monotonic()
        numbers = []
        if is_multiple:
            for number in self._open:
                if number > tag:
                    break
                numbers.append(number)
        elif tag in self._open:
            numbers.append(tag)
        else:
            self._ledger.count.problem("other", f"{story.name}: a confirm of {tag}, which waits for none")
        for number in numbers:
            mark = RETURNED if number in self._returned else CONFIRMED if is_ack else NACKED
            self._ledger.outcome(story, number, mark, now - self._open.pop(number))


class Consumer:
    """Consumes one queue, a session after the other."""

    def __init__(self, load: Load, taste: Taste, random: Random) -> None:
        self._load = load
        self._taste = taste
        self._random = random
        self._queue = load.ledger.queues[taste.queue]
        self._open: list[tuple[int, Value]] = []
        self._last_s = 0.0

    async def run(self) -> None:
        """Consume until the load ends."""
        while not self._load.are_consumers_stopping:
            node = self._taste.node if self._taste.node is not None else self._random.choice(NODES)
            client = await self._load.connect(node, self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._load.note(lost, client.node, f"consumer of {self._queue.name}")
                await asyncio.sleep(self._random.uniform(0, 0.2))
            finally:
                await self._load.leave(client)

    async def _session(self, client: PikaClient) -> None:
        channel = await client.channel()
        await self._load.declare_brief(channel, self._queue.name)
        session = Session(self._load.ledger, self._queue, client.node, self._load.name("c"))
        cancelled = asyncio.Event()
        self._open = []
        channel.on_delivery = lambda *delivery: self._take(channel, session, *delivery)
        channel.on_cancel = lambda tag: cancelled.set()
        arguments = {"x-cancel-on-ha-failover": True} if self._taste.wants_cancel else None
        await channel.consume(self._queue.name, self._taste.prefetch, arguments)
        end = time.monotonic() + self._random.uniform(*self._taste.lasts_s)
        self._last_s = time.monotonic()
        while time.monotonic() < end and not self._load.are_consumers_stopping:
            if channel.lost is not None:
                raise channel.lost
            if self._load.is_partial and time.monotonic() - self._last_s > LATE_S:
                return  # there may be no way to the queue from here
            if cancelled.is_set():
                if not self._taste.wants_cancel and self._queue.is_durable:
                    self._load.ledger.count.problem("other", f"{session.name} was cancelled")
                return
            self._settle(channel, session)
            if (
                self._taste.node not in (None, client.node)
                and self._load.front is None
                and not self._load.victims
            ):
                return  # home again
            await asyncio.sleep(TICK_S)

    def _take(
        self, channel: PikaChannel, session: Session, method: Any, properties: Any, body: bytes
    ) -> None:
        self._last_s = time.monotonic()
        value = session.take(method, properties, body)
        if value is None:
            return
        with contextlib.suppress(Lost):
            if self._taste.requeues and self._random.random() < self._taste.requeues:
                session.requeued(value)
                channel.requeue(method.delivery_tag)
                return
            self._open.append((method.delivery_tag, value))
            if len(self._open) >= min(self._taste.batch, self._taste.prefetch):
                self._settle(channel, session)

    def _settle(self, channel: PikaChannel, session: Session) -> None:
        if not self._open or channel.lost is not None or channel.client.lost is not None:
            return
        for _, value in self._open:
            session.settled(value)
        channel.ack(self._open[-1][0], multiple=len(self._open) > 1)
        self._open = []


class Getter:
    """Takes messages one by one with basic.get."""

    def __init__(self, load: Load, queue: str, random: Random) -> None:
        self._load = load
        self._queue = load.ledger.queues[queue]
        self._random = random

    async def run(self) -> None:
        """Get until the load ends."""
        while not self._load.are_consumers_stopping:
            client = await self._load.connect(self._random.choice(NODES), self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._load.note(lost, client.node, f"getter of {self._queue.name}")
                await asyncio.sleep(self._random.uniform(0, 0.2))
            finally:
                await self._load.leave(client)

    async def _session(self, client: PikaClient) -> None:
        channel = await client.channel()
        session = Session(self._load.ledger, self._queue, client.node, self._load.name("g"))
        end = time.monotonic() + self._random.uniform(2, 10)
        while time.monotonic() < end and not self._load.are_consumers_stopping:
            limit_s = LATE_S if self._load.is_partial else CALL_S
            found = await channel.get(self._queue.name, limit_s=limit_s)
            if found is None:
                await asyncio.sleep(self._random.uniform(0, 0.1))
                continue
            value = session.take(*found)
            if value is None:
                continue
            if self._random.random() < 0.1:
                session.requeued(value)
                channel.requeue(found[0].delivery_tag)
            else:
                session.settled(value)
                channel.ack(found[0].delivery_tag)
            await asyncio.sleep(self._random.uniform(0, 0.04))
