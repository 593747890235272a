"""A node of a cluster runs brokers, one after the other: this module starts, enters and stops each of them.

Before it starts, a broker catches up, so that all metadata are here when its store is read; then it gets an
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
"""The time that a stopping node gives its masters to move to other nodes."""
LEAVE_POLL_S: Final = 0.02


class LifeLost(Exception):
    """A broker was declared down before it could serve, so the state that other nodes sent to it is obsolete."""


class Brokers:
    """The `ClusterSide` of one node's brokers. `begin` starts a broker and `end` stops it, repeatedly."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._process = cluster.process

    async def begin(self) -> Node | None:
        """Start a broker once the cluster permits it. Returns its node, or None if it was declared down too early.

        Raises: OSError, ConfigError, GivenUp.
        """
        cluster = self._cluster
        if cluster.metadata is None:
            await formation.form(cluster)
        await cluster.life.catch_up()
        node = self._process.make_node(self)
        try:
            await node.start()
        except LifeLost:
            cluster.peers.close()
            return None
        except BaseException as error:
            cluster.peers.close()
            await cluster.life.end(is_clean=isinstance(error, GivenUp))
            raise
        await self._end_maintenance()
        return node

    async def _end_maintenance(self) -> None:
        """Leave maintenance mode, so that a broker that has just started accepts clients."""
        own = self._cluster.roster.members.get(self._cluster.name)
        self._process.is_draining = False
        if own is not None and own.is_draining:
            await submit(self.log, SetDraining(self._cluster.name, False))

    async def end(self, node: Node) -> bool:
        """Stop a broker, and announce that to the cluster unless the cluster itself demanded it. Returns True if all
        is on disk.

        A node that has failed does not move its masters: its state may be wrong, and the mirrors have all of it.
        """
        is_clean = not self._process.has_failed
        if not self._process.broker_supervisor.is_wanted and is_clean:
            await _hand_masters_over(node)
        try:
            is_written = await node.stop()
        finally:
            self._cluster.peers.close()
        if not self._process.broker_supervisor.is_wanted:
            await self._cluster.life.end(is_clean=is_clean and is_written)
        return is_written

    async def attend(self) -> None:
        """Take part in the votes without a broker, as a witness does. Raises: OSError, ConfigError, GivenUp."""
        if self._cluster.metadata is None:
            await formation.form(self._cluster)
        await self._cluster.voting.ensure()
        self._cluster.roster.is_attending = True

    # --- `node.app.ClusterSide` ---

    @property
    def log(self) -> ClusterLog:
        """The log of the cluster's metadata; it exists before a broker starts."""
        assert self._cluster.metadata is not None, "a broker starts once the node belongs to a cluster"
        return self._cluster.metadata.log

    def peers(self, broker: Broker) -> Peers:
        """Connect the broker to the brokers of other nodes; return the object that reaches their queues."""
        return self._cluster.peers.open(broker)

    async def enter(self) -> None:
        """Get an incarnation and a lease for the broker. Raises: OSError, GivenUp, LifeLost."""
        if not await self._cluster.life.begin():
            raise LifeLost


async def _hand_masters_over(node: Node) -> None:
    """Move the masters on a node to other nodes before it stops, so that clients need not wait until its end is
    noticed.

    Ends after `LEAVE_S` even if some have not moved.
    """
    mirrors, loop = node.broker.mirrors, asyncio.get_running_loop()
    if mirrors is None:
        return
    mirrors.leave()
    node.broker.wake()
    deadline = loop.time() + LEAVE_S
    while mirrors.moving and loop.time() < deadline:
        await asyncio.sleep(LEAVE_POLL_S)
