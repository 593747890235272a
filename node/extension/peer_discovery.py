"""The interface of plug-ins that know where the nodes of a cluster are: a node without a cluster asks for them.

`cluster_formation.peer_discovery_backend = NAME` chooses one. It is used until the node belongs to a cluster, before
there is a broker: only settings are at hand. `peers` must return the same nodes in the same order on all nodes, since
the first of them may create the cluster; which one that is decides `node.clustering.formation`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from node.extension.setting import Settings


class ClusterPeer(NamedTuple):
    """A node to be asked.   address: `HOST:PORT` of its listener for nodes.   name: `NAME@HOST`; empty: unknown."""

    address: str
    name: str = ""


class PeerDiscovery(ABC):
    """Finds the nodes of a cluster; a plug-in derives its own from it.

    name: as in `cluster_formation.peer_discovery_backend = NAME`: small letters, digits and `_`.
    """

    name: ClassVar[str]

    def __init__(self, settings: Settings, node: str) -> None:
        """Make the discovery.   settings: those of the plug-in, by their keys.   node: the name of this node."""
        self.settings = settings
        self.node = node

    async def announce(self, address: str) -> None:
        """Tell others of this node before it looks for them the first time.   address: of its listener for nodes."""
        return

    @abstractmethod
    async def peers(self) -> Sequence[ClusterPeer]:
        """Return the nodes that are known now, this one among them. It is asked again until the node has a cluster."""

    async def close(self) -> None:
        """Release what the discovery holds: the node belongs to a cluster, or has stopped looking for one."""
        return
