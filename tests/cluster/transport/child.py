"""A node in a process of its own: `python -m tests.cluster.transport.child PORT`, where PORT is the other's.

It prints its port, then counts the frames that came, one number a line for each hundred of them.
"""

import asyncio
import sys

import uvloop

from cluster.transport.interface import Topic
from tests.cluster.transport.links import Node


class Child(Node):
    """Counts."""

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        super().data(name, frames)
        if len(self.frames) % 100 == 0:
            print(len(self.frames), flush=True)


async def main() -> None:
    """Run until killed."""
    async with Child("n2") as node:
        node.transport.connect("n1", f"127.0.0.1:{sys.argv[1]}")
        node.transport.open_data("n1", 2, 1)
        print(node.port, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main())
