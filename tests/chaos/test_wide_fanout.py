"""A wide fan-out under flood, with real processes: the node goes on, and so does its cluster."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.stage import Publisher, staged
from tests.chaos.wide_fanout import flood_once
from tests.kit.network import LoopbackNetwork

pytestmark = pytest.mark.slow


def test_no_node_pauses_and_the_other_clients_of_the_node_go_on(tmp_path: Path) -> None:
    """The publisher of a mirrored queue stays connected, and all that was confirmed to it is there."""

    async def play() -> None:
        async with staged(tmp_path, LoopbackNetwork()) as stage:
            node, other, _ = stage.nodes
            await stage.declare(node, "q")
            publisher = await Publisher.open(node, "q")
            flood = asyncio.create_task(flood_once(node.connect, "wide"))
            try:
                while not flood.done():
                    await publisher.publish(10)
                    assert await stage.paused() == set()
                print(
                    f"\nclosed after {await flood:.1f} s; {publisher.confirmed} confirms meanwhile",
                    flush=True,
                )
            finally:
                flood.cancel()
            assert await stage.operator.depths() == {"q": publisher.confirmed}
            assert await stage.drain(other, "q", wanted=publisher.confirmed) == publisher.confirmed

    asyncio.run(play())
