"""The load on three nodes while things happen to them: publishers, consumers, getters, and queues that come and go."""

import asyncio
import time
from random import Random
from typing import Final

from node.amqp import methods
from node.amqp.field_table import Table, boolean
from tests.chaos.churn import Churn
from tests.chaos.cluster import ChaosCluster
from tests.chaos.consumers import Consumer, Getter, Taste
from tests.chaos.crew import Crew
from tests.chaos.ledger import Ledger, QueueStory
from tests.chaos.publishers import FAN, Publisher, Style
from tests.kit.cluster_client import ClusterClient, Stuck, code_of
from tests.kit.ledger import Kind
from tests.kit.load_client import Lost
from tests.kit.patience import patience

NODES: Final = range(3)
SILENT_S: Final = 20.0
"""A consumer may get nothing for this long while its queue has messages."""
WATCH_S: Final = 2.0
STOP_S: Final = 60.0
"""Publishers, and then the others, may take this long to end."""

SMALL: Final = Kind((20, 100, 700))
MIXED: Final = Kind((20, 300, 5000, 20000))
SHAPED: Final[dict[str, Table]] = {"single": {"x-single-active-consumer": boolean(True)}}

EXPECTED: Final = {
    320: ("",),  # a node stops
    404: ("",),  # a home is down, a queue is gone: the churn looks closer
    406: ("has no majority", "in time: it may still come", "partial tx completion"),
    405: ("brief.",),
    403: ("brief.",),
}
"""Reply codes that may come, with what must stand in their text."""


def durable_names() -> list[str]:
    """The queues whose confirmed messages must not be lost."""
    kinds = ("held", "read", "fan", "single")
    return [f"{kind}.{node + 1}" for node in NODES for kind in kinds]


class Workload(Crew):
    """All tasks. Churns are among those that publish."""

    def __init__(self, cluster: ChaosCluster, ledger: Ledger, random: Random, *, scale: float = 1.0) -> None:
        super().__init__()
        self.cluster = cluster
        self.ledger = ledger
        self.churns: list[Churn] = []
        self.calm_since: float | None = None
        """Since when all nodes see each other and nothing is done to them."""
        self._random = random
        self._scale = scale
        self._consumers: list[Consumer] = []
        self._waits: dict[str, float] = {}

    # --- the whole ---

    async def declare(self) -> None:
        """Make the exchanges and queues, each on its home. Raises: Lost."""
        for node in self.cluster.nodes:
            client = await node.connect()
            channel = await client.channel()
            await channel.ask(methods.ExchangeDeclare(exchange=FAN, type="fanout", durable=True))
            for name in [each for each in durable_names() if each.endswith(f".{node.index + 1}")]:
                arguments = SHAPED.get(name.partition(".")[0], {})
                await channel.ask(methods.QueueDeclare(queue=name, durable=True, arguments=arguments))
                self.ledger.add(name, node.index)
                if name.startswith("fan."):
                    await channel.ask(methods.QueueBind(queue=name, exchange=FAN))
            self.ledger.add(f"brief.{node.index + 1}", node.index, is_durable=False)
            churn = Churn(self, node.index + 1, Random(self._random.random()))
            self.churns.append(churn)
            await channel.ask(methods.ExchangeDeclare(exchange=churn.exchange, type="topic", durable=True))
            await client.leave()

    def start(self) -> None:
        """Begin."""
        held, read, fan, single, brief = (
            tuple(f"{kind}.{node + 1}" for node in NODES)
            for kind in ("held", "read", "fan", "single", "brief")
        )
        pause_s = 0.08 / self._scale
        styles = [
            Style("c", "confirm", read + single, SMALL, pause_s=pause_s),
            Style("h", "confirm", held, MIXED, window=30, pause_s=4 * pause_s, burst=4),
            Style("f", "fan", fan, SMALL, pause_s=3 * pause_s, burst=4),
            Style("t", "tx", read, SMALL, pause_s=4 * pause_s),
            Style("b", "confirm", brief, Kind((20,), transient_of=2), pause_s=4 * pause_s),
            Style("u", "plain", read, SMALL, pause_s=4 * pause_s),
        ]
        for node in NODES:
            for style in styles:
                self.produce(Publisher(self, style, node, self._new_random()).run())
        for churn in self.churns:
            self.produce(churn.run())
        tastes = [Taste(name, prefetch=200, batch=20) for name in read + fan]
        tastes += [Taste(name, prefetch=10, requeues=0.1, is_global=True) for name in read]
        tastes += [Taste(name) for name in (*single, *single)]
        tastes += [Taste(name, no_ack=True) for name in brief]
        for taste in tastes:
            consumer = Consumer(self, taste, self._new_random())
            self._consumers.append(consumer)
            self.consume(consumer.run())
        durable = [queue for queue in self.ledger.queues.values() if queue.name in held + fan]
        for _ in range(2):
            self.consume(Getter(self, durable, self._new_random()).run())
        self.consume(self._watch())

    async def stop(self) -> None:
        """End all."""
        await self.end(STOP_S, lambda text: self.ledger.count.problem("stuck", text))

    def _new_random(self) -> Random:
        return Random(self._random.random())

    # --- for the tasks ---

    async def connect(self, node: int, random: Random, *, is_strict: bool = False) -> ClusterClient | None:
        """A client of this node, or of another one unless is_strict; None if there is none just now."""
        others = [] if is_strict else [each for each in NODES if each != node]
        random.shuffle(others)
        for each in (node, *others):
            try:
                return await self.cluster.nodes[each].connect()
            except Stuck as stuck:
                # A frozen process, which the kernel connects for; another one is to be tried.
                self.ledger.count.problem("stuck", str(stuck))
            except Lost as lost:
                if code_of(lost):
                    self.note(lost, f"connecting to n{each + 1}")
        await asyncio.sleep(random.uniform(0.1, 0.3))
        return None

    async def leave(self, client: ClusterClient) -> None:
        """Close a connection."""
        try:
            await client.leave()
        except Stuck as stuck:
            self.ledger.count.problem("stuck", f"n{client.node + 1}: {stuck}")

    def note(self, lost: Lost, who: str) -> None:
        """Count the end of a session as a problem unless it is something that may happen."""
        code = code_of(lost)
        if isinstance(lost, Stuck):
            self.ledger.count.problem("stuck", f"{who}: {lost}")
        elif code and not any(text in str(lost) for text in EXPECTED.get(code, ())):
            self.ledger.count.problem("other", f"{who}: {lost}")

    def was_calm_since(self, since: float) -> bool:
        """Whether nothing was done to any node from then until now."""
        return self.calm_since is not None and self.calm_since < since

    # --- consumers that get nothing ---

    async def _watch(self) -> None:
        """See that whatever is in a queue goes to its consumers."""
        while not self.are_consumers_stopping:
            await asyncio.sleep(WATCH_S)
            client = await self.connect(self._random.randrange(3), self._random)
            if client is None:
                continue
            try:
                await self._look(client)
            except Lost as lost:
                self.note(lost, "the watch")
            finally:
                await self.leave(client)

    async def _look(self, client: ClusterClient) -> None:
        for name in {consumer.taste.queue for consumer in self._consumers}:
            channel = await client.channel()
            try:
                found = await channel.ask(methods.QueueDeclare(queue=name, passive=True))
            except Lost as lost:
                self._waits.pop(name, None)
                if client.lost is not None or isinstance(lost, Stuck):
                    raise
                continue
            await channel.ask(methods.ChannelClose(reply_code=200, reply_text="bye"))
            if found.message_count == 0:
                self._waits.pop(name, None)
            else:
                self._judge(self.ledger.queues[name], found.message_count)

    def _judge(self, queue: QueueStory, messages: int) -> None:
        """Count a queue that has messages, and consumers all the time, as stuck if it delivers none."""
        now = time.monotonic()
        first = self._waits.setdefault(queue.name, now)
        sessions = [each.since for each in self._consumers if each.taste.queue == queue.name]
        oldest = min((since for since in sessions if since is not None), default=now)
        silent_s = now - max(first, oldest, queue.last_delivery_s)
        if silent_s > SILENT_S * patience():
            text = f"{queue.name}: {messages} messages, {len(sessions)} consumers, and no delivery for"
            self.ledger.count.problem("stuck", f"{text} {silent_s:.0f} s")
            self._waits.pop(queue.name)
