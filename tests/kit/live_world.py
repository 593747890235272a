"""A world whose turns are run by an event loop, as the shell does, for clients in the node's own process.

world = LiveWorld()          async def story() -> None: …          world.run(story)
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.kit.world import World, check_invariants

STORY_S = 10.0
"""The longest time that a story may take."""


class LiveWorld(World):
    """A world for one story, which leaves no connection behind."""

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Tell a story in an event loop of its own, and check what is left."""

        def wake() -> None:
            asyncio.get_running_loop().call_soon(self.settle)

        async def told() -> None:
            self.broker.wake = wake
            await asyncio.wait_for(story(), STORY_S)

        asyncio.run(told())
        assert not self.broker.direct_clients
        assert not self.broker.connections
        check_invariants(self)
