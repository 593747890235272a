"""All that a chaos run does: clean and half failures of nodes, worse links, clocks, memory and the balancer.

With three nodes `isolate` is the partition in halves (one and two) and `pair` is the bridge: the third node sees both.
A ring of majorities needs five nodes; `ring` is what comes nearest, each node hears one of the others. Every fault
draws from its own seed, as its schedule says.
"""

import asyncio
from collections.abc import Collection, Sequence
from random import Random
from typing import Final

from tests.chaos.broker import FLUFFLE, BrokerCluster, BrokerNode, OperatorError, Ring
from tests.chaos.cluster import ChaosNode
from tests.chaos.half_nemesis import HalfNemesis
from tests.chaos.nemesis import Fault
from tests.chaos.schedule import Planned
from tests.kit.haproxy import Haproxy
from tests.kit.network import CUT, LOSS, NAMES, ONE_WAY, SLOW

HAPROXY: Final = "haproxy"
DISK: Final = "disk"
SHIM: Final = "shim"
RAFT: Final = "raft"
FILES: Final = "files"
NEEDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "isolate",
            "isolate-reset",
            "isolate-master",
            "pair",
            "pair-reset",
            "pair-long",
            "resets",
            "swizzle",
        ),
        (CUT,),
    ),
    **dict.fromkeys(("one-way", "ring"), (ONE_WAY,)),
    "slow": (SLOW,),
    "loss": (LOSS,),
    **dict.fromkeys(("disk-full", "disk-full-master"), (DISK,)),
    "disk-full-leader": (DISK, RAFT),
    "disk-hang": (SHIM,),
    **dict.fromkeys(("raft-disk-hang", "raft-disk-error"), (SHIM, RAFT)),
    **dict.fromkeys(("disk-error", "read-error"), (SHIM, FILES)),
    **dict.fromkeys(("rot-running", "rot-stopped", "folders-gone", "old-backup"), (FILES,)),
    **dict.fromkeys(("haproxy-kill", "haproxy-reload"), (HAPROXY,)),
    **dict.fromkeys(("clock", "stop-app", "drain"), (FLUFFLE,)),
}
"""A kind needs these abilities; the others need nothing."""
WHY_NOT: Final = {
    CUT: "this network cannot be cut",
    ONE_WAY: "only network namespaces can be cut one way",
    SLOW: "no delaying proxy can be put between the nodes here",
    LOSS: "packets are lost by iptables in network namespaces only",
    DISK: "no file systems can be mounted here",
    SHIM: "no gcc: the library that makes disks hang and fail cannot be built",
    RAFT: "only Fluffle has a leader of its metadata with a log of its own",
    FILES: "which files have what, and what a node with a broken disk does, is known of Fluffle only",
    HAPROXY: "clients connect to the nodes directly",
    FLUFFLE: "only Fluffle has it in this form",
}
NEVER: Final = (
    "power loss (what was not synced is there after kill -9): tests/durability takes it back",
    "damage of two nodes at once: what they both had is gone",
    "a disk that forgets what it has synced, while its node runs",
    "five nodes, and the partitions that need them",
    "clocks of different speed, and jumps of what the C libraries see (libfaketime 0.9.10 breaks `time.sleep`)",
)
"""No run injects these."""


def all_kinds() -> list[str]:
    """Return the kinds of faults that may be injected."""
    names = {name for each in ChaosNemesis.__mro__ for name in vars(each) if name.startswith("_kind_")}
    return sorted(name.removeprefix("_kind_").replace("_", "-") for name in names)


def possible(kinds: Sequence[str], abilities: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the kinds that these abilities allow; and of the others, in words, why not."""
    lacking: dict[str, list[str]] = {}
    can: list[str] = []
    for kind in kinds:
        missing = next((need for need in NEEDS.get(kind, ()) if need not in abilities), None)
        (can if missing is None else lacking.setdefault(missing, [])).append(kind)
    return can, [f"{', '.join(names)}: {WHY_NOT[need]}" for need, names in lacking.items()]


class ChaosNemesis(HalfNemesis):
    """Runs what is planned.   haproxy: that clients go through.   promotions: how many masters changed so far."""

    haproxy: Haproxy | None = None
    promotions = 0

    async def run_planned(self, planned: Planned) -> Fault:
        """Do it, undo it, wait until all is well. Raises: NodeFailed; OperatorError."""
        self._random = Random(planned.arguments["seed"])
        self._turn = self._random.randrange(3)
        before = await self.mirrors.rings()
        # Bad links may take all mirrors of a queue at once, and their log says so.
        self._was_all_down |= bool({planned.kind, planned.arguments["under"]} & {"slow", "loss", "one-way"})
        match planned.arguments["under"]:
            case "slow":
                self._cluster.network.slow(self._some(), self._random.uniform(0.01, 0.1))
            case "loss":
                self._cluster.network.lose(self._some(), self._random.uniform(0.01, 0.05))
        fault = await self.run(planned.kind)
        self.promotions += changed(before, await self.mirrors.rings())
        return fault

    def _some(self) -> list[str]:
        return self._random.sample(NAMES, self._random.randint(1, len(NAMES)))

    async def _await_service(self) -> None:
        """Each node accepts clients, and the balancer says so. Raises: NodeFailed; HaproxyFailed."""
        await super()._await_service()
        if self.haproxy is not None:
            await self.haproxy.await_up(*NAMES)

    def _pairs(self) -> list[tuple[str, str]]:
        """All links, in any order and direction."""
        pairs = [(one, other) for one in NAMES for other in NAMES if one < other]
        self._random.shuffle(pairs)
        return [pair if self._random.random() < 0.5 else pair[::-1] for pair in pairs]

    # --- links ---

    async def _kind_one_way(self, fault: Fault) -> None:
        """A node is not heard, or does not hear, by one of the others or by both."""
        node = self._victim(fault)
        others = [name for name in NAMES if name != node.short_name]
        heard = self._random.sample(others, self._random.randint(1, len(others)))
        is_deaf = self._random.random() < 0.5
        pairs = [(other, node.short_name) if is_deaf else (node.short_name, other) for other in heard]
        fault.text += f" {'does not hear' if is_deaf else 'is not heard by'} {' '.join(heard)}"
        fault.victims |= {NAMES.index(name) for name in heard}
        self._cluster.network.cut(pairs, ONE_WAY)
        await self._last(fault, 2, 10)

    async def _kind_ring(self, fault: Fault) -> None:
        """Each hears one of the others, and is heard by the other one."""
        fault.victims |= {0, 1, 2}
        one, two, three = self._random.sample(NAMES, 3)
        self._cluster.network.cut([(one, two), (two, three), (three, one)], ONE_WAY)
        await self._last(fault, 2, 8)

    async def _kind_swizzle(self, fault: Fault) -> None:
        """One link after the other is cut, until there is none."""
        fault.victims |= {0, 1, 2}
        for pair in self._pairs():
            self._cluster.network.cut([pair], self._random.choice(("silent", "reset")))
            await self._last(fault, 0.1, 3)
        await self._last(fault, 0, 3)

    async def _kind_slow(self, fault: Fault) -> None:
        """Some nodes are far away."""
        names, delay_s = self._some(), self._random.choice((0.02, 0.1, 0.3))
        fault.text += f" {' '.join(names)} by {delay_s} s"
        fault.victims |= {NAMES.index(name) for name in names}
        self._cluster.network.slow(names, delay_s)
        await self._last(fault, 3, 12)

    async def _kind_loss(self, fault: Fault) -> None:
        """Lose a part of what comes to some nodes."""
        names, part = self._some(), self._random.choice((0.02, 0.1, 0.3))
        fault.text += f" {' '.join(names)} {part:.0%}"
        fault.victims |= {NAMES.index(name) for name in names}
        self._cluster.network.lose(names, part)
        await self._last(fault, 3, 12)

    # --- clocks, memory ---

    async def _kind_clock(self, fault: Fault) -> None:
        """The time of day of a node jumps by up to an hour, and back: what Python says, not what its libraries see."""
        node = self._victim(fault)
        assert isinstance(node, ChaosNode)
        jump_s = self._random.choice((-3600, -60, 60, 3600))
        fault.text += f" {jump_s:+} s"
        try:
            node.clock_path.write_text(str(jump_s))
            await self._last(fault, 1, 8)
        finally:
            node.clock_path.unlink()

    async def _kind_memory_alarm(self, fault: Fault) -> None:
        """Raise the memory alarm of one node, so that nobody may publish anywhere."""
        node = self._cluster.nodes[self._random.randrange(3)]
        fault.text += f" {node.short_name}"
        try:
            await self.operator.set_memory_watermark(node, 0)
            await self._last(fault, 1, 8)
        finally:
            await self._calm(node)

    async def _calm(self, node: BrokerNode) -> None:
        """No alarm, even if it does not answer at first. Raises: OperatorError."""
        for is_last in (False, False, True):
            try:
                await self.operator.set_memory_watermark(node, None)
                return
            except OperatorError:
                if is_last:
                    raise
                await asyncio.sleep(1)

    # --- the balancer ---

    async def _kind_haproxy_kill(self, fault: Fault) -> None:
        """All clients are cut off, and come again."""
        assert self.haproxy is not None
        self.haproxy.kill()
        await self._last(fault, 0, 3)
        await asyncio.to_thread(self.haproxy.start)

    async def _kind_haproxy_reload(self, fault: Fault) -> None:
        """New connections go to a new process; the old ones have some seconds."""
        assert self.haproxy is not None
        for _ in range(self._random.randint(1, 3)):
            await asyncio.to_thread(self.haproxy.reload)
            await self._last(fault, 0.5, 3)


def changed(before: dict[str, Ring], after: dict[str, Ring]) -> int:
    """Return how many queues have another master."""
    return sum(
        ring.master != after[name].master for name, ring in before.items() if ring.master and name in after
    )


def abilities_of(cluster: BrokerCluster, *, has_haproxy: bool, has_disks: bool, has_shim: bool) -> set[str]:
    """Return the abilities of a cluster: what can be done to it."""
    found = set(cluster.network.can) | {cluster.kind}
    found |= {RAFT, FILES} if cluster.kind == FLUFFLE else set()
    has = {HAPROXY: has_haproxy, DISK: has_disks, SHIM: has_shim}
    return found | {ability for ability, is_there in has.items() if is_there}
