"""Three nodes, their faulty disks and links, and the few things that a test of one half-failure does with them.

Nothing here decides by time: what must happen is waited for, and only a failing test waits until the limit.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from node.amqp import methods
from node.amqp.field_table import Table
from node.io.control import ControlError
from tests.chaos.broker import OperatorError, Ring
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.chaos.fluffle_operator import FluffleOperator
from tests.chaos.mirrors import ALL
from tests.kit.cluster_client import ClusterChannel, ClusterClient, Stuck
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.load_client import Delivery, Lost
from tests.kit.network import Network
from tests.kit.patience import patience

WAIT_S: Final = 40.0
"""A test waits this long for what must happen, as the review did for what did not."""
FLAGS: Final = {True: b"\x10\x00\x02", False: b"\x10\x00\x01"}
"""The properties of a message by whether it is persistent."""
WINDOW: Final = 1000
_NAMES: Final = itertools.count()


class Stage:
    """Three nodes.   network: between them, closed by whoever made it."""

    def __init__(self, directory: Path, network: Network) -> None:
        self.network = network
        self.cluster = ChaosCluster(directory, network)
        self.nodes = self.cluster.nodes
        self.operator = FluffleOperator(self.cluster)
        self._disks = directory / "disks"

    def disk(self, node: ChaosNode) -> FaultyDisk:
        """The disk of a node."""
        assert node.disk is not None
        return node.disk

    def others(self, *nodes: ChaosNode) -> list[ChaosNode]:
        """All nodes but these."""
        return [node for node in self.nodes if node not in nodes]

    async def start(self) -> None:
        """Start all, with disks that can fail. Raises: NodeFailed; NoCompiler."""
        for node in self.nodes:
            node.disk = FaultyDisk(self._disks / node.short_name, node.data, takes_notes=False)
        await self.cluster.start()
        await self.operator.set_policy("all", "^q", ALL)

    async def leader(self) -> ChaosNode:
        """The leader of the metadata, which there must be."""
        return await until(self.cluster.leader, "a leader")

    async def restart(self, *nodes: ChaosNode) -> None:
        """Start nodes that have ended, all at once, and wait until all are up. Raises: NodeFailed."""
        for node in nodes:
            node.launch()
        await self.cluster.await_up(60)

    # --- clients ---

    async def declare(
        self, node: ChaosNode, queue: str, *, is_durable: bool = True, arguments: Table | None = None
    ) -> None:
        """Declare a queue, whose master is to be on this node, and wait until all its copies are there."""
        client = await node.connect()
        channel = await client.channel()
        method = methods.QueueDeclare(queue=queue, durable=is_durable, arguments=arguments or {})
        await channel.ask(method, 60)
        await client.leave()
        if queue.startswith("q"):
            await self.await_synchronised(queue)

    async def publish(
        self, node: ChaosNode, queue: str, count: int, *, is_persistent: bool = True, size: int = 100
    ) -> None:
        """Publish so many messages through this node, and wait for all confirms. Raises: Stuck; Lost."""
        publisher = await Publisher.open(node, queue, is_persistent=is_persistent, size=size)
        await publisher.publish(count)
        await publisher.close()

    async def depth(self, queue: str) -> int | None:
        """Return how many messages a queue has, as any node says; None: none has such a queue."""
        return (await self.operator.depths()).get(queue)

    async def drain(self, node: ChaosNode, queue: str, *, wanted: int) -> int:
        """Consume what there is, until so many came or nothing comes any more. Returns: how many different ones."""
        client = await node.connect()
        channel = await client.channel()
        found: set[bytes] = set()

        def take(delivery: Delivery) -> None:
            found.add(delivery.body)
            channel.send(methods.BasicAck(delivery_tag=delivery.method.delivery_tag))

        channel.on_delivery = take
        await channel.ask(methods.BasicQos(prefetch_count=500))
        await channel.ask(methods.BasicConsume(queue=queue), 60)
        seen, since = 0, time.monotonic()
        while len(found) < wanted and time.monotonic() - since < WAIT_S / 2 * patience():
            await asyncio.sleep(0.1)
            if channel.lost is not None:
                raise channel.lost
            if len(found) != seen:
                seen, since = len(found), time.monotonic()
        client.abort()
        return len(found)

    # --- copies ---

    async def ring(self, queue: str, node: ChaosNode | None = None) -> Ring | None:
        """Return the nodes that have copies of it, as this node or any says; None: nobody knows."""
        try:
            return (await self.operator.rings(node)).get(queue)
        except OperatorError:
            return None

    async def await_synchronised(self, queue: str, limit_s: float = 60.0) -> None:
        """Wait until all nodes have a copy with everything."""

        async def is_so() -> bool:
            ring = await self.ring(queue)
            return ring is not None and len(ring.synchronised) + 1 == len(self.nodes)

        await until(is_so, f"{queue} has all its copies", limit_s, told=lambda: self.ring(queue))

    async def paused(self) -> set[str]:
        """The nodes that serve nobody, as they say themselves, or that have ended or don't answer."""
        found = set()
        for node in self.nodes:
            try:
                is_paused = (await node.ask("cluster_status", timeout_s=5))["paused"]
            except (ControlError, OSError):
                is_paused = True
            if is_paused:
                found.add(node.short_name)
        return found


@asynccontextmanager
async def staged(directory: Path, network: Network) -> AsyncIterator[Stage]:
    """Three nodes that run, and are killed at the end; the network is closed then, too."""
    stage = Stage(directory, network)
    try:
        await stage.start()
        yield stage
    finally:
        stage.cluster.close()
        network.close()


class Publisher:
    """A client with confirms.   confirmed, nacked: how many were told so far."""

    def __init__(self, channel: ClusterChannel, queue: str, *, is_persistent: bool, size: int) -> None:
        self.channel = channel
        self.confirmed = 0
        self.nacked = 0
        self._queue = queue
        self._flags = FLAGS[is_persistent]
        self._size = size
        self._sent = 0
        self._open: set[int] = set()
        self._name = next(_NAMES)
        channel.on_confirm = self._told

    @classmethod
    async def open(
        cls, node: ChaosNode, queue: str, *, is_persistent: bool = True, size: int = 100
    ) -> "Publisher":
        """One that is connected to this node. Raises: Lost; Stuck."""
        client: ClusterClient = await node.connect()
        channel = await client.channel()
        await channel.ask(methods.ConfirmSelect())
        return cls(channel, queue, is_persistent=is_persistent, size=size)

    @property
    def unconfirmed(self) -> int:
        """Return how many publishes have no outcome yet."""
        return len(self._open)

    def send(self) -> None:
        """Publish one message, each different from all others. Raises: Lost."""
        self._sent += 1
        self._open.add(self._sent)
        body = b"%d:%d|" % (self._name, self._sent)
        self.channel.publish("", self._queue, self._flags, body.ljust(self._size, b"."))

    async def publish(self, count: int, limit_s: float = WAIT_S) -> None:
        """Publish so many, and wait until all are confirmed. Raises: Stuck if that takes too long; Lost."""
        done = self.confirmed
        for _ in range(count):
            self.send()
            if len(self._open) >= WINDOW:
                await self.settled(limit_s)
        await self.settled(limit_s)
        assert self.confirmed - done == count, f"{self.nacked} nacked"

    async def settled(self, limit_s: float = WAIT_S) -> float:
        """Wait until all have an outcome. Returns: how long it took, in s. Raises: Stuck; Lost."""
        since = time.monotonic()
        while self._open:
            if self.channel.lost is not None:
                raise self.channel.lost
            if time.monotonic() - since > limit_s * patience():
                raise Stuck(
                    f"{len(self._open)} publishes to {self._queue} have no outcome after {limit_s:.0f} s"
                )
            await asyncio.sleep(0.02)
        return time.monotonic() - since

    async def close(self) -> None:
        """End the connection."""
        if isinstance(self.channel.client, ClusterClient):
            self.channel.client.abort()

    def _told(self, tag: int, multiple: bool, is_ack: bool) -> None:
        told = {each for each in self._open if each <= tag} if multiple else {tag}
        self._open -= told
        if is_ack:
            self.confirmed += len(told)
        else:
            self.nacked += len(told)


async def confirmed_anywhere(nodes: list[ChaosNode], queue: str, limit_s: float = WAIT_S) -> float:
    """Have one more message confirmed, by any of these nodes, as clients do that are refused or cut off.

    Returns: how long it took, in s. Raises: Stuck.
    """
    since = time.monotonic()
    told = "nobody was asked"
    while time.monotonic() - since < limit_s * patience():
        for node in nodes:
            publisher: Publisher | None = None
            try:
                publisher = await Publisher.open(node, queue)
                publisher.send()
                await publisher.settled(min(limit_s, 5.0))
                told = f"{publisher.nacked} nacked by {node.short_name}"
                await publisher.close()
                if publisher.confirmed:
                    return time.monotonic() - since
            except Lost as lost:
                blocked = "" if publisher is None else publisher.channel.client.blocked
                told = f"{node.short_name}: {lost}, blocked: {blocked or 'no'}"
        await asyncio.sleep(0.1)
    raise Stuck(f"no confirm from {queue} after {time.monotonic() - since:.0f} s: {told}")


async def until(
    condition: Callable[[], Awaitable[Any]],
    what: str,
    limit_s: float = WAIT_S,
    *,
    told: Callable[[], Awaitable[object]] | None = None,
) -> Any:
    """Wait until something is so. Returns: what the condition gave.   told: what is so instead, for who reads it."""
    since = time.monotonic()
    while not (found := await condition()):
        if time.monotonic() - since > limit_s * patience():
            instead = "" if told is None else f", but {await told()}"
            raise AssertionError(f"not within {limit_s:.0f} s: {what}{instead}")
        await asyncio.sleep(0.05)
    return found
