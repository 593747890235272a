"""A node's place in its cluster lives as long as the process; brokers start and stop within it.

    links ─► control ─► Raft, heartbeats ─┐                               ┌─► heartbeats, NodeDown, leases
          ─► data ────► broker's peers    ├─► turn ─► membership says ────┼─► pause, resume, rejoin ─► supervisor
    timers, metadata that were applied ───┘           (`verdicts`)        └─► data streams between incarnations

This file connects the parts, and passes on to them the changes of members in the metadata.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from cluster.membership.membership import Membership
from cluster.membership.options import MembershipOptions
from cluster.transport.interface import Topic
from node.admin.submission import submit
from node.catalogue.commands import Refused, SetDraining
from node.catalogue.events import Event, LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.clustering.brokers import Brokers
from node.clustering.calls import Calls
from node.clustering.consent import Consent
from node.clustering.host_process import HostProcess
from node.clustering.identity import NodeIdentity, write_identity
from node.clustering.life import Life
from node.clustering.links import Links
from node.clustering.message_disk import MessageDisk
from node.clustering.metadata import Metadata
from node.clustering.metadata_disk import MetadataDisk
from node.clustering.peer_state import PeerState
from node.clustering.publisher import Publisher
from node.clustering.roster import Roster, own_identity
from node.clustering.turn import Ticks, Turn
from node.clustering.verdicts import Verdicts
from node.clustering.voting import Voting
from node.clustering.waiting import boottime, majority_reasons
from node.io.control import unavailable
from node.io.disk import FileDisk
from node.log import phrases
from node.store import directory

DISK_CLOSE_S: Final = 30.0
"""The time that the metadata's disk gets to finish its writes when the node closes."""

_ABOUT_MEMBERS: Final = (MemberDown, MemberPut, MemberRemoved, MemberUp)
_OF_MEMBERSHIP: Final = (LeasesRenewed, *_ABOUT_MEMBERS)
"""The events of the metadata that the membership observes."""


class Cluster:
    """One node's part in a cluster. Call `open`; then `brokers.begin` and `brokers.end` alternately; then `close`.

    metadata: None until the node belongs to a cluster.   Raises: ConfigError.
    """

    def __init__(self, process: HostProcess, disk: FileDisk, identity: NodeIdentity) -> None:
        self.process = process
        self.config = process.config
        self.logger: logging.Logger | logging.LoggerAdapter[logging.Logger] = process.logger
        self.name = identity.name
        self.disk = disk
        self.metadata: Metadata | None = None
        self.metadata_disk = MetadataDisk(self.logger)
        self.message_disk = MessageDisk(self.logger)
        self._tasks: set[asyncio.Task[Any]] = set()
        options = self.config.cluster
        self.membership = Membership(
            self.name, MembershipOptions(lease_s=options.lease_s, heartbeat_s=options.heartbeat_s)
        )
        self.roster = Roster(identity, disk, lambda: self.links.introduce(), self.spawn)
        self.links = Links(self)
        self.calls = Calls(self.name, self.links.transport.call)
        self.verdicts = Verdicts(self)
        self.turn = Turn(Ticks(self._tick_metadata, self.verdicts.look, self.verdicts.tick, process.lag.held))
        self.publisher = Publisher(process.own_status, self.verdicts.publish, options.heartbeat_s)
        self.peers = PeerState(self.roster, self.links, self)
        self.life = Life(self)
        self.brokers = Brokers(self)
        self.voting = Voting(self)
        self.consent = Consent(boottime)
        self.calls.offer(self.voting.answers)
        self.calls.offer(process.answers)

    @classmethod
    def on_disk(cls, process: HostProcess) -> "Cluster":
        """Return the part of the node whose data directory the process has. Raises: OSError, ConfigError."""
        disk = FileDisk.open(os.path.join(process.config.data_dir, directory.RAFT))
        try:
            return cls(process, disk, own_identity(disk, process.config))
        except BaseException:
            disk.close()
            raise

    async def open(self) -> None:
        """Listen for other nodes, and load the metadata if this node is a member. Raises: OSError, ConfigError."""
        loop, state = asyncio.get_running_loop(), self.metadata_disk
        try:
            self.disk.start(loop, on_stalled=state.full, on_resumed=state.has_room)
            await write_identity(self.disk, self.roster.identity)
            await self.links.listen()
            if self.roster.identity.is_member:
                self.open_metadata()
        except BaseException:
            await self.close()
            raise
        self.publisher.publish()

    async def close(self) -> None:
        """Close the links and the files."""
        self.turn.close()
        self.publisher.close()
        for task in self._tasks:
            task.cancel()
        await self.links.close()
        if self.metadata is not None:
            self.metadata.raft.close()
        if not self.disk.close(DISK_CLOSE_S):
            self.logger.error("the metadata's disk did not finish within %g s", DISK_CLOSE_S)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a task until it ends or `close` cancels it. An exception that it raises is logged."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    def _spawned_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.logger.error("cluster: %s", fault)

    async def or_given_up(self, waiting: Any) -> Any:
        """Return the result of an awaitable during a start. Raises: GivenUp if the node is told to stop meanwhile."""
        return await self.life.or_given_up(waiting)

    # --- metadata ---

    def open_metadata(self) -> None:
        """Load and follow the cluster's metadata, as the node belongs to a cluster now. Raises: DataDirectoryError."""
        transport, turn = self.links.transport, self.turn
        self.metadata = metadata = Metadata(
            self.process,
            self.roster.identity,
            self.disk,
            self,
            lambda name, message: transport.send_control(name, Topic.RAFT, message),
            turn.metadata_changed,
        )
        self.roster.joined(metadata.log)
        metadata.log.observers.append(self._observe)
        metadata.log.on_replaced = self._replaced
        for name in self.links.up:
            metadata.link_up(name)
        turn.metadata_changed()
        self._take_over_members()

    def _tick_metadata(self, now: float) -> float:
        return now + 1.0 if self.metadata is None else self.metadata.tick(now)

    def leader_is(self, leader: str | None) -> None:
        """Tell the membership which node leads the Raft group."""
        self.membership.leader_changed(leader, boottime())
        self.turn.membership_changed()

    def majority_is(self, has_majority: bool) -> None:
        """Tell the membership and a start that waits whether this node is linked to a majority of the voters."""
        self.life.majority_is(has_majority)
        self.membership.majority_changed(has_majority, boottime())
        self.turn.membership_changed()

    def majority_reasons(self) -> list[str]:
        """Return why there is no majority of the voters, and what an operator can do; empty if there is one."""
        if self.metadata is None:
            return []
        return majority_reasons(self.name, self.metadata.raft, self.roster.known_members())

    def _observe(self, events: Sequence[Event]) -> None:
        if not any(isinstance(event, _OF_MEMBERSHIP) for event in events):
            return
        if self.metadata is not None:
            self.metadata.tell_leader()
        self.membership.applied(events, boottime())
        self.turn.membership_changed()
        for event in events:
            self._log_event(event)
        if any(isinstance(event, _ABOUT_MEMBERS) for event in events):
            self.members_changed()

    def _log_event(self, event: Event) -> None:
        match event:
            case MemberUp(member) if self.roster.is_current and member.name != self.name:
                self.logger.info(phrases.node_up(member.name))
            case MemberDown(member) if self.roster.is_current and member.name != self.name:
                self.logger.info(phrases.node_down(member.name))

    def _replaced(self) -> None:
        """Take over the metadata of a snapshot that has replaced those of this node, and restart a broker that runs."""
        self._take_over_members()
        if self.peers.is_open:
            self.logger.warning(
                "this node restarts its broker: it was far behind and received a snapshot of all metadata"
            )
            self.process.broker_supervisor.restart()

    def _take_over_members(self) -> None:
        if self.roster.members:
            self.membership.members_changed(self.roster.members, boottime())
        self.members_changed()
        self.turn.membership_changed()

    def members_changed(self) -> None:
        """Keep links to exactly the members, and write the list of members to the identity file."""
        known = self.roster.known_members()
        self.peers.sync({name: each.address for name, each in known.items() if name != self.name})
        self.roster.remember()

    # --- events ---

    def fault(self, name: str, text: str) -> None:
        """Log that a node's broker sent an invalid message, and ask that node to start its broker anew."""
        self.logger.error("node '%s' sent an invalid message: %s", name, text)
        self.spawn(self.voting.ask_to_rejoin(name, text))

    @property
    def is_wanted(self) -> bool:
        """True if the operator wants this node to vote as a witness or to run a broker."""
        return self.roster.is_attending or self.process.broker_supervisor.is_wanted

    async def set_draining(self, is_draining: bool) -> None:
        """Record in the metadata whether this node is in maintenance mode. Raises: ControlError."""
        result = await submit(self.brokers.log, SetDraining(self.name, is_draining))
        if isinstance(result, Refused):
            raise unavailable(result.text)
