"""Several brokers with the real mirrors, without sockets or disks: see `tests.kit.cluster`.

Frames of the ring and those of `cluster.remote` share one way between two nodes, as they do on a data stream.
"""

from collections import deque

from cluster.mirror.mirrors import Mirrors
from node.catalogue.commands import NodeUp, PutMember
from node.catalogue.snapshot import everything
from tests.kit import cluster as remote

RING = b"\x00ring"
"""What a frame of the ring begins with here."""


class Node(remote.Node):
    """One broker."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        self.events: list[str] = []
        self.mirrors = Mirrors(  # type: ignore[assignment]
            self.broker,
            lambda to, frame: self._send(to, RING + frame),
            lambda *fault: self.faults.append(fault),
            flush_s=0.0,
        )
        self.broker.mirrors = self.mirrors
        self.broker.observer.mirror_event = lambda event: self.events.append(event.text)  # type: ignore[method-assign]


class Cluster(remote.Cluster):
    """Nodes that are up, by name."""

    nodes: dict[str, Node]  # type: ignore[assignment]

    def __init__(self, *names: str) -> None:
        super().__init__(*names)

    def start(self, name: str) -> Node:
        """See `remote.Cluster.start`."""
        self.is_ring_held = True
        node = Node(self, name)
        catalogue = node.broker.catalogue
        for command, *_ in self.log:
            catalogue.apply(command)
        catalogue.take_events()
        node.applied = len(self.log)
        if node.applied > 3:
            node.broker.vhosts.clear()
            node.broker.react(list(everything(catalogue)))
        self.nodes[name] = node
        self.log.append((NodeUp(name, name, f"{name}:1"), name, 0, None))
        self.settle()
        member = catalogue.member(name)
        assert member is not None
        node.incarnation = member.incarnation
        node.mirrors.entered(node.incarnation)
        self.settle()
        return node

    def join(self, name: str) -> Node:
        """A further node becomes a member and starts."""
        self.log.append((PutMember(name, f"{name}:1", name, "disc"), name, 0, None))
        self.settle()
        return self.start(name)

    def deliver(self, origin: str, to: str, count: int = 1 << 30) -> int:
        """See `remote.Cluster.deliver`."""
        frames = self.frames.get((origin, to))
        if not frames or to not in self.nodes:
            return 0
        moved: deque[bytes] = deque(frames.popleft() for _ in range(min(count, len(frames))))
        node = self.nodes[to]
        node.broker.now = node.now
        for frame in moved:
            if frame.startswith(RING):
                node.mirrors.receive(origin, [frame[len(RING) :]])
            else:
                node.peers.receive(origin, [frame])
        return len(moved)
