"""Half-failures of one node: a disk that hangs, fails, fills or rots, folders or time that are missing, a long cut.

Each damages one node only, and begins and ends with all copies synchronised, so that what is confirmed always has one
undamaged synchronised copy: nothing may be lost. What hangs or stays cut does so for longer than a lease and the
eviction of a mirror, and the queues must go on meanwhile, not only after it. Who is damaged is damaged no more in the
end: its disk is replaced by an empty one, where it may have damage that nobody has found.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Collection
from typing import Final

from node.io.control import ControlError
from tests.chaos.broker import FLUFFLE, SERVES_S, START_S, BrokerNode, NodeFailed, OperatorError
from tests.chaos.cluster import ChaosNode
from tests.chaos.damage import emptied, flip, folders_gone
from tests.chaos.mirror_ledger import ANCHOR
from tests.chaos.mirror_load import LAZY
from tests.chaos.mirror_nemesis import MirrorNemesis
from tests.chaos.mirrors import AUTOMATIC
from tests.chaos.nemesis import Fault
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.node_process import copy_data
from tests.kit.patience import patience

MESSAGES: Final = ("journal", "queues", "messages")
"""The folders of a node that have messages of their own and copies of others'."""
RAFT: Final = "raft"
ROTTEN: Final = {
    "journal": "journal/*.journal",
    "segments": "queues/*/*.idx",
    "contents": "messages/*.rdq",
    "Raft log": "raft/journal",
}
CUT_LEAST_S: Final = 25.0
"""Longer than a lease and the eviction of a mirror, however short the run is."""
ENDS_S: Final = 20.0
"""A node whose disk has failed may take this long to end."""


class HalfNemesis(MirrorNemesis):
    """Injects the faults of mirrored queues, and others that leave one node half alive."""

    # --- disks that hang ---

    async def _kind_disk_hang(self, fault: Fault) -> None:
        """Hang the disk of the master or a mirror: no write or sync returns, for a while or until the node ends."""
        node = await self._master(fault, is_mirror=self._random.random() < 0.5)
        is_whole = self._cluster.kind != FLUFFLE or self._random.random() < 0.3
        await self._hang(fault, node, () if is_whole else MESSAGES)

    async def _kind_raft_disk_hang(self, fault: Fault) -> None:
        """Hang the Raft disk of the leader, or of another node."""
        node = await self._leader(fault) if self._random.random() < 0.7 else self._victim(fault)
        await self._hang(fault, node, (RAFT,))

    async def _hang(self, fault: Fault, node: BrokerNode, folders: tuple[str, ...]) -> None:
        what = self._random.choice(("sync", "write")) if self._cluster.kind == FLUFFLE else "sync"
        fault.text += f" {what} {' '.join(folders) or 'all'}"
        # It gets no new mirrors meanwhile, so nobody waits for it again and again; its own clients may go elsewhere.
        fault.evicts = True
        fault.began = time.monotonic()
        self._harms(node)
        disk = self._disk(node)
        disk.hang(what, *folders)
        await self._last(fault, 5, 30)
        await self._goes_on(fault, but=set() if folders == (RAFT,) else await self._only_on(fault, node.name))
        if self._random.random() < 0.3:
            fault.text += " killed"
            self._end(node)
            disk.mend()
            await self._relaunch(fault, node)
        else:
            disk.mend()
            fault.ended = time.monotonic()

    # --- disks that fail ---

    async def _kind_disk_error(self, fault: Fault) -> None:
        """EIO where messages are: the node ends, and whoever supervises it starts it again."""
        node = await self._master(fault, is_mirror=self._random.random() < 0.5)
        what = self._random.choice(("sync", "write"))
        await self._fail(fault, node, what, MESSAGES)

    async def _kind_raft_disk_error(self, fault: Fault) -> None:
        """EIO of the Raft log."""
        node = await self._leader(fault) if self._random.random() < 0.5 else self._victim(fault)
        await self._fail(fault, node, self._random.choice(("sync", "write")), (RAFT,))

    async def _fail(self, fault: Fault, node: BrokerNode, what: str, folders: tuple[str, ...]) -> None:
        is_once = self._random.random() < 0.5
        fault.text += f" {what} {'once' if is_once else 'always'}"
        fault.began = time.monotonic()
        self._harms(node)
        disk = self._disk(node)
        disk.fail(what, *folders, once=is_once)
        deadline = time.monotonic() + ENDS_S * patience()
        while node.is_running:
            if time.monotonic() > deadline:
                self._count.problem(
                    "stuck", f"{node.name} goes on after an error of its disk: {node.log_end()}"
                )
                break
            await asyncio.sleep(0.05)
        await self._goes_on(fault)
        self._end(node)
        disk.mend()
        await self._last(fault, 0, 4)
        await self._relaunch(fault, node)

    async def _kind_read_error(self, fault: Fault) -> None:
        """EIO of something that is read, once: it is there the next time, and nobody misses anything."""
        node = await self._master(fault, queue=LAZY)
        self._harms(node)
        disk = self._disk(node)
        disk.fail("read", "queues", "messages", once=True)
        await self._last(fault, 2, 10)
        fault.text += "" if disk.has_failed("read") else " nothing was read"
        disk.mend()
        fault.ended = time.monotonic()

    # --- disks that are full ---

    async def _kind_disk_full_master(self, fault: Fault) -> None:
        await self._full(fault, await self._master(fault), 6, 20)

    async def _kind_disk_full_leader(self, fault: Fault) -> None:
        """Publishers wait, but nobody pauses: another one leads."""
        await self._full(fault, await self._leader(fault), 10, 25)

    async def _full(self, fault: Fault, node: BrokerNode, least_s: float, most_s: float) -> None:
        self._harms(node)
        await super()._full(fault, node, least_s, most_s)

    async def _while_full(self, fault: Fault, node: BrokerNode) -> None:
        """The other nodes serve, or will in a moment: the disk of one must not pause all."""
        if fault.kind != "disk-full-leader":
            return
        others = [each for each in self._cluster.nodes if each is not node]
        deadline = time.monotonic() + SERVES_S * patience()
        while paused := [each.short_name for each in others if await self._is_paused(each)]:
            if time.monotonic() > deadline:
                text = (
                    f"{' '.join(paused)} paused for as long as the disk of another one was full:{fault.text}"
                )
                self._count.problem("stuck", text)
                return
            await asyncio.sleep(0.2)

    async def _is_paused(self, node: BrokerNode) -> bool:
        assert isinstance(node, ChaosNode)
        try:
            return bool((await node.ask("cluster_status", timeout_s=5))["paused"])
        except (ControlError, OSError):
            return True

    # --- rot ---

    async def _kind_rot_running(self, fault: Fault) -> None:
        """Bits flip under a node that runs; then it is drained, or all nodes lose power, or it goes on a while."""
        is_mirror, queue = self._random.random() < 0.4, self._random.choice((ANCHOR, LAZY))
        node = await self._master(fault, is_mirror=is_mirror, queue=queue)
        fault.began = time.monotonic()
        self._harms(node)
        self._rot(fault, node)
        await self._last(fault, 1, 8)
        then = self._random.choice(("serves", "drained", "killed", "all lose power"))
        fault.text += f" {then}"
        if then == "drained":
            await self._drained(node)
        elif then == "killed":
            self._end(node)
            await self._relaunch_or_replace(fault, node)
        elif then == "all lose power":
            self._lose_power(fault)
            await self._relaunch_or_replace(fault, *self._cluster.nodes, damaged=node)
        await self.mirrors.await_synchronised()
        await self._replace_disk(fault, node)

    async def _kind_rot_stopped(self, fault: Fault) -> None:
        """Bits flip in the files of a node that is down, by itself or with all others."""
        node = self._down(fault)
        self._rot(fault, node)
        await self._come_back(fault, node)
        await self._replace_disk(fault, node)

    async def _kind_folders_gone(self, fault: Fault) -> None:
        """A node that is down, by itself or with all others, has lost its messages, but not what it knows of Raft."""
        node = self._down(fault)
        gone = MESSAGES if self._random.random() < 0.5 else (self._random.choice(MESSAGES),)
        fault.text += f" {folders_gone(node.data, gone)}"
        await self._come_back(fault, node)
        await self._replace_disk(fault, node)

    async def _kind_old_backup(self, fault: Fault) -> None:
        """The data directory of a node is as it was some time ago, while the other nodes have gone on."""
        node = self._victim(fault)
        backup = node.data.parent / f"backup-{node.short_name}"
        if not backup.exists():
            self._end(node)
            copy_data(node.data, backup)
            await self._relaunch(fault, node)
            await self.mirrors.await_synchronised()
            await self._change_policies()
            await self._last(fault, 2, 10)
        self._harms(node)
        self._end(node)
        emptied(node.data)
        shutil.copytree(backup, node.data, dirs_exist_ok=True)
        fault.text += " restored"
        await self._relaunch_or_replace(fault, node)

    def _down(self, fault: Fault) -> BrokerNode:
        """Have a node down, by itself or with all others. Returns: the one that is to be damaged."""
        node = self._victim(fault)
        fault.began = time.monotonic()
        self._harms(node)
        if self._random.random() < 0.6:
            fault.text += " all down"
            self._lose_power(fault)
        else:
            self._end(node)
        return node

    async def _come_back(self, fault: Fault, node: BrokerNode) -> None:
        down = [each for each in self._cluster.nodes if not each.is_running]
        self._random.shuffle(down)
        await self._relaunch_or_replace(fault, *down, damaged=node)
        await self.mirrors.await_synchronised()

    def _lose_power(self, fault: Fault) -> None:
        """All nodes end at the same moment: none sees another one go."""
        fault.victims |= {0, 1, 2}
        for node in self._cluster.nodes:
            node.freeze()
        for node in self._cluster.nodes:
            self._end(node)

    def _rot(self, fault: Fault, node: BrokerNode) -> None:
        kinds = self._random.sample(sorted(ROTTEN), self._random.randint(1, 2))
        for kind in kinds:
            for _ in range(self._random.randint(1, 3)):
                if flip(node.data, ROTTEN[kind], self._random):
                    fault.text += f" {kind}"

    async def _replace_disk(self, fault: Fault, node: BrokerNode) -> None:
        """Whatever damage nobody has found goes with the old disk."""
        self._harms(node)
        self._end(node)
        folders_gone(node.data, MESSAGES)
        await self._relaunch_or_replace(fault, node)

    async def _relaunch_or_replace(
        self, fault: Fault, *nodes: BrokerNode, damaged: BrokerNode | None = None
    ) -> None:
        """Start nodes. One that refuses to, by its damage, is taken out of the cluster and comes back as a new one.

        damaged: the one that may refuse; by default the first. Raises: NodeFailed.
        """
        suspect = damaged or nodes[0]
        for node in nodes:
            node.launch()
        fault.ended = time.monotonic()
        try:
            await self._cluster.await_up(START_S)
            return
        except NodeFailed:
            if suspect.is_running:
                raise
        fault.text += " refused"
        self._end(suspect)
        other = next(node for node in self._cluster.nodes if node is not suspect)
        await self._forget(other, suspect)
        emptied(suspect.data)
        await self._relaunch(fault, suspect)

    async def _forget(self, other: BrokerNode, gone: BrokerNode) -> None:
        assert isinstance(other, ChaosNode)
        deadline = time.monotonic() + START_S * patience()
        while True:
            try:
                await other.ask("forget_cluster_node", node=gone.name)
                return
            except ControlError as error:
                # It may count as running for a while yet.
                if time.monotonic() > deadline:
                    raise NodeFailed(f"{gone.name} cannot be taken out: {error}: {gone.log_end()}") from error
            await asyncio.sleep(0.5)

    # --- links ---

    async def _kind_pair_long(self, fault: Fault) -> None:
        """Two nodes don't hear each other for longer than any patience; the third sees both. One of the two goes."""
        one, other = self._victim(fault), self._victim(fault)
        third = next(node for node in self._cluster.nodes if node not in (one, other))
        self._cluster.network.cut([(one.short_name, other.short_name)], "silent")
        fault.is_partial = fault.evicts = True
        fault.began = time.monotonic()
        await self._last(fault, 2, 10)
        then = self._random.choice(("", "drained", "policies"))
        fault.text += f" {then}" if then else ""
        if then == "drained" and self._cluster.kind == FLUFFLE:
            await self._drained(self._random.choice(self._cluster.nodes))
        elif then:
            await self._change_policies(third)
        left_s = max(CUT_LEAST_S, self._random.choice((30, 45, 60, 150)) * self._scale)
        await asyncio.sleep(max(0.0, fault.began + left_s - time.monotonic()))
        await self._goes_on(fault)

    # --- for all of them ---

    async def _only_on(self, fault: Fault, node: str) -> set[str]:
        """The queues whose only synchronised copy is on a node whose disk does not answer: they have to wait."""
        rings = await self.mirrors.rings()
        found = {name for name, ring in rings.items() if {ring.master, *ring.synchronised} == {node}}
        fault.text += "".join(f" {name} waits" for name in sorted(found))
        return found

    async def _goes_on(self, fault: Fault, *, but: Collection[str] = ()) -> None:
        """See that each queue takes and gives messages although the fault goes on.   but: these need not."""
        since = time.monotonic()
        try:
            await self._await_progress(since, but=but)
        except NodeFailed as failed:
            self._count.problem("stuck", f"while {fault.kind}{fault.text} goes on: {failed}")
        fault.text += f" went on after {time.monotonic() - since:.1f}s"

    async def _drained(self, node: BrokerNode) -> None:
        """Maintenance mode, and back. Raises: NodeFailed."""
        assert isinstance(node, ChaosNode)
        try:
            await node.ask("drain", timeout_s=70 * patience())
            await asyncio.sleep(self._random.uniform(0, 3))
            await node.ask("revive", timeout_s=40 * patience())
        except ControlError as error:
            if "cut off from the others" in str(error) or "waits for" in str(error):
                return  # the one of the two that is out serves nobody, so there is nothing to drain
            raise NodeFailed(f"drain or revive of {node.name}: {error}: {node.log_end()}") from error

    async def _change_policies(self, first: BrokerNode | None = None) -> None:
        """Copies on two nodes only, and everywhere again.   first: is one of the two."""
        one = first or self._random.choice(self._cluster.nodes)
        names = [
            one.name,
            self._random.choice([each.name for each in self._cluster.nodes if each is not one]),
        ]
        with contextlib.suppress(OperatorError):
            await self.mirrors.change({"ha-mode": "nodes", "ha-params": names, **AUTOMATIC})
            await asyncio.sleep(self._random.uniform(0.5, 3))
        await self.mirrors.set_policies()

    def _disk(self, node: BrokerNode) -> FaultyDisk:
        disk = node.disk
        assert disk is not None, "asked for when the nodes were made"
        return disk

    def _harms(self, node: BrokerNode) -> None:
        """This life of the node and the next may log errors: it is told to."""
        self._may_complain |= {(node.short_name, node.starts), (node.short_name, node.starts + 1)}
