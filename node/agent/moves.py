"""Masters move on an operator's command: by `rebalance`, `move_queue`, and when a node is drained.

A move is proposed to the cluster and carried out by the two nodes. This module only watches the metadata for its end.
Source: management §2.5; reliability §2.2 (rebalance_*).
"""

import asyncio
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from node.admin.submission import submit
from node.agent import errors
from node.agent.queues import records
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import ChangeView, Refused
from node.catalogue.mirrors.mirror_nodes import without
from node.catalogue.mirrors.rebalance import Move, QueueKind, Rebalancer, plan, selected, shares
from node.catalogue.mirrors.views import TransferMaster, is_followed
from node.catalogue.patterns import PatternInvalid, compile_pattern
from node.catalogue.records import QueueRecord
from node.log import mirroring as log_mirroring
from node.statistics.query import Query

if TYPE_CHECKING:
    from node.app import Node
    from node.process.agent import Agent

POLL_S: Final = 0.1
DRAIN_S: Final = 60.0
"""The time that a drain waits for the node's masters to move."""
MOVE_POLL_S: Final = 0.02


def hosts(catalogue: Catalogue, own: str, stuck: Collection[str] = ()) -> list[str]:
    """Return the nodes that may get masters.   stuck: the nodes whose message disks are stuck."""
    if not catalogue.members:
        return [own]
    return [
        member.name
        for member in without(catalogue.members.values(), stuck)
        if member.is_up and member.type != "witness" and not member.is_draining
    ]


def movable(catalogue: Catalogue, own: str) -> Iterator[QueueRecord]:
    """Yield the mirrored queues whose master is here and could be elsewhere, or was here and is still needed."""
    elsewhere = set(hosts(catalogue, own)) - {own}
    for record in records(catalogue, None):
        view = record.view
        if view is not None and is_followed(view, own):
            yield record
        elif view is not None and view.master_node == own and view.state == "live":
            others = [member for member in view.ring if member.node in elsewhere and member.id in view.synced]
            if others:
                yield record


def transfer_to(catalogue: Catalogue, own: str, record: QueueRecord, target: str) -> TransferMaster | None:
    """Return the change that makes a node a queue's master; None if it is. Raises: ControlError if it cannot be."""
    view = record.view
    if view is None:
        if target == (record.home or own):
            return None
        raise errors.refused("The queue is not mirrored: it cannot move")
    if view.state != "live" or view.previous:
        raise errors.unavailable("The queue has no master now, or is moving already")
    if target == view.master_node:
        return None
    member = view.member_on(target)
    if member is None:
        raise errors.refused(f"Node {target} has no copy of the queue")
    if member.status != "alive" or member.id not in view.synced:
        raise errors.refused(f"The copy on node {target} is not synchronised")
    if target not in hosts(catalogue, own):
        raise errors.refused(f"Node {target} is in maintenance mode")
    return TransferMaster(view.master, member.id)


async def move(node: "Node", record: QueueRecord, target: str, timeout_s: float) -> None:
    """Make a node the master of a queue, and return once it is. Raises: ControlError, also after `timeout_s`."""
    broker, deadline = node.broker, asyncio.get_running_loop().time() + timeout_s
    change = transfer_to(broker.catalogue, node.config.node_name, record, target)
    if change is None:
        return
    command = ChangeView(record.vhost, record.name, record.uid, change)
    if isinstance(result := await submit(broker.log, command), Refused):
        raise errors.unavailable(result.text)
    while not _is_at(broker.catalogue, record, target):
        if asyncio.get_running_loop().time() >= deadline:
            raise errors.unavailable(f"Node {target} was not the master within {timeout_s:g} s")
        await asyncio.sleep(MOVE_POLL_S)


def _is_at(catalogue: Catalogue, record: QueueRecord, target: str) -> bool:
    """Return whether the queue has this master, and needs the former one no more. Raises: ControlError."""
    now = catalogue.queue(record.vhost, record.name) if catalogue.vhost(record.vhost) is not None else None
    if now is None or now.uid != record.uid or now.view is None:
        raise errors.refused("The queue was deleted, or is not mirrored any more")
    return now.view.master_node == target and not now.view.previous


async def await_moved(catalogue: Catalogue, own: str, timeout_s: float) -> int:
    """Wait until no master is here that could be elsewhere; return how many are left after `timeout_s`."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while (left := sum(1 for _ in movable(catalogue, own))) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLL_S)
    return left


class Rebalancing:
    """The rebalancing of masters by one agent, at most one at a time."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._rebalancer = Rebalancer()

    async def run(self, node: "Node", kind: QueueKind, vhosts: str, queues: str) -> list[dict[str, Any]]:
        """Distribute masters evenly; return how many each node has then. Raises: ControlError."""
        for pattern in (vhosts, queues):
            try:
                compile_pattern(pattern)
            except PatternInvalid as error:
                raise errors.unavailable(f"the pattern '{pattern}' is invalid: {error}") from error
        if self._rebalancer.is_running:
            raise errors.unavailable(errors.REBALANCE_IN_PROGRESS)
        logger, catalogue = self._agent.logger, node.broker.catalogue
        logger.info(log_mirroring.rebalance_started(kind, vhosts, queues))
        rows = await self._agent.management.rows("queues", Query(fields=frozenset({"messages_ready"})))
        ready: dict[Any, Any] = {row["id"]: row["messages_ready"] for row in rows}
        meant = selected(records(catalogue, None), kind, vhosts, queues)
        sized = [(record, ready.get(record.uid, 0)) for record in meant]
        moves = plan(sized, hosts(catalogue, node.config.node_name, node.broker.stuck_disks))
        if not self._rebalancer.begin(moves):
            raise errors.unavailable(errors.REBALANCE_IN_PROGRESS)
        try:
            await self._carry_out(node)
        finally:
            self._rebalancer = Rebalancer()
        logger.info(log_mirroring.balanced())
        logger.info(log_mirroring.rebalanced())
        now = selected(records(catalogue, None), kind, vhosts, queues)
        return [
            {"node": each.node, "classic": each.classic, "quorum": each.quorum}
            for each in shares(now, hosts(catalogue, node.config.node_name))
            if each.classic or each.quorum
        ]

    async def _carry_out(self, node: "Node") -> None:
        """Propose the moves, and wait until each is done or has timed out."""
        loop, catalogue = asyncio.get_running_loop(), node.broker.catalogue
        moving: dict[str, Move] = {}
        while self._rebalancer.is_running:
            for move in self._rebalancer.look(loop.time()):
                self._agent.logger.info("%s", move.text)
                moving[move.uid] = move
                result = await submit(
                    node.broker.log, ChangeView(move.vhost, move.name, move.uid, move.change)
                )
                if isinstance(result, Refused):
                    del moving[move.uid]
                    self._failed(move, result.text)
            for move in list(moving.values()):
                if self._is_done(catalogue, move):
                    del moving[move.uid]
            await asyncio.sleep(POLL_S)

    def _failed(self, move: Move, reason: str) -> None:
        self._rebalancer.see(move.uid, None)
        self._agent.logger.warning(log_mirroring.migration_failed(move.name, move.vhost, reason))

    def _is_done(self, catalogue: Catalogue, move: Move) -> bool:
        known = catalogue.vhost(move.vhost) is not None
        record = catalogue.queue(move.vhost, move.name) if known else None
        view = record.view if record is not None and record.uid == move.uid else None
        self._rebalancer.see(move.uid, view)
        if view is None or view.previous or view.master != move.change.to:
            return view is None or view.state != "live"
        self._agent.logger.info(log_mirroring.migrated(move.name, move.vhost, move.target[0]))
        return True
