"""One life of a broker in the cluster: from the incarnation that it gets to the end of it.

caught up: the broker may read its store ─► NodeUp ─► an incarnation ─► a lease: it may serve ─► … ─► NodeDown

Reading a large store holds the loop for seconds, in which a node that counts as up would lose its lease. So it comes
first: a node that is not up yet owes nobody a sign of life.
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
"""How long a stop waits for the cluster to take note of it."""
OUTCOMES_MAX: Final = 20
"""How often one start asks again when it is not known what came of its command.

Such an answer takes 5 to 15 s (`cluster.metadata.options`): after two to five minutes the start fails.
"""
UNKNOWN: Final = (NO_OUTCOME, REPLACED)
"""The command may have been applied, or may never be."""
DISC_NODE_S: Final = 20.0
"""How long the start of a RAM node waits until it reaches a disk node: all nodes may be started at once."""


class Life:
    """Of one node, again and again; `Roster.incarnation` is what the cluster has given it."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.may_serve = asyncio.Event()
        """There is a lease."""
        self.must_rejoin = asyncio.Event()
        """The cluster has ended this life."""
        self._is_cut_off = asyncio.Event()
        """Nothing can be told to the cluster."""
        self._unknown_count = 0
        """Answers of this start that told nothing."""

    def majority_is(self, has_majority: bool) -> None:
        """Whether a majority of the voters is linked."""
        if has_majority:
            self._is_cut_off.clear()
        else:
            self._is_cut_off.set()

    async def catch_up(self) -> None:
        """Know all that the cluster has decided until now. Raises: OSError, GivenUp."""
        cluster, membership = self._cluster, self._cluster.membership
        assert cluster.metadata is not None
        if membership.state is not State.OFF:
            membership.stopped(boottime())
        cluster.roster.is_at(0)
        waiting = Waiting(cluster)
        since_s = boottime()
        while True:
            await cluster.voting.ensure()
            # It changes nothing; when it is answered, all that was decided before it is here.
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
        """Wait, if that may help. Raises: OSError, GivenUp."""
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
        """Have a new incarnation, and a lease for it; False if that was lost already: begin anew, broker and all.

        Raises: OSError, GivenUp.
        """
        waiting = Waiting(self._cluster)
        while isinstance(result := await self._come_up(waiting), Refused):
            if result in UNKNOWN:
                return False  # it may count as up already, and the broker may have acted on that
        self._unknown_count = 0
        return await self._await_lease(result)

    async def _come_up(self, waiting: Waiting) -> int | Refused:
        cluster, membership = self._cluster, self._cluster.membership
        assert cluster.metadata is not None
        # Who comes up without a way to one of the others is of no use to that one's clients: it would have to go again.
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
        """A RAM node knows nothing by itself. Raises: OSError if there is nobody to tell it."""
        cluster = self._cluster
        assert cluster.metadata is not None
        replica = cluster.metadata.replica
        if cluster.roster.identity.type == "ram" and not replica.voters & replica.links:
            names = ", ".join(f"'{name}'" for name in sorted(replica.voters))
            raise OSError(f"a RAM node needs a disk node, and could not connect to any: {names}")

    async def end(self, *, is_clean: bool) -> None:
        """Tell the others, unless nobody is left who could take note.   is_clean: see `NodeDown`."""
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
            cluster.logger.warning("the cluster was not told within %g s that this node stops", NODE_DOWN_S)

    async def or_given_up(self, waiting: Any) -> Any:
        """What a wait of a start gives. Raises: GivenUp when the node is to stop meanwhile."""
        task = asyncio.ensure_future(waiting)
        stopped = asyncio.ensure_future(self._cluster.process.app.is_giving_up.wait())
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
    """Wait for one of several things; the others are waited for no more."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
