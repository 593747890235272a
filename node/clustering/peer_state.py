"""What goes between the broker and the brokers of other nodes, and what those say of themselves.

    members that are up ─► a data stream from our incarnation to theirs, while our broker runs
    frames ─► Peers: queues of other nodes; Mirrors: copies of queues
    statuses ─► alarms and connection counts of other nodes in our broker
Source: amqp-behaviour §9.7.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args

from cluster.membership.membership import Membership
from cluster.mirror.mirrors import Mirrors
from cluster.remote.peers import Peers as RemotePeers
from cluster.transport.interface import Topic
from cluster.transport.transport import Transport
from node.broker.broker import Broker
from node.catalogue.records import Member
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
    """What is known of the members: `Roster`."""

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def members(self) -> Mapping[str, Member]: ...


class Ways(Protocol):
    """The ways to them: `Links`."""

    @property
    def transport(self) -> Transport: ...
    @property
    def link_counts(self) -> LinkCounts: ...

    def forget_link(self, name: str) -> None:
        """There is no link to a node any more, as it is no member."""


class Around(Protocol):
    """The rest of what is around a broker in a cluster: `Cluster`."""

    @property
    def config(self) -> Config: ...
    @property
    def membership(self) -> Membership: ...
    @property
    def message_disk(self) -> MessageDisk: ...
    @property
    def publisher(self) -> Publisher: ...

    def fault(self, name: str, text: str) -> None:
        """What another node's broker sent cannot be."""


class PeerState:
    """Of one node's broker, if it runs."""

    def __init__(self, known: Known, ways: Ways, around: Around) -> None:
        self._known = known
        self._ways = ways
        self._around = around
        self._broker: Broker | None = None
        self._remote: RemotePeers | None = None
        self._mirrors: Mirrors | None = None
        self._streams: dict[str, tuple[int, int]] = {}
        """Open data streams: our incarnation and theirs."""
        self._linked: set[str] = set()
        self._alarms: set[tuple[str, Resource]] = set()
        self._cut: frozenset[tuple[str, str]] = frozenset()
        """Pairs of other nodes without a link, as the first of them says."""

    # --- the broker ---

    @property
    def is_open(self) -> bool:
        """Whether there is a broker."""
        return self._broker is not None

    def open(self, broker: Broker) -> Peers:
        """A broker starts: open the ways to the others'."""
        transport = self._ways.transport
        self._broker = broker
        broker.connection_counts = WatchedCounts(self._around.publisher.soon)
        broker.alarms.on_change = self._around.publisher.soon
        self._remote = RemotePeers(broker, self._send, transport.is_congested, on_fault=self._around.fault)
        self._remote.is_entered = False
        self._mirrors = broker.mirrors = Mirrors(
            broker,
            self._send_ring if broker.meter is None else self._send_counted,
            self._around.fault,
            flush_s=self._around.config.cluster.mirror_flush_s,
        )
        if broker.pager is not None:
            broker.pager.copies = self._mirrors.copies
        self._alarms.clear()
        self._sync_streams()
        for name, status in self._around.membership.statuses.items():
            self.status_changed(name, status)
        return cast(Peers, self._remote)

    def entered(self, incarnation: int) -> None:
        """It counts as up: what is on its disk of mirrored queues is known, and from now on it may have copies."""
        if self._remote is not None:
            self._remote.is_entered = True
        if self._mirrors is not None:
            self._mirrors.entered(incarnation)

    def close(self) -> None:
        """It has stopped."""
        self._broker = self._remote = self._mirrors = None
        self._sync_streams()

    def _send(self, name: str, frame: bytes) -> None:
        self._ways.transport.send_data(name, Topic.REMOTE, frame)

    def _send_ring(self, name: str, frame: bytes) -> None:
        self._ways.transport.send_data(name, Topic.RING, frame)

    def _send_counted(self, name: str, frame: bytes) -> None:
        self._ways.link_counts.sent(name, len(frame))
        self._send_ring(name, frame)

    def receive(self, name: str, frames: list[tuple[Topic, bytes]]) -> None:
        """Frames of a data stream."""
        if self._remote is not None and (found := _of(Topic.REMOTE, frames)):
            self._remote.receive(name, found)
        if self._mirrors is not None and (found := _of(Topic.RING, frames)):
            self._mirrors.receive(name, found)

    def relieved(self, name: str) -> None:
        """A data stream is not congested any more."""
        if self._remote is not None:
            self._remote.relieved(name)
            self.wake()

    def wake(self) -> None:
        """The broker may have something to do."""
        if self._broker is not None:
            self._broker.wake()

    # --- links and streams ---

    def sync(self, addresses: Mapping[str, str]) -> None:
        """Keep links to these members and to no others."""
        transport = self._ways.transport
        for name in self._linked - set(addresses):
            self._streams.pop(name, None)
            transport.disconnect(name)
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
        for name, pair in wanted.items():
            if name not in self._streams:
                self._streams[name] = pair
                transport.open_data(name, *pair)

    # --- statuses ---

    def link_up(self, name: str) -> None:
        """A link to another node is there again: its mirrors may keep up now."""
        if self._mirrors is not None:
            self._mirrors.healed(name)

    def _cuts_changed(self) -> None:
        """See which links between other nodes are there again: who was behind one may have mirrors again."""
        statuses = self._around.membership.statuses.items()
        cut = frozenset((name, other) for name, status in statuses for other in _cut_off(status))
        healed = {name for pair in self._cut - cut for name in pair}
        self._cut = cut
        if healed and self._mirrors is not None:
            self._mirrors.healed(*healed)

    def look_at_disk(self, node: "Node | None", now: float) -> None:
        """See whether the disk of the messages gets on."""
        progress, is_busy = (0, False) if node is None else node.disk_progress
        if self._around.message_disk.look(progress, now, is_busy=is_busy):
            self.disks_changed()
            self._around.publisher.soon()

    def disks_changed(self) -> None:
        """The message disk of this or another node may be stuck, or go on."""
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
        """What another node says of itself is another thing now; None: it is down."""
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
    """The alarms of a status; what is none is passed over."""
    alarms = None if status is None else status.get("alarms")
    return [each for each in alarms if each in _RESOURCES] if isinstance(alarms, list) else []


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
