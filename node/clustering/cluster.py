"""The cluster's side of one node: links, metadata, who is up. It is there while the process is; the broker comes and
goes within it.

    links ─► control ─► Raft, heartbeats ─┐                           ┌─► heartbeats, NodeDown, leases
          ─► data ────► broker's peers    ├─► a turn of the loop ─────┼─► pause, resume, rejoin ─► supervisor
    timers, metadata that were applied ───┘                           └─► data streams between incarnations

A broker that is to start catches up first, so that all metadata are here when its store is read; then it gets an
incarnation (NodeUp), and waits for its lease. Source: reliability §4.0, §4.2, §4.10; contract of issue 4.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cluster.membership import outputs
from cluster.membership.membership import Membership
from cluster.membership.options import MembershipOptions
from cluster.transport.interface import Hello, Identity, InsecureListener, Topic
from cluster.transport.security import Security, SecurityError
from cluster.transport.transport import Transport
from node.admin.submission import submit
from node.app import ClusterLog, Node
from node.broker.broker import Broker
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Refused, SetDraining
from node.catalogue.events import Event, LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp
from node.catalogue.records import Member
from node.clustering import formation
from node.clustering.admission import Admission, KnownNode
from node.clustering.errors import GivenUp
from node.clustering.host_process import HostProcess
from node.clustering.identity import IdentityUnreadable, NodeIdentity, read_identity, write_identity
from node.clustering.life import Life, LifeLost, leave
from node.clustering.link_counts import LinkCounts
from node.clustering.message_disk import MessageDisk
from node.clustering.metadata import Metadata
from node.clustering.metadata_disk import MetadataDisk
from node.clustering.peer_state import PeerState
from node.clustering.publisher import Publisher
from node.clustering.requests import Applicant
from node.clustering.voting import Voting
from node.clustering.waiting import boottime, tell
from node.config.file import ConfigError
from node.config.values import Address
from node.io.control import unavailable
from node.io.data_directory import DataDirectoryError
from node.io.disk import FileDisk
from node.log import phrases
from node.queue.live_queue import Peers
from node.store import directory

DISK_CLOSE_S: Final = 30.0
"""How long the metadata's disk may take at the end."""

_CUT_OFF: Final = "broker forced connection closure with reason 'shutdown'"
"""What clients are told when the node is cut off from the others."""

_OF_MEMBERSHIP: Final = (LeasesRenewed, MemberDown, MemberPut, MemberRemoved, MemberUp)
"""What of the metadata the membership looks at."""


class Cluster:
    """One node's side. `open`; then `begin` and `end` a broker, again and again; `close`.

    listener: where other nodes reach us.   metadata: None until the node belongs to a cluster.
    """

    def __init__(self, process: HostProcess) -> None:
        self.process = process
        self.config = process.config
        self.logger: logging.Logger | logging.LoggerAdapter[logging.Logger] = process.logger
        self.name = process.config.node_name
        self.listener: tuple[str, int] | None = None
        self.address = ""
        """What others are told."""
        self._is_attending = False
        """A witness that votes."""
        self._joining_id = ""
        """Of the cluster that this node is about to join."""
        self.links: set[str] = set()
        self.link_counts = LinkCounts()
        self.metadata: Metadata | None = None
        self.log: ClusterLog
        """Of the metadata, once there are any."""
        options = self.config.cluster
        self.membership = Membership(
            self.name, MembershipOptions(lease_s=options.lease_s, heartbeat_s=options.heartbeat_s)
        )
        self.identity: NodeIdentity
        self.transport: Transport
        self.disk: FileDisk
        self.disk_state = MetadataDisk(self.logger)
        self.message_disk = MessageDisk(self.logger)
        self._voting = Voting(self)
        self._peers = PeerState(self)
        self._loop = asyncio.get_running_loop()
        self.life = Life(self)
        self.publisher = Publisher(self)
        self._has_data = False
        """Whether a read of a link has brought something for the broker."""
        self._is_turn_coming = False
        self._is_metadata_due = self._is_membership_due = True
        """Whether there is something new for it."""
        self._metadata_due_s = self._membership_due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writes: set[asyncio.Task[Any]] = set()
        """Of the identity, that are under way."""
        self._is_closed = False

    # --- the whole ---

    async def open(self) -> None:
        """Listen for other nodes; go on with the metadata that are here. Raises: OSError, ConfigError."""
        self.disk = FileDisk.open(os.path.join(self.config.data_dir, directory.RAFT))
        try:
            self.identity = self._own_identity()
            self.disk.start(self._loop, on_stalled=self.disk_state.full, on_resumed=self.disk_state.has_room)
            await write_identity(self.disk, self.identity)
            await self._listen()
            if self.identity.is_member:
                self.set_metadata(Metadata(self))
        except BaseException:
            await self.close()
            raise
        self.publisher.publish()

    async def close(self) -> None:
        """Close the links and the files."""
        self._is_closed = True
        self.publisher.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self.listener is not None:
            await self.transport.close()
        if self.metadata is not None:
            self.metadata.replica.close()
        if not self.disk.close(DISK_CLOSE_S):
            self.logger.error("the metadata's disk did not finish within %g s", DISK_CLOSE_S)

    def _own_identity(self) -> NodeIdentity:
        try:
            found = read_identity(self.disk)
        except IdentityUnreadable as error:
            raise DataDirectoryError(
                f"the data directory {self.config.data_dir} cannot be used: raft/{error}"
            ) from error
        if found is None:
            return NodeIdentity(self.name, uuid.uuid4().hex, self.config.cluster.node_type)
        if found.name != self.name:
            raise DataDirectoryError(
                f"the data directory belongs to node {found.name}, and this is {self.name}: "
                "start it under its old name (--name), or use another data directory"
            )
        return found

    async def _listen(self) -> None:
        options = self.config.cluster
        place = options.listen or options.default_listen
        self.transport = Transport(self._introduction(), self._security(), self)
        try:
            port = await self.transport.listen(place.host, place.port)
        except InsecureListener as error:
            raise ConfigError([str(error)]) from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"other nodes cannot be accepted on {place}: {why}") from error
        self.listener = (place.host, port)
        host, _, advertised_port = options.advertised.rpartition(":")
        self.address = f"{host}:{port}" if advertised_port == "0" else options.advertised
        self.logger.info("started peer listener on %s", Address(place.host, port))

    def _security(self) -> Security:
        options = self.config.cluster
        try:
            files = Security.read(options.ca_file, options.certificate_file, options.key_file)
        except SecurityError as error:
            raise ConfigError([str(error)]) from error
        return replace(files, secret=options.secret or b"")

    def _introduction(self) -> Identity:
        return Identity(self.name, self.identity.node_id, self._cluster_id, self.incarnation)

    @property
    def _cluster_id(self) -> str:
        return self._joining_id or self.identity.cluster_id

    def joining(self, cluster_id: str) -> None:
        """Let the members of this cluster in, which is about to let us in; empty: it does not."""
        self._joining_id = cluster_id
        self.introduce()

    def introduce(self) -> None:
        """Something about this node is new: from now on handshakes say so."""
        self.transport.identity = self._introduction()

    # --- what this node belongs to ---

    @property
    def catalogue(self) -> Catalogue | None:
        """The metadata; None until the node belongs to a cluster."""
        return None if self.metadata is None else self.metadata.log.catalogue

    @property
    def members(self) -> Mapping[str, Member]:
        """The members as the metadata have them."""
        return {} if self.catalogue is None else self.catalogue.members

    @property
    def incarnation(self) -> int:
        """Of this node; 0: none."""
        return self.life.incarnation

    @property
    def is_current(self) -> bool:
        """Whether this node has followed all that happened before its own start."""
        return self.incarnation > 0 or self._is_attending

    @property
    def is_wanted(self) -> bool:
        """Whether the operator wants this node to do its work."""
        return self._is_attending or self.process.app.is_wanted

    def known_members(self) -> dict[str, Applicant]:
        """The members as this node last saw them, be it before its start.

        Until it has an incarnation of its own it reads what has been: who is not there yet may be a member.
        """
        known = {member.name: member for member in self.identity.members}
        for member in self.members.values():
            known[member.name] = Applicant(member.name, member.address, member.node_id, member.type)
        if not self.is_current:
            return known
        return {name: member for name, member in known.items() if name in self.members}

    async def become(self, identity: NodeIdentity) -> None:
        """Be another member, or none, from now on. Raises: OSError."""
        self.identity = identity  # first, as other changes of it may be written meanwhile
        await write_identity(self.disk, identity)
        self.introduce()

    async def quiet_disk(self) -> None:
        """Wait until the disk has nothing to do, so that it may be used at once. Of a node without a journal."""
        while self._writes:
            await asyncio.wait(self._writes)

    def set_metadata(self, metadata: Metadata) -> None:
        """The node belongs to a cluster."""
        self.metadata = metadata
        self.log = metadata.log
        self._joining_id = ""
        metadata.log.observers.append(self._observe)
        metadata.log.on_replaced = self._replaced
        for name in self.links:
            metadata.link_up(name)
        self._take_over_members()

    # --- the broker ---

    async def begin(self) -> Node:
        """Start a broker, once the cluster lets us. Raises: OSError, ConfigError, GivenUp."""
        if self.metadata is None:
            await formation.form(self)
        while True:
            await self.life.catch_up()
            node = self.process.make_node(self)
            try:
                await node.start()
            except LifeLost:
                self._peers.close()
                continue
            except BaseException as error:
                self._peers.close()
                await self.life.end(is_clean=isinstance(error, GivenUp))
                raise
            await self._end_maintenance()
            return node

    async def enter(self) -> None:
        """See `ClusterSide.enter`. Raises also GivenUp, and LifeLost."""
        if not await self.life.begin():
            raise LifeLost

    def entered(self, incarnation: int) -> None:
        """This node's broker counts as up."""
        self._peers.entered(incarnation)

    async def _end_maintenance(self) -> None:
        """A broker that has just started accepts clients, whatever the former one was told."""
        own = self.members.get(self.name)
        self.process.is_draining = False
        if own is not None and own.is_draining:
            await submit(self.log, SetDraining(self.name, False))

    async def end(self, node: Node) -> bool:
        """Stop a broker, and tell the others unless it is the cluster that wants so. Whether all is on disk.

        A node that has failed hands nothing over: what it would say may be wrong, and the others have all of it.
        """
        is_clean = not self.process.has_failed
        if not self.process.app.is_wanted and is_clean:
            await leave(node)
        try:
            is_written = await node.stop()
        finally:
            self._peers.close()
        if not self.process.app.is_wanted:
            await self.life.end(is_clean=is_clean and is_written)
        return is_written

    async def attend(self) -> None:
        """Vote, without a broker: what a witness does. Raises: OSError, ConfigError, GivenUp."""
        if self.metadata is None:
            await formation.form(self)
        await self._voting.ensure()
        self._is_attending = True

    async def or_given_up(self, waiting: Any) -> Any:
        """What a wait of a start gives. Raises: GivenUp when the node is to stop meanwhile."""
        return await self.life.or_given_up(waiting)

    # --- `node.app.ClusterSide` ---

    def peers(self, broker: Broker) -> Peers:
        """See `ClusterSide.peers`."""
        return self._peers.open(broker)

    # --- `Listener` of the links ---

    def admit(self, hello: Hello) -> str | None:
        """See `Listener.admit`."""
        members = {
            name: KnownNode(member.node_id, 0 if name not in self.members else self.members[name].incarnation)
            for name, member in self.known_members().items()
        }
        identity = self.identity
        admission = Admission(
            self.name,
            identity.node_id,
            self._cluster_id,
            members,
            is_current=self.is_current,
            former_cluster_id=identity.former_cluster_id,
        )
        return admission.refusal(hello)

    def link_up(self, name: str, incarnation: int) -> None:
        """See `Listener.link_up`."""
        self.logger.info(phrases.link_up(name))
        self.links.add(name)
        self.link_counts.connects[name] += 1
        self._peers.link_up(name)
        if self.metadata is not None:
            self.metadata.link_up(name)
        self.membership.link_up(name, incarnation, boottime())
        self.membership_changed()

    def forget_link(self, name: str) -> None:
        """There is no link to a node any more, as it is no member."""
        self.links.discard(name)
        if self.metadata is not None:
            self.metadata.link_down(name)
        self.membership.link_down(name, is_gone=False, now=boottime())
        self.membership_changed()

    def link_down(self, name: str, *, is_gone: bool, reason: str) -> None:
        """See `Listener.link_down`."""
        self.logger.info(phrases.link_down(name, reason))
        self.link_counts.errors[name] = reason
        self.links.discard(name)
        if self.metadata is not None:
            self.metadata.link_down(name, is_gone=is_gone)
        self.membership.link_down(name, is_gone=is_gone, now=boottime())
        self.membership_changed()

    def control(self, name: str, topic: Topic, messages: list[bytes]) -> None:
        """See `Listener.control`."""
        if topic is Topic.RAFT and self.metadata is not None:
            for message in messages:
                self.metadata.replica.receive(name, message)
        elif topic is Topic.MEMBERSHIP:
            self.membership_changed()
            now = boottime()
            for message in messages:
                self.membership.received(name, message, now)

    def data(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """See `Listener.data`."""
        self._has_data = True
        self._peers.receive(name, frames)

    def received(self) -> None:
        """See `Listener.received`."""
        if self._has_data:
            self._peers.wake()
        self._has_data = False

    def relieved(self, name: str) -> None:
        """See `Listener.relieved`."""
        self._peers.relieved(name)

    async def call(self, name: str, body: bytes) -> bytes:
        """See `Listener.call`."""
        return await self._voting.answer(name, body)

    # --- the turn ---

    def wake(self) -> None:
        """Have a turn soon."""
        if not self._is_turn_coming and not self._is_closed:
            self._is_turn_coming = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_coming = False
        if self._is_closed:
            return
        now = boottime()
        if self.metadata is None:
            self._metadata_due_s = now + 1.0
        elif self._is_metadata_due or now >= self._metadata_due_s:
            self._is_metadata_due = False
            self._metadata_due_s = self.metadata.tick(now)
        if self._is_membership_due or now >= self._membership_due_s:
            self._tick_membership()
        self._set_timer(min(self._metadata_due_s, self._membership_due_s))
        self.process.lag.held(boottime() - now)

    def _set_timer(self, due_s: float) -> None:
        """Have a turn then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.001, due_s - boottime()), self.wake)

    def _tick_membership(self) -> None:
        if self.metadata is not None:
            self.disk_state.look(self.metadata.replica.waits_for_disk_s(boottime()))
        self._peers.look_at_disk(self.process.node, boottime())
        self.publisher.check()
        self._is_membership_due = False
        self._membership_due_s = self.membership.tick(boottime())
        self.act()

    def metadata_changed(self) -> None:
        """The metadata have something to do."""
        self._is_metadata_due = True
        self.wake()

    def membership_changed(self) -> None:
        """The membership got something to do, or to say."""
        self._is_membership_due = True
        self.wake()

    def leader_is(self, leader: str | None) -> None:
        """The metadata have another leader. Comes before what that one committed is applied."""
        self.membership.leader_changed(leader, boottime())
        self.membership_changed()

    def majority_is(self, has_majority: bool) -> None:
        """A majority of the voters is linked, or is not any more."""
        self.life.majority_is(has_majority)
        self.membership.majority_changed(has_majority, boottime())
        self.membership_changed()

    def act(self) -> None:
        """Do what the membership says."""
        while todo := self.membership.take_outputs():
            for each in todo:
                self._do(each)

    def _do(self, output: outputs.Output) -> None:
        match output:
            case outputs.SendHeartbeat(to, message):
                self.transport.send_control(to, Topic.MEMBERSHIP, message)
            case outputs.Submit(command):
                if self.metadata is not None:
                    self.metadata.submit_as_leader(command)
            case outputs.Pause(reason):
                self.logger.warning("%s", phrases.minority())
                self.logger.warning("this node serves no clients for now: %s", reason)
                self.life.may_serve.clear()
                self._stop_serving()
                self.process.app.hold()
            case outputs.Resume():
                if self.process.app.is_over:
                    # The broker that paused stops, which a disk may hold up: others are to take over from it.
                    self.membership.stopped(boottime())
                else:
                    self.life.may_serve.set()
                self.process.app.release()
            case outputs.Rejoin(reason):
                self.logger.warning("this node starts anew: %s", reason)
                self.life.must_rejoin.set()
                self._stop_serving()
                self.process.app.restart()
                self.process.app.release()
            case outputs.StatusChanged(name, status):
                self._peers.status_changed(name, status)
            case _:
                tell(output, self.logger)

    def _stop_serving(self) -> None:
        """At once, before anything else is read; the broker itself is stopped by and by (reliability §4.2)."""
        node = self.process.node
        if node is not None:
            node.suspend_listeners()
            node.close_all_connections(_CUT_OFF)

    # --- metadata that were applied ---

    def _observe(self, events: Sequence[Event]) -> None:
        if not any(isinstance(event, _OF_MEMBERSHIP) for event in events):
            return
        if self.metadata is not None:
            self.metadata.tell_leader()
        self.membership.applied(events, boottime())
        self.membership_changed()
        is_about_members = False
        for event in events:
            match event:
                case MemberUp(member):
                    is_about_members = True
                    if self.is_current and member.name != self.name:
                        self.logger.info(phrases.node_up(member.name))
                case MemberDown(member):
                    is_about_members = True
                    if self.is_current and member.name != self.name:
                        self.logger.info(phrases.node_down(member.name))
                case MemberPut(member):
                    is_about_members = True
                case MemberRemoved(member):
                    is_about_members = True
        if is_about_members:
            self.members_changed()

    def _replaced(self) -> None:
        """A snapshot has taken the place of the metadata."""
        self._take_over_members()
        if self._peers.is_open:
            self.logger.warning("this node starts anew: it was far behind and got all metadata anew")
            self.process.app.restart()

    def _take_over_members(self) -> None:
        if self.members:
            self.membership.members_changed(self.members, boottime())
        self.members_changed()
        self.membership_changed()

    def members_changed(self) -> None:
        """Keep links to the members, and remember who they are."""
        known = self.known_members()
        self._peers.sync({name: each.address for name, each in known.items() if name != self.name})
        members = tuple(known[name] for name in sorted(known))
        if self.members and members != self.identity.members:
            identity = replace(self.identity, members=members)
            self.identity = identity
            task = self.spawn(write_identity(self.disk, identity))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    def spawn(self, coroutine: Any) -> "asyncio.Task[Any]":
        """Run something beside the rest, until it is done or the cluster's side is closed."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    def _spawned_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.logger.error("cluster: %s", fault)

    # --- for operators ---

    @property
    def voting(self) -> Voting:
        """Who belongs to the cluster, and who votes."""
        return self._voting

    async def set_draining(self, is_draining: bool) -> None:
        """Tell the cluster that this node is, or isn't any more, in maintenance mode. Raises: ControlError."""
        result = await submit(self.log, SetDraining(self.name, is_draining))
        if isinstance(result, Refused):
            raise unavailable(result.text)
