"""A nemesis injects faults one after the other. Each ends with all nodes running, on the data that they had."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from node.io.control import ControlError
from tests.chaos.broker import SERVES_S, START_S, BrokerCluster, BrokerNode, NodeFailed
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.kit.ledger import clock
from tests.kit.load_client import Lost
from tests.kit.patience import patience

STOP_CODES: Final = (0,)


@dataclass(slots=True)
class Fault:
    """One fault.   text: for the table.   victims: indexes of the nodes that it is done to.

    began, ended: when it was made and undone.   up_s: how long after its end all nodes saw all.
    evicts: mirrors may be evicted, whose nodes get no new ones for a while.
    is_partial: some nodes don't see each other for long, so a client may wait on any node that it has come to.
    """

    kind: str
    text: str = ""
    victims: set[int] = field(default_factory=set)
    began: float = 0.0
    began_at: str = field(default_factory=clock)
    ended: float = 0.0
    up_s: float = 0.0
    evicts: bool = False
    is_partial: bool = False


class Problems(Protocol):
    """Takes note that something is wrong: the `Count` of a ledger."""

    def problem(self, what: str, text: str, number: int = 1) -> None: ...


class Nemesis:
    """Does things to a cluster: what its methods `_kind_…` are called for.   fault: the present one."""

    def __init__(
        self, cluster: BrokerCluster, random: Random, count: Problems, *, scale: float = 1.0
    ) -> None:
        self.fault: Fault | None = None
        self._cluster = cluster
        self._random = random
        self._count = count
        self._scale = scale  # of how long faults last
        self._turn = random.randrange(3)

    async def run(self, kind: str) -> Fault:
        """Do it, undo it, wait until all is well. Raises: NodeFailed."""
        fault = self.fault = Fault(kind, began=time.monotonic())
        try:
            await getattr(self, "_kind_" + kind.replace("-", "_"))(fault)
        finally:
            self._cluster.network.heal()
            for node in self._cluster.nodes:
                node.thaw()
            fault.ended = fault.ended or time.monotonic()
        await self._cluster.await_up(SERVES_S)
        await self._await_service()
        fault.up_s = time.monotonic() - fault.ended
        return fault

    async def _await_service(self) -> None:
        """Each node accepts clients, all at the same time. Raises: NodeFailed."""
        deadline = time.monotonic() + SERVES_S * patience()
        while True:
            try:
                await self._visit()
                return
            except Lost as lost:
                if time.monotonic() > deadline:
                    raise NodeFailed(f"clients are not served: {lost}") from lost
            await asyncio.sleep(0.2)

    async def _visit(self) -> None:
        """A client of each node. Raises: Lost."""
        assert isinstance(self._cluster, ChaosCluster)
        for client in await self._cluster.clients():
            await client.channel()
            await client.leave()

    def _victim(self, fault: Fault) -> BrokerNode:
        """The next in turn."""
        self._turn = (self._turn + 1) % 3
        fault.victims.add(self._turn)
        fault.text += f" n{self._turn + 1}"
        return self._cluster.nodes[self._turn]

    async def _leader(self, fault: Fault) -> BrokerNode:
        leader = await self._cluster.leader()
        if leader is None:
            return self._victim(fault)
        fault.victims.add(leader.index)
        fault.text += f" {leader.short_name}"
        return leader

    async def _last(self, fault: Fault, least_s: float, most_s: float) -> None:
        lasts_s = self._random.uniform(least_s, most_s) * self._scale
        fault.text += f" {lasts_s:.1f}s"
        await asyncio.sleep(lasts_s)

    # --- processes ---

    def _end(self, node: BrokerNode) -> None:
        node.kill()
        self.read_log(node)

    def read_log(self, node: BrokerNode) -> None:
        """See that nothing of ours has failed."""
        found = node.faults_in_log()
        if found:
            self._count.problem("other", found)

    async def _relaunch(self, fault: Fault, *nodes: BrokerNode) -> None:
        """Start them again; the fault lasts until the processes could have been there."""
        for node in nodes:
            node.launch()
        fault.ended = time.monotonic()
        # A start takes longer than the end of a fault that leaves the process alone.
        await self._cluster.await_up(START_S)

    async def _kind_kill(self, fault: Fault) -> None:
        node = self._victim(fault)
        self._end(node)
        await self._last(fault, 0, 4)
        await self._relaunch(fault, node)

    async def _kind_kill_leader(self, fault: Fault) -> None:
        node = await self._leader(fault)
        self._end(node)
        await self._last(fault, 0, 4)
        await self._relaunch(fault, node)

    async def _kind_kill_twice(self, fault: Fault) -> None:
        """Kill a node, and once or twice again while it starts."""
        node = self._victim(fault)
        self._end(node)
        for _ in range(self._random.randint(1, 2)):
            await asyncio.sleep(self._random.uniform(0, 1) * self._scale)
            node.launch()
            await self._last(fault, 0.2, 2.5)
            self._end(node)
        await self._relaunch(fault, node)

    async def _kind_kill_all(self, fault: Fault) -> None:
        fault.victims |= {0, 1, 2}
        nodes = list(self._cluster.nodes)
        self._random.shuffle(nodes)
        for node in nodes:
            self._end(node)
            await asyncio.sleep(self._random.choice((0, 0, 0.3)))
        await self._last(fault, 0, 1)
        self._random.shuffle(nodes)
        await self._relaunch(fault, *nodes)

    async def _freeze(self, fault: Fault, node: BrokerNode) -> None:
        node.freeze()
        # Around the lease, 2 s, as well as far beyond it.
        most_s = self._random.choice((3, 10))
        await self._last(fault, 1, most_s)
        node.thaw()
        fault.ended = time.monotonic()

    async def _kind_pause(self, fault: Fault) -> None:
        await self._freeze(fault, self._victim(fault))

    async def _kind_pause_leader(self, fault: Fault) -> None:
        await self._freeze(fault, await self._leader(fault))

    async def _terminate(self, node: BrokerNode) -> None:
        code = await node.stop()
        if code not in STOP_CODES:
            self._count.problem("other", f"{node.name} ended with {code} after SIGTERM: {node.log_end()}")
        self.read_log(node)

    async def _kind_stop(self, fault: Fault) -> None:
        node = self._victim(fault)
        await self._terminate(node)
        await self._last(fault, 0, 2)
        await self._relaunch(fault, node)

    async def _kind_rolling(self, fault: Fault) -> None:
        for _ in range(3):
            node = self._victim(fault)
            await self._terminate(node)
            await self._relaunch(fault, node)

    # --- links ---

    async def _kind_isolate(self, fault: Fault, how: str = "silent") -> None:
        node = self._victim(fault)
        others = [each for each in self._cluster.nodes if each is not node]
        self._cluster.network.cut([(node.short_name, each.short_name) for each in others], how)
        await self._last(fault, 2, 10)

    async def _kind_isolate_reset(self, fault: Fault) -> None:
        await self._kind_isolate(fault, "reset")

    async def _kind_pair(self, fault: Fault, how: str = "silent") -> None:
        one, other = self._victim(fault), self._victim(fault)
        self._cluster.network.cut([(one.short_name, other.short_name)], how)
        await self._last(fault, 2, 10)

    async def _kind_pair_reset(self, fault: Fault) -> None:
        await self._kind_pair(fault, "reset")

    # --- the broker in the process ---

    async def _kind_stop_app(self, fault: Fault) -> None:
        node = self._victim(fault)
        assert isinstance(node, ChaosNode)
        try:
            await node.ask("stop_app", timeout_s=40 * patience())
            await self._last(fault, 0, 2)
            with contextlib.suppress(ControlError):
                # Also while a change is under way.
                await node.ask("cluster_status", timeout_s=5)
            await node.ask("start_app", timeout_s=40 * patience())
        except ControlError as error:
            raise NodeFailed(f"stop_app or start_app of {node.name}: {error}: {node.log_end()}") from error
