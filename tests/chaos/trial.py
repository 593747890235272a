"""One cluster with mirrored queues under load, some faults, and the comparison in the end. Any broker, any faults."""

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.broker import START_S, BrokerCluster, NodeFailed, OperatorError
from tests.chaos.check import settle
from tests.chaos.features import Features
from tests.chaos.mirror_check import FinalCheck
from tests.chaos.mirror_load import IDLE, LAZY, MIXED, ORDERED, SLOW, SMALL, TRANSIENT, Load, Style, Taste
from tests.chaos.mirror_nemesis import MirrorNemesis
from tests.kit.load_client import Lost
from tests.kit.network import NAMES
from tests.kit.patience import patience
from tests.kit.server_process import ROOT

GETTERS: Final = ("deep", "two", LAZY)
DISK_MIB: Final = 192


def styles(lasts_s: tuple[float, float]) -> list[Style]:
    """The publishers of each node: 133 confirmed messages a second to the hot queue, and some to the others."""
    return [
        Style("h", ("hot",), SMALL, 133, lasts_s=lasts_s),
        Style("k", ("held",), SMALL, 10),
        Style("d", ("deep",), MIXED, 30, window=60),
        Style("e", ("two", "three"), SMALL, 20, window=60),
        Style("s", ("single",), SMALL, 10, window=60),
        Style("r", ("ranked",), ORDERED, 10, window=60),
        Style("l", (LAZY,), MIXED, 20, window=60),
        # Whatever watches the copies of a queue must do so between two messages, too.
        Style("w", (SLOW,), SMALL, 1, window=2, lasts_s=(20, 60), is_scaled=False),
        Style("i", (IDLE,), SMALL, 0.2, window=2, lasts_s=(20, 60), is_scaled=False),
        Style("b", ("brief",), TRANSIENT, 10, window=60),
        Style("u", ("hot", "three"), SMALL, 10, is_confirmed=False),
    ]


def tastes(lasts_s: tuple[float, float]) -> list[Taste]:
    """The consumers."""
    return [
        *(Taste("hot", 50, batch=10, lasts_s=lasts_s, node=node) for node in range(3)),
        Taste("two", 1),
        Taste("two", 50, requeues=0.05, wants_cancel=True),
        Taste("three", 1, wants_cancel=True),
        Taste("three", 50, requeues=0.05),
        Taste("single", 50),
        Taste("single", 50, wants_cancel=True),
        Taste("ranked", 50, batch=5),
        Taste(SLOW, 1),
        Taste(IDLE, 1),
        Taste("brief", 50),
    ]


async def _nothing() -> None:
    pass


async def run_trial(
    cluster: BrokerCluster,
    load: Load,
    nemesis: MirrorNemesis,
    random: Random,
    *,
    drive: Callable[[], Awaitable[None]],
    warm_s: float,
    lasts_s: tuple[float, float],
    ready: Callable[[], Awaitable[None]] = _nothing,
    features: Features | None = None,
) -> None:
    """All of it; what is wrong is a problem of the ledger.

    ready: is called when all nodes are up.   drive: does what is done to them, under load.   warm_s: of load, before.
    lasts_s: a session of the hot queue.   features: more load, with books of its own.
    """
    load.nemesis = nemesis
    try:
        await cluster.start()
        base = await settle(cluster)
        await ready()
        await nemesis.mirrors.set_policies()
        await _declare(load)
        if features is not None:
            await features.begin()
        load.start(styles(lasts_s), tastes(lasts_s), GETTERS)
        await asyncio.sleep(warm_s)
        await nemesis.mirrors.await_synchronised()
        await drive()
        await load.stop()
        if features is not None:
            await features.finish()
        await FinalCheck(cluster, load, nemesis, random).run(base)
    except (NodeFailed, Lost, OperatorError, AssertionError) as error:
        load.ledger.count.problem("other", f"{type(error).__name__}: {error}")


async def _declare(load: Load) -> None:
    """A node may pause when three start at once on a busy machine. Raises: Lost."""
    deadline = time.monotonic() + START_S * patience()
    while True:
        try:
            await load.declare()
            return
        except Lost:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.5)


@contextlib.contextmanager
def copied_code() -> Iterator[Path]:
    """A directory with the packages that nodes run, so that nobody changes them meanwhile."""
    with tempfile.TemporaryDirectory(prefix="fluffle-chaos-code-") as copied:
        code = Path(copied)
        for package in ("node", "cluster"):
            # Compiled modules too: else each node of a cluster, all at once, compiles all that it imports.
            shutil.copytree(ROOT / package, code / package)
        yield code


@contextlib.contextmanager
def small_disks(directory: Path) -> Iterator[bool]:
    """A file system for each node's data, if we may mount. Returns: whether they are there."""
    paths = [directory / name for name in NAMES]
    mounted: list[Path] = []
    for path in paths:
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "fluffle-chaos", str(path)]
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            mounted.append(path)
    try:
        yield len(mounted) == len(paths)
    finally:
        for path in mounted:
            # Busy if somebody looks at it; then it goes with the last one who does.
            subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=False)
