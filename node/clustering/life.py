"""A broker's life in the cluster lasts from the incarnation that the broker gets to the end of that incarnation.

caught up: the broker may read its store ─► NodeUp ─► an incarnation ─► a lease: it may serve ─► … ─► NodeDown

Reading a large store holds the loop for seconds, in which a node that counts as up would lose its lease. So the read is
first: a node that is not up yet needs no heartbeats.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from cluster.membership.membership import State
from cluster.metadata.raft_log import NO_OUTCOME, REPLACED
from node.admin.submission import submit
from node.catalogue.commands import NodeDown, NodeUp, Refused, SetDraining
from node.clustering import errors
from node.clustering.errors import GivenUp
from node.clustering.waiting import (
    FOR_A_MAJORITY,
    FOR_AN_OUTCOME,
    FOR_LINKS,
    Waiting,
    boottime,
)

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

NODE_DOWN_S: Final = 5.0
"""The time that a stop waits until the cluster has applied its NodeDown."""
OUTCOMES_MAX: Final = 20
"""How often one start submits again after an answer that leaves the outcome of its command unknown.

Such an answer takes 5 to 15 s (`cluster.metadata.options`): after two to five minutes the start fails.
"""
UNKNOWN: Final = (NO_OUTCOME, REPLACED)
"""Refusals after which the command may have been applied, or may never be."""
DISC_NODE_S: Final = 20.0
"""How long the start of a RAM node waits until it reaches a disk node: all nodes may be started at the same time."""


class Life:
    """The lives of one node's brokers, one after the other; `Roster.incarnation` numbers the present one."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.may_serve = asyncio.Event()
        """Set while the node holds a lease."""
        self.must_rejoin = asyncio.Event()
        """Set once the cluster has ended this incarnation."""
        self._is_cut_off = asyncio.Event()
        """Set while no majority of the voters is linked, so that nothing can be submitted to the cluster."""
        self._unknown_count = 0
        """The number of answers to this start that left the outcome unknown."""

    def majority_is(self, has_majority: bool) -> None:
        """Record whether this node is linked to a majority of the voters."""
        if has_majority:
            self._is_cut_off.clear()
        else:
            self._is_cut_off.set()

    async def catch_up(self) -> None:
        """Wait until this node has applied all that the cluster has committed until now. Raises: OSError, GivenUp."""
        cluster, membership = self._cluster, self._cluster.membership
        assert cluster.metadata is not None
        if membership.state is not State.OFF:
            membership.stopped(boottime())
        cluster.roster.is_at(0)
        waiting = Waiting(cluster)
        since_s = boottime()
        while True:
            await cluster.voting.ensure()
            # This command changes nothing; when it is answered, all commands before it are applied here.
            barrier = SetDraining(cluster.name, self._is_draining)
            result = await self.or_given_up(submit(cluster.metadata.log, barrier))
            if not isinstance(result, Refused):
                return
            await self._refused(result, waiting)
            if boottime() - since_s >= DISC_NODE_S:
                self._check_disc_nodes()

    @property
    def _is_draining(self) -> bool:
        own = self._cluster.roster.members.get(self._cluster.name)
        return own is not None and own.is_draining

    async def _refused(self, refused: Refused, waiting: Waiting) -> None:
        """Wait before another try if the refusal may pass. Raises: OSError if it will not; GivenUp."""
        what, because = FOR_A_MAJORITY, self._cluster.majority_reasons()
        if refused in UNKNOWN and self._unknown_count < OUTCOMES_MAX:
            self._unknown_count += 1
            what, because = FOR_AN_OUTCOME, [refused.text]
        elif refused.text != errors.NO_MAJORITY:
            self._unknown_count = 0
            raise OSError(refused.text)
        await self.or_given_up(self._cluster.voting.check_membership())
        await waiting.tell(what, because)

    async def begin(self) -> bool:
        """Get a new incarnation and a lease for it. Returns False if it was lost already: start another broker.

        Raises: OSError, GivenUp.
        """
        waiting = Waiting(self._cluster)
        while isinstance(result := await self._come_up(waiting), Refused):
            if result in UNKNOWN:
                return False  # the node may count as up already, and the broker may have acted on that
        self._unknown_count = 0
        return await self._await_lease(result)

    async def _come_up(self, waiting: Waiting) -> int | Refused:
        cluster, membership = self._cluster, self._cluster.membership
        assert cluster.metadata is not None
        # A node that comes up without a link to another one is of no use to that one's clients, and would have to stop.
        while unreached := membership.unreached:
            await waiting.tell(FOR_LINKS, [f"no link to '{name}', or none back" for name in unreached])
        self.may_serve.clear()
        self.must_rejoin.clear()
        membership.starting(boottime())
        cluster.turn.membership_changed()
        command = NodeUp(cluster.name, cluster.roster.identity.node_id, cluster.links.address)
        result = await self.or_given_up(submit(cluster.metadata.log, command))
        if isinstance(result, Refused):
            membership.stopped(boottime())
            await self._refused(result, waiting)
            return result
        assert isinstance(result, int)
        return result

    async def _await_lease(self, result: int) -> bool:
        cluster, membership = self._cluster, self._cluster.membership
        cluster.roster.is_at(result)
        cluster.members_changed()
        cluster.peers.entered(result)
        membership.up(result, boottime())
        cluster.turn.membership_changed()
        await self.or_given_up(_first(self.may_serve.wait(), self.must_rejoin.wait()))
        return self.may_serve.is_set()

    def _check_disc_nodes(self) -> None:
        """Check that a RAM node, which keeps no metadata itself, is linked to a voter. Raises: OSError."""
        cluster = self._cluster
        assert cluster.metadata is not None
        raft = cluster.metadata.raft
        if cluster.roster.identity.type == "ram" and not raft.voters & raft.links:
            names = ", ".join(f"'{name}'" for name in sorted(raft.voters))
            raise OSError(f"a RAM node needs a disk node, and could not connect to any: {names}")

    async def end(self, *, is_clean: bool) -> None:
        """Submit NodeDown for this incarnation, unless no majority is left to apply it.   is_clean: see `NodeDown`."""
        cluster = self._cluster
        cluster.membership.stopped(boottime())
        cluster.turn.membership_changed()
        assert cluster.metadata is not None
        incarnation = cluster.roster.incarnation
        if not incarnation:
            return
        telling = submit(cluster.metadata.log, NodeDown(cluster.name, incarnation, is_clean=is_clean))
        try:
            async with asyncio.timeout(NODE_DOWN_S):
                await _first(telling, self._is_cut_off.wait())
        except TimeoutError:
            cluster.logger.warning(
                "this node stops, but the cluster did not record that within %g s", NODE_DOWN_S
            )

    async def or_given_up(self, waiting: Any) -> Any:
        """Return the result of an awaitable during a start. Raises: GivenUp if the node is told to stop meanwhile."""
        task = asyncio.ensure_future(waiting)
        stopped = asyncio.ensure_future(self._cluster.process.broker_supervisor.is_giving_up.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                if self._cluster.membership.state is not State.OFF:
                    self._cluster.membership.stopped(boottime())
                raise GivenUp
            return task.result()
        finally:
            task.cancel()
            stopped.cancel()


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of several coroutines ends, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
