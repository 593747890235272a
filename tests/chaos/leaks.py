"""Whether connections, links and messages that are gone have left anything in the nodes' processes."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from tests.chaos.broker import BrokerNode
from tests.kit.patience import patience

MIB: Final = 1024 * 1024
FDS_GROWTH_MAX: Final = 12
CALM_S: Final = 30.0
"""Nodes may take this long to tidy up."""


async def leaks(nodes: Sequence[BrokerNode], base: list[tuple[int, int]], growth_max_mib: int) -> str:
    """Return what is still there in the end, in words; empty: nothing.

    base: memory and descriptors of each node at first.   growth_max_mib: by so much memory may have grown.
    """
    deadline = time.monotonic() + CALM_S * patience()
    while True:
        now = [node.usage() for node in nodes]
        found = [
            f"{node.short_name}: {rss // MIB} MiB and {fds} descriptors, at first {was_rss // MIB} and {was_fds}"
            for node, (rss, fds), (was_rss, was_fds) in zip(nodes, now, base, strict=True)
            if rss > was_rss + growth_max_mib * MIB or fds > was_fds + FDS_GROWTH_MAX
        ]
        if not found or time.monotonic() > deadline:
            return "; ".join(found)
        await asyncio.sleep(0.5)
