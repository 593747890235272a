"""Several brokers without sockets or disks: one order of commands for all, frames in queues that a test controls.

    cluster = Cluster("n1", "n2")      cluster["n1"].client()      cluster.settle()

Each node is a `World`. While `cluster.is_held` nothing moves between nodes but what a test moves by `apply` and
`deliver`. In a `Cluster` mirrors are one memory that all nodes share (`tests.kit.mirrors_in_memory`); in a
`RingCluster` they are the real ones; `tests.kit.disk_cluster` has disks, too.
"""

from collections import deque
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from cluster.mirror.mirrors import Mirrors as RingMirrors
from cluster.remote.peers import Peers
from node.amqp.field_table import Table, boolean
from node.amqp.methods import QueueDeclare
from node.catalogue.commands import ChangeView, Command, DeclareQueue, NodeDown, NodeUp, PutMember
from node.catalogue.mirrors.views import TransferMaster, View, ViewChange
from node.catalogue.snapshot import everything
from node.client.settings import BrokerSettings
from node.queue.queue import Queue
from tests.kit.mirrors_in_memory import Mirrors, Replica
from tests.kit.world import Client, World


class NodeLog:
    """The part of the shared log that one node has applied, and its interface for the broker."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self._cluster = cluster
        self._name = name

    def submit(self, command: Command[Any], on_applied: Callable[[Any], None] | None = None) -> None:
        self._cluster.log.append((command, self._name, self._cluster[self._name].incarnation, on_applied))

    def await_safety(self, on_safe: Callable[[bool], None]) -> None:
        on_safe(True)


class Node(World):
    """One broker of the cluster.   applied: commands of the log.   congested: nodes whose links are full."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.applied = 0
        self.incarnation = 0
        self.congested: set[str] = set()
        self.faults: list[tuple[str, str]] = []
        self.frame_count = 0
        super().__init__(BrokerSettings(node_name=name))
        self.peers = Peers(
            self.broker, self._send, self.congested.__contains__, lambda *fault: self.faults.append(fault)
        )
        self.broker.peers = self.peers
        self.mirrors = Mirrors(self)
        self.broker.mirrors = self.mirrors
        self.broker.log = NodeLog(cluster, name)

    def _entropy(self, count: int) -> bytes:
        self._drawn += 1
        seed = f"{self.name} {self.incarnation} {self._drawn}"
        return sha256(seed.encode()).digest().ljust(count, b"\0")[:count]

    def _send(self, to: str, frame: bytes) -> None:
        self.frame_count += 1
        self.cluster.frames.setdefault((self.name, to), deque()).append(frame)

    def entered(self, incarnation: int) -> None:
        """Note that the cluster has accepted the node."""
        self.incarnation = incarnation

    def receive(self, origin: str, frames: list[bytes]) -> None:
        """Handle frames from another node."""
        self.broker.now = self.now
        self.peers.receive(origin, frames)

    def turn(self) -> None:
        super().settle()

    def settle(self) -> None:
        self.cluster.settle()

    def home_queue(self, name: str) -> Queue:
        queue = self.broker.vhosts["/"].queues[name]
        assert isinstance(queue, Queue)
        return queue


class Cluster:
    """The nodes that are up, by name.   is_ring_held: operations of masters reach no mirror, and no view changes.

    is_refilled: every node gets a copy of each mirrored queue.
    """

    kind: type[Node] = Node

    def __init__(self, *names: str) -> None:
        self.log: list[tuple[Command[Any], str, int, Callable[[Any], None] | None]] = []
        self.frames: dict[tuple[str, str], deque[bytes]] = {}
        self.is_held = self.is_ring_held = self.is_refilled = False
        self.replicas: dict[str, Replica] = {}
        self.nodes: dict[str, Node] = {}
        self._waiting: list[tuple[int, str, int, Callable[[Any], None], Any]] = []
        for name in names:
            self.log.append((PutMember(name, f"{name}:1", name, "disc"), name, 0, None))
        for name in names:
            self.start(name)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def start(self, name: str) -> Node:
        """Start a node with all committed commands."""
        node = self._make(name)
        if node.applied > 3:
            self._show_everything(node)
        self.nodes[name] = node
        self.log.append((NodeUp(name, name, f"{name}:1"), name, 0, None))
        self.settle()
        member = node.broker.catalogue.member(name)
        assert member is not None
        node.entered(member.incarnation)
        self.settle()
        return node

    def _make(self, name: str) -> Node:
        """Make a node with the metadata of all commands in the log. Its broker has had no events yet."""
        node = self.kind(self, name)
        catalogue = node.broker.catalogue
        for command, *_ in self.log:
            catalogue.apply(command)
        catalogue.take_events()
        node.applied = len(self.log)
        return node

    @staticmethod
    def _show_everything(node: Node) -> None:
        node.broker.vhosts.clear()
        node.broker.react(list(everything(node.broker.catalogue)))

    def join(self, name: str) -> Node:
        """Add another member and start it."""
        self.log.append((PutMember(name, f"{name}:1", name, "disc"), name, 0, None))
        self.settle()
        return self.start(name)

    def crash(self, name: str, *, is_noticed: bool = True) -> None:
        """A node dies: what it sent and was sent is gone, its clients' sockets with it. The others hear of it later,
        or only when it is back.
        """
        node = self.nodes.pop(name)
        for client in list(node.clients.values()):
            client.is_reset = True
        for pair in list(self.frames):
            if name in pair:
                del self.frames[pair]
        self._waiting = [waiting for waiting in self._waiting if waiting[1] != name]
        if is_noticed:
            self.log.append((NodeDown(name, node.incarnation), "", 0, None))

    def stop(self, name: str) -> None:
        """Stop a node cleanly, after its clients have left."""
        node = self.nodes[name]
        for client in list(node.clients.values()):
            client.lose()
        node.turn()
        node.mirrors.replicate()
        node.peers.close()
        self.crash(name, is_noticed=False)
        self.log.append((NodeDown(name, node.incarnation, is_clean=True), "", 0, None))

    def is_up(self, name: str, incarnation: int) -> bool:
        """Return whether a node runs."""
        node = self.nodes.get(name)
        return node is not None and node.incarnation in (0, incarnation)

    # --- moving on ---

    def apply(self, name: str) -> bool:
        """Let a node apply the next command, if there is one."""
        node = self.nodes[name]
        if node.applied == len(self.log):
            return False
        command, origin, incarnation, on_applied = self.log[node.applied]
        node.applied += 1
        result = node.broker.catalogue.apply(command)
        events = node.broker.catalogue.take_events()
        node.broker.react(events)
        if on_applied is not None and origin == name and incarnation in (0, node.incarnation):
            self._waiting.append((node.applied, name, incarnation, on_applied, result))
        self._answer()
        return True

    def _answer(self) -> None:
        """Answer commands that all nodes have applied."""
        everywhere = min(node.applied for node in self)
        ready = [waiting for waiting in self._waiting if waiting[0] <= everywhere]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > everywhere]
        for _, _, _, on_applied, result in ready:
            on_applied(result)

    def deliver(self, origin: str, to: str, count: int = 1 << 30) -> int:
        """Move frames from one node to another. Returns: their number."""
        frames = self.frames.get((origin, to))
        if not frames or to not in self.nodes:
            return 0
        moved = [frames.popleft() for _ in range(min(count, len(frames)))]
        self.nodes[to].receive(origin, moved)
        return len(moved)

    def settle(self) -> None:
        """Run all turns; unless held, apply commands and deliver frames until nothing is left to do."""
        for _ in range(10_000):
            for node in self:
                node.turn()
            if self.is_held:
                return
            moved = sum(self.apply(node.name) for node in list(self)) > 0
            if moved:
                continue  # metadata travel faster, so that incarnations are known
            for origin, to in list(self.frames):
                moved = bool(self.deliver(origin, to)) or moved
            if not self.is_ring_held:
                for node in self:
                    moved = node.mirrors.replicate() or moved
                    moved = node.mirrors.refresh() or moved
            if not moved and all(node.applied == len(self.log) for node in self):
                return
        raise AssertionError("it never ends")

    def advance(self, seconds: float) -> None:
        """Advance the time of all nodes."""
        for node in self:
            World.advance(node, seconds)
        self.settle()

    # --- shorthands ---

    def submit(self, command: Command[Any]) -> None:
        """Change the catalogue as an operator would."""
        self.log.append((command, "", 0, None))
        self.settle()

    def declare(self, home: str, name: str, arguments: Table | None = None, **flags: bool) -> None:
        """Declare a queue whose home is this node."""
        client = self[home].client()
        answer = client.ask(1, QueueDeclare(queue=name, arguments=arguments or {}, **flags))
        assert answer is not None
        client.lose()
        self.settle()

    def declare_mirrored(self, name: str, *nodes: str, arguments: Table | None = None, **flags: bool) -> None:
        """Declare a durable queue with copies on these nodes, its master on the first."""
        durable = flags.pop("durable", True)
        self.submit(
            DeclareQueue(
                "/",
                name,
                f"{len(self.log):032x}",
                durable=durable,
                arguments=arguments or {},
                home=nodes[0],
                mirrors=nodes[1:],
                **flags,
            )
        )

    def change_view(self, name: str, change: Callable[[View], ViewChange]) -> None:
        """Change the view of a queue, as its master would."""
        record = next(iter(self)).broker.catalogue.queue("/", name)
        assert record is not None
        assert record.view is not None
        self.submit(ChangeView("/", name, record.uid, change(record.view)))

    def transfer(self, name: str, to: str) -> None:
        """Move the master to another node."""

        def moved(view: View) -> TransferMaster:
            member = view.member_on(to)
            assert member is not None
            return TransferMaster(view.master, member.id)

        self.change_view(name, moved)

    def check_idle(self) -> None:
        """Check that no node keeps data for another one."""
        for node in self:
            assert node.faults == []
            assert node.peers.is_idle, node.name
            assert not node.peers.has_work, node.name


RING = b"\x00ring"
"""A frame of a ring begins with this here. On a data stream those of `cluster.remote` go the same way."""


class RingNode(Node):
    """One broker with the real code of mirrors."""

    mirrors: RingMirrors  # type: ignore[assignment]

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.events: list[str] = []
        self.mirrors = RingMirrors(
            self.broker,
            lambda to, frame: self._send(to, RING + frame),
            lambda *fault: self.faults.append(fault),
            flush_s=0.0,
        )
        self.broker.mirrors = self.mirrors
        self.broker.observer.mirror_event = lambda event: self.events.append(event.text)  # type: ignore[method-assign]

    def entered(self, incarnation: int) -> None:
        super().entered(incarnation)
        self.mirrors.entered(incarnation)

    def receive(self, origin: str, frames: list[bytes]) -> None:
        self.broker.now = self.now
        for frame in frames:
            if frame.startswith(RING):
                self.mirrors.receive(origin, [frame[len(RING) :]])
            else:
                self.peers.receive(origin, [frame])


class RingCluster(Cluster):
    """A cluster of nodes with the real code of mirrors, which needs no steps of the test."""

    nodes: dict[str, RingNode]  # type: ignore[assignment]
    kind = RingNode

    def start(self, name: str) -> Node:
        self.is_ring_held = True
        return super().start(name)


def client_of(node: Node, *channels: int) -> Client:
    """Return a client that is notified of cancelled consumers."""

    return node.client(*channels, capabilities={"consumer_cancel_notify": boolean(True)})
