"""Many small messages: a start with a long backlog recovers all of it, in order, and does not fill memory with it.

`FLUFFLE_FAULT_MESSAGES=1000000` makes the backlog longer.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Final

import pytest

from tests.durability.scene import MIB, Scene
from tests.kit.ledger import Kind
from tests.kit.node_process import NodeProcess

pytestmark = pytest.mark.slow

NUMBER: Final = int(os.environ.get("FLUFFLE_FAULT_MESSAGES", "200000"))
PEAK_BYTES: Final = 300 * MIB
"""A node that has recovered uses this much, whatever the number: one journal file of 64 MiB is read at a time."""


@pytest.mark.parametrize(("ends", "number"), [("killed", NUMBER), ("stopped", NUMBER // 10)])
def test_recovery_of_a_long_queue(make_node: Callable[..., NodeProcess], ends: str, number: int) -> None:
    """All are there, and the log says how many."""
    node = make_node()
    scene = Scene(node)

    async def act() -> None:
        node.start()
        await scene.declare("long")
        await scene.fill("long", "p", Kind((100,)), number)
        if ends == "killed":
            node.kill()
        else:
            assert await asyncio.to_thread(node.stop) == 0
        node.start()
        assert node.peak_bytes() < PEAK_BYTES
        log = node.log_text()
        assert f"Recovered {number} messages" in log
        assert ("rebuilding" in log) == (ends == "killed")
        count = await scene.check(was_killed=ends == "killed")
        assert count.problems == []
        assert count.recovered == number
        print(f"{number} messages, {ends}: {node.start_s:.1f} s, peak {node.peak_bytes() // MIB} MiB")

    asyncio.run(act())
