"""This module carries data between the broker and the brokers of other nodes, and applies the others' statuses to it.

    members that are up ─► a data stream from our incarnation to theirs, while our broker runs
    frames ─► Peers: queues of other nodes; Mirrors: copies of queues
    statuses ─► alarms and connection counts of other nodes in our broker
Source: amqp-behaviour §9.7.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args

from cluster.membership.membership import Membership
from cluster.mirror.mirrors import Mirrors
from cluster.remote.peers import Peers as RemotePeers
from cluster.transport.interface import Topic
from cluster.transport.transport import Transport
from node.broker.broker import Broker
from node.catalogue.records import ClusterMember
from node.client.alarms import Resource
from node.clustering import message_disk
from node.clustering.link_counts import LinkCounts
from node.clustering.message_disk import MessageDisk
from node.clustering.publisher import Publisher, WatchedCounts
from node.config.config import Config
from node.queue.live_queue import Peers

if TYPE_CHECKING:
    from node.app import Node

_RESOURCES: Final = frozenset(get_args(Resource))


class Known(Protocol):
    """The members as this node knows them (`Roster`)."""

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def members(self) -> Mapping[str, ClusterMember]: ...


class Ways(Protocol):
    """The connections to other nodes (`Links`)."""

    @property
    def transport(self) -> Transport: ...
    @property
    def link_counts(self) -> LinkCounts: ...

    def forget_link(self, name: str) -> None:
        """Drop the link to a node that is no longer a member."""


class Around(Protocol):
    """The other parts of the cluster that a broker's connections need (`Cluster`)."""

    @property
    def config(self) -> Config: ...
    @property
    def membership(self) -> Membership: ...
    @property
    def message_disk(self) -> MessageDisk: ...
    @property
    def publisher(self) -> Publisher: ...

    def fault(self, name: str, text: str) -> None:
        """Handle an invalid message from another node's broker."""


class PeerState:
    """The connections of one node's broker to other brokers; none while no broker runs.

    now: the broker's clock, in seconds, monotonic.
    """

    def __init__(
        self, known: Known, ways: Ways, around: Around, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._known = known
        self._ways = ways
        self._around = around
        self._now = now
        self._broker: Broker | None = None
        self._remote: RemotePeers | None = None
        self._mirrors: Mirrors | None = None
        self._streams: dict[str, tuple[int, int]] = {}
        """The open data streams by node: our incarnation and theirs."""
        self._linked: set[str] = set()
        self._alarms: set[tuple[str, Resource]] = set()
        self._cut: frozenset[tuple[str, str]] = frozenset()
        """Pairs of other nodes without a link, as the first of each pair reports."""

    # --- the broker ---

    @property
    def is_open(self) -> bool:
        """True if a broker runs."""
        return self._broker is not None

    def open(self, broker: Broker) -> Peers:
        """Connect a broker that starts to the brokers of the members that are up."""
        transport = self._ways.transport
        self._broker = broker
        broker.connection_counts = WatchedCounts(self._around.publisher.soon)
        broker.alarms.on_change = self._around.publisher.soon
        is_counted = broker.meter is not None
        self._remote = RemotePeers(
            broker,
            self._send_watched if is_counted else self._send,
            transport.is_congested,
            on_fault=self._around.fault,
        )
        self._remote.is_entered = False
        self._mirrors = broker.mirrors = Mirrors(
            broker,
            self._send_counted if is_counted else self._send_ring,
            self._around.fault,
            flush_s=self._around.config.cluster.mirror_flush_s,
            count_packets=self._ways.link_counts.gathered if is_counted else None,
        )
        if broker.pager is not None:
            broker.pager.copies = self._mirrors.copies
        self._alarms.clear()
        self._sync_streams()
        for name, status in self._around.membership.statuses.items():
            self.status_changed(name, status)
        return cast(Peers, self._remote)

    def entered(self, incarnation: int) -> None:
        """Take note that the broker counts as up: from now on it may get copies of queues."""
        if self._remote is not None:
            self._remote.is_entered = True
        if self._mirrors is not None:
            self._mirrors.entered(incarnation)

    def close(self) -> None:
        """Forget the broker, as it has stopped, and close its data streams."""
        self._broker = self._remote = self._mirrors = None
        self._sync_streams()

    def _send(self, name: str, frame: bytes) -> None:
        self._ways.transport.send_data(name, Topic.REMOTE, frame)

    def _send_ring(self, name: str, frame: bytes) -> None:
        self._ways.transport.send_data(name, Topic.RING, frame)

    def _send_counted(self, name: str, frame: bytes) -> None:
        self._ways.link_counts.sent(name, len(frame))
        self._send_ring(name, frame)
        self._watch(name)

    def _send_watched(self, name: str, frame: bytes) -> None:
        self._send(name, frame)
        self._watch(name)

    def _watch(self, name: str) -> None:
        """Note since when a data stream is congested: only what is sent can congest it."""
        if self._ways.transport.is_congested(name):
            self._ways.link_counts.congested(name, self._now())

    def receive(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """Pass frames of a data stream to the remote queues and to the mirrors."""
        if self._broker is not None:
            # Times to live and delays begin now, and the last turn may be long ago.
            self._broker.now = self._now()
        if self._remote is not None and (found := _of(Topic.REMOTE, frames)):
            self._receive_remote(name, found)
        if self._mirrors is not None and (found := _of(Topic.RING, frames)):
            self._receive_ring(name, found)

    def _receive_ring(self, name: str, frames: list[bytes]) -> None:
        assert self._mirrors is not None
        assert self._broker is not None
        meter = self._broker.meter
        if meter is not None and meter.windows.is_open:
            meter.windows.begin()  # frames are decoded before it is known for which queues they are
        self._mirrors.receive(name, frames)

    def _receive_remote(self, name: str, frames: list[bytes]) -> None:
        assert self._remote is not None
        assert self._broker is not None
        meter = self._broker.meter
        if meter is None:
            self._remote.receive(name, frames)
            return
        meter.windows.remote_node = name
        try:
            self._remote.receive(name, frames)
        finally:
            meter.windows.remote_node = ""

    def relieved(self, name: str) -> None:
        """Continue to send to a node whose data stream is no longer congested."""
        self._ways.link_counts.relieved(name, self._now())
        if self._remote is not None:
            self._remote.relieved(name)
            self.wake()

    def wake(self) -> None:
        """Have the broker, if one runs, look for work."""
        if self._broker is not None:
            self._broker.wake()

    # --- links and streams ---

    def sync(self, addresses: Mapping[str, str]) -> None:
        """Keep links to exactly these members. addresses: by name."""
        transport = self._ways.transport
        for name in self._linked - set(addresses):
            self._streams.pop(name, None)
            transport.disconnect(name)
            self._ways.link_counts.relieved(name, self._now())
            self._ways.forget_link(name)
        for name, address in addresses.items():
            transport.connect(name, address)
        self._linked = set(addresses)
        self._sync_streams()

    def _sync_streams(self) -> None:
        transport, own = self._ways.transport, self._known.incarnation
        wanted = {}
        if self._remote is not None and own:
            wanted = {
                member.name: (own, member.incarnation)
                for member in self._known.members.values()
                if member.is_up and member.name != self._known.name
            }
        for name in [name for name, pair in self._streams.items() if wanted.get(name) != pair]:
            del self._streams[name]
            transport.close_data(name)
            self._ways.link_counts.relieved(name, self._now())
        for name, pair in wanted.items():
            if name not in self._streams:
                self._streams[name] = pair
                transport.open_data(name, *pair)

    # --- statuses ---

    def link_up(self, name: str) -> None:
        """Tell the mirrors that a node is linked again, so that its copies can be mirrors again."""
        if self._mirrors is not None:
            self._mirrors.healed(name)

    def _cuts_changed(self) -> None:
        """Find links between other nodes that are up again; nodes at their ends can have mirrors again."""
        statuses = self._around.membership.statuses.items()
        cut = frozenset((name, other) for name, status in statuses for other in _cut_off(status))
        healed = {name for pair in self._cut - cut for name in pair}
        self._cut = cut
        if healed and self._mirrors is not None:
            self._mirrors.healed(*healed)

    def look_at_disk(self, node: "Node | None", now: float) -> None:
        """Check whether the message disk makes progress, and publish a change."""
        progress, is_busy = (0, False) if node is None else node.disk_progress
        if self._around.message_disk.look(progress, now, is_busy=is_busy):
            self.disks_changed()
            self._around.publisher.soon()

    def disks_changed(self) -> None:
        """Take over which nodes have a stuck message disk, this one included."""
        if self._broker is None:
            return
        statuses = self._around.membership.statuses.items()
        stuck = {name for name, status in statuses if _has_stuck_disk(status)}
        if self._around.message_disk.is_stuck:
            stuck.add(self._known.name)
        if stuck != self._broker.stuck_disks:
            self._broker.stuck_disks = frozenset(stuck)
            if self._mirrors is not None:
                self._mirrors.disks_changed()

    def status_changed(self, name: str, status: Mapping[str, Any] | None) -> None:
        """Apply another node's status to the broker's alarms, disks, links and counts; None: the node is down."""
        broker = self._broker
        if broker is None:
            return
        alarms = {(name, resource) for resource in _resources(status)}
        known = {alarm for alarm in self._alarms if alarm[0] == name}
        for _, resource in sorted(known - alarms):
            broker.alarms.clear(resource, name)
        for _, resource in sorted(alarms - known):
            broker.alarms.set(resource, name)
        self._alarms = self._alarms - known | alarms
        self.disks_changed()
        self._cuts_changed()
        counts: Counter[tuple[str | None, str | None]] = Counter()
        for each in self._around.membership.statuses.values():
            for vhost, user, count in _connections(each):
                counts[vhost, user] += count
        channels: Counter[str] = Counter()
        for each in self._around.membership.statuses.values():
            channels.update(_channels(each))
        broker.remote_channel_counts.clear()
        broker.remote_channel_counts.update(channels)
        broker.remote_counts.clear()
        broker.remote_counts.update(counts)


def _of(topic: Topic, frames: list[tuple[Topic, bytes]]) -> list[bytes]:
    return [frame for each, frame in frames if each is topic]


def _resources(status: Mapping[str, Any] | None) -> list[Resource]:
    """Return the alarms in a status that block publishers; unknown ones are ignored.

    Lack of space does not count while the disk is stuck: the node cannot notice that there is room again, and it gets
    no new masters and mirrors, so publishers of the other nodes need not wait for it.
    """
    alarms = None if status is None else status.get("alarms")
    if status is None or not isinstance(alarms, list):
        return []
    return [
        each for each in alarms if each in _RESOURCES and not (each == "disk" and _has_stuck_disk(status))
    ]


def _cut_off(status: Mapping[str, Any]) -> list[str]:
    names = status.get("cut_off")
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []


def _has_stuck_disk(status: Mapping[str, Any]) -> bool:
    alarms = status.get("alarms")
    return isinstance(alarms, list) and message_disk.ALARM in alarms


def _connections(status: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None, int]]:
    rows = status.get("connections")
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [str() | None as vhost, str() | None as user, int() as count] if count > 0:
                yield vhost, user, count


def _channels(status: Mapping[str, Any]) -> dict[str, int]:
    rows = status.get("channels")
    found = {}
    for row in rows if isinstance(rows, list) else ():
        match row:
            case [str() as user, int() as count] if count > 0:
                found[user] = count
    return found
