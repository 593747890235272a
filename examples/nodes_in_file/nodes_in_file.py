"""A plug-in for Fluffle: a node without a cluster looks for others in a file that all nodes share.

Each node adds a line with its address, `HOST:PORT NAME@HOST`, before it looks for the others. The lines are sorted, so
that all nodes ask in the same order.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from node.plugins import ClusterPeer, PeerDiscovery, Plugin, Setting


class NodesInFile(PeerDiscovery):
    """The nodes in the file of the setting `path`."""

    name = "nodes_in_file"

    async def announce(self, address: str) -> None:
        """Add this node to the file, in a thread, as disks may be slow."""
        await asyncio.to_thread(self._add, f"{address} {self.node}\n")

    async def peers(self) -> Sequence[ClusterPeer]:
        """Return the nodes in the file."""
        text = await asyncio.to_thread(self._path.read_text)
        return [ClusterPeer(*line.split(" ")) for line in sorted(set(text.splitlines()))]

    @property
    def _path(self) -> Path:
        return Path(str(self.settings["path"]))

    def _add(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(line)


PLUGIN = Plugin(
    "nodes_in_file",
    "1.0",
    "peer discovery by a file",
    settings=(Setting("path", "/etc/fluffle/nodes", "the file that all nodes share"),),
    peer_discovery=(NodesInFile,),
)
