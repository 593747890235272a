"""A world whose turns are run by an event loop, as the shell does, for clients in the node's own process.

world = LiveWorld()          async def story() -> None: …          world.run(story)

`LoopWorld` has the loop's time, which clients with the loop's clock need.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from node.override import override
from tests.kit.patience import LIMIT_S, patience
from tests.kit.world import World, check_invariants


class LiveWorld(World):
    """A world for one story, which leaves no connection behind."""

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Tell a story in an event loop of its own, and check what is left."""

        async def told() -> None:
            self.join_loop()
            await asyncio.wait_for(story(), LIMIT_S * patience())

        asyncio.run(told())
        assert not self.broker.direct_clients
        assert not self.broker.connections
        check_invariants(self)

    def join_loop(self) -> None:
        """Have the running loop run the turns from now on."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon(self.settle)

        self.broker.wake = wake


class LoopWorld(LiveWorld):
    """Such a world in the time of its loop."""

    @override
    def settle(self) -> None:
        self.now = max(self.now, time.monotonic())
        super().settle()


async def until(is_true: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds; the story has a limit of its own."""
    while not is_true():
        await asyncio.sleep(0)
