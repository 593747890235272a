"""Faults of mirrored queues look for masters and mirrors, beside the faults of all nodes."""

import asyncio
import contextlib
import re
import time
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any, Final

from cluster.mirror.policy_reconciler import BACK_OFF_S
from node.io.control import ControlError
from tests.chaos.broker import BrokerCluster, BrokerNode, NodeFailed, Operator, OperatorError
from tests.chaos.cluster import BORING, ChaosNode
from tests.chaos.mirror_ledger import ANCHOR, QueueStory
from tests.chaos.mirror_load import HELD, TRANSIENT_QUEUE, Load
from tests.chaos.mirrors import ALL, AUTOMATIC, SYNCED_S, Mirrors
from tests.chaos.nemesis import Fault, Nemesis
from tests.kit.patience import patience

NO_MASTER: Final = re.compile("no synchronised mirror .* is available. Waits for the copy")
NO_SPACE: Final = re.compile("No space left")
ERRORS: Final = re.compile(r"\[(error|critical)\]")
FILL_BYTES: Final = 64 * 1024


class MirrorNemesis(Nemesis):
    """Injects faults of all nodes, and of masters and mirrors. After each all queues have all their copies again.

    deaths: node, began, ended of what may have taken from a node what its clients had published without confirms.
    mirrors: what copies the queues are to have.   down_s: how long at most a killed node stays away.
    """

    def __init__(
        self,
        cluster: BrokerCluster,
        operator: Operator,
        mirrors: Mirrors,
        random: Random,
        load: Load,
        *,
        scale: float = 1.0,
        down_s: float = 4.0,
    ) -> None:
        super().__init__(cluster, random, load.ledger.count, scale=scale)
        self.operator = operator
        self.mirrors = mirrors
        self.deaths: list[tuple[int, float, float]] = []
        self._ledger = load.ledger
        self._load = load
        self._down_s = down_s
        self._was_all_down = self._was_full = False
        self._may_complain: set[tuple[str, int]] = set()
        """Lives of nodes, by name and number, whose disks were harmed: they say so, as errors."""

    async def run(self, kind: str) -> Fault:
        """Do it, undo it, wait until all is well. Raises: NodeFailed."""
        began = time.monotonic()
        try:
            fault = await super().run(kind)
            since = time.monotonic()
            await self.mirrors.await_synchronised(SYNCED_S + fault.evicts * BACK_OFF_S)
            await self._await_progress(since)
            fault.up_s += time.monotonic() - since
        finally:
            victims = set() if self.fault is None else self.fault.victims
            self.deaths += [(node, began, time.monotonic()) for node in victims]
            if self._are_all_victims():
                self._ledger.spare(TRANSIENT_QUEUE)
                self._was_all_down = True
            self.fault = None
        return fault

    def read_log(self, node: BrokerNode) -> None:
        """As before; without any node, or any link, there is no master either."""
        self._was_all_down |= self._are_all_victims()
        is_harmed = (node.short_name, node.starts) in self._may_complain
        allowed = [
            BORING,
            *[NO_MASTER] * self._was_all_down,
            *[NO_SPACE] * self._was_full,
            *[ERRORS] * is_harmed,
        ]
        found = node.faults_in_log(re.compile("|".join(each.pattern for each in allowed)))
        if found:
            self._count.problem("other", found)

    def _are_all_victims(self) -> bool:
        return self.fault is not None and len(self.fault.victims) == len(self._cluster.nodes)

    async def _visit(self) -> None:
        """As before, with clients that any broker understands. Raises: Lost."""
        for client in [await self._load.direct(node.index) for node in self._cluster.nodes]:
            await client.channel()
            await client.leave()

    async def _await_progress(self, since: float, *, but: Collection[str] = ()) -> None:
        """Each queue takes messages and gives them, again.   but: these need not. Raises: NodeFailed."""
        deadline = time.monotonic() + SYNCED_S * patience()
        queues = [queue for queue in self._ledger.queues.values() if queue.name not in but]
        while idle := [queue.name for queue in queues if not _progressed(queue, since)]:
            if time.monotonic() > deadline:
                raise NodeFailed(f"nothing goes on in {idle}: {await self.operator.depths()}")
            await asyncio.sleep(0.1)

    async def _master(self, fault: Fault, *, is_mirror: bool = False, queue: str = ANCHOR) -> BrokerNode:
        node = await self.mirrors.node_of(queue, is_mirror=is_mirror)
        if node is None:
            return self._victim(fault)
        fault.victims.add(node.index)
        fault.text += f" {node.short_name}"
        leader = await self._cluster.leader()
        if leader is node:
            fault.text += " leads Raft"
        return node

    async def _killed(self, fault: Fault, node: BrokerNode) -> None:
        fault.began = time.monotonic()
        self._end(node)
        await self._last(fault, 0, self._down_s)
        await self._relaunch(fault, node)

    # --- processes ---

    async def _kind_kill_master(self, fault: Fault) -> None:
        await self._killed(fault, await self._master(fault))

    async def _kind_kill_mirror(self, fault: Fault) -> None:
        await self._killed(fault, await self._master(fault, is_mirror=True))

    async def _kind_kill_leader(self, fault: Fault) -> None:
        """Kill the leader of Raft, which is made the master before, if that is possible."""
        node = await self._leader(fault)
        others = [each.name for each in self._cluster.nodes if each is not node]
        nodes = {"ha-mode": "nodes", "ha-params": [node.name, *others], **AUTOMATIC}
        with contextlib.suppress(OperatorError):
            await self.mirrors.change(nodes)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if await self.mirrors.node_of(ANCHOR) is node:
                fault.text += " master"
                break
            await asyncio.sleep(0.1)
        with contextlib.suppress(OperatorError):
            await self.mirrors.set_policies()
        await self._killed(fault, node)

    async def _kind_kill_two(self, fault: Fault) -> None:
        """The master, and its first mirror while the others still take over."""
        master, mirror = await self._master(fault), await self._master(fault, is_mirror=True)
        self._end(master)
        await asyncio.sleep(self._random.choice((0, 0.02, 0.2, 1)))
        self._end(mirror)
        # What was confirmed by the last of them alone is on all disks but not in all memories.
        fault.victims |= {0, 1, 2}
        await self._last(fault, 0, 2)
        await self._relaunch(fault, master, mirror)

    async def _kind_kill_while_syncing(self, fault: Fault) -> None:
        """A mirror comes back, and before it has all the master or the other mirror goes."""
        mirror = await self._master(fault, is_mirror=True)
        self._end(mirror)
        await self._last(fault, 0.2, 1.5)
        mirror.launch()
        deadline = time.monotonic() + 20 * patience()
        while time.monotonic() < deadline:
            with contextlib.suppress(OperatorError):
                ring = (await self.operator.rings()).get("deep")
                # Also in the middle, or shortly after.
                if ring is not None and mirror.name in (*ring.mirrors, *ring.joining):
                    break
            await asyncio.sleep(0.01)
        await asyncio.sleep(self._random.choice((0, 0, 0.05, 0.3)))
        others = [node for node in self._cluster.nodes if node is not mirror]
        other = self._random.choice(others)
        fault.victims.add(other.index)
        fault.text += f" {other.short_name}"
        self._end(other)
        await self._relaunch(fault, other)

    async def _kind_freeze_and_kill(self, fault: Fault) -> None:
        """Freeze a mirror, so that what the master does goes nowhere for a while, and kill the master."""
        mirror = await self._master(fault, is_mirror=True)
        master = await self._master(fault)
        fault.began = time.monotonic()
        mirror.freeze()
        await self._last(fault, 0.05, self._random.choice((0.5, 3)))
        self._end(master)
        await self._last(fault, 0.05, 1)
        mirror.thaw()
        await self._relaunch(fault, master)

    async def _kind_pause_master(self, fault: Fault) -> None:
        node = await self._master(fault)
        fault.began = time.monotonic()
        node.freeze()
        await self._last(fault, 1, 15)
        node.thaw()
        fault.ended = time.monotonic()

    async def _kind_rolling(self, fault: Fault) -> None:
        """As an operator does: the next one when all mirrors have all."""
        nodes = list(self._cluster.nodes)
        self._random.shuffle(nodes)
        for node in nodes:
            fault.victims = {node.index}
            fault.text += f" {node.short_name}"
            began = time.monotonic()
            await self._terminate(node)
            await self._relaunch(fault, node)
            await self.mirrors.await_synchronised()
            self.deaths.append((node.index, began, time.monotonic()))

    async def _kind_disk_full(self, fault: Fault) -> None:
        """Fill the disk of the master or a mirror: persistent messages wait. It needs `small_disks`."""
        node = await self._master(fault, is_mirror=self._random.random() < 0.5)
        await self._full(fault, node, 1, 12)

    async def _full(self, fault: Fault, node: BrokerNode, least_s: float, most_s: float) -> None:
        """Fill the disk of a node for so long."""
        if not node.data.is_mount():
            fault.text += " has no own disk"
            return
        fault.began = time.monotonic()
        filler = node.data / "filler"
        await asyncio.to_thread(_fill, filler)
        self._was_full = True
        await self._last(fault, least_s, most_s)
        await self._while_full(fault, node)
        filler.unlink()
        fault.ended = time.monotonic()
        if not node.is_running:
            # When even what the nodes agree on could not be written.
            fault.text += " ended"
            node.kill()
            await self._relaunch(fault, node)

    async def _while_full(self, fault: Fault, node: BrokerNode) -> None:
        """Check what must be so shortly before there is room again."""

    # --- links ---

    async def _kind_isolate_master(self, fault: Fault) -> None:
        node = await self._master(fault)
        pairs = [(node.short_name, each.short_name) for each in self._cluster.nodes if each is not node]
        fault.began = time.monotonic()
        self._cluster.network.cut(pairs, self._random.choice(("silent", "reset")))
        await self._last(fault, 1, 12)

    async def _kind_resets(self, fault: Fault) -> None:
        """Connections end, and may come again at once."""
        names = [node.short_name for node in self._cluster.nodes]
        for _ in range(self._random.randint(3, 8)):
            one, other = self._random.sample(names, 2)
            self._cluster.network.cut([(one, other)], "reset")
            await asyncio.sleep(self._random.choice((0, 0.05, 0.3)))
            self._cluster.network.heal()
            await asyncio.sleep(self._random.uniform(0, 1) * self._scale)

    # --- the operator ---

    async def _kind_policies(self, fault: Fault) -> None:
        """Other mirrors, none, and again; in the end as before."""
        names = [node.name for node in self._cluster.nodes]
        choices: list[dict[str, Any]] = [
            ALL,
            {"ha-mode": "exactly", "ha-params": 2, **AUTOMATIC},
            {"max-length": 1_000_000},
            {"ha-mode": "all", "ha-sync-mode": "manual"},
        ]
        for _ in range(self._random.randint(3, 7)):
            pair = {"ha-mode": "nodes", "ha-params": self._random.sample(names, 2), **AUTOMATIC}
            await self.mirrors.change(self._random.choice([*choices, pair]))
            await asyncio.sleep(self._random.choice((0, 0.1, 1, 2)) * self._scale)
        await self.mirrors.set_policies()

    async def _kind_sync(self, fault: Fault) -> None:
        """A mirror comes back that nobody fills but the operator, who can't make up his mind."""
        manual = {"ha-mode": "all", "ha-sync-mode": "manual"}
        await self.mirrors.change(manual)
        node = await self._master(fault, is_mirror=True)
        self._end(node)
        await self._relaunch(fault, node)
        for _ in range(self._random.randint(2, 6)):
            for queue in ("hot", "deep"):
                asked = self._random.choice((self.operator.synchronise, self.operator.cancel_synchronisation))
                with contextlib.suppress(OperatorError):
                    await asked(queue)
            await asyncio.sleep(self._random.uniform(0, 0.3))
        await self.mirrors.set_policies()

    async def _kind_rebalance(self, fault: Fault) -> None:
        """Masters move, all to one node and then as they are balanced."""
        for _ in range(2):
            first = self._random.choice(self._cluster.nodes)
            names = [first.name, *(node.name for node in self._cluster.nodes if node is not first)]
            nodes = {"ha-mode": "nodes", "ha-params": names, **AUTOMATIC}
            await self.mirrors.change(nodes)
            await asyncio.sleep(self._random.uniform(0.2, 2))
            with contextlib.suppress(OperatorError):
                await self.operator.rebalance()
        await self.mirrors.set_policies()

    async def _kind_drain(self, fault: Fault) -> None:
        """Maintenance mode of the master's node, and back."""
        node = await self._master(fault)
        assert isinstance(node, ChaosNode)
        try:
            await node.ask("drain", timeout_s=70 * patience())
            await self._last(fault, 0, 2)
            await node.ask("revive", timeout_s=40 * patience())
        except ControlError as error:
            raise NodeFailed(f"drain or revive of {node.name}: {error}: {node.log_end()}") from error


def _fill(path: Path) -> None:
    """Write until there is no room, while a node writes too."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(FILL_BYTES))


def _progressed(queue: QueueStory, since: float) -> bool:
    is_drained = queue.confirmed - queue.settled < 10 or queue.name == HELD
    return queue.last_confirm_s > since and (queue.last_delivery_s > since or is_drained)


def mirror_kinds() -> list[str]:
    """Return the kinds of faults that may happen to mirrored queues."""
    names = {name for each in MirrorNemesis.__mro__ for name in vars(each) if name.startswith("_kind_")}
    return sorted(name.removeprefix("_kind_").replace("_", "-") for name in names)
