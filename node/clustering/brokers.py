"""The brokers of a node of a cluster, one after the other: how each one starts, serves and stops.

A broker that is to start catches up first, so that all metadata are here when its store is read; then it gets an
incarnation (NodeUp), and waits for its lease. Source: reliability §4.0, §4.2, §4.10.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from node.admin.submission import submit
from node.app import ClusterLog, Node
from node.broker.broker import Broker
from node.catalogue.commands import SetDraining
from node.clustering import formation
from node.clustering.errors import GivenUp
from node.queue.live_queue import Peers

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

LEAVE_S: Final = 5.0
"""How long a node that stops waits for its masters to move."""
LEAVE_POLL_S: Final = 0.02


class LifeLost(Exception):
    """A broker was declared down before it could serve: what the others told it meanwhile belongs to that life."""


class Brokers:
    """The `ClusterSide` of one node's brokers. `begin` and `end` one, again and again."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._process = cluster.process

    async def begin(self) -> Node:
        """Start a broker, once the cluster lets us. Raises: OSError, ConfigError, GivenUp."""
        cluster = self._cluster
        if cluster.metadata is None:
            await formation.form(cluster)
        while True:
            await cluster.life.catch_up()
            node = self._process.make_node(self)
            try:
                await node.start()
            except LifeLost:
                cluster.peers.close()
                continue
            except BaseException as error:
                cluster.peers.close()
                await cluster.life.end(is_clean=isinstance(error, GivenUp))
                raise
            await self._end_maintenance()
            return node

    async def _end_maintenance(self) -> None:
        """A broker that has just started accepts clients, whatever the former one was told."""
        own = self._cluster.roster.members.get(self._cluster.name)
        self._process.is_draining = False
        if own is not None and own.is_draining:
            await submit(self.log, SetDraining(self._cluster.name, False))

    async def end(self, node: Node) -> bool:
        """Stop a broker, and tell the others unless it is the cluster that wants so. Whether all is on disk.

        A node that has failed hands nothing over: what it would say may be wrong, and the others have all of it.
        """
        is_clean = not self._process.has_failed
        if not self._process.app.is_wanted and is_clean:
            await _hand_masters_over(node)
        try:
            is_written = await node.stop()
        finally:
            self._cluster.peers.close()
        if not self._process.app.is_wanted:
            await self._cluster.life.end(is_clean=is_clean and is_written)
        return is_written

    async def attend(self) -> None:
        """Vote, without a broker: what a witness does. Raises: OSError, ConfigError, GivenUp."""
        if self._cluster.metadata is None:
            await formation.form(self._cluster)
        await self._cluster.voting.ensure()
        self._cluster.roster.is_attending = True

    # --- `node.app.ClusterSide` ---

    @property
    def log(self) -> ClusterLog:
        """See `ClusterSide.log`."""
        assert self._cluster.metadata is not None, "a broker starts once the node belongs to a cluster"
        return self._cluster.metadata.log

    def peers(self, broker: Broker) -> Peers:
        """See `ClusterSide.peers`."""
        return self._cluster.peers.open(broker)

    async def enter(self) -> None:
        """See `ClusterSide.enter`. Raises also GivenUp, and LifeLost."""
        if not await self._cluster.life.begin():
            raise LifeLost


async def _hand_masters_over(node: Node) -> None:
    """Have a node's masters move before it stops, so that nobody waits for others to take note of its end."""
    mirrors, loop = node.broker.mirrors, asyncio.get_running_loop()
    if mirrors is None:
        return
    mirrors.leave()
    node.broker.wake()
    deadline = loop.time() + LEAVE_S
    while mirrors.moving and loop.time() < deadline:
        await asyncio.sleep(LEAVE_POLL_S)
