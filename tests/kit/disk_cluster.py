"""A `tests.kit.cluster.RingCluster` with disks that outlive their brokers; a node may be cut off, or frozen.

cluster.cut_off.add("n1")      nothing comes to n1 or from it, and it hears of no command
cluster.frozen.add("n1")       … and it does nothing either: what is sent to it waits
cluster["n1"].is_disk_held     what it writes is not synced
cluster.cut("n1", "n2")        what these two send to each other waits, and each hears the others
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from cluster.mirror.replica import Replica
from node.amqp.methods import BasicAck, BasicGet, BasicGetOk, ConfirmSelect, ConfirmSelectOk
from node.amqp.properties import Properties
from node.broker.unsettled import note_deliveries
from node.catalogue.commands import NodeDown, NodeUp, PutMember, SetPolicy
from node.catalogue.mirrors.views import View
from node.catalogue.records import QueueRecord
from node.queue.intake import Intake
from node.queue.paging import Pager
from node.queue.queue import Queue
from node.store.directory import claim
from node.store.options import StoreOptions
from node.store.store import Store
from tests.kit.cluster import RING, RingCluster, RingNode
from tests.kit.disk import SimulatedDisk
from tests.kit.recovery import recover_mirrored
from tests.kit.world import Client, World

OPTIONS = StoreOptions(embed_max_bytes=250, segment_entries=16, commit_interval_s=0.0)
"""Small, so that a few messages fill a segment."""


class DiskNode(RingNode):
    """One broker and its disk."""

    def __init__(self, cluster: "DiskCluster", name: str) -> None:
        super().__init__(cluster, name)
        broker = self.broker
        self.is_disk_held = False
        self.disk = cluster.disks.setdefault(name, SimulatedDisk())
        claim(self.disk, name, OPTIONS.segment_entries)
        self.store = Store(self.disk, OPTIONS, broker.timers, broker.epoch_s, report=self._report)
        broker.storage = self.store
        broker.intake = Intake(broker)
        self.pager = broker.pager = Pager(0)
        self.pager.copies = self.mirrors.copies

    @staticmethod
    def _report(*what: object) -> None:
        raise AssertionError(what)

    def recover(self) -> None:
        """Read what is on the disk, as `node.io.persistence` does."""
        recover_mirrored(self.name, self.broker, self.mirrors, self.disk, self.store)

    def turn(self) -> None:
        if self.name in self.cluster.frozen:  # type: ignore[attr-defined]
            return
        super().turn()
        while not self.is_disk_held and self.disk.step():
            super().turn()

    def page_out(self) -> None:
        """Page out everything that can be paged out."""
        holders = [queue.backlog for queue in self.broker.local_queues]
        for holder in (*holders, *self.mirrors.copies()):
            holder.page_out(1 << 40)
        self.turn()


class DiskCluster(RingCluster):
    """A cluster of brokers with disks.   cut_off: nodes that no other reaches.   frozen: those that do nothing.

    cut_links: pairs of nodes of which the first does not reach the second.
    """

    nodes: dict[str, DiskNode]  # type: ignore[assignment]
    kind = DiskNode

    def __init__(self, *names: str) -> None:
        self.disks: dict[str, SimulatedDisk] = {}
        self.cut_off: set[str] = set()
        self.frozen: set[str] = set()
        self.cut_links: set[tuple[str, str]] = set()
        super().__init__(*names)

    def __getitem__(self, name: str) -> DiskNode:
        return self.nodes[name]

    def __iter__(self) -> Iterator[DiskNode]:
        return iter(self.nodes.values())

    def start(self, name: str) -> DiskNode:
        """Start a node with all committed commands. A node that is not a member yet becomes one."""
        if not any(isinstance(command, PutMember) and command.name == name for command, *_ in self.log):
            self.log.append((PutMember(name, f"{name}:1", name, "disc"), name, 0, None))
        node = self._make(name)
        self._show_everything(node)
        node.recover()
        self.nodes[name] = node
        self.is_ring_held = True  # the real rings need no help
        self.log.append((NodeUp(name, name, f"{name}:1"), name, 0, None))
        catalogue = node.broker.catalogue
        member = catalogue.member(name)
        before = 0 if member is None else member.incarnation
        self.apply(name)
        while (member := catalogue.member(name)) is None or member.incarnation == before:
            assert self.apply(name)
        node.entered(member.incarnation)
        self.settle()
        return node

    def crash(self, name: str, *, is_noticed: bool = True) -> None:
        """Crash a node, as kill -9 does."""
        disk = self.nodes[name].disk
        super().crash(name, is_noticed=is_noticed)
        self.disks[name] = disk.kill()

    def stop(self, name: str) -> None:
        """Stop a node cleanly: its masters move away if they can, and its disk is up to date."""
        node = self.nodes[name]
        node.mirrors.leave()
        self.settle()
        for client in list(node.clients.values()):
            client.lose()
        node.peers.close()
        node.mirrors.close_all()
        node.turn()
        note_deliveries(node.broker)
        node.turn()
        node.store.close()
        incarnation = node.incarnation
        self.crash(name, is_noticed=False)
        self.log.append((NodeDown(name, incarnation, is_clean=True), "", 0, None))

    def declare_dead(self, name: str) -> None:
        """Declare a node down in the log, whether it is or not."""
        member = next(iter(self)).broker.catalogue.member(name)
        assert member is not None
        self.log.append((NodeDown(name, member.incarnation), "", 0, None))

    def cut(self, one: str, other: str) -> None:
        """Cut the link between two nodes."""
        self.cut_links |= {(one, other), (other, one)}

    def is_away(self, name: str) -> bool:
        """Return whether a node is cut off or frozen."""
        return name in self.cut_off or name in self.frozen

    # --- moving on ---

    def apply(self, name: str) -> bool:
        return not self.is_away(name) and super().apply(name)

    def deliver(self, origin: str, to: str, count: int = 1 << 30) -> int:
        if self.is_away(to) or origin in self.cut_off or (origin, to) in self.cut_links:
            return 0
        return super().deliver(origin, to, count)

    def _answer(self) -> None:
        """Answer commands, without waiting for nodes that are cut off and count as down."""
        there = [node for node in self if not self.is_away(node.name)]
        everywhere = min((node.applied for node in there), default=0)
        ready = [waiting for waiting in self._waiting if waiting[0] <= everywhere]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > everywhere]
        for _, _, _, on_applied, result in ready:
            on_applied(result)

    def settle(self) -> None:
        for _ in range(10_000):
            for node in list(self):
                node.turn()
            if self.is_held:
                return
            if sum(self.apply(node.name) for node in list(self)):
                continue
            moved = [self.deliver(origin, to) for origin, to in list(self.frames)]
            if not any(moved) and not any(self._has_work(node) for node in self):
                return
        raise AssertionError("it never ends")

    def advance(self, seconds: float) -> None:
        """Advance the time. A frozen node finds later that it is late."""
        for node in list(self):
            if node.name in self.frozen:
                node.now += seconds
            else:
                World.advance(node, seconds)
        self.settle()

    def wait(self, seconds: float, is_it: Callable[[], bool] = lambda: False) -> float:
        """Advance the time until a condition is true, or for this long.   Returns: the time that it took."""
        passed = 0.0
        while passed < seconds and not is_it():
            self.advance(0.5)
            passed += 0.5
        return passed

    def _has_work(self, node: DiskNode) -> bool:
        return not self.is_away(node.name) and node.applied < len(self.log)

    def queue(self, node: str, name: str = "q") -> Queue:
        """Return the queue on a node that acts as its master."""
        return self[node].home_queue(name)

    # --- what tests look at ---

    def view(self, name: str = "q") -> View:
        """Return the newest view of a queue that any node has applied."""
        node = max(self, key=lambda node: node.applied)
        record = node.broker.catalogue.queue("/", name)
        assert record is not None
        assert record.view is not None
        return record.view

    def replica(self, node: str, name: str = "q") -> Replica:
        """Return a node's replica of a queue."""
        known = self[node].mirrors._known[self[node].broker.vhosts["/"].queues[name].record.uid]
        assert known.replica is not None
        return known.replica

    def copy(self, node: str, name: str = "q") -> list[range]:
        """Return the numbers of the messages that a mirror has."""
        follower = self.replica(node, name).follower
        assert follower is not None
        return follower.copy.held.ranges()

    def contents(self, node: str, name: str = "q") -> list[tuple[bytes, bool]]:
        """Return all ready messages of a queue as a client of a node gets them, and whether they are redelivered."""
        client = self[node].client()
        found: list[tuple[bytes, bool]] = []
        while True:
            client.send(1, BasicGet(queue=name, no_ack=True))
            self.settle()
            (got,) = client.received()
            if not isinstance(got.method, BasicGetOk):
                client.lose()
                return found
            found.append((got.body, got.method.redelivered))

    def hop(self, *names: str) -> None:
        """Deliver, while frames are held, the frames of each of these nodes to the next one."""
        self.settle()
        for origin, to in pairwise(names):
            self.deliver(origin, to)
            self.settle()

    def apply_all(self, *names: str) -> None:
        """Let nodes apply all of the log while it is held."""
        for name in names:
            while self.apply(name):
                pass
        self.settle()


PERSISTENT = Properties(delivery_mode=2)


def mirrored(*nodes: str, sync: str = "automatic", **policy: Any) -> DiskCluster:
    """Return a cluster with the queue `q` on all nodes, its master on the first."""
    cluster = DiskCluster(*nodes)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": sync, **policy}))
    cluster.declare_mirrored("q", *nodes)
    return cluster


def publisher_of(node: DiskNode) -> Client:
    """Return a client in confirm mode."""
    client = node.client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def proposed(cluster: DiskCluster, kind: type) -> list[int]:
    """Return the positions in the log of changes of this kind."""
    return [
        at
        for at, (command, *_) in enumerate(cluster.log)
        if isinstance(getattr(command, "change", None), kind)
    ]


def publish(cluster: DiskCluster, node: str, *bodies: bytes) -> None:
    """Publish persistent messages, and check their confirms."""
    client = publisher_of(cluster[node])
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=len(bodies), multiple=len(bodies) > 1)]
    client.lose()
    cluster.settle()


def with_a_mirror_that_lacks(count: int, **policy: Any) -> DiskCluster:
    """Return a cluster in which n1 has `count` messages, and n2, which came back, has none of them."""
    cluster = mirrored("n1", "n2", sync="manual", **policy)
    cluster.crash("n2")
    cluster.settle()
    publish(cluster, "n1", *(b"%d" % number for number in range(1, count + 1)))
    cluster.start("n2")
    cluster.advance(1.0)
    view = cluster.view()
    assert [member.node for member in view.ring] == ["n1", "n2"]
    assert view.synced == (view.master,)
    return cluster


def record_of(cluster: DiskCluster) -> QueueRecord:
    """Return the catalogue's record of `q`."""
    record = next(iter(cluster)).broker.catalogue.queue("/", "q")
    assert record is not None
    return record


def id_on(cluster: DiskCluster, node: str) -> int:
    """Return the id of the member on a node."""
    member = cluster.view().member_on(node)
    assert member is not None
    return member.id


def frames_to(cluster: DiskCluster, node: str) -> list[bytes]:
    """Return the frames of rings that are on their way to a node."""
    found = [frame for (_, to), frames in cluster.frames.items() if to == node for frame in frames]
    return [frame for frame in found if frame.startswith(RING)]
