"""All faults over, no confirmed message of a mirrored queue may be missing, and nothing may be left."""

import asyncio
import time
from collections import Counter
from random import Random
from typing import Any, Final

from tests.chaos.broker import FLUFFLE, BrokerCluster, BrokerNode, OperatorError
from tests.chaos.leaks import leaks
from tests.chaos.mirror_ledger import ANCHOR, QueueStory, Session
from tests.chaos.mirror_load import Load
from tests.chaos.mirror_nemesis import MirrorNemesis
from tests.chaos.outages import outages_of
from tests.kit.ledger import Value
from tests.kit.load_client import Lost
from tests.kit.patience import patience

QUIET_S: Final = 0.5
STUCK_S: Final = 20.0
GROWTH_MAX_MIB: Final = 128


class FinalCheck:
    """The comparison, when the load has ended and all nodes are up."""

    def __init__(self, cluster: BrokerCluster, load: Load, nemesis: MirrorNemesis, random: Random) -> None:
        self._cluster = cluster
        self._load = load
        self._nemesis = nemesis
        self._ledger = load.ledger
        self._count = load.ledger.count
        self._random = random

    async def run(self, base: list[tuple[int, int]]) -> None:
        """All of it.   base: memory and descriptors of each node before the first client."""
        for text in await self._nemesis.mirrors.unsynchronised():
            self._count.problem("unsynchronised", text)
        await self._check_rings()
        if self._cluster.kind == FLUFFLE and (left := await leaks(self._cluster.nodes, base, GROWTH_MAX_MIB)):
            self._count.problem("leaks", left)
        last = await self._nemesis.mirrors.node_of(ANCHOR) if self._random.random() < 0.5 else None
        if last is not None:
            # What the mirrors have is as good.
            self._nemesis.read_log(last)
            last.kill()
        nodes = [node for node in self._cluster.nodes if node is not last]
        queues = list(self._ledger.queues.values())
        read = await asyncio.gather(*(self._is_drained(queue, nodes) for queue in queues))
        unread = {queue.name for queue, is_read in zip(queues, read, strict=True) if not is_read}
        all_down = (await asyncio.to_thread(outages_of, self._cluster)).of_all
        self._ledger.compare(self._nemesis.deaths, unread, all_down)
        await self._check_counts(nodes)
        for node in nodes:
            self._nemesis.read_log(node)

    async def _is_drained(self, queue: QueueStory, nodes: list[BrokerNode]) -> bool:
        try:
            return await self._drain(queue, nodes)
        except Lost as lost:
            self._count.problem("stuck", f"{queue.name} at the end: {lost}")
            return False

    async def _drain(self, queue: QueueStory, nodes: list[BrokerNode]) -> bool:
        """Take all there is, in order. Returns: whether it came. Raises: Lost."""
        node = self._random.choice(nodes)
        client = await self._load.direct(node.index)
        channel = await client.channel()
        await self._load.declare_brief(channel, queue.name)
        session = Session(self._ledger, queue, node.index, "the end")
        found: list[Value] = []

        def take(method: Any, properties: Any, body: bytes) -> None:
            value = session.take(method, properties, body)
            if value is not None:
                found.append(value)
                session.settled(value)
            channel.ack(method.delivery_tag)

        channel.on_delivery = take
        await channel.consume(queue.name, 200)
        since = time.monotonic()
        while True:
            seen = len(found)
            await asyncio.sleep(QUIET_S * patience())
            if len(found) != seen:
                since = time.monotonic()
                continue
            if channel.lost is not None:
                raise channel.lost
            left = await channel.declare(queue.name, passive=True)
            if left == 0 and len(found) == seen:
                break
            if time.monotonic() - since > STUCK_S * patience():
                self._count.problem("stuck", f"{queue.name} has {left} messages that don't come")
                break
        await client.leave()
        self._compare(queue, found)
        return left == 0

    def _compare(self, queue: QueueStory, found: list[Value]) -> None:
        """No message twice, each publisher's in order."""
        if len(set(found)) != len(found):
            twice = sorted(value for value, times in Counter(found).items() if times > 1)
            lines = "\n".join(self._ledger.trace.histories(twice[:3]))
            self._count.problem(
                "duplicates", f"{queue.name} at the end: {twice[:8]}\n{lines}", len(found) - len(set(found))
            )
        last: dict[tuple[str, int], int] = {}
        for value in found:
            kind = self._ledger.publishers[value.publisher].kind
            order = value.publisher, kind.priority(value.number)
            if last.get(order, 0) > value.number:
                self._count.problem("disorder", f"{queue.name} at the end: {value} after {last[order]}")
            last[order] = value.number

    async def _check_rings(self) -> None:
        """All nodes say the same about all rings."""
        seen = {}
        for node in self._cluster.nodes:
            try:
                rings = await self._nemesis.operator.rings(node)
            except OperatorError as error:
                self._count.problem("other", f"the rings as {node.short_name} has them: {error}")
                return
            seen[node.short_name] = str({name: rings[name].version for name in sorted(rings)})
        if len(set(seen.values())) != 1:
            self._count.problem("differs", f"rings: {seen}")

    async def _check_counts(self, nodes: list[BrokerNode]) -> None:
        """Nothing is left, as all nodes say."""
        for node in nodes:
            deadline = time.monotonic() + 10 * patience()
            while True:
                try:
                    depths = await self._nemesis.operator.depths(node)
                except OperatorError as error:
                    depths = {str(error): -1}
                # The broker's own queues keep what they are for, as ids.
                left = {
                    name: depth for name, depth in depths.items() if depth and not name.startswith("amq.")
                }
                if not left:
                    break
                if time.monotonic() > deadline:
                    self._count.problem("differs", f"{node.short_name} says that these are left: {left}")
                    break
                await asyncio.sleep(0.2)
