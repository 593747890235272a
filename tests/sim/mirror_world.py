"""Whole brokers with mirrored queues in simulated time: their disks, the ways between them, one order of commands.

    world = MirrorWorld(seed)       world.start("n1")       world.run(2.0)       world.crash("n1", power=True)

Real: Broker, Connection, Channel, Store, Peers, Mirrors with their rings. Simulated: disks (tests.kit.disk), links
(in order and exactly once between two incarnations), the log (each node applies it at its own pace), time.
The parts are put together as `node.io.persistence` and `node.clustering.cluster` do it. Source: reliability §5.2.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, NodeDown, PutMember
from tests.kit.world import GUEST
from tests.sim.mirror_node import REMOTE, RING, Node, SimClient, Violation

__all__ = ["Link", "MirrorWorld", "Node", "SimClient", "Violation"]


@dataclass
class Link:
    """Frames from one incarnation of a node to one of another.   is_closed: by its sender or with its receiver."""

    sender: str
    sender_incarnation: int
    receiver: str
    receiver_incarnation: int
    frames: deque[tuple[int, bytes]] = field(default_factory=deque)
    size: int = 0
    due: float = 0.0
    is_coming: bool = False
    was_congested: bool = False
    is_cut: bool = False
    """The sender is dead: nothing more is added."""


class Timeline:
    """Nodes, and one order of all that happens.

    catalogue: after all that is in the log.   on_event: told what each command changed, once.
    """

    def __init__(self, seed: int, names: tuple[str, ...]) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.names = names
        self.nodes: dict[str, Any] = {}
        self.catalogue = Catalogue()
        self.on_event: Callable[[Any], None] = lambda event: None
        self.traces: deque[str] = deque(maxlen=200_000)
        self.is_traced = False
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def trace(self, text: str) -> None:
        """Note what happened."""
        line = f"{self.now:9.4f} {text}"
        self.traces.append(line)
        if self.is_traced:
            print(line)

    @property
    def alive(self) -> list[Node]:
        """Nodes whose process runs."""
        return [node for node in self.nodes.values() if node.is_alive]

    @property
    def serving(self) -> list[Node]:
        """Nodes that accept clients."""
        return [node for node in self.nodes.values() if node.is_alive and node.entered]

    # --- time ---

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something then."""
        heappush(self._heap, (when, next(self._number), action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.at(self.now + delay, action)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        heap = self._heap
        while heap and heap[0][0] <= end:
            when, _, action = heappop(heap)
            self.now = max(self.now, when)
            self.steps += 1
            action()
        self.now = end

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until something holds, at most so long. Returns: whether it does."""
        end = self.now + seconds
        while not is_done():
            if self.now >= end:
                return False
            self.run(min(0.25, end - self.now))
        return True

    def submit(
        self, command: Command[Any], node: Any | None, on_applied: Callable[[Any], None] | None = None
    ) -> None:
        """Propose a command; None: whichever node."""
        raise NotImplementedError


class MirrorWorld(Timeline):
    """All of it."""

    def __init__(self, seed: int, names: tuple[str, ...] = ("n1", "n2", "n3")) -> None:
        super().__init__(seed, names)
        self.log: list[Command[Any]] = []
        self.results: list[Any] = []
        self.congested_bytes = 1 << 20
        self.latency_s = 0.002
        self.apply_s = 0.003
        self.held: dict[tuple[str, str], float] = {}
        """Links that carry nothing until then."""
        self._links: dict[tuple[str, str], Link] = {}
        self._waiting: list[tuple[int, Node, int, Callable[[Any], None], Any]] = []
        self._uncommitted: deque[tuple[Command[Any], Node | None, int, Any]] = deque()
        self.nodes = {name: Node(self, name) for name in names}
        for name in names:
            self._append(PutMember(name, f"{name}:1", name, "disc"))
        for command in GUEST:
            self._append(command)

    # --- nodes ---

    def start(self, name: str) -> None:
        """A node starts."""
        self.trace(f"start {name}")
        self.nodes[name].start()

    def crash(self, name: str, *, power: bool) -> None:
        """A node dies; the others hear of it later."""
        node = self.nodes[name]
        incarnation = node.broker.incarnation if node.entered else self._incarnation_of(name)
        self.trace(f"crash {name} power={power}")
        node.end(power=power)
        self._forget(node)
        self.after(
            self.random.choice((0.02, 0.3, 2.5)) * self.random.random(),
            lambda: self.submit(NodeDown(name, incarnation), None),
        )

    def _incarnation_of(self, name: str) -> int:
        member = self.catalogue.member(name)
        return 0 if member is None else member.incarnation

    def stop(self, name: str) -> None:
        """A node stops in good order and says so."""
        node = self.nodes[name]
        incarnation = self._incarnation_of(name)
        self.trace(f"stop {name}")
        node.close()
        node.end(power=False)
        self._forget(node)
        self.submit(NodeDown(name, incarnation, is_clean=True), None)

    def _forget(self, node: Node) -> None:
        """Drop what a dead node was to receive; of what it sent a first part may arrive."""
        self._waiting = [waiting for waiting in self._waiting if waiting[1] is not node]
        self._uncommitted = deque(
            each for each in self._uncommitted if each[1] is not node or self.random.random() < 0.5
        )
        for (sender, receiver), link in list(self._links.items()):
            if receiver == node.name:
                del self._links[sender, receiver]
            elif sender == node.name:
                link.is_cut = True
                keep = self.random.randint(0, len(link.frames))
                while len(link.frames) > keep:
                    link.frames.pop()

    # --- the log ---

    @property
    def can_commit(self) -> bool:
        """Whether a majority runs."""
        return 2 * len(self.alive) > len(self.names) or len(self.log) < 20

    def submit(
        self, command: Command[Any], node: Node | None, on_applied: Callable[[Any], None] | None = None
    ) -> None:
        """Propose a command; commands of one node stay in order."""
        life = node.life if node is not None else 0

        def arrive() -> None:
            if node is not None and (node.life != life or not node.is_alive) and self.random.random() < 0.5:
                return
            self._uncommitted.append((command, node, life, on_applied))
            self.commit()

        delay = self.random.uniform(0, self.apply_s)
        if node is None:
            self.after(delay, arrive)
        else:
            node.submit_at = max(node.submit_at, self.now + delay)
            self.at(node.submit_at, arrive)

    def commit(self) -> None:
        """Append what waits, if a majority is there."""
        while self._uncommitted and self.can_commit:
            command, node, life, on_applied = self._uncommitted.popleft()
            result = self._append(command)
            if on_applied is not None and node is not None and node.life == life and node.is_alive:
                self._waiting.append((len(self.log), node, life, on_applied, result))

    def _append(self, command: Command[Any]) -> Any:
        self.log.append(command)
        result = self.catalogue.apply(command)
        self.results.append(result)
        for event in self.catalogue.take_events():
            self.on_event(event)
        if not isinstance(command, PutMember):
            self.trace(f"log {len(self.log)}: {_brief(command)} -> {_brief(result)}")
        for node in self.alive:
            self.plan_apply(node)
        return result

    def plan_apply(self, node: Node) -> None:
        """A node gets to know of the next command."""
        node.apply_at = max(node.apply_at, self.now + self.random.uniform(0, self.apply_s))
        node.at(node.apply_at - self.now, lambda: self._apply(node))

    def _apply(self, node: Node) -> None:
        if node.applied < len(self.log):
            node.apply()
        self.answer()

    def answer(self) -> None:
        """Answer commands that all nodes have applied."""
        dead_but_up = any(
            member.is_up and not self.nodes[name].is_alive for name, member in self.catalogue.members.items()
        )
        if dead_but_up or not self._waiting:
            return
        everywhere = min(node.applied for node in self.alive)
        while self._waiting and self._waiting[0][0] <= everywhere:
            _, node, life, on_applied, result = self._waiting.pop(0)
            if node.life == life and node.is_alive:
                node.broker.now = node.now
                on_applied(result)
                node.busy()

    # --- links ---

    def send(self, node: Node, to: str, topic: int, frame: bytes) -> None:
        """A frame from a node to another one."""
        member = node.broker.catalogue.member(to)
        if not node.entered or member is None or not member.is_up:
            self.trace(f"{node.name} drops a frame for {to}: {'not up' if node.entered else 'not entered'}")
            if not node.entered and self.incautious:
                raise Violation(f"{node.name} sends to {to} before it has entered")
            return
        link = self._links.get((node.name, to))
        if link is None or (link.sender_incarnation, link.receiver_incarnation) != (
            node.entered,
            member.incarnation,
        ):
            link = self._links[node.name, to] = Link(node.name, node.entered, to, member.incarnation)
        link.frames.append((topic, frame))
        link.size += len(frame)
        self._plan_link(link)

    incautious = False

    def is_congested(self, node: Node, to: str) -> bool:
        """Whether too much is on the way."""
        link = self._links.get((node.name, to))
        if link is None or link.is_cut or link.sender_incarnation != node.entered:
            return False
        if link.size > self.congested_bytes:
            link.was_congested = True
            return True
        return False

    def _plan_link(self, link: Link) -> None:
        if link.is_coming or not link.frames:
            return
        link.is_coming = True
        at = self.now + self.random.uniform(0.0001, self.latency_s)
        at = max(at, self.held.get((link.sender, link.receiver), 0.0))
        self.at(at, lambda: self._carry(link))

    def look_at_links(self, node: Node) -> None:
        """A node knows of others' lives, or has begun its own."""
        for (sender, receiver), link in list(self._links.items()):
            if sender == node.name and not link.is_cut:
                if node.knows(receiver, link.receiver_incarnation) is False:
                    del self._links[sender, receiver]
            elif receiver == node.name:
                self._plan_link(link)

    def _carry(self, link: Link) -> None:
        link.is_coming = False
        if self._links.get((link.sender, link.receiver)) is not link or not link.frames:
            return
        hold = self.held.get((link.sender, link.receiver), 0.0)
        if hold > self.now:
            self._plan_link(link)
            return
        node = self.nodes[link.receiver]
        if not node.is_alive:
            return
        known = node.knows(link.sender, link.sender_incarnation)
        if known is None or not node.entered:
            return  # `look_at_links` comes back to it
        if known is False or node.entered != link.receiver_incarnation or node.frozen_until > self.now:
            if node.frozen_until > self.now:
                link.is_coming = True
                self.at(node.frozen_until, lambda: self._carry(link))
                return
            del self._links[link.sender, link.receiver]
            return
        moved = [link.frames.popleft() for _ in range(min(len(link.frames), self.random.randint(1, 4)))]
        link.size -= sum(len(frame) for _, frame in moved)
        node.broker.now = node.now
        remote = [frame for topic, frame in moved if topic == REMOTE]
        if remote:
            node.peers.receive(link.sender, remote)
        ring = [frame for topic, frame in moved if topic == RING]
        if ring:
            node.mirrors.receive(link.sender, ring)
        node.busy()
        sender = self.nodes[link.sender]
        if link.was_congested and link.size <= self.congested_bytes // 2:
            link.was_congested = False
            if sender.is_alive and sender.entered == link.sender_incarnation:
                sender.peers.relieved(link.receiver)
                sender.busy()
        self._plan_link(link)

    @property
    def frames_under_way(self) -> int:
        """On all links."""
        return sum(len(link.frames) for link in self._links.values())


def _brief(value: Any) -> str:
    return repr(value)[:300]
