"""The brokers of `tests.kit.mirror_cluster` with disks that outlive them; a node may be cut off, or frozen.

cluster.cut_off.add("n1")      nothing comes to n1 or from it, and it hears of no command
cluster.frozen.add("n1")       … and it does nothing either: what is sent to it waits
cluster["n1"].is_disk_held     what it writes is not synced
cluster.cut("n1", "n2")        what these two send to each other waits, and each hears the others
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from cluster.mirror.group import Group
from cluster.mirror.mirrors import Mirrors
from node.amqp.methods import BasicAck, BasicGet, BasicGetOk, ConfirmSelect, ConfirmSelectOk
from node.amqp.properties import Properties
from node.broker.unsettled import note_deliveries
from node.catalogue.commands import NodeDown, NodeUp, PutMember, SetPolicy
from node.catalogue.mirrors.views import View, stored_uid
from node.catalogue.records import QueueRecord
from node.catalogue.snapshot import everything
from node.queue.intake import Intake
from node.queue.mirroring import RecoveredCopy
from node.queue.paging import Pager
from node.queue.queue import Queue
from node.store.copies import recoverable_copies, stored
from node.store.directory import claim
from node.store.options import StoreOptions
from node.store.recovery import recover
from node.store.store import Store
from tests.kit import mirror_cluster as nodes
from tests.kit.disk import SimulatedDisk
from tests.kit.world import Client, World

OPTIONS = StoreOptions(embed_max_bytes=250, segment_entries=16, commit_interval_s=0.0)
"""Small, so that a few messages fill a segment."""


class Node(nodes.Node):
    """One broker and its disk."""

    mirrors: Mirrors  # type: ignore[assignment]

    def __init__(self, cluster: "Cluster", name: str) -> None:
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
        catalogue = self.broker.catalogue
        copies = recoverable_copies(catalogue, self.name)
        local = [queue for queue in self.broker.local_queues if queue.is_durable]
        live = {stored_uid(queue.record.uid, queue.record.copy): queue for queue in local}
        wanted = {uid: stored(queue.record, queue.record.copy) for uid, queue in live.items()}
        wanted.update((uid, stored(record, copy)) for uid, (record, copy) in copies.items())
        found = recover(self.disk, self.store, wanted, now=lambda: 0.0, copies=copies)
        self.mirrors.is_store_whole = found.is_whole
        for uid, queue in live.items():
            queue.restore(found.queues[uid].next_seq, found.queues[uid].pages)
        for uid, (record, copy) in copies.items():
            each, storage = found.queues[uid], self.broker.open_storage(record, copy)
            self.mirrors.recovered(
                record, RecoveredCopy(storage, copy, each.next_seq, each.pages, each.is_clean)
            )
        self.store.begin()

    def turn(self) -> None:
        if self.name in self.cluster.frozen:  # type: ignore[attr-defined]
            return
        super().turn()
        while not self.is_disk_held and self.disk.step():
            super().turn()

    def page_out(self) -> None:
        """Memory is short: everything that can leaves it."""
        holders = [queue.backlog for queue in self.broker.local_queues]
        for holder in (*holders, *self.mirrors.copies()):
            holder.page_out(1 << 40)
        self.turn()


class Cluster(nodes.Cluster):
    """cut_off: nodes that nobody reaches.   frozen: those of them that stand still.

    cut_links: pairs of nodes of which the first does not reach the second.
    """

    nodes: dict[str, Node]  # type: ignore[assignment]

    def __init__(self, *names: str) -> None:
        self.disks: dict[str, SimulatedDisk] = {}
        self.cut_off: set[str] = set()
        self.frozen: set[str] = set()
        self.cut_links: set[tuple[str, str]] = set()
        super().__init__(*names)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def start(self, name: str) -> Node:
        """See `nodes.Cluster.start`. A node that is no member yet becomes one."""
        if not any(isinstance(command, PutMember) and command.name == name for command, *_ in self.log):
            self.log.append((PutMember(name, f"{name}:1", name, "disc"), name, 0, None))
        node = Node(self, name)
        catalogue = node.broker.catalogue
        for command, *_ in self.log:
            catalogue.apply(command)
        catalogue.take_events()
        node.applied = len(self.log)
        node.broker.vhosts.clear()
        node.broker.react(list(everything(catalogue)))
        node.recover()
        self.nodes[name] = node
        self.is_ring_held = True  # the real rings need no help
        self.log.append((NodeUp(name, name, f"{name}:1"), name, 0, None))
        member = catalogue.member(name)
        before = 0 if member is None else member.incarnation
        self.apply(name)
        while (member := catalogue.member(name)) is None or member.incarnation == before:
            assert self.apply(name)
        node.incarnation = member.incarnation
        node.mirrors.entered(node.incarnation)
        self.settle()
        return node

    def crash(self, name: str, *, is_noticed: bool = True) -> None:
        """See `remote.Cluster.crash`: kill -9."""
        disk = self.nodes[name].disk
        super().crash(name, is_noticed=is_noticed)
        self.disks[name] = disk.kill()

    def stop(self, name: str) -> None:
        """A node stops in good order: its masters have moved away if they can, and its disk is up to date."""
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
        """The log says that a node is down, whether it is or not."""
        member = next(iter(self)).broker.catalogue.member(name)
        assert member is not None
        self.log.append((NodeDown(name, member.incarnation), "", 0, None))

    def cut(self, one: str, other: str) -> None:
        """Two nodes don't reach each other any more."""
        self.cut_links |= {(one, other), (other, one)}

    def is_away(self, name: str) -> bool:
        """Whether a node is cut off or frozen."""
        return name in self.cut_off or name in self.frozen

    # --- moving on ---

    def apply(self, name: str) -> bool:
        return not self.is_away(name) and super().apply(name)

    def deliver(self, origin: str, to: str, count: int = 1 << 30) -> int:
        if self.is_away(to) or origin in self.cut_off or (origin, to) in self.cut_links:
            return 0
        return super().deliver(origin, to, count)

    def _answer(self) -> None:
        """Nobody waits for who is cut off and counts as down."""
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
        """See `remote.Cluster.advance`. Who is frozen finds later that it is late."""
        for node in list(self):
            if node.name in self.frozen:
                node.now += seconds
            else:
                World.advance(node, seconds)
        self.settle()

    def wait(self, seconds: float, is_it: Callable[[], bool] = lambda: False) -> float:
        """Let time pass until something is so, or for so long.   Returns: how long it took."""
        passed = 0.0
        while passed < seconds and not is_it():
            self.advance(0.5)
            passed += 0.5
        return passed

    def _has_work(self, node: Node) -> bool:
        return not self.is_away(node.name) and node.applied < len(self.log)

    def queue(self, node: str, name: str = "q") -> Queue:
        """The queue of a node that acts as its master."""
        return self[node].home_queue(name)

    # --- what tests look at ---

    def view(self, name: str = "q") -> View:
        """The view of a queue, as the node knows it that has applied most."""
        node = max(self, key=lambda node: node.applied)
        record = node.broker.catalogue.queue("/", name)
        assert record is not None
        assert record.view is not None
        return record.view

    def group(self, node: str, name: str = "q") -> Group:
        """What a node has of a queue's ring."""
        known = self[node].mirrors._known[self[node].broker.vhosts["/"].queues[name].record.uid]
        assert known.group is not None
        return known.group

    def copy(self, node: str, name: str = "q") -> list[range]:
        """The numbers of the messages that a mirror has."""
        follower = self.group(node, name).follower
        assert follower is not None
        return follower.copy.held.ranges()

    def contents(self, node: str, name: str = "q") -> list[tuple[bytes, bool]]:
        """All ready messages of a queue as a client of a node gets them, and whether they are redelivered."""
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
        """While things are held: what each of these nodes has sent reaches the next one of them."""
        self.settle()
        for origin, to in pairwise(names):
            self.deliver(origin, to)
            self.settle()

    def apply_all(self, *names: str) -> None:
        """While things are held: nodes apply all of the log."""
        for name in names:
            while self.apply(name):
                pass
        self.settle()


PERSISTENT = Properties(delivery_mode=2)


def mirrored(*nodes: str, sync: str = "automatic", **policy: Any) -> Cluster:
    """`q` on all nodes of a cluster, its master on the first."""
    cluster = Cluster(*nodes)
    cluster.submit(SetPolicy("/", "ha", "^q", {"ha-mode": "all", "ha-sync-mode": sync, **policy}))
    cluster.declare_mirrored("q", *nodes)
    return cluster


def publisher_of(node: Node) -> Client:
    """A client that wants confirms."""
    client = node.client()
    assert client.ask(1, ConfirmSelect()) == ConfirmSelectOk()
    return client


def proposed(cluster: Cluster, kind: type) -> list[int]:
    """Where in the log a change of this kind was asked for."""
    return [
        at
        for at, (command, *_) in enumerate(cluster.log)
        if isinstance(getattr(command, "change", None), kind)
    ]


def publish(cluster: Cluster, node: str, *bodies: bytes) -> None:
    """Persistent messages, confirmed."""
    client = publisher_of(cluster[node])
    client.publish(1, "q", *bodies, properties=PERSISTENT)
    cluster.settle()
    assert client.methods() == [BasicAck(delivery_tag=len(bodies), multiple=len(bodies) > 1)]
    client.lose()
    cluster.settle()


def with_a_mirror_that_lacks(count: int, **policy: Any) -> Cluster:
    """n1 has `count` messages, and n2, which came back, has none of them."""
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


def record_of(cluster: Cluster) -> QueueRecord:
    """What the catalogue has of `q`."""
    record = next(iter(cluster)).broker.catalogue.queue("/", "q")
    assert record is not None
    return record


def id_on(cluster: Cluster, node: str) -> int:
    """The member on a node."""
    member = cluster.view().member_on(node)
    assert member is not None
    return member.id


def frames_to(cluster: Cluster, node: str) -> list[bytes]:
    """What is under way to a node, of rings."""
    found = [frame for (_, to), frames in cluster.frames.items() if to == node for frame in frames]
    return [frame for frame in found if frame.startswith(nodes.RING)]
