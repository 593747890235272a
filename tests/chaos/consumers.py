"""Consumers and getters: a session after the other, on other nodes than the queue's home for the most part."""

import asyncio
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from node.amqp import methods
from tests.chaos.ledger import QueueStory, Session
from tests.kit.cluster_client import ClusterChannel, ClusterClient
from tests.kit.ledger import Value
from tests.kit.load_client import Delivery, Lost

if TYPE_CHECKING:
    from tests.chaos.workload import Workload


@dataclass(frozen=True, slots=True)
class Taste:
    """A consumer treats messages in these shares of 1; the rest is acknowledged.

    batch: settles so many at once.   no_ack: has nothing to settle.   is_global: the prefetch is the channel's.
    """

    queue: str
    prefetch: int = 50
    requeues: float = 0.05
    batch: int = 1
    no_ack: bool = False
    is_global: bool = False


class Consumer:
    """Consumes one queue.   since: when the present session was told consume-ok; None: there is none."""

    def __init__(self, workload: "Workload", taste: Taste, random: Random) -> None:
        self.taste = taste
        self.since: float | None = None
        self._workload = workload
        self._random = random
        self._queue = workload.ledger.queues[taste.queue]
        self._sessions = 0

    async def run(self) -> None:
        """Consume until the workload stops consumers."""
        while not self._workload.are_consumers_stopping:
            others = [node for node in range(3) if node != self._queue.home]
            node = self._random.choice(others) if self._random.random() < 0.85 else self._queue.home
            client = await self._workload.connect(node, self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._workload.note(lost, f"consumer of {self._queue.name}")
                await asyncio.sleep(self._random.uniform(0.1, 0.5))
            finally:
                self.since = None
                await self._workload.leave(client)

    async def _session(self, client: ClusterClient) -> None:
        self._sessions += 1
        channel = await client.channel()
        name = f"on n{client.node + 1}, session {self._sessions}"
        session = Session(self._workload.ledger, self._queue, name)
        cancelled = asyncio.Event()
        work = _Work(channel, session, self.taste, self._random)
        channel.on_delivery = work.take
        channel.on_cancel = lambda tag: cancelled.set()
        if not self._queue.is_durable:
            await channel.ask(methods.QueueDeclare(queue=self._queue.name))
        qos = methods.BasicQos(prefetch_count=self.taste.prefetch, global_=self.taste.is_global)
        await channel.ask(qos)
        await channel.ask(methods.BasicConsume(queue=self._queue.name, no_ack=self.taste.no_ack))
        self.since = time.monotonic()
        end = time.monotonic() + self._random.uniform(4, 30)
        while time.monotonic() < end and not self._workload.are_consumers_stopping:
            if cancelled.is_set() or channel.lost is not None:
                break
            work.settle_old()
            await asyncio.sleep(0.05)
        self.since = None
        if channel.lost is not None:
            raise channel.lost


class _Work:
    """Settles the deliveries of a session."""

    def __init__(self, channel: ClusterChannel, session: Session, taste: Taste, random: Random) -> None:
        self._channel = channel
        self._session = session
        self._taste = taste
        self._random = random
        self._open: list[tuple[int, Value]] = []
        self._is_lossy = False  # something older is held by nobody

    def take(self, delivery: Delivery) -> None:
        """A delivery."""
        value = self._session.take(delivery)
        if value is None:
            return
        if self._taste.no_ack:
            self._session.settled(value)
            return
        tag = delivery.method.delivery_tag
        if self._random.random() < self._taste.requeues:
            self._channel.send(methods.BasicNack(delivery_tag=tag, multiple=False, requeue=True))
            return
        self._open.append((tag, value))
        if len(self._open) >= self._random.randint(1, self._taste.batch):
            self._settle()

    def settle_old(self) -> None:
        """Nothing is held for long."""
        if self._open and self._channel.lost is None:
            self._settle()

    def _settle(self) -> None:
        for _, value in self._open:
            self._session.settled(value)
        if len(self._open) > 1:
            # Whatever is older was settled before.
            self._channel.send(methods.BasicAck(delivery_tag=self._open[-1][0], multiple=True))
        else:
            self._channel.send(methods.BasicAck(delivery_tag=self._open[0][0]))
        self._open.clear()


class Getter:
    """Takes messages one by one with basic.get, from any queue by any node."""

    def __init__(self, workload: "Workload", queues: list[QueueStory], random: Random) -> None:
        self._workload = workload
        self._queues = queues
        self._random = random

    async def run(self) -> None:
        """Get until the workload stops consumers."""
        while not self._workload.are_consumers_stopping:
            client = await self._workload.connect(self._random.randrange(3), self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._workload.note(lost, "getter")
                await asyncio.sleep(self._random.uniform(0.1, 0.4))
            finally:
                await self._workload.leave(client)

    async def _session(self, client: ClusterClient) -> None:
        channel = await client.channel()
        queue = self._random.choice(self._queues)
        session = Session(self._workload.ledger, queue, f"get on n{client.node + 1}")
        end = time.monotonic() + self._random.uniform(1, 6)
        while time.monotonic() < end and not self._workload.are_consumers_stopping:
            await self._get(channel, queue.name, session)
            await asyncio.sleep(self._random.uniform(0, 0.1))

    async def _get(self, channel: ClusterChannel, queue: str, session: Session) -> None:
        delivery = await channel.ask(methods.BasicGet(queue=queue))
        if isinstance(delivery, methods.BasicGetEmpty):
            return
        value = session.take(delivery)
        if value is None:
            return
        tag = delivery.method.delivery_tag
        if self._random.random() < 0.15:
            channel.send(methods.BasicReject(delivery_tag=tag, requeue=True))
        else:
            session.settled(value)
            channel.send(methods.BasicAck(delivery_tag=tag))
